//! The integration tests of brunt-store, one per module: they are linked once and run in parallel.

mod sheepdog_recorded;
