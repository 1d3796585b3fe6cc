//! The integration tests of brunt-actors, one module each: they are linked once and run in parallel.

mod system;
