//! `brunt replay`: replays a block trace once, as a shorthand for an experiment with one workload. `brunt-load`
//! replays it. [`super::replay_nfs`] replays NFS calls.

use std::ffi::{OsStr, OsString};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brunt_block::backends::join::JoinedBackend;
use brunt_core::Span;
use brunt_core::device_path;
use brunt_core::units::{format_grouped, parse_duration};
use brunt_load::load::{LoadTarget, RunOrder};
use brunt_load::replay::ReplayLoad;
use brunt_load::replay::settings::{AddressMap, Conflicts, QUEUE_DEPTH, ReplayTiming};
use brunt_load::{Load, LoadError, NoRecorder, Recorder, Workload, WorkloadError, decisions};
use brunt_result::record::Stopped;
use brunt_result::replay::{ReplayDigests, ReplayFidelity, ReplayVerdict, UnsentRequests};
use brunt_result::summary::RunSummary;
use brunt_study::observe::Observer;
use brunt_trace::{FORMATS, TraceReading};
use brunt_web::live::LivePlan;
use clap::ValueEnum;
use clap::builder::{OsStringValueParser, TypedValueParser};
use serde_json::json;

use super::Subcommand;
use super::engine::EngineFlag;
use super::replay_nfs::{self, NfsArgs, SharedArgs};
use crate::cli::{Done, Failure, Output};
use crate::devices::url_parser;
use crate::lab::{WatchSockets, WatchedAt};
use crate::lone_run::LoneRun;
use crate::metrics::run::RunMetrics;
use crate::metrics::{finish, serve};
use crate::{devices, live};

/// Interval of the figures of a replay that is being watched.
const WATCHED_INTERVAL: Duration = Duration::from_secs(1);

/// Replay a block trace on a device, or captured NFS calls on an NFS server, and judge the replay
///
/// Requests are sent with the trace's original timing, even if the device is slow, unless --timing says otherwise.
/// The verdict is true, degraded or not a replay; docs/replay.md explains the limits. An experiment (`brunt run`)
/// with `trace = …` in a workload also has repetitions, sweeps, faults and a report.
#[derive(clap::Args)]
pub struct Replay {
    /// The trace: plain, packed with gzip, zstd, xz, bzip2 or lz4, or in a tar or zip archive
    trace: PathBuf,
    /// Where to replay it: a path, null:SIZE, memory:SIZE, or another device URL
    #[arg(required_unless_present = "devices", conflicts_with = "devices", value_parser = url_parser())]
    target: Option<String>,
    /// Instead of TARGET: where to replay one device of the trace. Can be repeated. Requests for devices that are not
    /// named are left out. `brunt trace info` lists the names
    #[arg(long = "device", value_name = "NAME=TARGET", value_parser = OsStringValueParser::new().try_map(route))]
    devices: Vec<DeviceRoute>,
    /// Format of the trace, if it cannot be detected
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(FORMATS.iter().map(|format| format.name)))]
    format: Option<String>,
    #[command(flatten)]
    reading: TraceReading,
    /// Speed: 2 replays the trace at twice its speed
    #[arg(long, value_name = "FACTOR")]
    speed: Option<f64>,
    /// Short for --timing depth
    #[arg(long, conflicts_with_all = ["speed", "timing"])]
    as_fast_as_possible: bool,
    /// When requests are due
    #[arg(long, value_enum, default_value = "trace")]
    timing: Timing,
    /// How addresses in the trace map to the target
    #[arg(long, value_enum, default_value = "as-is")]
    map: Map,
    /// Requests outstanding per worker
    #[arg(long, default_value_t = QUEUE_DEPTH)]
    depth: u32,
    /// Worker threads
    #[arg(long, default_value_t = 1)]
    workers: u32,
    /// Start this far into the trace, such as 10m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    from: Option<Duration>,
    /// Replay this much of the trace, such as 5m
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    length: Option<Duration>,
    /// How many times to replay it
    #[arg(long = "loop", value_name = "TIMES")]
    repeat: Option<u32>,
    /// What to do with a request that overlaps one in flight if either of them changes data
    #[arg(long, value_enum, default_value = "let-through")]
    conflicts: Rule,
    /// How long before a request is due the worker stops sleeping and polls the clock; 0: never poll
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    spin: Option<Duration>,
    /// Write each block with its address and a checksum, and check them when reading
    #[arg(long)]
    verify: bool,
    /// Seed of the data to write
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write even if the device contains a partition table or a file system
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    engine: EngineFlag,
    /// Serve Prometheus metrics of the replay at this address (port 0 picks a free port)
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Serve the live page of the replay at this address, to watch it in a browser. Only this machine can open the
    /// page unless the address says otherwise
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = live::DEFAULT,
        value_parser = live::parse_address)]
    serve: Option<SocketAddr>,
    #[command(flatten)]
    nfs: NfsArgs,
}

