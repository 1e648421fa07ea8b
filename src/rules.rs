//! The known retry schedules and telemetry conventions, as data.
