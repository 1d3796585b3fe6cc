//! `brunt capture`: reconstructs storage operations from packets in files and on live interfaces.

pub(super) mod findings;
mod health;
mod metrics;
mod page;
mod picture;
pub(super) mod places;
mod view;
mod watch;
pub(super) mod windows;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use brunt_capture::live::CapturePace;
use brunt_capture::{
    Analysed, Limits, LiveCapture, LiveError, LiveOptions, LiveReport, Parsers, Shares, Sink, live,
};
use brunt_core::quantity::{Size, Span};
use serde_json::Value;

use super::analyze::{self, AnalysisArgs};
use super::record::{self, KeepArgs, Keeper, Kind};
use crate::cli::{Done, Failure, Output};
use places::{LivePlaces, PlaceArgs};
use watch::{Watch, WatchOptions};
use windows::{WindowArgs, WindowContext};

/// Reconstruct NFS traffic from packets, live or from a file, and report on it
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("packets").required(true).args(["read", "interfaces"]))]
pub struct Capture {
    /// Read packets from this file (pcap, pcapng or snoop; plain, or packed with gzip, zstd, xz, bzip2 or lz4); `-` reads
    /// standard input.
    #[arg(short = 'r', long = "read", value_name = "FILE")]
    read: Option<PathBuf>,

    /// Capture on this interface. Can be repeated, for example for the two sides of a tap.
    #[arg(short = 'i', long = "interface", value_name = "INTERFACE")]
    interfaces: Vec<String>,

    /// Stop after this time and print the report (as Ctrl-C does at any time).
    #[arg(long = "for", value_name = "TIME", requires = "interfaces")]
    duration: Option<Span>,

    /// Number of parser threads, which share the connections. On a single core, 1 is the fastest for a file.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,

    /// How to read packets from the interfaces.
    #[arg(
        long,
        value_name = "HOW",
        default_value = "packet",
        requires = "interfaces"
    )]
    source: Origin,

    /// Memory for packets waiting to be parsed, per ring (with --source xdp: per interface).
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "128MiB",
        requires = "interfaces"
    )]
    ring: Size,

    /// Number of rings per interface, which share its connections; use more if one core cannot keep up.
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "interfaces",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    rings: u16,

    /// Capture only packets from or to this port, filtered by the kernel (can be repeated, up to 32 times). By
    /// default, all packets are examined: RPC is recognised on any port.
    #[arg(long = "port", value_name = "PORT", requires = "interfaces")]
    ports: Vec<u16>,

    /// Maximum number of bytes captured per packet. Checksums need whole packets; file handles and names need 512
    /// bytes.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "256KiB",
        requires = "interfaces"
    )]
    snap: Size,

    /// Do not enable promiscuous mode: packets to other hosts are not captured (a mirror port carries only those).
    #[arg(long, requires = "interfaces")]
    no_promiscuous: bool,

    /// Use the network card's hardware timestamps, if its clock is running. Only for a single interface, because the
    /// card's clock can differ from the host's.
    #[arg(long, requires = "interfaces")]
    hardware_times: bool,

    /// Serve Prometheus metrics at this address while capturing (port 0 picks a free port).
    #[arg(long, value_name = "ADDRESS", requires = "interfaces")]
    metrics: Option<SocketAddr>,

    /// Serve a live page at this address while capturing: rates, latencies, hot files, findings, and the health of the
    /// capture itself (port 0 picks a free port).
    #[arg(long, value_name = "ADDRESS", requires = "interfaces")]
    serve: Option<SocketAddr>,

    /// Print periodic status lines instead of the live view.
    #[arg(long, requires = "interfaces")]
    plain: bool,

    /// Treat each second as this many seconds: to test captures of weeks in minutes.
    #[arg(long, hide = true, value_name = "COUNT", default_value_t = 1, requires = "interfaces",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    faster: u32,

    #[command(flatten)]
    places: PlaceArgs,

    #[command(flatten)]
    analyses: AnalysisArgs,

    #[command(flatten)]
    windows: WindowArgs,

    #[command(flatten)]
    keep: KeepArgs,
}

/// `--source`.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// `AF_PACKET`: copies of the packets that the host receives and sends.
    Packet,
    /// `AF_XDP`: takes received packets away from the host, bypassing its network stack; for mirror ports that
    /// nothing else uses. Needs root; timestamps are taken when packets are read.
    Xdp,
}

