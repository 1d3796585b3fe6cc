//! The input of a measurement: a capture as a plain pcap file that every program can read, and its content.
//!
//! The rule: files generated for the run are removed with it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use brunt_capture::trace::pcap::{PacketFiles, PcapOptions};
use brunt_capture::{FileSource, Ledger, PacketBatch};
use brunt_wire::pcap::CapturedPacket;

use super::compose::{CaptureContent, compose};
use crate::BenchError;
use crate::scratch::Scratch;

/// The goals for a kind of capture, on two cores of a machine like the one they were set on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goals {
    /// All analyses on one core: gigabits per second.
    pub analyses_gbit: f64,
    /// Writing the trace on two cores: gigabits per second.
    pub trace_gbit: Option<f64>,
    /// Writing the trace on two cores: calls per second.
    pub trace_calls: Option<f64>,
    /// The capture's size divided by the trace's.
    pub smaller: f64,
    /// Whether the trace must be smaller than the capture compressed with `zstd -3`.
    pub below_zstd: bool,
}

/// The memory goal for any capture.
pub const MEMORY_BYTES_MAX: u64 = 300 << 20;
/// Calls that average at least this many bytes count as data transfers.
const LARGE_CALL_BYTES: u64 = 16 << 10;
/// Packets longer than this are jumbo frames.
const ORDINARY_PACKET_BYTES: u32 = 1600;

impl Goals {
    fn of(subject: &SubjectCapture) -> Goals {
        let large = subject.wire_bytes / subject.calls.max(1) >= LARGE_CALL_BYTES;
        let (analyses_gbit, trace_gbit) = match subject.packet_bytes_max > ORDINARY_PACKET_BYTES {
            _ if !large => (10.0, None),
            false => (20.0, Some(10.0)),
            true => (25.0, Some(12.0)),
        };
        Goals {
            analyses_gbit,
            trace_gbit,
            trace_calls: (!large).then_some(1e6),
            smaller: if large { 40.0 } else { 8.0 },
            below_zstd: !large,
        }
    }
}

/// A capture.
#[derive(Clone, Debug)]
pub struct SubjectCapture {
    /// The capture's display name.
    pub name: String,
    /// A plain pcap file.
    pub path: PathBuf,
    /// Its length.
    pub file_bytes: u64,
    /// Number of packets in the file.
    pub packets: u64,
    /// The packets' total length on the wire.
    pub wire_bytes: u64,
    /// The length of the longest packet.
    pub packet_bytes_max: u32,
    /// Number of RPC calls and SCSI commands in the file.
    pub calls: u64,
    /// Whether these are mostly SCSI commands, so that programs that only know NFS are left out.
    pub scsi: bool,
    /// Whether it was generated for the run, so that it contains no retransmissions.
    pub made: bool,
}

impl SubjectCapture {
    /// A file given by the user.
    pub fn of_file(file: &Path, scratch: &Scratch) -> Result<SubjectCapture, BenchError> {
        let name = file
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let mistake = |error: io::Error| BenchError::usage(format!("{}: {error}", file.display()));
        if is_plain(file).map_err(mistake)? {
            // An absolute path, because the programs run in other working directories.
            return SubjectCapture::new(name, file.canonicalize().map_err(mistake)?);
        }
        let path = scratch.join(&format!("{name}.pcap"));
        write_packets(file, &path, |_, _| Keep::Yes)?;
        SubjectCapture::new(name, path)
    }

    fn new(name: String, path: PathBuf) -> Result<SubjectCapture, BenchError> {
        let (mut packets, mut wire_bytes, mut packet_bytes_max) = (0, 0, 0);
        let mut source = FileSource::open(&path).map_err(BenchError::usage)?;
        let mut batch = PacketBatch::default();
        while source.fill(&mut batch).map_err(BenchError::usage)? {
            for packet in batch.packets() {
                packets += 1;
                wire_bytes += u64::from(packet.wire_len);
                packet_bytes_max = packet_bytes_max.max(packet.wire_len);
            }
        }
        let (calls, scsi) = calls_of(&path)?;
        if calls == 0 {
            let what = "it contains no RPC calls or SCSI commands";
            return Err(BenchError::usage(format!("{}: {what}", path.display())));
        }
        let file_bytes = fs::metadata(&path).map_err(BenchError::failed)?.len();
        Ok(SubjectCapture {
            name,
            path,
            file_bytes,
            packets,
            wire_bytes,
            packet_bytes_max,
            calls,
            scsi: scsi > calls / 2,
            made: false,
        })
    }

    /// The goals for this capture.
    pub fn goals(&self) -> Goals {
        Goals::of(self)
    }

