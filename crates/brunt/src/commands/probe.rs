//! `brunt probe`: shows samples from several hosts as they arrive, on a common timeline.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use brunt_core::{Clock, Nanos, Span};
use brunt_host::{ClockOffset, ConnectOptions, HostAddress, HostError, HostNews, RemoteHost};
use brunt_probe::{DEVICE, LOCAL, Probes};
use brunt_result::event::Sample;
use serde_json::{Value, json};

use super::agent::ReachArgs;
use crate::cli::{Done, Failure, Output};
use crate::host_figures::host_figures;

/// Number of clock rounds before a host's first sample. Afterwards there is one round per interval or per second,
/// which also detects a lost host.
const BURST: u32 = 16;
const ASK: Duration = Duration::from_secs(1);
/// Maximum number of samples waiting to be printed. A blocked terminal makes the hosts' threads wait; their agents
/// then drop and count samples.
const WAITING_MAX: usize = 1000;
/// Maximum number of counters kept per host; an agent has only a few. Further counters are dropped.
const COUNTERS_MAX: usize = 100;
/// Maximum number of samples in one JSON object.
const SAMPLES_MAX: u64 = 1_000_000;

/// Show what hosts are doing: processors, memory, network, disks, on one timeline
///
/// Prints a line for each host and interval until Ctrl-C or --for. Times are this machine's: the clock of each host
/// is measured continuously, and the last lines report how accurately it is known. With --json, the object at the end
/// contains every figure of every sample.
#[derive(clap::Args)]
pub struct Probe {
    #[command(flatten)]
    reach: ReachArgs,

    /// Sampling interval, 10ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: Span,

    /// How long to sample [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME")]
    time: Option<Span>,

    /// Only these probes: cpu, activity, memory, network, tcp, disk, pressure, cgroup, temperature, process
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,

    /// Processes to record as well, by program name, such as tgtd,smbd
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    processes: Vec<String>,
}

/// Messages from a host's thread.
enum ProbeNews {
    /// A sample, with times converted to this machine's clock.
    Sample(Arc<Sample>),
    /// A note for the user.
    Note(String),
}

/// The final state of a host.
struct ProbeEnd {
    clock: Option<ClockOffset>,
    counters: BTreeMap<String, u64>,
    bytes: [u64; 2],
}

impl super::Subcommand for Probe {
    const NAME: &'static str = "probe";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt probe ssh:node7 ssh:node8",
            "sample two hosts once per second; nothing is installed there",
        ),
        (
            "brunt probe local --interval 100ms --for 5s --only cpu,disk --json",
            "print every figure, for a script",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        let (addresses, options) = (self.reach.addresses()?, self.reach.options()?);
        let plan = self.plan(options, output)?;
        let mut samples: Vec<Vec<Value>> = vec![Vec::new(); addresses.len()];
        let mut left_out = 0;
        let ends = std::thread::scope(|scope| {
            let (sender, news) = sync_channel(WAITING_MAX);
            let threads: Vec<_> = addresses
                .iter()
                .enumerate()
                .map(|(index, address)| {
                    let (plan, sender) = (&plan, sender.clone());
                    scope.spawn(move || {
                        watch(address, plan, output.interrupt_flag(), &|news| {
                            tell(&sender, index, news)
                        })
                    })
                })
                .collect();
            drop(sender);
            let mut kept = 0;
            for (index, news) in news {
                match news {
                    ProbeNews::Note(note) => {
                        output.note(format_args!("{}: {note}", addresses[index]))
                    }
                    ProbeNews::Sample(sample) if output.is_json() => {
                        kept += 1;
                        if kept <= SAMPLES_MAX {
                            samples[index].push(as_json(&sample, plan.begin))
                        } else {
                            left_out += 1
                        }
                    }
                    ProbeNews::Sample(sample) => {
                        print(&addresses[index], &sample, plan.begin, output)
                    }
                }
            }
            threads
                .into_iter()
                .map(|thread| thread.join().expect("the watcher does not panic"))
                .collect::<Vec<_>>()
        });
        finish(&addresses, ends, samples, left_out, output)
    }
}

impl Probe {
    /// Checks the arguments.
    fn plan(&self, options: ConnectOptions, output: &Output) -> Result<ProbePlan, Failure> {
        let (only, processes) = (self.only.clone(), self.processes.clone());
        let probes = Probes {
            interval: self.interval,
            only,
            processes,
            hosts: None,
        };
        probes
            .check()
            .map_err(|error| Failure::usage(format!("--{error}")))?;
        if probes.only.iter().any(|name| name == DEVICE.name) {
            let what = "--only device: hosts have no such probe; it samples the devices of an experiment ('brunt run')";
            return Err(Failure::usage(what));
        }
        if !probes.is_on() {
            return Err(Failure::usage("--interval 0s: write 10ms to 1h"));
        }
        if output.is_json() && self.time.is_none() {
            return Err(Failure::usage(
                "--json prints its object at the end: set the duration with --for",
            ));
        }
        Ok(ProbePlan {
            options,
            probes,
            time: self.time.map(|time| time.0),
            begin: Clock::Monotonic.now(),
        })
    }
}

/// Data shared by the threads of all hosts.
struct ProbePlan {
    options: ConnectOptions,
    probes: Probes,
    time: Option<Duration>,
    begin: Nanos,
}

