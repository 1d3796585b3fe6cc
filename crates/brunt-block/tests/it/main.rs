//! The integration tests of brunt-block, one module each: they are linked once and run in parallel.

mod conformance;
