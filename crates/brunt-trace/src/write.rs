//! Writes traces to files of several formats, and to tables. Called by `brunt trace convert`.
//!
//! The rule: a request that a format cannot express is left out and counted, by reason; only times are rounded.

use std::io::{self, Write};
use std::path::Path;

use brunt_core::Nanos;
use brunt_lake::{TableWriter, WriterOptions};
use serde::Serialize;

use crate::error::TraceError;
use crate::record::{BlockRequest, Devices, TraceOp};
use crate::tables::BLOCK_REQUESTS;

/// An output format.
pub struct Writer {
    /// The name that users type.
    pub name: &'static str,
    /// What it cannot express, in one line.
    pub cannot: &'static str,
    encoder: fn() -> Box<dyn Encode + Send>,
}

/// All file formats that can be written; `parquet` is a folder.
pub const WRITERS: &[Writer] = &[
    Writer {
        name: "spc",
        cannot: "device names, operations other than reads and writes, addresses that are not \
            multiples of 512, response times",
        encoder: || Box::new(Spc),
    },
    Writer {
        name: "iolog2",
        cannot: "times finer than a microsecond, response times, other commands; spaces in names \
            become `_`",
        encoder: || {
            Box::new(Iolog {
                version: 2,
                known: 0,
                last_us: 0,
            })
        },
    },
    Writer {
        name: "iolog3",
        cannot: "times finer than a microsecond, response times, other commands; spaces in names \
            become `_`",
        encoder: || {
            Box::new(Iolog {
                version: 3,
                known: 0,
                last_us: 0,
            })
        },
    },
    Writer {
        name: "msr",
        cannot: "times finer than 100 ns, operations other than reads and writes; unknown \
            response times become 0",
        encoder: || Box::new(Msr),
    },
    Writer {
        name: "vscsi1",
        cannot: "all devices but the first, times finer than a microsecond, response times, FUA, \
            addresses that are not multiples of 512, other commands",
        encoder: || Box::new(Vscsi { serial: 0 }),
    },
    Writer {
        name: "blkreplay",
        cannot: "all devices but the first, operations other than reads and writes, addresses and \
            lengths that are not multiples of 512",
        encoder: || Box::new(Load),
    },
    Writer {
        name: "hfplayer",
        cannot: "device names, operations other than reads and writes, addresses and lengths that \
            are not multiples of 512, FUA; unknown response times become 0",
        encoder: || Box::new(HfPlayer { rows: 0 }),
    },
];

/// Looks up a writer by name.
pub fn writer_named(name: &str) -> Option<&'static Writer> {
    WRITERS.iter().find(|writer| writer.name == name)
}

/// Counts of the requests to write, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WriteLedger {
    /// Number of requests written.
    pub written: u64,
    /// Left out: the format lacks this operation.
    pub left_out_operation: u64,
    /// Left out: the address or length isn't a multiple of the format's block size.
    pub left_out_unaligned: u64,
    /// Left out: the format supports only one device.
    pub left_out_device: u64,
}

/// Why a request is left out.
enum LeftOut {
    Operation,
    Unaligned,
    Device,
}

/// Encodes the rows of a file.
trait Encode {
    fn head(&mut self, _out: &mut Vec<u8>) {}
    /// Encodes a request; `since_ns` is its time since the first one.
    fn row(
        &mut self,
        request: &BlockRequest,
        since_ns: u64,
        name: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), LeftOut>;
    /// Ends the file; `devices` are all devices that occurred.
    fn tail(&mut self, _devices: &Devices, _out: &mut Vec<u8>) {}
}

/// The destination of a trace.
pub struct TraceSink {
    path: String,
    target: Target,
    /// The time of the first request, written as time zero.
    first_ns: Option<u64>,
    ledger: WriteLedger,
}

enum Target {
    File {
        out: Box<dyn Write + Send>,
        encoder: Box<dyn Encode + Send>,
        buffer: Vec<u8>,
        begun: bool,
    },
    Table(Box<TableWriter>),
}

/// Rows per part of a table.
const PART_ROWS: usize = 1 << 20;

