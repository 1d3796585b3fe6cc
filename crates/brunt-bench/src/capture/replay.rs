//! `brunt-bench capture FILE --replay IFACE`: sends a capture file out of an interface, at a given rate or as fast as
//! the interface accepts it, to test a live capture at the other end.

use std::path::Path;
use std::time::{Duration, Instant};

use brunt_capture::{FileSource, LiveError, PacketBatch, Transmitter};
use brunt_core::quantity::Span;
use serde_json::json;

use crate::{BenchError, BenchResult, Console};

/// Frames per send call.
const BATCH: usize = 64;
/// Maximum size of a file, because it is held in memory while it is sent.
const FILE_BYTES_MAX: usize = 4 << 30;

/// How to send a file.
pub struct Replay<'a> {
    /// The interface's name.
    pub interface: &'a str,
    /// Number of times to send the file, unless `duration` is given.
    pub times: u32,
    /// How long to send the file.
    pub duration: Option<Span>,
    /// Maximum rate in gigabits per second.
    pub rate: Option<f64>,
}

impl Replay<'_> {
    /// Sends a file and prints the rate.
    ///
    /// # Errors
    /// The file is not a capture, or sending on the interface fails.
    pub fn run(&self, file: &Path, output: &dyn Console) -> BenchResult {
        if self.rate.is_some_and(|rate| rate.is_nan() || rate <= 0.0) {
            return Err(BenchError::usage(
                "--rate must be a number of gigabits per second above zero",
            ));
        }
        let frames = Frames::load(file)?;
        let sent = self.send(&frames, output)?;
        output.line(format_args!(
            "{} packets sent in {:.3} s: {:.3} Gb/s, {:.0} packets/s; {} send retries (full queue)",
            sent.packets,
            sent.seconds,
            sent.gbit(),
            sent.packets as f64 / sent.seconds,
            sent.full
        ));
        output.object(&json!({
            "packets": sent.packets, "bytes": sent.bytes, "seconds": sent.seconds,
            "gbit_per_s": sent.gbit(), "interface_full": sent.full,
        }));
        Ok(())
    }

    /// Sends frames.
    ///
    /// # Errors
    /// The interface doesn't exist, rejects a frame, or may not be used.
    pub fn send(&self, frames: &Frames, output: &dyn Console) -> Result<SentPackets, BenchError> {
        let sender = Transmitter::open(self.interface).map_err(|error| match error {
            LiveError::NotAllowed { .. } => BenchError::failed(error),
            error => BenchError::usage(error),
        })?;
        let frames: Vec<&[u8]> = frames.each().collect();
        let started = Instant::now();
        let end = self.duration.map(|duration| started + duration.0);
        let (mut sent, mut sent_bytes, mut full) = (0u64, 0u64, 0u64);
        let mut round = 0;
        'rounds: while end.map_or(round < self.times, |end| Instant::now() < end) {
            round += 1;
            for batch in frames.chunks(BATCH) {
                if output.is_interrupted() || end.is_some_and(|end| Instant::now() >= end) {
                    break 'rounds;
                }
                full += sender.send(batch).map_err(|error| {
                    BenchError::failed(format!("cannot send on {}: {error}", self.interface))
                        .advise("Raise the interface's MTU to the largest packet's (`ip link set … mtu …`)")
                })?;
                sent += batch.len() as u64;
                sent_bytes += batch.iter().map(|frame| frame.len() as u64).sum::<u64>();
                if let Some(rate) = self.rate {
                    let due = started + Duration::from_secs_f64(sent_bytes as f64 * 8e-9 / rate);
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
            }
        }
        Ok(SentPackets {
            packets: sent,
            bytes: sent_bytes,
            seconds: started.elapsed().as_secs_f64(),
            full,
        })
    }
}

/// The amount of traffic sent, and the time it took.
#[derive(Clone, Copy, Debug, Default)]
pub struct SentPackets {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long sending took.
    pub seconds: f64,
    /// Number of send retries because the interface's queue was full (or a signal arrived).
    pub full: u64,
}

impl SentPackets {
    /// Gigabits per second.
    pub fn gbit(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.seconds
    }
}

/// The packets of a file, in memory.
pub struct Frames {
    bytes: Vec<u8>,
    extents: Vec<FrameExtent>,
}

impl Frames {
    /// Reads a file.
    pub fn load(file: &Path) -> Result<Frames, BenchError> {
        let (bytes, extents) = load(file)?;
        Ok(Frames { bytes, extents })
    }

    fn each(&self) -> impl Iterator<Item = &[u8]> {
        let extents = self.extents.iter();
        extents.map(|(at, len)| &self.bytes[*at..at + len])
    }
}

/// Offset and length of a frame.
type FrameExtent = (usize, usize);

/// Loads the file's packets, concatenated.
fn load(file: &Path) -> Result<(Vec<u8>, Vec<FrameExtent>), BenchError> {
    let mut source = FileSource::open(file).map_err(BenchError::usage)?;
    let (mut batch, mut bytes, mut frames) = (PacketBatch::default(), Vec::new(), Vec::new());
    while source.fill(&mut batch).map_err(BenchError::usage)? {
        for packet in batch.packets() {
            if bytes.len() + packet.bytes.len() > FILE_BYTES_MAX {
                return Err(BenchError::usage(format!(
                    "{} is larger than 4 GiB",
                    file.display()
                )));
            }
            frames.push((bytes.len(), packet.bytes.len()));
            bytes.extend_from_slice(packet.bytes);
        }
    }
    if frames.is_empty() {
        return Err(BenchError::usage(format!(
            "{} contains no packets",
            file.display()
        )));
    }
    Ok((bytes, frames))
}