impl super::Subcommand for Capture {
    const NAME: &'static str = "capture";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt capture -r nfs.pcapng.gz", "report on a capture file"),
        (
            "brunt capture -r -",
            "read from a pipe, such as the output of `tcpdump -w -`",
        ),
        (
            "brunt capture -r nfs.pcap --out DIR --keep 500GB",
            "save the trace as tables, at most 500 GB",
        ),
        (
            "brunt capture -i eth1 --out DIR --to s3://lake/tap-1",
            "move the trace to an object store as it is written",
        ),
        (
            "brunt capture -i eth1 --for 10m",
            "watch a mirror port for ten minutes, then report",
        ),
        (
            "brunt capture -i eth1 --source xdp",
            "bypass the kernel's network stack on a dedicated mirror port",
        ),
        (
            "brunt capture -i eth1 -i eth2 --metrics 127.0.0.1:9400",
            "capture both sides of a tap and serve metrics",
        ),
        (
            "brunt capture -i eth1 --window 1h --reports DIR",
            "capture for weeks, with a report for each hour",
        ),
        (
            "brunt capture -i eth1 --on-finding 'logger -t brunt' --serve 127.0.0.1:8080",
            "pass findings to the system log as they appear, and serve a live page",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        match &self.read {
            Some(file) => analyze::report(
                file,
                usize::from(self.workers),
                Some(&self.keep),
                (&self.windows, self.analyses.selected()?),
                None,
                output,
            ),
            None => self.live(output),
        }
    }
}

impl Capture {
    /// The options for the capture rings.
    ///
    /// # Errors
    /// Incompatible options are combined.
    fn live_options(&self) -> Result<LiveOptions, Failure> {
        if self.ports.len() > brunt_capture::live::PORTS_MAX {
            return Err(Failure::usage(format!(
                "{} ports: at most 32 can be filtered",
                self.ports.len()
            )));
        }
        if self.hardware_times && self.interfaces.len() > 1 {
            return Err(Failure::usage(
                "--hardware-times works with one interface only: the clocks of two cards differ",
            ));
        }
        if let Some(twice) = self
            .interfaces
            .iter()
            .find(|name| count(&self.interfaces, name) > 1)
        {
            return Err(Failure::usage(format!(
                "-i {twice} is given twice: its packets would be counted twice"
            )));
        }
        let xdp = self.source == Origin::Xdp;
        let is_by_ring = self.places.is_by_ring();
        if xdp && (!self.ports.is_empty() || self.rings > 1 || self.hardware_times || is_by_ring) {
            return Err(Failure::usage(
                "--source xdp cannot be combined with --port, --rings, --parsers ring or --hardware-times",
            )
            .advise(
                "omit these options: AF_XDP delivers all packets, through one socket per queue of the interface",
            ));
        }
        Ok(LiveOptions {
            origin: if xdp {
                live::Origin::Xdp
            } else {
                live::Origin::Packet
            },
            ring_bytes: self.ring.0 as usize,
            rings: usize::from(self.rings),
            snap_bytes: u32::try_from(self.snap.0).unwrap_or(u32::MAX).max(64),
            promiscuous: !self.no_promiscuous,
            hardware_times: self.hardware_times,
            ports: self.ports.clone(),
            parser_per_ring: is_by_ring,
            pace: match self.faster {
                1 => CapturePace::default(),
                factor => CapturePace::faster(factor),
            },
        })
    }

    fn live(&self, output: &Output) -> Done {
        let options = self.live_options()?;
        let selected = self.analyses.selected()?;
        let workers = self.places.workers(self.workers, self.rings)?;
        let places = self.places.resolve()?;
        let windows = self.windows.open(output)?;
        let context = WindowContext {
            name: self.interfaces.join(", "),
            board: self.windows.board(output)?,
            dropped: Arc::new(AtomicU64::new(0)),
        };
        let watching = WatchOptions {
            metrics: self.metrics,
            serve: self.serve,
            plain: self.plain,
            board: &context.board,
            name: context.name.clone(),
        };
        let watch = Watch::start(workers, watching, output)?;
        let open = || LiveCapture::open(&self.interfaces, &options, workers);
        let capture = places.open(open).map_err(|error| match error {
            LiveError::NotAllowed { .. } | LiveError::NoXdp { .. } => Failure::failed(error),
            error => Failure::usage(error),
        })?;
        self.note_start(&capture, &options, workers, output);
        let kind = Kind::Live {
            snap_bytes: options.snap_bytes,
            parcels: capture.parcels(),
        };
        let mut keeper = self.keep.start(workers, kind, output)?;
        // Without recordings, run only the analyses, which need less of each packet.
        let recorders = keeper.recorders();
        let analyses = analyze::analyses(&recorders, workers, selected);
        let (windows, sinks) = windows.start(analyses, context.clone())?;
        let used = RefCell::new(Value::Null);
        let run = LiveRun {
            capture,
            keeper: &keeper,
            watch,
            dropped: &context.dropped,
            places: &places,
            used: &used,
        };
        let (sinks, recorders, mut ledger, live, trouble) = if recorders.is_empty() {
            let (shares, live, trouble) = self.run_live(run, sinks, output)?;
            (shares.sinks, recorders, shares.ledger, live, trouble)
        } else {
            let sinks = sinks.into_iter().zip(recorders).collect();
            let (shares, live, trouble) = self.run_live(run, sinks, output)?;
            let (sinks, recorders) = shares.sinks.into_iter().unzip();
            (sinks, recorders, shares.ledger, live, trouble)
        };
        self.note_end(&live, output);
        let end = windows.finish(sinks, &ledger);
        let (mut extra, failure) = keeper.finish(recorders, &mut ledger, output);
        extra.extend(end.extra);
        extra.push(("pipelines", used.into_inner()));
        record::print(&end.analysis.report(&ledger), extra, output)?;
        if let Some(failure) = failure.or(end.failure) {
            return Err(failure);
        }
        match trouble {
            Some(error) => {
                Err(Failure::failed(error).advise("the report above covers everything before that"))
            }
            None => Ok(()),
        }
    }