/// Maps a device in the trace to a target.
#[derive(Clone)]
struct DeviceRoute {
    device: String,
    url: String,
}

/// The text isn't a valid [`DeviceRoute`].
#[derive(Debug, thiserror::Error)]
#[error("write NAME=TARGET, such as hm-0=disk.img: a device of the trace and a device URL")]
struct NoRoute;

fn route(text: OsString) -> Result<DeviceRoute, NoRoute> {
    let bytes = text.as_bytes();
    let equals = bytes.iter().position(|byte| *byte == b'=').ok_or(NoRoute)?;
    let (device, url) = (&bytes[..equals], &bytes[equals + 1..]);
    match std::str::from_utf8(device) {
        Ok(device) if !url.is_empty() => Ok(DeviceRoute {
            device: device.into(),
            url: device_path::from_argument(OsStr::from_bytes(url).into()),
        }),
        _ => Err(NoRoute),
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Timing {
    /// With the trace's original timing
    Trace,
    /// As fast as possible at the queue depth
    Depth,
    /// Each request when those that preceded it in the trace have completed
    Dependency,
}

#[derive(Clone, Copy, ValueEnum)]
enum Map {
    /// The addresses of the trace, unchanged
    AsIs,
    /// Address modulo the device's size
    Wrap,
    /// Scaled to the device's size
    Scale,
    /// Only the parts that the trace accesses, packed together
    Pack,
}

#[derive(Clone, Copy, ValueEnum)]
enum Rule {
    /// Send it anyway
    LetThrough,
    /// Delay it and all requests after it
    HoldBack,
    /// Do not send it
    Drop,
}

impl Subcommand for Replay {
    const NAME: &'static str = "replay";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt replay requests.vscsi null:64GiB",
            "replay with the original timing on a null device",
        ),
        (
            "brunt replay mysql.load.gz memory:4GiB --speed 15 --map pack",
            "replay 15 times as fast, in less space",
        ),
        (
            "brunt replay mysql.load.gz disk.img --map wrap --as-fast-as-possible --depth 32 --json",
            "replay as fast as possible, with JSON output",
        ),
        (
            "brunt replay requests.vscsi null:64GiB --serve",
            "watch the replay in a browser (the address is printed first)",
        ),
        (
            "brunt replay /tmp/trace nfs://server/export/ --timing dependency",
            "replay the NFS calls of a captured trace on another server",
        ),
        (
            "brunt replay server.msr.csv --device hm-0=disk.img --device hm-1=null:64GiB",
            "replay two of the trace's devices, each on its own target, in the trace's order",
        ),
    ];

    fn more_help() -> Option<String> {
        Some(super::devices::POINTER.to_string())
    }

    fn run(self, output: &Output) -> Done {
        self.engine.state()?;
        if let Some(url) = self.target.clone()
            && replay_nfs::is_folder(&url)
        {
            return self.run_nfs(&url, output);
        }
        if let Some(option) = self.nfs.first_set() {
            let what = format!("{option} needs a folder of an NFS server: nfs://server/export/");
            return Err(Failure::usage(what));
        }
        let (seed, overwrite) = (self.seed, self.overwrite);
        let sockets = WatchSockets::listen(WatchedAt {
            metrics: self.metrics,
            live: self.serve,
        })?;
        let targets = self.targets()?;
        let target = targets
            .iter()
            .map(|target| target.name.as_str())
            .collect::<Vec<_>>()
            .join(" + ");
        let workload = self.workload();
        workload.check().map_err(|error| wrong(&error))?;
        let named = !workload.devices.is_empty();
        let names: Vec<String> = targets.iter().map(|target| target.name.clone()).collect();
        let load = ReplayLoad::new(workload, if named { &names } else { &[] });
        let plan = || LivePlan::alone("replay", &load.describe(), env!("CARGO_PKG_VERSION"));
        let live = live::open(
            live::Shown::default(),
            sockets.live,
            Path::new("replay"),
            output,
            plan,
        )?;
        let (run, fidelity) = live::shown(live, |live, ending| {
            let (run, fidelity) = replay(
                &load,
                &targets,
                (seed, overwrite),
                sockets.metrics,
                live,
                output,
            )?;
            ending.trouble = trouble(&run, &fidelity);
            Ok((run, fidelity))
        })?;
        print(&described(&load, &run), &target, &run, &fidelity, output);
        let document = json!({
            "description": load.describe(),
            "target": target,
            "requests": fidelity.sent,
            "verdict": fidelity.verdict,
            "fidelity": fidelity,
            "run": run,
        });
        output.object(&document);
        trouble(&run, &fidelity).map_or(Ok(()), |why| Err(Failure::failed(why)))
    }
}

