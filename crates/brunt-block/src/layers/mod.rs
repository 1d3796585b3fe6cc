//! Layers, one file (or folder) each: something stacked on a device. Their table is in `crate::table`.

pub mod array;
pub mod delayed;
pub mod fault;
pub mod retry;
