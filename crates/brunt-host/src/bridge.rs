//! The bridge on an agent's host: our link emulator between two of the host's interfaces, for a machine in the
//! network path of an experiment. Also contains the faults that impair packets on the bridge.
//!
//! The rule: an agent has at most one bridge, which forwards packets unchanged unless a fault impairs them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brunt_core::Clock;
use brunt_lab::link::{BridgeConfig, PacketWatcher, Settings, WireBridge};
use brunt_lab::{Fault, FaultError, Proof};
use brunt_result::link::{CaptureCounts, LinkCounts, LinkReport};

/// A capture file for the packets that cross a bridge. The program supplies it ([`OpenPacketSink`]), because agents
/// do not implement capture formats.
pub trait PacketSink: Send {
    /// Packets written so far, and packets lost.
    fn counts(&self) -> CaptureCounts;

    /// Completes the file after the watcher was dropped.
    fn finish(self: Box<Self>) -> SavedPackets;
}

/// The contents of a completed [`PacketSink`].
#[derive(Debug)]
pub struct SavedPackets {
    /// Packets in the file, and packets that are missing from it.
    pub counts: CaptureCounts,
    /// The error that cut the file short.
    pub error: Option<io::Error>,
}

/// A capture file that was created, and the watcher that passes packets to it.
pub type OpenedPacketSink = (Box<dyn PacketSink>, Box<dyn PacketWatcher>);

/// Creates a capture file at this path for packets that arrive on these two interfaces. Fails if the file already
/// exists.
pub type OpenPacketSink = fn(&Path, &[String; 2]) -> io::Result<OpenedPacketSink>;

/// A connection's bridge, if there is one. Clones share the bridge.
#[derive(Clone, Debug)]
pub(crate) struct AgentBridge {
    held: Arc<Mutex<Option<HeldBridge>>>,
    packet_sink: OpenPacketSink,
}

/// A bridge, and the capture file for its packets.
struct HeldBridge {
    bridge: WireBridge,
    capture: Option<BegunCapture>,
}

/// A capture file, and its watcher.
type Watched = (BegunCapture, Box<dyn PacketWatcher>);

/// The capture file of a bridge.
struct BegunCapture {
    path: PathBuf,
    file: Box<dyn PacketSink>,
}

impl fmt::Debug for HeldBridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bridge.fmt(f)
    }
}

impl HeldBridge {
    fn report(&mut self) -> LinkReport {
        LinkReport {
            captured: self.capture.as_ref().map(|capture| capture.file.counts()),
            ..self.bridge.report()
        }
    }
}

impl AgentBridge {
    /// Packets are saved to files created by `packet_sink`.
    pub fn new(packet_sink: OpenPacketSink) -> AgentBridge {
        AgentBridge {
            held: Arc::default(),
            packet_sink,
        }
    }

    fn held(&self) -> MutexGuard<'_, Option<HeldBridge>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The traffic so far; `None` if there is no bridge, or if it has ended because an interface is gone.
    pub fn report(&self) -> Option<LinkReport> {
        self.held()
            .as_mut()
            .filter(|held| !held.bridge.has_ended())
            .map(HeldBridge::report)
    }
}

/// The fault that forwards packets between two interfaces for as long as it is injected.
pub(crate) struct Forwarding {
    bridge: AgentBridge,
    interfaces: [String; 2],
    seed: u64,
    capture: Option<PathBuf>,
    /// Whether this fault started the bridge.
    started: bool,
}

impl Forwarding {
    /// If `capture` is given, packets are saved to that file.
    pub fn new(
        bridge: AgentBridge,
        interfaces: [String; 2],
        seed: u64,
        capture: Option<PathBuf>,
    ) -> Forwarding {
        Forwarding {
            bridge,
            interfaces,
            seed,
            capture,
            started: false,
        }
    }