/// Why the command fails: the result doesn't count as a replay, or the user interrupted it. Otherwise `None`.
fn trouble(run: &RunSummary, fidelity: &ReplayFidelity) -> Option<String> {
    if fidelity.verdict == ReplayVerdict::NotAReplay {
        return Some(format!("not a replay: {}", fidelity.reasons.join("; ")));
    }
    (run.stopped == Stopped::Interrupted).then(|| {
        format!(
            "interrupted after {} of {} requests of the trace",
            fidelity.sent, fidelity.planned
        )
    })
}

/// Replays on these targets with this seed; `overwrite` allows the destruction of their data. Returns the figures and
/// the fidelity of the replay.
fn replay(
    load: &ReplayLoad,
    targets: &[ReplayTarget],
    (seed, overwrite): (u64, bool),
    metrics: Option<TcpListener>,
    live: Option<&live::Served>,
    output: &Output,
) -> Result<(RunSummary, Box<ReplayFidelity>), Failure> {
    // Find errors in the trace before opening a device for writing.
    let changes = targets
        .iter()
        .map(|target| load.changes_target(&target.name));
    let changes: Vec<bool> = changes
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(&error))?;
    let on = open(targets, &changes, overwrite, output)?;
    for note in load.open(&on, output.interrupt_flag()).map_err(failure)? {
        output.note(note);
    }
    let order = RunOrder::alone(seed);
    let figures = RunMetrics::alone("replay", &load.describe());
    let page = figures.clone();
    let server = serve(metrics, output, move || page.page())?;
    let mut observers: Vec<Box<dyn Observer>> = Vec::new();
    observers.extend(
        server
            .is_some()
            .then(|| Box::new(figures) as Box<dyn Observer>),
    );
    observers.extend(live.map(|live| live.page().observer()));
    let mut watched = LoneRun::begin(load.describe(), seed, observers);
    let recorder: &mut dyn Recorder = if watched.is_watched() {
        &mut watched
    } else {
        &mut NoRecorder
    };
    let ran =
        decisions::run(load, &on, &order, output.interrupt_flag(), recorder).map_err(failure)?;
    let fidelity = ran.finished.replay.expect("a replay has a fidelity");
    let mut run = RunSummary::of(&ran.outcome, 0, 0, seed, None);
    run.engine = ran.prepared.engine.map(|choice| choice.engine);
    watched.end(&run, &ran.outcome.figures);
    finish(server, output);
    Ok((run, fidelity))
}

/// A device on which to replay.
struct ReplayTarget {
    /// The URL without secrets.
    name: String,
    url: String,
}