    fn note_start(
        &self,
        capture: &LiveCapture,
        options: &LiveOptions,
        workers: usize,
        output: &Output,
    ) {
        output.note(format_args!(
            "capturing on {}: {} of ring, {} parser{}, {}",
            self.interfaces.join(", "),
            brunt_core::units::format_size(capture.ring_bytes(options) as u64),
            workers,
            if workers == 1 { "" } else { "s" },
            if self.ports.is_empty() {
                "all ports".into()
            } else {
                format!("ports {:?}", self.ports)
            }
        ));
    }

    fn note_end(&self, live: &LiveReport, output: &Output) {
        output.note(format_args!(
            "the kernel delivered {} packets, {} of which did not fit into the ring; timestamps are {}",
            live.counters.offered,
            live.counters.dropped,
            match (self.source == Origin::Xdp, live.counters.hardware_times) {
                (true, _) => "taken when packets were read",
                (false, 0) => "the kernel's",
                (false, _) => "the network card's",
            }
        ));
        if live.card_losses > 0 {
            output.note(format_args!(
                "the interfaces lost {} packets before they reached the ring (`ethtool -G` gives a card more buffers)",
                live.card_losses
            ));
        }
    }
}

impl Capture {
    /// Captures into one sink per parser, until the user or a condition ends the capture.
    fn run_live<S: Sink + Analysed + Send + 'static>(
        &self,
        run: LiveRun<'_>,
        sinks: Vec<S>,
        output: &Output,
    ) -> Result<(Shares<S>, LiveReport, Option<LiveError>), Failure> {
        let LiveRun {
            capture,
            keeper,
            mut watch,
            dropped,
            places,
            used,
        } = run;
        let at = places.parsers.clone();
        let parsers = Parsers::start(sinks, Limits::default(), capture.parcels(), at);
        let parsers = parsers.with_tap(keeper.tap());
        places.pin_reader(output);
        watch.tell_trace(keeper.status());
        let failed = keeper.watch();
        let end = self.duration.map(|duration| Instant::now() + duration.0);
        let keep_going = |capture: &LiveCapture, parsers: &Parsers<S>| {
            watch.tick(capture, parsers, keeper.moves());
            dropped.store(capture.packets_dropped(), Ordering::Relaxed);
            if let Some(status) = keeper.status() {
                status.set_packets_dropped(capture.packets_dropped());
            }
            let goes_on =
                !output.is_interrupted() && !failed() && end.is_none_or(|end| Instant::now() < end);
            if !goes_on {
                *used.borrow_mut() = self.places.used(parsers.count(), self.rings);
            }
            goes_on
        };
        let result = capture.run(parsers, keep_going);
        // Restore the terminal before printing anything else.
        watch.finish();
        result.map_err(Failure::failed)
    }
}

/// What a live capture needs while it runs.
struct LiveRun<'a> {
    capture: LiveCapture,
    keeper: &'a Keeper,
    watch: Watch,
    dropped: &'a AtomicU64,
    places: &'a LivePlaces,
    /// The resources used by the capture, set when it ends.
    used: &'a RefCell<Value>,
}

fn count(names: &[String], name: &str) -> usize {
    names.iter().filter(|other| *other == name).count()
}

/// The metrics page of a capture that hasn't seen any packets.
#[cfg(test)]
pub fn no_metrics() -> String {
    metrics::page(&picture::Picture::default())
}
