//! Checks the rules of ARCHITECTURE.md against the workspace's parsed sources and `cargo metadata`.
//!
//! Each rule is a module with one entry function over sources in memory, so its tests can break the rule in memory
//! and show that the check fails. `tests/it` applies the rules to the workspace, with lists of exemptions and their
//! reasons. This crate depends on no other crate of the workspace, and no crate depends on it.
#![forbid(unsafe_code)]

pub mod costs;
pub mod cycles;
pub mod error_types;
pub mod headings;
pub mod imports;
pub mod layers;
pub mod length;
pub mod load_kinds;
pub mod message_text;
pub mod names;
pub mod pages;
pub mod plain;
pub mod source;
pub mod unsafety;
pub mod workspace;