    /// Creates the capture file, if requested.
    fn start_capture(&self) -> Result<Option<Watched>, FaultError> {
        let Some(path) = &self.capture else {
            return Ok(None);
        };
        let opened = (self.bridge.packet_sink)(path, &self.interfaces);
        let begun = opened.map(|(file, watcher)| {
            let path = path.clone();
            (BegunCapture { path, file }, watcher)
        });
        begun.map(Some).map_err(|error| {
            let what = format!("cannot save packets to {}", path.display());
            let advice =
                "set capture to a file that does not exist yet, in an existing folder".to_string();
            self.refused(&what, error, advice)
        })
    }

    fn refused(&self, what: &str, source: io::Error, advice: String) -> FaultError {
        FaultError::Refused {
            fault: self.describe(),
            what: what.to_string(),
            source,
            advice,
        }
    }
}

impl Fault for Forwarding {
    fn describe(&self) -> String {
        format!(
            "bridge of {} and {}",
            self.interfaces[0], self.interfaces[1]
        )
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let mut held = self.bridge.held();
        if held.is_some() {
            let source = io::Error::from(io::ErrorKind::AlreadyExists);
            let advice = "an agent can have only one bridge: use another host for the second one"
                .to_string();
            return Err(self.refused("a bridge already exists", source, advice));
        }
        let (capture, watcher) = self.start_capture()?.unzip();
        let config = BridgeConfig {
            interfaces: self.interfaces.clone(),
            settings: Default::default(),
            seed: self.seed,
            watcher,
        };
        let started = WireBridge::start(config).map_err(|error| {
            // Without a bridge, no packets reach the capture file, so remove it.
            capture
                .iter()
                .for_each(|capture| drop(std::fs::remove_file(&capture.path)));
            let advice = error.advice();
            self.refused("cannot forward", io::Error::other(error), advice)
        })?;
        let notes = started.notes().join("; ");
        *held = Some(HeldBridge {
            bridge: started,
            capture,
        });
        self.started = true;
        let at = clock.now();
        Ok(Proof {
            at,
            seen: at,
            what: notes,
            value: None,
        })
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let fault = self.describe();
        self.started = false;
        let Some(HeldBridge { bridge, capture }) = self.bridge.held().take() else {
            return Err(FaultError::Misuse {
                fault,
                what: "it has stopped forwarding",
            });
        };
        let end = bridge.stop();
        let saved = capture.map(saved).unwrap_or_default();
        if let Some(error) = end.error {
            return Err(FaultError::NotShown {
                fault,
                seen: format!("an interface disappeared: {error}"),
            });
        }
        let at = clock.now();
        let packets = end.report.there.packets + end.report.back.packets;
        let what = format!(
            "{packets} packets arrived in total; {} were in flight at the end{saved}",
            end.left.iter().sum::<u64>()
        );
        Ok(Proof {
            at,
            seen: at,
            what,
            value: None,
        })
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        if self.started {
            let held = self.bridge.held().take();
            if let Some(HeldBridge { bridge, capture }) = held {
                // Waits until the last packets are in the file, because this process may end afterwards.
                drop(bridge);
                capture.map(saved);
            }
        }
    }
}

/// Completes a capture file and describes its contents.
fn saved(capture: BegunCapture) -> String {
    let SavedPackets { counts, error } = capture.file.finish();
    let why = error.map(|error| format!(" ({error})")).unwrap_or_default();
    format!(
        "; {} of them are in {}, {} are missing{why}",
        counts.packets,
        capture.path.display(),
        counts.lost
    )
}

/// For tests: a capture file to which no packet is saved.
#[cfg(test)]
pub(crate) fn empty_file(path: &Path, _: &[String; 2]) -> io::Result<OpenedPacketSink> {
    struct Empty;
    impl PacketSink for Empty {
        fn counts(&self) -> CaptureCounts {
            CaptureCounts::default()
        }

        fn finish(self: Box<Self>) -> SavedPackets {
            let (counts, error) = Default::default();
            SavedPackets { counts, error }
        }
    }
    impl PacketWatcher for Empty {
        fn on_packet(&mut self, _: brunt_lab::link::Direction, _: std::time::Duration, _: &[u8]) {}

        fn on_pause(&mut self) {}
    }
    std::fs::File::create_new(path)?;
    Ok((Box::new(Empty), Box::new(Empty)))
}

