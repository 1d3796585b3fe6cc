//! The integration tests of brunt-block, as modules of a single binary that runs them in parallel.

mod conformance;
mod suite;
