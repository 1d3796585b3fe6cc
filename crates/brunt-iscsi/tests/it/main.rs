//! The integration tests of brunt-iscsi, one module each: they are linked once and run in parallel.

mod both_ends;
mod target;
