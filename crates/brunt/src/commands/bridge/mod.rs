//! `brunt bridge IN OUT`: places this machine in the network path between a client and its storage, for setups in
//! which Brunt can run on neither.
//!
//! The rule: however the bridge ends, one report shows the forwarded traffic, the frames not forwarded and why, and
//! the delay that bridging added.

mod set;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brunt_capture::trace::pcap::{PacketComments, PcapSummary};
use brunt_core::units::parse_duration;
use brunt_core::{Histogram, Nanos};
use brunt_lab::link::{BridgeConfig, BridgeEnd, PacketWatcher, Settings, WireBridge};
use brunt_result::link::{LinkCounts, LinkReport, SettingForm};
use brunt_study::experiment::LinkOptions;
use serde_json::{Value, json};

use super::Subcommand;
use super::link_changes::LinkChangeLog;
use crate::bridge_capture::{BegunCapture, BridgeCapture};
use crate::cli::{Done, Failure, Output};
use set::BridgeControl;

/// How often to check whether the bridge should end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Window for the peak rate.
const STRETCH: Duration = Duration::from_secs(1);

/// Forward traffic between two network interfaces, and impair it
///
/// Places this machine inline between a client and storage, neither of which runs Brunt: every Ethernet frame
/// received at IN is sent out at OUT and vice versa, regardless of its content. Without settings, frames pass
/// untouched; with settings, packets are delayed, lost, reordered, corrupted or rate-limited as on a lab's links.
/// Ctrl-C, SIGTERM or SIGHUP ends the bridge with a report. Needs root, or CAP_NET_RAW and CAP_NET_ADMIN.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Bridge {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    wire: Option<WireArgs>,
}

#[derive(clap::Subcommand)]
enum What {
    Set(set::BridgeSetArgs),
}

/// The arguments for starting a bridge.
#[derive(clap::Args)]
struct WireArgs {
    /// Interface towards one side, such as eth0
    #[arg(value_name = "IN")]
    first: String,
    /// Interface towards the other side
    #[arg(value_name = "OUT")]
    second: String,
    /// Sets an impairment for both directions: a key of a lab link and its value, such as delay=20ms, loss=0.01,
    /// rate=100Mb/s, preset=four-sites
    #[arg(short, long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Like --set, but only from OUT to IN; overrides --set
    #[arg(long, value_name = "KEY=VALUE")]
    back: Vec<String>,
    /// Random seed: with the same seed the same packets are lost, counted from the start
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Saves the packets from both sides to this file as they arrive, before any impairment: pcapng with both
    /// interfaces if its name ends in .pcapng, otherwise pcap
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Name by which 'brunt bridge set' finds the bridge [default: IN-OUT]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    lasts: Option<Duration>,
}

impl Subcommand for Bridge {
    const NAME: &'static str = "bridge";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt bridge eth0 eth1",
            "forward everything between two interfaces and report the added latency",
        ),
        (
            "brunt bridge eth0 eth1 --set delay=10ms --set loss=0.001 --back rate=100Mb/s",
            "add delay, some loss and a slow return path between the two sides",
        ),
        (
            "brunt bridge eth0 eth1 --capture wire.pcapng --for 10m",
            "record the traffic for ten minutes",
        ),
        (
            "brunt bridge set delay=50ms loss=1%",
            "change a bridge while it runs",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        match (self.what, self.wire) {
            (Some(What::Set(args)), _) => set::run(args, output),
            (None, Some(wire)) => wire.run(output),
            (None, None) => Err(
                Failure::usage("name two interfaces, or use the subcommand set")
                    .advise("see 'brunt bridge --help'"),
            ),
        }
    }
}

