//! The integration tests of brunt-actors, one module each: linked once and run in parallel.

mod system;
