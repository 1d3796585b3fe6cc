//! Layers, one file (or folder) each: something stacked on the one device that it is handed. What opens devices
//! by itself is a backend ([`crate::backends::array`]). Their table is in `crate::table`.

#[cfg(test)]
pub mod budget;
pub mod delayed;
pub mod fault;
pub mod retry;