fn tell(sender: &SyncSender<(usize, ProbeNews)>, index: usize, news: ProbeNews) {
    // The receiver exists until this thread has been joined.
    let _ = sender.send((index, news));
}

fn watch(
    address: &HostAddress,
    plan: &ProbePlan,
    stop: &AtomicBool,
    tell: &dyn Fn(ProbeNews),
) -> Result<ProbeEnd, HostError> {
    let mut host = RemoteHost::connect(address, &plan.options)?;
    let mut counters = BTreeMap::new();
    for _ in 0..BURST {
        host.clock_round(|_| {})?;
    }
    host.watch(LOCAL, &plan.probes)?;
    let clock = Clock::Monotonic;
    let begin = clock.now();
    // A sample arrives shortly after its end time.
    let grace = plan.probes.interval.0.mul_f64(0.5);
    let end = plan
        .time
        .map_or(Nanos::MAX, |time| begin.after(time + grace));
    let mut ask = begin;
    while clock.now() < end && !stop.load(Ordering::Relaxed) {
        let now = clock.now();
        if now >= ask {
            host.ask_clock()?;
            ask = now.after(ASK);
        }
        let look = now.after(Duration::from_millis(50));
        match host.receive(ask.min(end).min(look))? {
            Some(HostNews::Sample(sample)) => {
                let offset = host
                    .monotonic()
                    .estimate(now)
                    .map(|estimate| estimate.offset);
                match offset {
                    Some(offset) => tell(ProbeNews::Sample(on_our_clock(&sample, address, offset))),
                    None => tell(ProbeNews::Note(
                        "its clock was set: a sample without a valid time is omitted".into(),
                    )),
                }
            }
            Some(HostNews::Note(note) | HostNews::WatchNote(note)) => tell(ProbeNews::Note(note)),
            Some(HostNews::Counter(name, value))
                if counters.len() < COUNTERS_MAX || counters.contains_key(&name) =>
            {
                counters.insert(name, value);
            }
            _ => {}
        }
    }
    let clock = host
        .monotonic()
        .estimate(clock.now())
        .map(|estimate| estimate.offset);
    Ok(ProbeEnd {
        clock,
        counters,
        bytes: host.bytes(),
    })
}

/// Renames the sample to the host's address and converts its times to this machine's clock.
fn on_our_clock(sample: &Sample, address: &HostAddress, offset: ClockOffset) -> Arc<Sample> {
    Arc::new(Sample {
        host: address.to_string().into(),
        start: offset.to_ours(sample.start),
        end: offset.to_ours(sample.end),
        values: sample.values.clone(),
    })
}

/// Seconds since the command started; negative if the sample began earlier.
fn seconds(at: Nanos, begin: Nanos) -> f64 {
    (at.0 as f64 - begin.0 as f64) / 1e9
}

/// Prints a sample as a line.
fn print(address: &HostAddress, sample: &Sample, begin: Nanos, output: &Output) {
    let values = sample
        .values
        .iter()
        .map(|one| (&*one.probe, &*one.instance, &*one.metric, one.value));
    let figures = host_figures(values).join("  ");
    output.line(format_args!(
        "{:9.3} s  {address}  {figures}",
        seconds(sample.end, begin)
    ));
}

fn as_json(sample: &Sample, begin: Nanos) -> Value {
    let values: Vec<Value> = sample
        .values
        .iter()
        .map(|one| json!({ "probe": one.probe, "instance": &*one.instance, "metric": one.metric, "value": one.value }))
        .collect();
    json!({ "start_s": seconds(sample.start, begin), "end_s": seconds(sample.end, begin), "values": values })
}

/// Prints the last lines and the object: the clock accuracy of each host, and missing data.
fn finish(
    addresses: &[HostAddress],
    ends: Vec<Result<ProbeEnd, HostError>>,
    samples: Vec<Vec<Value>>,
    left_out: u64,
    output: &Output,
) -> Done {
    let (mut list, mut lost) = (Vec::new(), 0);
    for ((address, end), samples) in addresses.iter().zip(ends).zip(samples) {
        let mut entry = json!({ "host": address.to_string(), "samples": samples });
        match end {
            Ok(end) => {
                match end.clock {
                    Some(clock) => output.note(format_args!(
                        "{address}: times ± {:.3} ms",
                        clock.error().as_secs_f64() * 1e3
                    )),
                    None => {
                        output.note(format_args!("{address}: its clock was set in the meantime"))
                    }
                }
                for (name, count) in &end.counters {
                    output.note(format_args!("{address}: {name} {count}"));
                }
                entry["clock_error_ns"] =
                    json!(end.clock.map(|clock| clock.error().as_nanos() as u64));
                entry["counters"] = json!(end.counters);
                entry["sent_bytes"] = json!(end.bytes[0]);
                entry["received_bytes"] = json!(end.bytes[1]);
            }
            Err(error) => {
                lost += 1;
                output.note(format_args!("{address}: {error}"));
                entry["error"] = json!(error.to_string());
            }
        }
        list.push(entry);
    }
    if left_out > 0 {
        output.note(format_args!(
            "{left_out} samples are omitted, because the object would be too large"
        ));
    }
    output.object(&json!({ "hosts": list, "samples_left_out": left_out }));
    match lost {
        0 => Ok(()),
        lost => Err(Failure::failed(format!(
            "{lost} of {} hosts were lost or could not be reached",
            addresses.len()
        ))),
    }
}
