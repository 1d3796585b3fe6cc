//! The command line: arguments, progress, exit codes. No rules of storage live here.
fn main() {}
