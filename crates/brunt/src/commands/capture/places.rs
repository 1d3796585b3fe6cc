//! CPUs for the threads of a live capture, and how packets are distributed to parsers: the options, and what was
//! actually used.
//!
//! The rule: lists of CPUs are checked before the capture begins, and the report shows what the kernel granted, not
//! what was requested.

use brunt_capture::{CpuList, ParserPlaces, Placement, pin_thread, thread_cpus};
use serde_json::{Value, json};

use super::health;
use crate::cli::{Failure, Output};

/// Options for the placement of threads.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Placement and pipelines")]
pub struct PlaceArgs {
    /// Where the parser threads run.
    #[arg(
        long,
        value_name = "WHERE",
        default_value = "anywhere",
        requires = "interfaces"
    )]
    placement: ParserPlacement,

    /// CPUs of the thread that reads the packet rings: numbers and ranges such as 0-3,8, or NUMA nodes such as node1.
    /// The kernel allocates the rings on the same node.
    #[arg(long, value_name = "CPUS", requires = "interfaces")]
    ring_cpus: Option<CpuList>,

    /// CPUs of the parsers, instead of --placement: parsers are assigned to the entries in turn, each to one CPU or
    /// to all CPUs of one node.
    #[arg(
        long,
        value_name = "CPUS",
        requires = "interfaces",
        conflicts_with = "placement"
    )]
    parser_cpus: Option<CpuList>,

    /// How packets are distributed to parsers.
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
    /// Each on the CPUs of one NUMA node; one node is filled before the next.
    Node,
    /// Each on a separate CPU.
    Core,
}

/// `--parsers`.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
enum ParserShare {
    /// By connection: the reader examines the headers of each packet.
    Flow,
    /// One parser for each of --rings: the kernel has already distributed the connections to the rings, so the reader
    /// doesn't examine packets. Not suitable for VXLAN and GENEVE, where the two directions of a connection may
    /// arrive in different rings.
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

/// The sets of CPUs in a list, one per entry.
pub type CpuSets = Vec<Vec<usize>>;

/// The CPUs in a list; empty without a list.
pub fn resolve(option: &str, list: Option<&CpuList>) -> Result<CpuSets, Failure> {
    let sets = list.map(CpuList::resolve).transpose();
    let sets = sets.map_err(|error| Failure::usage(format!("{option}: {error}")))?;
    Ok(sets.unwrap_or_default())
}

/// Where the threads of a capture run.
pub struct LivePlaces {
    reader: Vec<usize>,
    /// The CPUs of the parsers.
    pub parsers: ParserPlaces,
}

impl LivePlaces {
    /// Opens the rings on their CPUs: the kernel allocates them on the calling thread's node. Then restores the
    /// thread's CPUs, because the threads that it starts inherit them.
    pub fn open<T>(&self, open: impl FnOnce() -> T) -> T {
        let before = thread_cpus();
        pin_thread(&self.reader);
        let opened = open();
        if !self.reader.is_empty() {
            pin_thread(&before);
        }
        opened
    }

    /// Moves the calling thread, which reads the rings, to its CPUs. Called after all other threads have been
    /// started.
    pub fn pin_reader(&self, output: &Output) {
        if !pin_thread(&self.reader) {
            output.note("the kernel rejected --ring-cpus: the rings are read on any CPU");
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
                "--parsers ring starts one parser for each of the {rings} rings, not {workers}"
            ))
            .advise("set --rings to the number of parsers, or omit --workers")),
        }
    }

    /// Checks the CPU lists.
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

    /// The resources used by the capture so far, for its report.
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
