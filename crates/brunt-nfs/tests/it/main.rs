//! The integration tests of brunt-nfs, one module each: linked into one binary and run in parallel.

mod ganesha;
mod ganesha41;
mod hostile;
mod locker;
mod server;
mod sink;
#[path = "../../../brunt-block/tests/it/suite.rs"]
mod suite;
