//! Tracing set-up, squall's own metrics, and the one printer of an error with its causes.