/// Opens the targets and combines several into one device: for writing if the trace writes, otherwise read-only.
/// Rejects targets whose existing data would be overwritten.
fn open(
    targets: &[ReplayTarget],
    changes: &[bool],
    overwrite: bool,
    output: &Output,
) -> Result<LoadTarget, Failure> {
    let mut members = Vec::with_capacity(targets.len());
    for (target, changes) in targets.iter().zip(changes) {
        let device = devices::open(&target.url, !changes)?;
        if *changes {
            devices::guard(device.as_ref(), overwrite, devices::OVERWRITE, output)?;
        }
        members.push(device);
    }
    if let [device] = members.as_slice() {
        return Ok(LoadTarget::of(Arc::clone(device)));
    }
    let joined = JoinedBackend::written_at(members, |number| changes[number]);
    let joined = joined.map_err(|error| Failure::usage(format!("--device: {error}")))?;
    Ok(LoadTarget {
        parts: joined.ranges(),
        ..LoadTarget::of(Arc::new(joined))
    })
}

impl Replay {
    /// The devices on which to replay, each once.
    fn targets(&self) -> Result<Vec<ReplayTarget>, Failure> {
        let mut targets: Vec<ReplayTarget> = Vec::new();
        let urls = self
            .target
            .iter()
            .chain(self.devices.iter().map(|route| &route.url));
        for url in urls {
            let name = brunt_core::device_url::without_secrets(url);
            match targets.iter().find(|known| known.name == name) {
                None => targets.push(ReplayTarget {
                    name,
                    url: url.clone(),
                }),
                Some(known) if known.url == *url => {}
                Some(_) => {
                    let what = format!(
                        "--device: {name} is given with two different secrets; use only one"
                    );
                    return Err(Failure::usage(what));
                }
            }
        }
        for (at, route) in self.devices.iter().enumerate() {
            if self.devices[..at]
                .iter()
                .any(|before| before.device == route.device)
            {
                let what = format!(
                    "--device: {} is named twice; a device can go to only one target",
                    route.device
                );
                return Err(Failure::usage(what));
            }
        }
        Ok(targets)
    }

    /// Replays NFS calls. Rejects options that apply only to block requests.
    fn run_nfs(self, url: &str, output: &Output) -> Done {
        let other = [
            (self.format.is_some(), "--format"),
            (
                self.reading != TraceReading::default(),
                "an option that describes block traces",
            ),
            (!matches!(self.map, Map::AsIs), "--map"),
            (self.workers != 1, "--workers"),
            (self.from.is_some(), "--from"),
            (self.length.is_some(), "--for"),
            (self.repeat.is_some(), "--loop"),
            (!matches!(self.conflicts, Rule::LetThrough), "--conflicts"),
            (self.spin.is_some(), "--spin"),
            (self.verify, "--verify"),
            (self.overwrite, "--overwrite"),
            (self.metrics.is_some(), "--metrics"),
            (self.serve.is_some(), "--serve"),
        ];
        if let Some((_, option)) = other.into_iter().find(|(is_set, _)| *is_set) {
            let what = format!("{option} doesn't apply to a folder on an NFS server");
            return Err(Failure::usage(what));
        }
        let shared = SharedArgs {
            trace: &self.trace,
            url,
            timing: self.replay_timing(),
            speed: self.speed.unwrap_or(1.0),
            depth: self.depth,
            seed: self.seed,
        };
        self.nfs.clone().run(&shared, output)
    }

    fn replay_timing(&self) -> ReplayTiming {
        match (self.as_fast_as_possible, self.timing) {
            (true, _) | (_, Timing::Depth) => ReplayTiming::Depth,
            (_, Timing::Trace) => ReplayTiming::Trace,
            (_, Timing::Dependency) => ReplayTiming::Dependency,
        }
    }