impl TraceSink {
    /// Writes a file in a format, to any writer.
    pub fn file(path: String, out: Box<dyn Write + Send>, writer: &Writer) -> TraceSink {
        let encoder = (writer.encoder)();
        let target = Target::File {
            out,
            encoder,
            buffer: Vec::new(),
            begun: false,
        };
        TraceSink {
            path,
            target,
            first_ns: None,
            ledger: WriteLedger::default(),
        }
    }

    /// Writes the table [`BLOCK_REQUESTS`] to a folder, which is created if missing.
    ///
    /// # Errors
    /// The folder already has such a table, or cannot be written to.
    pub fn table(folder: &Path) -> Result<TraceSink, TraceError> {
        let options = WriterOptions {
            rows_max: PART_ROWS,
            ..WriterOptions::default()
        };
        let writer = TableWriter::create(folder, &BLOCK_REQUESTS, options)?;
        let (path, target) = (
            folder.display().to_string(),
            Target::Table(Box::new(writer)),
        );
        Ok(TraceSink {
            path,
            target,
            first_ns: None,
            ledger: WriteLedger::default(),
        })
    }

    /// Writes requests.
    ///
    /// # Errors
    /// Writing fails.
    pub fn write(
        &mut self,
        requests: &[BlockRequest],
        devices: &Devices,
    ) -> Result<(), TraceError> {
        let Some(first) = requests.first() else {
            return Ok(());
        };
        let first_ns = *self.first_ns.get_or_insert(first.time_ns);
        match &mut self.target {
            Target::File {
                out,
                encoder,
                buffer,
                begun,
            } => {
                buffer.clear();
                if !std::mem::replace(begun, true) {
                    encoder.head(buffer);
                }
                for request in requests {
                    // Files have no negative times, so times before the first request become zero.
                    let since_ns = request.time_ns.saturating_sub(first_ns);
                    let name = &devices.names()[request.device as usize];
                    match encoder.row(request, since_ns, name, buffer) {
                        Ok(()) => self.ledger.written += 1,
                        Err(LeftOut::Operation) => self.ledger.left_out_operation += 1,
                        Err(LeftOut::Unaligned) => self.ledger.left_out_unaligned += 1,
                        Err(LeftOut::Device) => self.ledger.left_out_device += 1,
                    }
                }
                out.write_all(buffer)
                    .map_err(|source| cannot_write(&self.path, source))
            }
            Target::Table(writer) => {
                // A part is closed only between commits, so memory is bounded by one part and one run.
                for run in requests.chunks(PART_ROWS / 16) {
                    append(writer, run, first_ns, devices);
                    writer.commit(Nanos(0))?;
                }
                self.ledger.written += requests.len() as u64;
                Ok(())
            }
        }
    }

    /// Writes the remaining data and returns the counts.
    ///
    /// # Errors
    /// Writing fails.
    pub fn finish(mut self, devices: &Devices) -> Result<WriteLedger, TraceError> {
        match &mut self.target {
            Target::File {
                out,
                encoder,
                buffer,
                begun,
            } => {
                buffer.clear();
                if !*begun {
                    encoder.head(buffer);
                }
                encoder.tail(devices, buffer);
                let written = out.write_all(buffer).and_then(|()| out.flush());
                written.map_err(|source| cannot_write(&self.path, source))?;
            }
            Target::Table(writer) => {
                writer.finish()?;
            }
        }
        Ok(self.ledger)
    }
}

fn cannot_write(path: &str, source: io::Error) -> TraceError {
    TraceError::Write {
        path: path.to_string(),
        source,
    }
}

fn append(writer: &mut TableWriter, requests: &[BlockRequest], first_ns: u64, devices: &Devices) {
    let rows = writer.rows();
    for request in requests {
        rows.row()
            .nanos_since(Nanos(request.time_ns), Nanos(first_ns))
            .text(&devices.names()[request.device as usize])
            .text(request.op.name())
            .bool(request.fua)
            .int(request.offset_bytes as i64)
            .int(request.len_bytes.into())
            .count_or_null(request.response_ns)
            .int_or_null(request.content.map(|content| content.0.get() as i64))
            .end();
    }
}

