//! The integration tests of brunt-capture, one module per topic; they are linked once and run in parallel.

mod common;
mod hostile;
mod iscsi;
mod lake_damage;
mod loss;
mod parallel;
mod sources;
mod trace;
mod trace_fields;
mod truth;
mod truth4;
mod tunnels;
mod windows;
