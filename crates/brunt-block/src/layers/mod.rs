//! Layers, one file each: something stacked on a device. Their table is in `crate::table`.

pub mod delayed;