impl WireArgs {
    fn run(self, output: &Output) -> Done {
        let options = LinkOptions::parse(&self.set, &self.back).map_err(|error| {
            Failure::usage(error).advise("docs/experiments.md lists the keys under lab.links")
        })?;
        let settings_text = options.texts();
        let names = [self.first.clone(), self.second.clone()];
        let mut control = self.control(&names, &options.settings, output)?;
        let file = self
            .capture
            .as_deref()
            .map(|path| record(path, &names, output))
            .transpose()?;
        let (recording, watcher) = file.unzip();
        let bridge = self.start(&names, options, watcher)?;
        bridge.notes().iter().for_each(|note| output.note(note));
        let change = control.as_ref().map(|control| {
            format!(
                ", 'brunt bridge set {} KEY=VALUE' changes its settings",
                control.name()
            )
        });
        output.note(format_args!(
            "bridging {} and {}; Ctrl-C ends it with a report{}",
            names[0],
            names[1],
            change.unwrap_or_default()
        ));
        let comments = recording.as_ref().map(BridgeCapture::comments);
        let watched = watch(
            bridge,
            self.lasts,
            control.as_mut(),
            comments.as_ref(),
            output,
        );
        let recorded = recording.map(|recording| end_record(recording, output));
        let failed = watched.end.error.as_ref().map(|error| {
            Failure::failed(format!("an interface disappeared: {error}"))
                .advise("see `ip -br link`, and start the bridge again")
        });
        let changes = control.as_ref().map(|control| control.log().clone());
        let report = BridgeReport {
            names,
            settings_text,
            watched,
            changes: changes.unwrap_or_default(),
        };
        report.lines().iter().for_each(|line| output.line(line));
        let mut object = report.object();
        let trouble = recorded.and_then(|(summary, failure)| {
            object["capture"] = serde_json::to_value(summary).unwrap_or_default();
            failure
        });
        output.object(&object);
        match failed.or(trouble) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Opens the socket at which the bridge can be reached. Without a --name, the bridge forwards even if that fails.
    fn control(
        &self,
        names: &[String; 2],
        settings: &[Settings; 2],
        output: &Output,
    ) -> Result<Option<BridgeControl>, Failure> {
        match BridgeControl::open(self.name.as_deref(), names, settings) {
            Ok(control) => Ok(Some(control)),
            Err(failure) if self.name.is_some() => Err(failure),
            Err(failure) => {
                output.note(format_args!(
                    "'brunt bridge set' cannot reach this bridge: {}",
                    failure.what()
                ));
                Ok(None)
            }
        }
    }

    fn start(
        &self,
        names: &[String; 2],
        options: LinkOptions,
        watcher: Option<Box<dyn PacketWatcher>>,
    ) -> Result<WireBridge, Failure> {
        let config = BridgeConfig {
            interfaces: names.clone(),
            settings: options.settings,
            seed: self.seed,
            watcher,
        };
        WireBridge::start(config).map_err(|error| {
            // Remove the capture file: it would be empty.
            self.capture
                .iter()
                .for_each(|path| drop(std::fs::remove_file(path)));
            let advice = error.advice();
            Failure::usage(error).advise(advice)
        })
    }
}

/// Starts a capture file, and the watcher that passes packets to it.
fn record(path: &Path, interfaces: &[String; 2], output: &Output) -> Result<BegunCapture, Failure> {
    let tell = output.clone();
    let tell = std::sync::Arc::new(move |what: &str| tell.note(what));
    BridgeCapture::start(path, interfaces, tell).map_err(|error| {
        Failure::usage(format!("{}: {error}", path.display()))
            .advise("choose another file with --capture")
    })
}

/// Closes the capture file and notes what it contains.
fn end_record(capture: BridgeCapture, output: &Output) -> (PcapSummary, Option<Failure>) {
    let path = capture.path().display().to_string();
    let (summary, error) = capture.finish();
    output.note(format_args!(
        "{path}: {} packets, {} bytes",
        summary.packets, summary.bytes
    ));
    if summary.packets_lost > 0 {
        output.note(format_args!(
            "{} packets are missing from {path}: the disk was full or too slow",
            summary.packets_lost
        ));
    }
    (
        summary,
        error.map(|error| Failure::failed(format!("{path}: {error}"))),
    )
}

/// Results of a bridge that has ended.
struct Watched {
    end: BridgeEnd,
    lasted: Duration,
    /// Peak bits per second, per direction.
    busiest: [f64; 2],
}

/// Runs until interrupted, the time is up, or an interface is gone. Meanwhile answers requests for changes.
fn watch(
    mut bridge: WireBridge,
    lasts: Option<Duration>,
    mut control: Option<&mut BridgeControl>,
    comments: Option<&PacketComments>,
    output: &Output,
) -> Watched {
    let start = Instant::now();
    let mut busiest = Busiest {
        since: start,
        seen: [0; 2],
        most: [0.0; 2],
    };
    while !output.is_interrupted()
        && !bridge.has_ended()
        && lasts.is_none_or(|lasts| start.elapsed() < lasts)
    {
        std::thread::sleep(POLL_INTERVAL);
        if let Some(control) = &mut control {
            control.answer(&bridge, |change, at| {
                output.note(change.described());
                if let Some(comments) = comments {
                    comments.add(at, change.described());
                }
            });
        }
        if busiest.since.elapsed() >= STRETCH {
            busiest.update(&bridge.report());
        }
    }
    let end = bridge.stop();
    let lasted = start.elapsed();
    busiest.update(&end.report);
    Watched {
        end,
        lasted,
        busiest: busiest.most,
    }
}

/// Finds the window with the highest rate.
struct Busiest {
    since: Instant,
    seen: [u64; 2],
    /// The highest rate so far, in bits per second per direction.
    most: [f64; 2],
}

impl Busiest {
    fn update(&mut self, report: &LinkReport) {
        let now = Instant::now();
        // The last window may be shorter; treat it as a full one.
        let time = now.duration_since(self.since).max(STRETCH);
        let bytes = [report.there.bytes, report.back.bytes];
        for ((most, bytes), seen) in self.most.iter_mut().zip(bytes).zip(self.seen) {
            *most = most.max((bytes - seen) as f64 * 8.0 / time.as_secs_f64());
        }
        (self.since, self.seen) = (now, bytes);
    }
}

/// The final report.
struct BridgeReport {
    names: [String; 2],
    /// The initial settings of each direction, as text.
    settings_text: [String; 2],
    watched: Watched,
    /// Changes to these settings while the bridge ran.
    changes: LinkChangeLog,
}

/// One direction.
struct Way<'a> {
    name: String,
    settings_text: &'a str,
    counts: &'a LinkCounts,
    added: &'a Histogram,
    left: u64,
    ends_left: u64,
    busiest: f64,
    seconds: f64,
}

