//! The integration tests of brunt-load, one module each: they are linked once and run in parallel.

mod faults;
mod same_requests;
