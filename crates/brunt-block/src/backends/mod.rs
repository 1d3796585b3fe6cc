//! Backends, one file each. Their table is in `crate::table`.
