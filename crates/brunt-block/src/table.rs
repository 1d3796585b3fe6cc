//! The table of backends and layers: one file and one line each. Opens what a URL names.