/// Bytes per sector, in formats that count them.
const SECTOR_BYTES: u64 = 512;

fn sectors(bytes: u64) -> Result<u64, LeftOut> {
    if bytes.is_multiple_of(SECTOR_BYTES) {
        Ok(bytes / SECTOR_BYTES)
    } else {
        Err(LeftOut::Unaligned)
    }
}

/// Appends formatted text to a buffer; this cannot fail.
macro_rules! put {
    ($out:expr, $($text:tt)*) => { write!($out, $($text)*).expect("writing to memory succeeds") };
}

struct Spc;

impl Encode for Spc {
    fn row(
        &mut self,
        request: &BlockRequest,
        since_ns: u64,
        _: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), LeftOut> {
        let op = letter(request.op)?;
        let (block, (seconds, nanos)) = (sectors(request.offset_bytes)?, split(since_ns));
        put!(
            out,
            "{},{block},{},{op},{seconds}.{nanos:09}\n",
            request.device,
            request.len_bytes
        );
        Ok(())
    }
}

fn letter(op: TraceOp) -> Result<char, LeftOut> {
    match op {
        TraceOp::Read => Ok('R'),
        TraceOp::Write => Ok('W'),
        TraceOp::Flush | TraceOp::Unmap | TraceOp::Other => Err(LeftOut::Operation),
    }
}

fn split(since_ns: u64) -> (u64, u64) {
    (since_ns / 1_000_000_000, since_ns % 1_000_000_000)
}

struct Iolog {
    version: u8,
    /// Number of devices already added and opened.
    known: u32,
    /// Time of the last wait, in version 2.
    last_us: u64,
}

impl Iolog {
    fn action(&self, us: u64, name: &str, action: &str, out: &mut Vec<u8>) {
        if self.version == 3 {
            put!(out, "{us} ");
        }
        // Names must be single words.
        out.extend(name.bytes().map(|byte| {
            if byte.is_ascii_whitespace() {
                b'_'
            } else {
                byte
            }
        }));
        put!(out, " {action}\n");
    }
}

impl Encode for Iolog {
    fn head(&mut self, out: &mut Vec<u8>) {
        put!(out, "fio version {} iolog\n", self.version);
    }

    fn row(
        &mut self,
        request: &BlockRequest,
        since_ns: u64,
        name: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), LeftOut> {
        let action = match request.op {
            TraceOp::Read => "read",
            TraceOp::Write => "write",
            TraceOp::Flush => "sync",
            TraceOp::Unmap => "trim",
            TraceOp::Other => return Err(LeftOut::Operation),
        };
        let us = since_ns / 1000;
        // Devices are numbered in order of appearance.
        if request.device >= self.known {
            self.known = request.device + 1;
            self.action(us, name, "add", out);
            self.action(us, name, "open", out);
        }
        if self.version == 2 && us > self.last_us {
            self.action(us, name, &format!("wait {} 0", us - self.last_us), out);
            self.last_us = us;
        }
        let place = format!("{action} {} {}", request.offset_bytes, request.len_bytes);
        self.action(us, name, &place, out);
        Ok(())
    }
}

struct Msr;

/// 22 February 2007, when MSR's traces begin, as a Windows filetime.
const MSR_BEGINS: u64 = 128_166_372_000_000_000;

impl Encode for Msr {
    fn row(
        &mut self,
        request: &BlockRequest,
        since_ns: u64,
        name: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), LeftOut> {
        let op = if letter(request.op)? == 'R' {
            "Read"
        } else {
            "Write"
        };
        // A name in this format is split into host and disk; any other is the host, with disk 0.
        let (host, disk) = match name.rsplit_once('-') {
            Some((host, disk))
                if !disk.is_empty() && disk.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                (host, disk)
            }
            _ => (name, "0"),
        };
        put!(out, "{},", MSR_BEGINS + since_ns / 100);
        out.extend(host.bytes().map(|byte| {
            if matches!(byte, b',' | b'\n' | b'\r') {
                b'_'
            } else {
                byte
            }
        }));
        let response = request.response_ns.unwrap_or(0) / 100;
        put!(
            out,
            ",{disk},{op},{},{},{response}\n",
            request.offset_bytes,
            request.len_bytes
        );
        Ok(())
    }
}

