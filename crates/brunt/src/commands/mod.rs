//! The commands. To add a command, create a file here with a `#[derive(clap::Args)]` struct whose doc comment is the
//! help, an `impl Subcommand` for it with its name and examples, and one line in [`COMMANDS`]. `completions.rs` is a
//! short example to copy.

mod agent;
mod analyze;
mod bridge;
mod capture;
mod compare;
mod completions;
mod detach;
mod devices;
mod doctor;
mod engine;
mod experiment_file;
mod history;
mod import_fio;
mod interleave;
mod io;
mod lab;
mod lake;
mod link_changes;
mod man;
mod measure;
mod memory_need;
mod opener;
mod overrides;
mod probe;
mod profile;
mod record;
mod registry;
mod remote;
mod replay;
mod replay_nfs;
mod report;
mod require;
mod role;
mod run;
mod run_check;
mod schema;
mod serve;
mod shared_storage;
mod sink;
mod sockets;
mod sql;
mod subcommand;
mod target;
mod trace;
mod verify;

#[cfg(test)]
pub use capture::no_metrics as capture_metrics;

use subcommand::entry;
pub use subcommand::{Entry, Subcommand};

/// All commands in the order of `brunt --help`, one per line.
#[rustfmt::skip]
pub const COMMANDS: &[Entry] = &[
    entry::<target::Target>(),
    entry::<sink::Sink>(),
    entry::<measure::Measure>(),
    entry::<run::Run>(),
    entry::<io::Io>(),
    entry::<devices::Devices>(),
    entry::<serve::Serve>(),
    entry::<lab::Lab>(),
    entry::<bridge::Bridge>(),
    entry::<doctor::Doctor>(),
    entry::<report::Report>(),
    entry::<schema::Schema>(),
    entry::<compare::Compare>(),
    entry::<history::History>(),
    entry::<import_fio::ImportFio>(),
    entry::<verify::Verify>(),
    entry::<capture::Capture>(),
    entry::<analyze::Analyze>(),
    entry::<sql::Sql>(),
    entry::<lake::Lake>(),
    entry::<trace::Trace>(),
    entry::<replay::Replay>(),
    entry::<probe::Probe>(),
    entry::<agent::Agent>(),
    entry::<completions::Completions>(),
    entry::<man::Man>(),
];