    fn workload(self) -> Workload {
        let timing = self.replay_timing();
        Workload {
            trace: Some(self.trace),
            format: self.format,
            devices: self
                .devices
                .into_iter()
                .map(|route| {
                    (
                        route.device,
                        brunt_core::device_url::without_secrets(&route.url),
                    )
                })
                .collect(),
            reading: (self.reading != TraceReading::default()).then_some(self.reading),
            speed: self.speed,
            timing: Some(timing),
            map: Some(match self.map {
                Map::AsIs => AddressMap::AsIs,
                Map::Wrap => AddressMap::Wrap,
                Map::Scale => AddressMap::Scale,
                Map::Pack => AddressMap::Pack,
            }),
            conflicts: Some(match self.conflicts {
                Rule::LetThrough => Conflicts::LetThrough,
                Rule::HoldBack => Conflicts::HoldBack,
                Rule::Drop => Conflicts::Drop,
            }),
            from: self.from.map(Span),
            length: self.length.map(Span),
            repeat: self.repeat,
            spin: self.spin.map(Span),
            queue_depth: self.depth,
            workers: self.workers,
            verify: self.verify.then(Default::default),
            // Intervals are only needed if the replay is watched.
            interval: Span(
                self.metrics
                    .or(self.serve)
                    .map_or(Duration::ZERO, |_| WATCHED_INTERVAL),
            ),
            ..Workload::default()
        }
    }
}

/// Converts an error about a workload key, which is an option here.
fn wrong(error: &WorkloadError) -> Failure {
    match error.key {
        "trace" => Failure::usage(&error.what),
        "devices" => Failure::usage(format!("--device: {}", error.what)),
        "queue_depth" => Failure::usage(format!("--depth: {}", error.what)),
        key => {
            let option = key.strip_prefix("reading.").unwrap_or(key);
            Failure::usage(format!("--{option}: {}", error.what))
        }
    }
}

fn failure(error: LoadError) -> Failure {
    match &error {
        LoadError::Workload(error) => wrong(error),
        _ => Failure::failed(&error),
    }
}

/// Describes the replay and its engine.
fn described(load: &ReplayLoad, run: &RunSummary) -> String {
    let engine = run.engine.map(|engine| format!(", engine {engine}"));
    load.describe() + &engine.unwrap_or_default()
}

fn print(what: &str, target: &str, run: &RunSummary, fidelity: &ReplayFidelity, output: &Output) {
    let count = |count: u64| format_grouped(count as f64);
    output.line(format_args!("{what}, on {target}"));
    output.line(format_args!("verdict      {}", fidelity.verdict.name()));
    for reason in &fidelity.reasons {
        output.line(format_args!("             {reason}"));
    }
    let (sent, planned) = (count(fidelity.sent), count(fidelity.planned));
    let pieces = match fidelity.pieces == fidelity.sent {
        true => String::new(),
        false => format!(" ({} counting each piece)", count(fidelity.pieces)),
    };
    output.line(format_args!(
        "requests     {sent} of {planned} sent{pieces}, {} completed, {}/s",
        count(fidelity.completed),
        format_grouped(run.requests_per_second)
    ));
    if fidelity.unsent.total() > 0 {
        output.line(format_args!("not sent     {}", unsent(fidelity.unsent)));
    }
    if let Some(response) = &run.response {
        output.line(format_args!(
            "response     mean {:.1} µs, p50 {:.1} µs, p99 {:.1} µs, max {:.1} µs",
            response.mean_us, response.p50_us, response.p99_us, response.max_us
        ));
    }
    print_timing(fidelity, output);
    if let Some((depth, of_trace)) = depths(fidelity) {
        let of_trace =
            of_trace.map_or("not known".to_string(), |of_trace| format!("{of_trace:.1}"));
        output.line(format_args!(
            "depth        {depth:.1} other requests in flight on average when one is sent (trace {of_trace})"
        ));
    }
    output.line(format_args!(
        "order        {} reordered ({} on the same blocks), {} conflicts ({})",
        count(fidelity.reordered),
        count(fidelity.reordered_overlapping),
        count(fidelity.conflicts.requests),
        fidelity.conflicts.rule
    ));
    if fidelity.forced.planned > 0 {
        let (sent, planned) = (count(fidelity.forced.sent), count(fidelity.forced.planned));
        output.line(format_args!(
            "FUA          {sent} of {planned} FUA writes sent with FUA"
        ));
    }
    for told in &fidelity.devices {
        let name = told.device.as_deref().unwrap_or("all others");
        let p99 = told
            .issue_error
            .as_ref()
            .map_or("-".to_string(), |error| format!("{:.1} µs", error.p99_us));
        output.line(format_args!(
            "device       {name}: {} of {} sent, issue error p99 {p99}, {} late",
            count(told.sent),
            count(told.planned),
            count(told.late)
        ));
    }
    for (why, rows) in &fidelity.rows {
        output.line(format_args!("rows         {} {why}", count(*rows)));
    }
    let (sent, other) = digests(fidelity);
    output.line(format_args!("digest       {sent}"));
    if let Some(other) = other {
        output.line(format_args!("             {other}"));
    }
}