struct Load;

impl Encode for Load {
    fn head(&mut self, out: &mut Vec<u8>) {
        put!(out, "Written by brunt trace convert.\n\n");
        put!(
            out,
            "start ; sector; length ; op ;  replay_delay=0 ; replay_duration=0\n"
        );
    }

    fn row(
        &mut self,
        request: &BlockRequest,
        since_ns: u64,
        _: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), LeftOut> {
        if request.device > 0 {
            return Err(LeftOut::Device);
        }
        let op = letter(request.op)?;
        let (sector, length) = (
            sectors(request.offset_bytes)?,
            sectors(request.len_bytes.into())?,
        );
        let ((seconds, nanos), (took, took_nanos)) =
            (split(since_ns), split(request.response_ns.unwrap_or(0)));
        put!(
            out,
            "{seconds:4}.{nanos:09} ; {sector:12} ; {length:4} ; {op} ; 0.000000000 ; {took}.{took_nanos:09}\n"
        );
        Ok(())
    }
}

struct HfPlayer {
    rows: u64,
}

impl Encode for HfPlayer {
    /// The columns of its samples. hfplayer rejects a trace that lacks any of them, even those unknown to us.
    fn head(&mut self, out: &mut Vec<u8>) {
        put!(
            out,
            "#DUMP_OFFSET.I,ELAPSED_USECS.D,ELAPSED_TICKS.I,CMD.S,INFLIGHT_IOS.I,TS.I,SEQID.I,LUN_SSID.I,OP.I,"
        );
        put!(
            out,
            "PHASE.I,LBA.I,NBLKS.I,LATENCY_TICKS.I,HOST_ID.I,HOST_LUN.I,LATENCY_USECS.D\n"
        );
    }

    fn row(
        &mut self,
        request: &BlockRequest,
        since_ns: u64,
        _: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), LeftOut> {
        let (cmd, op) = if letter(request.op)? == 'R' {
            ("RD", 0)
        } else {
            ("WR", 1)
        };
        let (block, blocks) = (
            sectors(request.offset_bytes)?,
            sectors(request.len_bytes.into())?,
        );
        let response_ns = request.response_ns.unwrap_or(0);
        // Ticks are nanoseconds; the first column is the row number, which dependencies refer to.
        put!(
            out,
            "{},{}.{:03},{since_ns},",
            self.rows,
            since_ns / 1000,
            since_ns % 1000
        );
        put!(
            out,
            "{cmd},0,{since_ns},{},{},{op},0,{block},{blocks},",
            self.rows,
            request.device
        );
        put!(
            out,
            "{response_ns},0,{},{}.{:03}\n",
            request.device,
            response_ns / 1000,
            response_ns % 1000
        );
        self.rows += 1;
        Ok(())
    }
}

struct Vscsi {
    serial: u32,
}

impl Encode for Vscsi {
    fn row(
        &mut self,
        request: &BlockRequest,
        since_ns: u64,
        _: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), LeftOut> {
        if request.device > 0 {
            return Err(LeftOut::Device);
        }
        let command: u16 = match request.op {
            TraceOp::Read => 0x28,
            TraceOp::Write => 0x2a,
            TraceOp::Flush => 0x35,
            TraceOp::Unmap => 0x42,
            TraceOp::Other => return Err(LeftOut::Operation),
        };
        let sector = sectors(request.offset_bytes)?;
        let mut record = [0; 32];
        record[..4].copy_from_slice(&self.serial.to_le_bytes());
        record[4..8].copy_from_slice(&request.len_bytes.to_le_bytes());
        // Its data is in one segment.
        record[8..12].copy_from_slice(&1u32.to_le_bytes());
        record[12..14].copy_from_slice(&command.to_le_bytes());
        record[14..16].copy_from_slice(&0x0100u16.to_le_bytes());
        record[16..24].copy_from_slice(&sector.to_le_bytes());
        record[24..].copy_from_slice(&(since_ns / 1000).to_le_bytes());
        self.serial = self.serial.wrapping_add(1);
        out.extend_from_slice(&record);
        Ok(())
    }
}
