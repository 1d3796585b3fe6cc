//! How many system calls and context switches does a request cost Brunt, fio and dd? Repeats SPEK's Table 1 with
//! today's tools, on one file and bypassing the page cache; perf counts the events of all threads of a program.
//!
//! The rule: counts are differences between a long and a short run, so that the cost of starting and ending a program
//! cancels out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use brunt_result::statistics::interleaved;
use serde_json::{Value, json};

use crate::load::write_file;
use crate::sample::{extremes, median};
use crate::scratch::Scratch;
use crate::{BenchError, BenchResult, Console, fio, program_under_test};

const FILE_BYTES: u64 = 64 << 20;
const BLOCK_BYTES: u64 = 8 << 10;
/// Requests in a short and in a long run.
const REQUESTS: [u64; 2] = [200, 4200];
/// perf's events: each system call, and each time that a thread leaves a processor.
const EVENTS: [&str; 2] = ["raw_syscalls:sys_enter", "context-switches"];

/// System calls and context switches per request of Brunt, fio and dd
#[derive(Clone, Debug)]
pub struct CallsBench {
    /// Folder for a 64 MiB test file, created and removed; on a file system with O_DIRECT
    pub dir: Option<PathBuf>,
    /// Pairs of runs of each program; medians are printed
    pub rounds: u32,
}

/// Columns of the paper's table: name, whether random, whether writing.
const PATTERNS: [(&str, bool, bool); 4] = [
    ("sequential read", false, false),
    ("sequential write", false, true),
    ("random read", true, false),
    ("random write", true, true),
];

/// A program, its engine, and how many requests it keeps outstanding.
#[derive(Clone, Copy, Debug)]
struct Contestant {
    program: &'static str,
    engine: &'static str,
    depth: u32,
}

const CONTESTANTS: [Contestant; 9] = [
    of("brunt", "io_uring", 1),
    of("brunt", "threads", 1),
    of("fio", "psync", 1),
    of("fio", "libaio", 1),
    of("fio", "io_uring", 1),
    of("dd", "", 1),
    of("brunt", "io_uring", 32),
    of("fio", "libaio", 32),
    of("fio", "io_uring", 32),
];

const fn of(program: &'static str, engine: &'static str, depth: u32) -> Contestant {
    Contestant {
        program,
        engine,
        depth,
    }
}

impl CallsBench {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// A program is missing or fails, or the kernel forbids counting.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        let brunt = program_under_test()?;
        let version = fio::version()?;
        let folder = Scratch::new(self.dir.as_deref(), "calls")?;
        let file = folder.join("file");
        write_file(&file, FILE_BYTES)?;
        output.line(format_args!(
            "Per request of {} KiB, bypassing the page cache: medians of {} differences between runs \
             of {} and {} requests, with minimum and maximum",
            BLOCK_BYTES >> 10,
            self.rounds,
            REQUESTS[1],
            REQUESTS[0],
        ));
        let mut answers = Vec::new();
        for (pattern, is_random, is_write) in PATTERNS {
            output.line(format_args!(
                "{pattern:<28} {:>24} {:>26}",
                "system calls", "context switches"
            ));
            // dd has no random order.
            let racing: Vec<Contestant> = CONTESTANTS
                .into_iter()
                .filter(|one| one.program != "dd" || !is_random)
                .collect();
            let mut costs = vec![Vec::new(); racing.len()];
            for (side, _) in interleaved(racing.len(), self.rounds as usize, 1) {
                if output.is_interrupted() {
                    return Err(BenchError::interrupted("interrupted"));
                }
                let words = |requests| racing[side].words(&file, (is_random, is_write), requests);
                costs[side].push(cost(&brunt, &folder.join("counts"), words)?);
            }
            for (one, costs) in racing.iter().zip(&costs) {
                answers.push(print(output, pattern, *one, costs));
            }
        }
        output.object(&json!({ "fio": version, "rounds": self.rounds, "costs": answers }));
        Ok(())
    }
}