impl BridgeReport {
    fn ways(&self) -> [Way<'_>; 2] {
        let Watched {
            end,
            lasted,
            busiest,
        } = &self.watched;
        let counts = [&end.report.there, &end.report.back];
        std::array::from_fn(|way| Way {
            name: format!("{} to {}", self.names[way], self.names[1 - way]),
            settings_text: &self.settings_text[way],
            counts: counts[way],
            added: &end.added[way],
            left: end.left[way],
            ends_left: end.ends_left[way],
            busiest: busiest[way],
            seconds: lasted.as_secs_f64(),
        })
    }

    fn lines(&self) -> Vec<String> {
        let Watched { end, lasted, .. } = &self.watched;
        let mut lines = vec![format!(
            "bridged for {:.1} s; its thread was busy for {:.1} % of that",
            lasted.as_secs_f64(),
            end.report.busy * 100.0
        )];
        lines.extend(self.ways().iter().flat_map(Way::lines));
        if self.changes.older > 0 {
            lines.push(format!(
                "changed: {} earlier changes are not listed",
                self.changes.older
            ));
        }
        let changes = self.changes.made.iter();
        lines.extend(changes.map(|change| format!("changed: {}", change.described())));
        lines.push(
            "added: from the kernel's time stamp of a frame's arrival to the end of the call that sent"
                .into(),
        );
        lines.push(
            "  it, minus the configured delay; network cards and their drivers are not included"
                .into(),
        );
        lines.extend(
            end.report
                .trouble_in(SettingForm::Option)
                .iter()
                .map(|doubt| format!("doubtful: {doubt}")),
        );
        lines
    }

    fn object(&self) -> Value {
        let Watched { end, lasted, .. } = &self.watched;
        let [there, back] = self.ways();
        let doubts: Vec<String> = end
            .report
            .trouble_in(SettingForm::Option)
            .iter()
            .map(ToString::to_string)
            .collect();
        json!({
            "interfaces": self.names,
            "seconds": lasted.as_secs_f64(),
            "busy": end.report.busy,
            "there": there.object(),
            "back": back.object(),
            "changes": self.changes.made,
            "older_changes": self.changes.older,
            "doubts": doubts,
            "ended_by": end.error.as_ref().map(ToString::to_string),
        })
    }
}

