//! Pages and messages to people.