/// Number of requests that weren't sent, by reason.
fn unsent(unsent: UnsentRequests) -> String {
    let whys = [
        (unsent.dropped, "dropped because of conflicts"),
        (unsent.skipped, "due but not sent before the end"),
        (unsent.not_taken, "not accepted by the device"),
        (unsent.after_end, "not due before the end"),
    ];
    let count = |count: u64| format_grouped(count as f64);
    let whys = whys.into_iter().filter(|(requests, _)| *requests > 0);
    let whys: Vec<String> = whys
        .map(|(requests, why)| format!("{} {why}", count(requests)))
        .collect();
    match whys.as_slice() {
        [why] => why.clone(),
        whys => format!("{}: {}", count(unsent.total()), whys.join(", ")),
    }
}

/// Compares the digest of the sent requests with that of the planned requests. Adds the digest of the trace if it
/// differs from that of the planned requests.
fn digests(fidelity: &ReplayFidelity) -> (String, Option<String>) {
    let ReplayDigests {
        trace,
        planned,
        sent,
    } = &fidelity.digests;
    if sent == planned && sent == trace {
        return (format!("{sent}, equal to the trace's"), None);
    }
    let sent = match sent == planned {
        true => format!("{sent}, equal to that of the planned requests"),
        false => format!("{sent}, different from that of the planned requests, {planned}"),
    };
    let why = match fidelity.unsent.total() {
        0 => "the rows above show which requests were moved, repaired or split",
        _ => "the trace was not sent completely",
    };
    (
        sent,
        (planned != trace).then(|| format!("{trace} for the unmodified trace: {why}")),
    )
}

/// Mean number of requests in flight when a request was sent, in the replay and, if it has response times, in the
/// trace.
fn depths(fidelity: &ReplayFidelity) -> Option<(f64, Option<f64>)> {
    let moments = &fidelity.over_time;
    let all = moments.iter().map(|moment| moment.requests).sum::<u64>() as f64;
    let of_trace: Option<f64> = moments
        .iter()
        .map(|moment| Some(moment.trace_depth_mean? * moment.requests as f64))
        .sum();
    let sum: f64 = moments
        .iter()
        .map(|moment| moment.depth_mean * moment.requests as f64)
        .sum();
    (all > 0.0).then(|| (sum / all, of_trace.map(|of_trace| of_trace / all)))
}

/// Prints by how much send times deviate from the planned ones.
fn print_timing(fidelity: &ReplayFidelity, output: &Output) {
    let count = |count: u64| format_grouped(count as f64);
    if let Some(error) = &fidelity.issue_error {
        output.line(format_args!(
            "issue error  mean {:.1} µs, p50 {:.1} µs, p99 {:.1} µs, max {:.1} µs",
            error.mean_us, error.p50_us, error.p99_us, error.max_us
        ));
    }
    if let (Some(drift), Some(us)) = (fidelity.drift, fidelity.drift_us) {
        output.line(format_args!(
            "drift        {:.4} %, {us:.1} µs",
            drift * 100.0
        ));
    }
    let late = &fidelity.late;
    if fidelity.issue_error.is_some() {
        output.line(format_args!(
            "late         {} over 100 µs (worker {}, reader {}, device {}, full queue {}, conflict {})",
            count(late.total()),
            count(late.worker),
            count(late.reader),
            count(late.device),
            count(late.depth),
            count(late.conflict)
        ));
    }
    if let Some(gaps) = &fidelity.gaps {
        output.line(format_args!(
            "gaps         KS distance {:.4}, beyond 50 µs {:.4} (by chance under {:.4})",
            gaps.ks, gaps.ks_beyond_slack, gaps.by_chance
        ));
    }
}
