//! The integration tests of brunt-store, one module each: they are linked once and run in parallel.

mod sheepdog_recorded;
