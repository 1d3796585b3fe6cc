//! The integration tests of brunt-remote, one module each: they are linked once and run in parallel.

mod lakes;
mod moving;
mod support;
