//! CPUs for the threads of a live capture, and how packets are distributed to parsers: the options, and what was used.
//!
//! The rule: lists of CPUs are checked before the capture begins, and the report has what the kernel granted, not what was
//! requested.

use brunt_capture::{CpuList, ParserPlaces, Placement, pin_thread, thread_cpus};
use serde_json::{Value, json};

use super::health;
use crate::cli::{Failure, Output};

/// Placement of threads.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Placement and pipelines")]
pub struct PlaceArgs {
    /// CPUs of the parser threads.
    #[arg(
        long,
        value_name = "WHERE",
        default_value = "anywhere",
        requires = "interfaces"
    )]
    placement: ParserPlacement,

    /// CPUs of the thread that reads the packet rings: numbers and ranges such as 0-3,8, or NUMA nodes such as node1. The
    /// kernel allocates the rings there.
    #[arg(long, value_name = "CPUS", requires = "interfaces")]
    ring_cpus: Option<CpuList>,

    /// CPUs of the parsers, which take turns on them, in place of --placement: each on one CPU, or anywhere on one node.
    #[arg(
        long,
        value_name = "CPUS",
        requires = "interfaces",
        conflicts_with = "placement"
    )]
    parser_cpus: Option<CpuList>,

    /// How parsers share the packets.
    #[arg(
        long,
        value_name = "HOW",
        default_value = "flow",
        requires = "interfaces"
    )]
    parsers: ParserShare,
}

/// `--placement`.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
enum ParserPlacement {
    /// Any CPU; parsers move away from busy ones. Best if the machine also does other work.
    Anywhere,
    /// Each on the CPUs of one NUMA node, filling one node before the next.
    Node,
    /// Each on a separate CPU.
    Core,
}

/// `--parsers`.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
enum ParserShare {
    /// By connection: the reader looks into each packet's headers.
    Flow,
    /// One parser for each of --rings: the kernel has shared the connections among the rings, so the reader doesn't look
    /// into packets. Not for VXLAN and GENEVE, where the two directions of a connection may get different rings.
    Ring,
}

impl From<ParserPlacement> for Placement {
    fn from(placement: ParserPlacement) -> Placement {
        match placement {
            ParserPlacement::Anywhere => Placement::Anywhere,
            ParserPlacement::Node => Placement::Node,
            ParserPlacement::Core => Placement::Core,
        }
    }
}

/// Sets of CPUs, one for each place.
pub type CpuSets = Vec<Vec<usize>>;

/// The CPUs of a list; empty without one.
pub fn resolve(option: &str, list: Option<&CpuList>) -> Result<CpuSets, Failure> {
    let sets = list.map(CpuList::resolve).transpose();
    let sets = sets.map_err(|error| Failure::usage(format!("{option}: {error}")))?;
    Ok(sets.unwrap_or_default())
}

/// Where the threads of a capture run.
pub struct LivePlaces {
    reader: Vec<usize>,
    /// Of the parsers.
    pub parsers: ParserPlaces,
}

impl LivePlaces {
    /// Opens the rings on their CPUs: the kernel allocates them on the node of the thread that asks. Then the thread is
    /// where it was, because those that it starts inherit its CPUs.
    pub fn open<T>(&self, open: impl FnOnce() -> T) -> T {
        let before = thread_cpus();
        pin_thread(&self.reader);
        let opened = open();
        if !self.reader.is_empty() {
            pin_thread(&before);
        }
        opened
    }

    /// Moves the calling thread, which reads the rings, to its CPUs. All other threads have been started.
    pub fn pin_reader(&self, output: &Output) {
        if !pin_thread(&self.reader) {
            output.note("the kernel refused --ring-cpus: the rings are read on any CPU");
        }
    }
}

impl PlaceArgs {
    /// Whether each ring has a parser.
    pub fn is_by_ring(&self) -> bool {
        self.parsers == ParserShare::Ring
    }

    /// The number of parsers.
    ///
    /// # Errors
    /// The requested number differs from the number of rings.
    pub fn workers(&self, workers: u16, rings: u16) -> Result<usize, Failure> {
        if !self.is_by_ring() || workers == rings {
            return Ok(usize::from(workers));
        }
        match workers {
            1 => Ok(usize::from(rings)),
            _ => Err(Failure::usage(format!(
                "--parsers ring starts one parser for each of {rings} rings, not {workers}"
            ))
            .advise("set --rings to the number of parsers, or omit --workers")),
        }
    }

    /// Checks the lists.
    pub fn resolve(&self) -> Result<LivePlaces, Failure> {
        let parsers = resolve("--parser-cpus", self.parser_cpus.as_ref())?;
        Ok(LivePlaces {
            reader: resolve("--ring-cpus", self.ring_cpus.as_ref())?.concat(),
            parsers: ParserPlaces {
                placement: self.placement.into(),
                cpus: parsers,
            },
        })
    }

    /// The capture's current resources, for its report.
    pub fn used(&self, workers: usize, rings: u16) -> Value {
        json!({
            "parsers": workers,
            "parser_per": if self.is_by_ring() { "ring" } else { "flow" },
            "rings": rings,
            "cpus": health::cpus_by_stage(),
            "cpu_s": health::cpu_s(),
        })
    }
}
