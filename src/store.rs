//! The record of incidents.
