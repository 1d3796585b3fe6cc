//! `brunt-bench actors`: the message benchmarks of the Chronicle paper (section 7.1), compared with the same programs
//! in Go and Erlang, with and without a competing load.
//!
//! The peers' programs are embedded here and built in a scratch folder. The rule: all contestants take turns, round by
//! round, so that other load on the machine affects all of them equally; ratios are ratios of medians.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use brunt_actors::Placement;
use brunt_actors::bench::{self, BenchConfig, BenchPattern};
use serde_json::{Value, json};

use super::sample::median;
use crate::scratch::Scratch;
use crate::{BenchError, BenchResult, Console};

const GO_SOURCE: &str = include_str!("../../../benches/peers/actors/actors.go");
const GO_MODULE: &str = include_str!("../../../benches/peers/actors/go.mod");
const ERLANG_SOURCE: &str = include_str!("../../../benches/peers/actors/actors.erl");

/// Erlang runs a quarter of the messages, because it takes about four times as long.
const ERLANG_SHARE: u64 = 4;

/// Messages per second between actors, compared with Go and Erlang
#[derive(Clone, Debug)]
pub struct ActorsBench {
    /// Runs of each benchmark; the median is reported.
    pub runs: u32,
    /// Messages per run.
    pub messages: u64,
    /// Numbers of scheduler threads to measure.
    pub threads: Vec<u16>,
}

/// A program to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contestant {
    Ours(Placement),
    Go,
    Erlang,
}

impl Contestant {
    const fn name(self) -> &'static str {
        match self {
            Contestant::Ours(Placement::Core) => "brunt_pinned",
            Contestant::Ours(_) => "brunt",
            Contestant::Go => "go",
            Contestant::Erlang => "erlang",
        }
    }
}

impl ActorsBench {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// The settings are invalid, a prerequisite is missing, or the results miss a requirement.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        let peers = Peers::build(output)?;
        let mut contestants = vec![
            Contestant::Ours(Placement::Anywhere),
            Contestant::Ours(Placement::Core),
        ];
        contestants.extend(peers.go.as_ref().map(|_| Contestant::Go));
        contestants.extend(peers.erlang.as_ref().map(|_| Contestant::Erlang));
        output.line(format_args!(
            "million messages/s, medians of {} runs of {} messages, interleaved",
            self.runs, self.messages
        ));
        output.line(format_args!(
            "{:11} {:>7} {:>6} {:>9} {:>9} {:>9} {:>9} {:>12} {:>12}",
            "", "threads", "load", "brunt", "pinned", "go", "erlang", "brunt/go", "pinned/go"
        ));
        let mut rows = Vec::new();
        for pattern in [BenchPattern::Ring, BenchPattern::AllToAll] {
            for &threads in &self.threads {
                for load in [false, true] {
                    let mut rates = vec![Vec::new(); contestants.len()];
                    for _ in 0..self.runs {
                        for (contestant, rates) in contestants.iter().zip(&mut rates) {
                            if output.is_interrupted() {
                                return Err(BenchError::interrupted(
                                    "interrupted before all runs were done",
                                ));
                            }
                            let _hog = load.then(Hog::start);
                            rates.push(peers.measure(
                                *contestant,
                                pattern,
                                threads,
                                self.messages,
                            )?);
                        }
                    }
                    let rates: Vec<_> = contestants.iter().copied().zip(rates).collect();
                    rows.push(row(output, pattern, threads, load, &rates));
                }
            }
        }
        output.object(&json!({ "unit": "messages/s", "runs": self.runs, "rows": rows }));
        Ok(())
    }
}

fn row(
    output: &dyn Console,
    pattern: BenchPattern,
    threads: u16,
    load: bool,
    rates: &[(Contestant, Vec<f64>)],
) -> Value {
    let rate = |who: &str| {
        let found = rates
            .iter()
            .find(|(contestant, _)| contestant.name() == who);
        found.map(|(_, rates)| median(rates))
    };
    let million =
        |who| rate(who).map_or_else(|| "-".to_string(), |rate| format!("{:.1}", rate / 1e6));
    let ratio = |who| Some(rate(who)? / rate("go")?);
    let times = |who| ratio(who).map_or_else(|| "-".to_string(), |ratio| format!("{ratio:.2}x"));
    let name = program_name(pattern);
    output.line(format_args!(
        "{name:11} {threads:>7} {:>6} {:>9} {:>9} {:>9} {:>9} {:>12} {:>12}",
        if load { "1 hog" } else { "none" },
        million("brunt"),
        million("brunt_pinned"),
        million("go"),
        million("erlang"),
        times("brunt"),
        times("brunt_pinned"),
    ));
    let mut row = json!({
        "pattern": name, "threads": threads, "competing_load": load,
        "brunt_over_go": ratio("brunt"), "brunt_pinned_over_go": ratio("brunt_pinned"),
    });
    for (contestant, rates) in rates {
        row[contestant.name()] = json!(median(rates));
        row["runs"][contestant.name()] = json!(rates);
    }
    row
}

fn program_name(pattern: BenchPattern) -> &'static str {
    match pattern {
        BenchPattern::AllToAll => "all-to-all",
        _ => "ring",
    }
}