/// A line with the counts that are not 0; `None` if all are 0.
fn count_line(what: &str, parts: &[(u64, &str)]) -> Option<String> {
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts.map(|(count, why)| format!("{count} {why}")).collect();
    (!parts.is_empty()).then(|| format!("  {what:<10}  {}", parts.join(", ")))
}

impl Way<'_> {
    fn lines(&self) -> Vec<String> {
        let counts = self.counts;
        let set = if self.settings_text.is_empty() {
            "nothing set"
        } else {
            self.settings_text
        };
        let mut lines = vec![format!("{}: {set}", self.name)];
        lines.push(format!(
            "  received    {} packets, {} bytes; {} on average, {} in the busiest second",
            counts.packets,
            counts.bytes,
            rate(counts.bytes as f64 * 8.0 / self.seconds),
            rate(self.busiest)
        ));
        lines.push(format!("  sent        {} packets", counts.delivered));
        lines.extend(self.dropped_and_changed());
        let micros = |nanos: Option<Nanos>| nanos.map_or(0.0, |nanos| nanos.0 as f64 / 1e3);
        if !self.added.is_empty() {
            lines.push(format!(
                "  added       p50 {:.1} us, p99 {:.1} us, max {:.1} us",
                micros(self.added.percentile(50.0)),
                micros(self.added.percentile(99.0)),
                micros(self.added.max())
            ));
        }
        lines
    }

    /// One line per kind of packet that wasn't sent as it arrived.
    fn dropped_and_changed(&self) -> impl Iterator<Item = String> {
        let counts = self.counts;
        let lost = count_line(
            "lost",
            &[
                (counts.lost, "by the configured loss"),
                (counts.queue_full, "because the link's queue was full"),
            ],
        );
        let changed = count_line(
            "changed",
            &[
                (counts.corrupted, "corrupted"),
                (counts.duplicated, "sent twice"),
                (counts.held, "held back"),
                (counts.ecn_marked, "marked (ECN)"),
                (
                    counts.ecn_not_capable,
                    "not marked because their sender does not support ECN",
                ),
                (counts.fins_held, "ends of connections held"),
                (
                    counts.tcp_untracked,
                    "passed untouched: too many TCP connections to track",
                ),
            ],
        );
        let unintended = count_line(
            "lost unset",
            &[
                (
                    counts.unmeant_no_buffer,
                    "not read in time (receive buffer full), or not delivered by the kernel",
                ),
                (counts.unmeant_refused, "refused by the interface"),
                (
                    counts.unmeant_device,
                    "unreadable (offloaded tunnels: switch the sender's offload off)",
                ),
                (self.left, "still in flight at the end"),
                (self.ends_left, "FINs still held at the end"),
            ],
        );
        [lost, changed, unintended].into_iter().flatten()
    }

    fn object(&self) -> Value {
        let micros = |nanos: Option<Nanos>| nanos.map(|nanos| nanos.0 as f64 / 1e3);
        json!({
            "set": self.settings_text,
            "counts": self.counts,
            "left": self.left,
            "ends_left": self.ends_left,
            "bits_per_second": self.counts.bytes as f64 * 8.0 / self.seconds,
            "busiest_bits_per_second": self.busiest,
            "added_frames": self.added.count(),
            "added_mean_us": self.added.mean().map(|nanos| nanos / 1e3),
            "added_p50_us": micros(self.added.percentile(50.0)),
            "added_p99_us": micros(self.added.percentile(99.0)),
            "added_max_us": micros(self.added.max()),
        })
    }
}

/// Formats bits per second.
fn rate(bits: f64) -> String {
    match bits {
        ..1e6 => format!("{:.1} kb/s", bits / 1e3),
        1e6..1e9 => format!("{:.1} Mb/s", bits / 1e6),
        _ => format!("{:.2} Gb/s", bits / 1e9),
    }
}
