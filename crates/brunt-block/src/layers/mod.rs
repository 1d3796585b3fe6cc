//! Layers, one file (or directory) each: a layer wraps exactly one device. Code that opens devices itself is a backend
//! ([`crate::backends::array`]). The table of layers is in `crate::table`.

#[cfg(test)]
pub mod budget;
pub mod delayed;
pub mod disk;
pub mod fault;
pub mod retry;
pub mod stics;
