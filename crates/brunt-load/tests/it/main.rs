//! The integration tests of brunt-load, one module each: linked once and run in parallel.

mod faults;
mod same_requests;