    /// The first part of the capture as another file: its packets up to a total of `bytes`.
    pub fn part(&self, bytes: u64, to: &Path) -> Result<SubjectCapture, BenchError> {
        let mut written = 0;
        write_packets(&self.path, to, |_, packet| {
            written += packet.bytes.len() as u64 + 16;
            if written > bytes {
                Keep::End
            } else {
                Keep::Yes
            }
        })?;
        SubjectCapture::new(self.name.clone(), to.to_path_buf())
    }
}

/// The number of calls and commands, and how many of them are commands.
fn calls_of(path: &Path) -> Result<(u64, u64), BenchError> {
    struct Commands(u64);
    impl brunt_capture::Sink for Commands {
        fn on_operation(&mut self, operation: &brunt_capture::Operation<'_>) {
            self.0 += u64::from(operation.rpc().is_none());
        }
        fn on_checksums(&mut self, _: &brunt_capture::ChecksumRun<'_>) {}
    }
    let limits = brunt_capture::Limits::default();
    let outcome =
        brunt_capture::run_file(path, Commands(0), limits, || false).map_err(BenchError::usage)?;
    let ledger: Ledger = outcome.ledger;
    Ok((ledger.calls, outcome.sink.0))
}

/// Whether a file is uncompressed classic pcap, which every program can read.
fn is_plain(file: &Path) -> io::Result<bool> {
    let mut magic = [0; 4];
    let read = File::open(file)?.take(4).read(&mut magic)?;
    let numbers = [
        u32::from_ne_bytes(magic),
        u32::from_ne_bytes(magic).swap_bytes(),
    ];
    Ok(read == 4
        && numbers
            .iter()
            .any(|number| matches!(number, 0xa1b2_c3d4 | 0xa1b2_3c4d)))
}

/// What to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Write it.
    Yes,
    /// Leave out this packet.
    No,
    /// Leave out this packet and all later ones.
    End,
}

/// Copies the selected packets of a capture; `keep` is called with each packet and its number.
pub fn write_packets(
    from: &Path,
    to: &Path,
    mut keep: impl FnMut(u64, &CapturedPacket<'_>) -> Keep,
) -> Result<(), BenchError> {
    let failed = |error: io::Error| BenchError::failed(format!("{}: {error}", to.display()));
    let mut source = FileSource::open(from).map_err(BenchError::usage)?;
    let _ = fs::remove_file(to);
    let mut writer = PacketFiles::create(PcapOptions::new(to.to_path_buf())).map_err(failed)?;
    let (mut batch, mut index) = (PacketBatch::default(), 0);
    'packets: while source.fill(&mut batch).map_err(BenchError::usage)? {
        for packet in batch.packets() {
            match keep(index, &packet) {
                Keep::Yes => writer.write(&packet).map_err(failed)?,
                Keep::No => {}
                Keep::End => break 'packets,
            }
            index += 1;
        }
    }
    writer
        .finish()
        .1
        .map_or(Ok(()), |error| Err(failed(error)))?;
    Ok(())
}

/// A capture that is generated for the run.
pub struct Made {
    /// The capture's display name.
    pub name: &'static str,
    load: CaptureContent,
    mtu: usize,
    calls: u64,
}

impl Made {
    /// All generated captures, with as many calls as the captures that the goals were set on.
    pub const ALL: [Made; 4] = [
        Made {
            name: "64 KiB READ and WRITE, MTU 1500",
            load: CaptureContent::Large,
            mtu: 1500,
            calls: 20_000,
        },
        Made {
            name: "64 KiB READ and WRITE, MTU 9000",
            load: CaptureContent::Large,
            mtu: 9000,
            calls: 20_000,
        },
        Made {
            name: "small operations, MTU 1500",
            load: CaptureContent::Small,
            mtu: 1500,
            calls: 1_000_000,
        },
        Made {
            name: "64 KiB READ and WRITE over iSCSI, MTU 1500",
            load: CaptureContent::Scsi,
            mtu: 1500,
            calls: 20_000,
        },
    ];

    /// Generates the capture in a folder, at a tenth of the size if `quick`.
    pub fn subject(&self, folder: &Path, quick: bool) -> Result<SubjectCapture, BenchError> {
        let path = folder.join(format!(
            "{}-{}.pcap",
            match self.load {
                CaptureContent::Large => "large",
                CaptureContent::Small => "small",
                CaptureContent::Scsi => "iscsi",
            },
            self.mtu
        ));
        compose(
            &path,
            self.load,
            self.mtu,
            if quick { self.calls / 10 } else { self.calls },
        )?;
        Ok(SubjectCapture {
            made: true,
            ..SubjectCapture::new(self.name.to_string(), path)?
        })
    }
}