/// The peers' programs after building; `None` for one whose compiler is not installed.
struct Peers {
    scratch: Scratch,
    go: Option<PathBuf>,
    erlang: Option<PathBuf>,
}

impl Peers {
    fn build(output: &dyn Console) -> Result<Peers, BenchError> {
        let mut peers = Peers {
            go: None,
            erlang: None,
            scratch: Scratch::new(None, "actors")?,
        };
        let folder = peers.scratch.path();
        let written = fs::write(folder.join("actors.go"), GO_SOURCE)
            .and_then(|()| fs::write(folder.join("go.mod"), GO_MODULE))
            .and_then(|()| fs::write(folder.join("actors.erl"), ERLANG_SOURCE));
        written.map_err(|error| {
            BenchError::failed(format!("cannot write to {}: {error}", folder.display()))
        })?;
        if compile(
            Command::new("go").args(["build", "-o", "actors", "."]),
            folder,
            "go",
            "golang-go",
            output,
        )? {
            peers.go = Some(folder.join("actors"));
        }
        if compile(
            Command::new("erlc").arg("actors.erl"),
            folder,
            "erlc",
            "erlang-base",
            output,
        )? {
            peers.erlang = Some(folder.to_path_buf());
        }
        Ok(peers)
    }

    /// Messages per second in one run.
    fn measure(
        &self,
        who: Contestant,
        pattern: BenchPattern,
        threads: u16,
        messages: u64,
    ) -> Result<f64, BenchError> {
        let name = program_name(pattern);
        match who {
            Contestant::Ours(placement) => {
                let schedulers = usize::from(threads);
                Ok(bench::run(BenchConfig {
                    pattern,
                    schedulers,
                    placement,
                    messages,
                })
                .rate())
            }
            Contestant::Go => {
                let program = self
                    .go
                    .as_ref()
                    .expect("the peers are built before they run");
                peer_rate(
                    Command::new(program).args([name, &threads.to_string(), &messages.to_string()]),
                    "Go",
                )
            }
            Contestant::Erlang => {
                let folder = self
                    .erlang
                    .as_ref()
                    .expect("the peers are built before they run");
                let mut command = Command::new("erl");
                command
                    .args(["+S", &format!("{threads}:{threads}"), "-noshell", "-pa"])
                    .arg(folder);
                command.args([
                    "-run",
                    "actors",
                    "main",
                    name,
                    &(messages / ERLANG_SHARE).to_string(),
                ]);
                peer_rate(&mut command, "Erlang")
            }
        }
    }
}

/// Returns false, with a note, if the compiler is not installed.
fn compile(
    command: &mut Command,
    folder: &Path,
    tool: &str,
    package: &str,
    output: &dyn Console,
) -> Result<bool, BenchError> {
    match command.current_dir(folder).output() {
        Ok(done) if done.status.success() => Ok(true),
        Ok(done) => Err(BenchError::failed(format!(
            "{tool} cannot compile the peer's program: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        ))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            output.note(format_args!(
                "left out: {tool} is not installed (Debian package {package})"
            ));
            Ok(false)
        }
        Err(error) => Err(BenchError::failed(format!("cannot run {tool}: {error}"))),
    }
}

fn peer_rate(command: &mut Command, peer: &str) -> Result<f64, BenchError> {
    let done = command
        .output()
        .map_err(|error| BenchError::failed(format!("cannot run {peer}'s program: {error}")))?;
    let text = String::from_utf8_lossy(&done.stdout);
    parse_rate(&text)
        .filter(|_| done.status.success())
        .ok_or_else(|| {
            let stderr = String::from_utf8_lossy(&done.stderr);
            BenchError::failed(format!(
                "{peer}'s program failed ({}): {}{}",
                done.status,
                text.trim(),
                stderr.trim()
            ))
        })
}

/// Parses `messages N seconds S`.
fn parse_rate(text: &str) -> Option<f64> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let ["messages", messages, "seconds", seconds] = words[..] else {
        return None;
    };
    let (messages, seconds): (f64, f64) = (messages.parse().ok()?, seconds.parse().ok()?);
    (messages > 0.0 && seconds > 0.0).then(|| messages / seconds)
}

/// A competing load: a thread that computes continuously and is not pinned to a core.
struct Hog {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hog {
    fn start() -> Hog {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut sum = 0u64;
            while !seen.load(Ordering::Relaxed) {
                for number in 0..1000u64 {
                    sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(number));
                }
            }
        });
        Hog {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer's result line is parsed; other lines are rejected.
    #[test]
    fn a_peers_line_is_parsed_and_others_are_refused() {
        let check = |text, rate| assert_eq!(parse_rate(text), rate, "{text:?}");
        check("messages 1000 seconds 0.500000\n", Some(2000.0));
        check("messages 1000 seconds 0\n", None);
        check("messages x seconds 1\n", None);
        check("panic: messages 1000 seconds 1\n", None);
        check("", None);
    }

    /// The median is the middle value, or the mean of the two middle ones.
    #[test]
    fn the_median_is_the_middle_value_or_the_mean_of_two() {
        let check =
            |values: &[f64], expected: f64| assert!((median(values) - expected).abs() < 1e-9);
        check(&[3.0], 3.0);
        check(&[9.0, 1.0, 2.0], 2.0);
        check(&[4.0, 1.0, 2.0, 9.0], 3.0);
    }
}