/// The fault that impairs a bridge's packets.
pub(crate) struct Impairment {
    bridge: AgentBridge,
    settings: [Settings; 2],
    before: Option<LinkReport>,
}

impl Impairment {
    /// Impairs packets with these link settings, one per direction.
    pub fn new(bridge: AgentBridge, settings: [Settings; 2]) -> Impairment {
        Impairment {
            bridge,
            settings,
            before: None,
        }
    }

    /// Changes the bridge; returns the time of the change, and the counts up to then.
    fn change(
        &self,
        settings: [Settings; 2],
    ) -> Result<(brunt_core::Nanos, LinkReport), FaultError> {
        let mut held = self.bridge.held();
        let Some(held) = held.as_mut().filter(|held| !held.bridge.has_ended()) else {
            return Err(FaultError::Misuse {
                fault: self.describe(),
                what: "there is no bridge, or it has ended",
            });
        };
        let report = held.report();
        let changed = held.bridge.change(settings);
        let at = changed.map_err(|error| {
            FaultError::refused(self.describe(), "cannot change the bridge", error)
        })?;
        Ok((at, report))
    }
}

impl Fault for Impairment {
    fn describe(&self) -> String {
        "impairment of the bridge".to_string()
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let (at, before) = self.change(self.settings.clone())?;
        self.before = Some(before);
        let what = "the bridge's thread applies the impairment to all packets from this time on"
            .to_string();
        Ok(Proof {
            at,
            seen: clock.now(),
            what,
            value: None,
        })
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let fault = self.describe();
        let Some(before) = self.before.take() else {
            return Err(FaultError::Misuse {
                fault,
                what: "it is not injected",
            });
        };
        let (at, after) = self.change(Default::default())?;
        let seen = after.since(&before);
        let ways = [
            (&seen.there, &self.settings[0]),
            (&seen.back, &self.settings[1]),
        ];
        let impaired = ways
            .iter()
            .filter(|(_, settings)| !settings.is_clear())
            .map(|(counts, _)| **counts);
        let packets: u64 = impaired.clone().map(|counts| counts.packets).sum();
        if packets == 0 {
            let seen = "no packet crossed the bridge during the fault".to_string();
            return Err(FaultError::NotShown { fault, seen });
        }
        let lost: u64 = impaired
            .clone()
            .map(|counts| counts.lost + counts.queue_full)
            .sum();
        let what = format!(
            "{packets} packets arrived during the fault: {}",
            what_happened(impaired)
        );
        Ok(Proof {
            at,
            seen: clock.now(),
            what,
            value: Some(lost as f64),
        })
    }
}

impl Drop for Impairment {
    fn drop(&mut self) {
        if self.before.take().is_some() {
            // If the bridge is gone, there is nothing to reset.
            let _ = self.change(Default::default());
        }
    }
}

/// Summarizes what happened to packets.
fn what_happened(all: impl Iterator<Item = LinkCounts> + Clone) -> String {
    let sum = |get: fn(&LinkCounts) -> u64| all.clone().map(|counts| get(&counts)).sum::<u64>();
    let parts = [
        (sum(|counts| counts.delivered), "sent"),
        (sum(|counts| counts.lost), "lost"),
        (sum(|counts| counts.queue_full), "lost in the full queue"),
        (sum(|counts| counts.duplicated), "duplicated"),
        (sum(|counts| counts.corrupted), "corrupted"),
        (sum(|counts| counts.held), "held back"),
        (sum(|counts| counts.ecn_marked), "marked"),
        (sum(|counts| counts.fins_held), "FINs delayed"),
    ];
    let nonzero = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"));
    nonzero.collect::<Vec<_>>().join(", ")
}