impl Contestant {
    /// The command line for this many requests, sequential or random, reads or writes.
    fn words(self, file: &Path, (is_random, is_write): (bool, bool), requests: u64) -> Vec<String> {
        let (file, depth, engine) = (file.display(), self.depth, self.engine);
        let line = match (self.program, is_write) {
            ("dd", false) => {
                format!("dd if={file} of=/dev/null bs={BLOCK_BYTES} count={requests} iflag=direct")
            }
            ("dd", true) => format!(
                "dd if=/dev/zero of={file} bs={BLOCK_BYTES} count={requests} oflag=direct conv=notrunc"
            ),
            ("fio", _) => {
                let kind = match (is_random, is_write) {
                    (false, false) => "read",
                    (false, true) => "write",
                    (true, false) => "randread",
                    (true, true) => "randwrite",
                };
                format!(
                    "fio --name=x --thread --filename={file} --size={FILE_BYTES} --rw={kind} --bs={BLOCK_BYTES} --direct=1 \
                     --norandommap --ioengine={engine} --iodepth={depth} --number_ios={requests}"
                )
            }
            (program, _) => {
                let action = if is_write { "write" } else { "read" };
                let order = if is_random { " --random" } else { "" };
                format!(
                    "{program} io {action} file:{file} --bs {BLOCK_BYTES} --depth {depth} --count {requests} --engine {engine} \
                     --checksum none --json{order}"
                )
            }
        };
        line.split(' ').map(str::to_string).collect()
    }
}

/// System calls and context switches per request: the difference between a long and a short run.
fn cost(
    brunt: &Path,
    counts: &Path,
    words: impl Fn(u64) -> Vec<String>,
) -> Result<[f64; 2], BenchError> {
    let [short, long] = REQUESTS;
    let few = counted(brunt, counts, &words(short))?;
    let many = counted(brunt, counts, &words(long))?;
    let per_request = |event: usize| (many[event] - few[event]) / (long - short) as f64;
    Ok([per_request(0), per_request(1)])
}

/// Runs a program under perf; returns the counts of [`EVENTS`].
fn counted(brunt: &Path, counts: &Path, words: &[String]) -> Result<[f64; 2], BenchError> {
    let (program, arguments) = words.split_first().expect("a program");
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x", ",", "-e", &EVENTS.join(","), "-o"])
        .arg(counts)
        .arg("--");
    match program.as_str() {
        "brunt" => perf.arg(brunt),
        other => perf.arg(other),
    };
    let output = perf.args(arguments).output().map_err(|error| {
        BenchError::failed(format!("cannot run perf: {error}"))
            .advise("install it: apt-get install linux-perf")
    })?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let what = format!("{}: {}", words.join(" "), said.trim());
        return Err(BenchError::failed(what).advise("perf counts system calls only for root"));
    }
    let text = fs::read_to_string(counts).map_err(BenchError::failed)?;
    let count = |event: &str| {
        counts_of(&text, event).ok_or_else(|| {
            BenchError::failed(format!("perf did not count {event}: {}", text.trim()))
                .advise("run as root, on a kernel with tracepoints")
        })
    };
    Ok([count(EVENTS[0])?, count(EVENTS[1])?])
}

/// The count of an event in the output of `perf stat -x ,`: the first field of the line whose third is its name.
fn counts_of(text: &str, event: &str) -> Option<f64> {
    let mut fields = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let line = fields.find(|fields| fields.get(2) == Some(&event))?;
    line[0].parse().ok()
}

fn print(output: &dyn Console, pattern: &str, one: Contestant, costs: &[[f64; 2]]) -> Value {
    let of = |event: usize| costs.iter().map(|cost| cost[event]).collect::<Vec<f64>>();
    let words = |values: &[f64]| {
        let (low, high) = extremes(values);
        format!("{:.2} ({low:.2} to {high:.2})", median(values))
    };
    let [calls, switches] = [of(0), of(1)];
    let who = format!("{} {}, {} outstanding", one.program, one.engine, one.depth);
    let who = who.replace(" ,", ",");
    output.line(format_args!(
        "  {who:<26} {:>24} {:>26}",
        words(&calls),
        words(&switches)
    ));
    json!({
        "pattern": pattern,
        "program": one.program,
        "engine": one.engine,
        "depth": one.depth,
        "system_calls_per_request": calls,
        "context_switches_per_request": switches,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_by_their_events_name() {
        let text = "# started on Sun\n\n415,,raw_syscalls:sys_enter,10,100.00,,\n\
                    <not counted>,,context-switches,0,100.00,,\n";
        assert_eq!(counts_of(text, EVENTS[0]), Some(415.0));
        assert_eq!(counts_of(text, EVENTS[1]), None, "not counted isn't zero");
        assert_eq!(counts_of(text, "cycles"), None);
    }
}
