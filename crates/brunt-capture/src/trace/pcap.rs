//! Writes captured packets to files that every packet tool reads: classic pcap with nanoseconds, or pcapng if
//! interfaces are recorded. Used by `brunt capture --pcap`, either batch by batch, or through a dedicated thread
//! ([`PacketLane`]) so that a slow disk does not delay the parsers. The one rule: a file has one link type; a packet
//! of another type causes an error instead of being written incorrectly.

mod blocks;
mod comments;
mod feed;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brunt_actors::pin_thread;
use brunt_wire::pcap::{CapturedPacket, LinkType, PACKET_BYTES_MAX};
use serde::Serialize;

use super::store::{Notify, OnFull, OnLag, RETRY, Stop};
use crate::ledger::Ledger;
use crate::parcel::Parcel;

pub use comments::PacketComments;
pub use feed::PacketFeed;

/// Marks times in nanoseconds, in this machine's byte order.
const MAGIC: u32 = 0xa1b2_3c4d;
/// Bytes of the file header, and of a packet header.
const FILE_HEADER_BYTES: usize = 24;
const PACKET_HEADER_BYTES: usize = 16;
/// Packets are buffered up to this size before they are written.
const BUFFER_BYTES: usize = 1 << 20;
/// A lane writes the buffer at least this often, which bounds the loss on SIGKILL and the delay for readers of the
/// file.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// Where and how packets are written.
#[derive(Clone)]
pub struct PcapOptions {
    /// The file; with `size_max` or `age_max`, a series of files with a number before the extension.
    pub path: PathBuf,
    /// Maximum bytes per file; when it is reached, the next file begins. `None` means no limit.
    pub size_max: Option<u64>,
    /// Maximum time from a file's first packet to its last, by packet times; `None` means no limit.
    pub age_max: Option<Duration>,
    /// Maximum bytes of all files; the oldest closed files beyond it are deleted. `None` keeps all files.
    pub keep_bytes: Option<u64>,
    /// Maximum captured bytes per packet, as recorded in the file header.
    pub snap_bytes: u32,
    /// The CPUs for a lane's thread; if empty, it runs anywhere.
    pub cpus: Vec<usize>,
    /// Names of the capture interfaces, numbered from 0; files are then pcapng. If empty, they are classic pcap,
    /// which has no interfaces.
    pub interfaces: Vec<String>,
    /// Comments for packets; written only to pcapng files.
    pub comments: PacketComments,
    /// What to do when the disk is full.
    pub on_full: OnFull,
    /// Receives messages for the user.
    pub tell: Notify,
    /// Returns true if a wait for disk space should end.
    pub stop: Stop,
}

impl PcapOptions {
    /// Options for a single file with packets of any length.
    pub fn new(path: PathBuf) -> PcapOptions {
        PcapOptions {
            path,
            size_max: None,
            age_max: None,
            keep_bytes: None,
            snap_bytes: PACKET_BYTES_MAX,
            cpus: Vec::new(),
            interfaces: Vec::new(),
            comments: PacketComments::default(),
            on_full: OnFull::default(),
            tell: Arc::new(|_| {}),
            stop: Arc::new(|| false),
        }
    }

    /// Bytes that a packet takes up in a file.
    fn stored_bytes(&self, packet: &CapturedPacket<'_>) -> u64 {
        let bytes = packet.bytes.len();
        (if self.interfaces.is_empty() {
            PACKET_HEADER_BYTES + bytes
        } else {
            blocks::packet_bytes(bytes)
        }) as u64
    }

    fn path_of(&self, number: u64) -> PathBuf {
        if self.size_max.is_none() && self.age_max.is_none() {
            return self.path.clone();
        }
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        let extension = self
            .path
            .extension()
            .map(|e| format!(".{}", e.to_string_lossy()));
        self.path.with_file_name(format!(
            "{stem}-{number:06}{}",
            extension.unwrap_or_default()
        ))
    }
}

/// Totals of the written files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PcapSummary {
    /// Packets in all files, including deleted ones.
    pub packets: u64,
    /// Files on disk.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files deleted to stay within the requested size.
    pub files_deleted: u64,
    /// Packets lost because the disk or the queue to it was full.
    pub packets_lost: u64,
}

/// Writes packets into one file, or into a series of files.
pub struct PacketFiles {
    options: PcapOptions,
    open: OpenFile,
    number: u64,
    closed: VecDeque<(PathBuf, u64)>,
    summary: PcapSummary,
}

/// The file being written.
struct OpenFile {
    path: PathBuf,
    file: File,
    link: Option<LinkType>,
    first_ns: u64,
    /// Bytes that were written successfully; anything after them is overwritten.
    written: u64,
    buffer: Vec<u8>,
    /// Packets in the buffer.
    buffered: u64,
}

impl OpenFile {
    fn create(path: PathBuf, mut buffer: Vec<u8>) -> io::Result<OpenFile> {
        let file = File::create_new(&path)?;
        buffer.clear();
        Ok(OpenFile {
            path,
            file,
            link: None,
            first_ns: 0,
            written: 0,
            buffer,
            buffered: 0,
        })
    }

    fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn words(&mut self, words: impl IntoIterator<Item = u32>) {
        words
            .into_iter()
            .for_each(|word| self.buffer.extend_from_slice(&word.to_ne_bytes()));
    }

    fn begin(&mut self, link: LinkType, first_ns: u64, options: &PcapOptions) {
        let snap_bytes = options.snap_bytes.min(PACKET_BYTES_MAX);
        let version = 2u32 | 4 << 16;
        match options.interfaces.is_empty() {
            true => self.words([MAGIC, version, 0, 0, snap_bytes, link.number()]),
            false => blocks::begin(&mut self.buffer, link, snap_bytes, &options.interfaces),
        }
        (self.link, self.first_ns) = (Some(link), first_ns);
    }

    /// Writes the buffer; can be retried after a failure.
    fn flush(&mut self) -> io::Result<()> {
        if let Err(error) = self.file.write_all_at(&self.buffer, self.written) {
            // Part of a packet at the end of a file is useless.
            let _ = self.file.set_len(self.written);
            return Err(error);
        }
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffered = 0;
        Ok(())
    }
}

impl PacketFiles {
    /// Creates the first file.
    ///
    /// # Errors
    /// The file already exists or cannot be created.
    pub fn create(options: PcapOptions) -> io::Result<PacketFiles> {
        let room = BUFFER_BYTES + blocks::packet_bytes(PACKET_BYTES_MAX as usize);
        let open = OpenFile::create(options.path_of(0), Vec::with_capacity(room))?;
        let summary = PcapSummary {
            files: 1,
            ..PcapSummary::default()
        };
        Ok(PacketFiles {
            options,
            open,
            number: 0,
            closed: VecDeque::new(),
            summary,
        })
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// The file cannot be written, or has a different link type.
    pub fn write(&mut self, packet: &CapturedPacket<'_>) -> io::Result<()> {
        if self.is_over(packet) {
            self.next_file()?;
        }
        match self.open.link {
            Some(link) if link == packet.link => {}
            Some(link) => {
                let what = format!(
                    "packets with link types {link:?} and {:?} cannot be written to one pcap file",
                    packet.link
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            None => self.open.begin(packet.link, packet.time_ns, &self.options),
        }
        let CapturedPacket {
            time_ns,
            wire_len,
            interface,
            bytes,
            ..
        } = *packet;
        if self.options.interfaces.is_empty() {
            let (seconds, nanoseconds) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
            self.open.words([
                seconds as u32,
                nanoseconds as u32,
                bytes.len() as u32,
                wire_len,
            ]);
            self.open.buffer.extend_from_slice(bytes);
        } else {
            assert!(
                (interface as usize) < self.options.interfaces.len(),
                "each interface has a name"
            );
            let comment = self.options.comments.take(time_ns);
            let fields = [interface, wire_len];
            blocks::packet(
                &mut self.open.buffer,
                fields,
                time_ns,
                bytes,
                comment.as_deref(),
            );
        }
        self.open.buffered += 1;
        self.summary.packets += 1;
        if self.open.buffer.len() >= BUFFER_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Whether a packet has to go into the next file.
    fn is_over(&self, packet: &CapturedPacket<'_>) -> bool {
        let OpenFile { link, first_ns, .. } = &self.open;
        let more = self.options.stored_bytes(packet);
        // A file has at least one packet, whatever the limits.
        self.open.bytes() > FILE_HEADER_BYTES as u64
            && link.is_some()
            && (self
                .options
                .size_max
                .is_some_and(|max| self.open.bytes() + more > max)
                || self.options.age_max.is_some_and(|max| {
                    u128::from(packet.time_ns.saturating_sub(*first_ns)) >= max.as_nanos()
                }))
    }

    fn next_file(&mut self) -> io::Result<()> {
        self.flush()?;
        let path = self.options.path_of(self.number + 1);
        let next = OpenFile::create(path, std::mem::take(&mut self.open.buffer))?;
        let closed = std::mem::replace(&mut self.open, next);
        self.number += 1;
        self.summary.files += 1;
        self.summary.bytes += closed.written;
        self.closed.push_back((closed.path, closed.written));
        Ok(())
    }

    /// Deletes the oldest files until the budget is met, counting the buffered bytes of the open file.
    fn trim(&mut self) {
        let open = self.open.bytes();
        while self
            .options
            .keep_bytes
            .is_some_and(|keep| self.summary.bytes + open > keep)
        {
            let Some((oldest, bytes)) = self.closed.pop_front() else {
                break;
            };
            // If something else has already deleted the file, the budget is still correct.
            let _ = std::fs::remove_file(oldest);
            self.summary.files -= 1;
            self.summary.bytes -= bytes;
            self.summary.files_deleted += 1;
        }
    }

    /// Writes the buffered packets; waits for disk space if configured.
    ///
    /// # Errors
    /// The file cannot be written. Earlier content is preserved.
    pub fn flush(&mut self) -> io::Result<()> {
        self.trim();
        let mut told = false;
        loop {
            match self.open.flush() {
                Ok(()) => {
                    if told {
                        (self.options.tell)(
                            "space is available again; no packet is missing from the file",
                        );
                    }
                    return Ok(());
                }
                Err(error)
                    if error.kind() == io::ErrorKind::StorageFull
                        && self.options.on_full == OnFull::Wait
                        && !(self.options.stop)() =>
                {
                    if !told {
                        let path = self.open.path.display();
                        (self.options.tell)(&format!("{path}: {error}; waiting for space"));
                        told = true;
                    }
                    std::thread::sleep(RETRY);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes all remaining packets. On return, every packet is either in the files or counted as lost, with the
    /// error that caused the loss.
    pub fn finish(mut self) -> (PcapSummary, Option<io::Error>) {
        if self.open.link.is_none() {
            // Without a header, the file would not be a capture.
            self.open.begin(LinkType::Ethernet, 0, &self.options);
        }
        let error = self.flush().err();
        self.summary.packets -= self.open.buffered;
        self.summary.packets_lost += self.open.buffered;
        self.summary.bytes += self.open.written;
        (self.summary, error)
    }
}

/// State shared by the lane, its taps and its owner.
#[derive(Debug, Default)]
struct LaneState {
    packets_written: AtomicU64,
    packets_lost: AtomicU64,
    failed: AtomicBool,
}

/// A thread that writes packets from parcels.
pub struct PacketLane {
    tap: PacketTap,
    thread: JoinHandle<(PcapSummary, Option<io::Error>)>,
}

/// The sending side of a lane.
#[derive(Clone, Debug)]
pub struct PacketTap {
    to: SyncSender<Arc<Parcel>>,
    state: Arc<LaneState>,
    on_lag: OnLag,
}

impl PacketTap {
    /// Passes packets to the lane. If the lane's queue is full, waits, or drops and counts the packets, depending on
    /// `OnLag`.
    pub fn offer(&self, parcel: &Arc<Parcel>) {
        let refused = match self.on_lag {
            OnLag::Wait => self.to.send(parcel.clone()).is_err(),
            OnLag::Drop => matches!(
                self.to.try_send(parcel.clone()),
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_))
            ),
        };
        if refused {
            self.state
                .packets_lost
                .fetch_add(parcel.total() as u64, Ordering::Relaxed);
        }
    }
}

/// Reports the state of a lane to other threads.
#[derive(Clone, Debug)]
pub struct PcapStatus(Arc<LaneState>);

impl PcapStatus {
    /// Whether writing has ended with an error; [`PacketLane::finish`] returns that error.
    pub fn has_failed(&self) -> bool {
        self.0.failed.load(Ordering::Acquire)
    }

    /// Packets written and packets lost so far.
    pub fn packets(&self) -> (u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.0.packets_written), of(&self.0.packets_lost))
    }
}

impl PacketLane {
    /// Starts the thread, with a queue of at most `parcels`.
    ///
    /// # Errors
    /// The first file already exists or cannot be created, or the thread cannot be started.
    pub fn start(options: PcapOptions, on_lag: OnLag, parcels: usize) -> io::Result<PacketLane> {
        let cpus = options.cpus.clone();
        let files = PacketFiles::create(options)?;
        let (to, from) = sync_channel(parcels);
        let state = Arc::new(LaneState::default());
        let tap = PacketTap {
            to,
            state: state.clone(),
            on_lag,
        };
        let thread = std::thread::Builder::new()
            .name("pcap".into())
            .spawn(move || {
                if !pin_thread(&cpus) {
                    (files.options.tell)("the kernel rejected the CPUs for packet files");
                }
                write_parcels(files, &from, &state)
            })?;
        Ok(PacketLane { tap, thread })
    }

    /// Another sender to the lane.
    pub fn tap(&self) -> PacketTap {
        self.tap.clone()
    }

    /// The lane's status, for another thread.
    pub fn status(&self) -> PcapStatus {
        PcapStatus(self.tap.state.clone())
    }

    /// Waits until all packets are written, and adds the losses to the ledger. Call it after all taps have been
    /// dropped.
    pub fn finish(self, ledger: &mut Ledger) -> (PcapSummary, Option<io::Error>) {
        let PacketLane { tap, thread } = self;
        let state = tap.state.clone();
        drop(tap);
        let (mut summary, error) = thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        summary.packets_lost += state.packets_lost.load(Ordering::Relaxed);
        ledger.pcap_packets_lost += summary.packets_lost;
        (summary, error)
    }
}

fn write_parcels(
    mut files: PacketFiles,
    from: &Receiver<Arc<Parcel>>,
    state: &LaneState,
) -> (PcapSummary, Option<io::Error>) {
    let mut trouble = None;
    let mut flushed = Instant::now();
    loop {
        let left = FLUSH_EVERY.saturating_sub(flushed.elapsed());
        let mut result = match from.recv_timeout(left) {
            Ok(parcel) if trouble.is_some() => {
                state
                    .packets_lost
                    .fetch_add(parcel.total() as u64, Ordering::Relaxed);
                continue;
            }
            Ok(parcel) => {
                let before = files.summary.packets;
                let result = parcel
                    .in_order()
                    .try_for_each(|packet| files.write(&packet));
                // Packets still in the buffer are counted separately.
                let refused = parcel.total() as u64 - (files.summary.packets - before);
                state.packets_lost.fetch_add(refused, Ordering::Relaxed);
                state
                    .packets_written
                    .store(files.summary.packets, Ordering::Relaxed);
                result
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => break,
        };
        // Flushes even while packets keep coming: at a low rate, filling the buffer would take hours.
        if flushed.elapsed() >= FLUSH_EVERY {
            flushed = Instant::now();
            if trouble.is_none() {
                result = result.and_then(|()| files.flush());
            }
        }
        if let Err(error) = result {
            trouble = Some(error);
            state.failed.store(true, Ordering::Release);
        }
    }
    let (summary, last) = files.finish();
    (summary, trouble.or(last))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tempfile::TempDir;

    use super::*;
    use crate::source::{FileSource, PacketBatch};

    fn files_in(folder: &TempDir) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        files
    }

    fn packet(time_ns: u64, link: LinkType, wire_len: u32, bytes: &[u8]) -> CapturedPacket<'_> {
        CapturedPacket {
            time_ns,
            wire_len,
            interface: 0,
            link,
            bytes,
        }
    }

    /// Time, wire length, link type and bytes of each packet in a file.
    fn read(path: &Path) -> Vec<(u64, u32, LinkType, Vec<u8>)> {
        let mut source = FileSource::open(path).unwrap();
        let (mut batch, mut seen) = (PacketBatch::default(), Vec::new());
        while source.fill(&mut batch).unwrap() {
            seen.extend(
                batch
                    .packets()
                    .map(|p| (p.time_ns, p.wire_len, p.link, p.bytes.to_vec())),
            );
        }
        assert_eq!(source.cut_bytes(), 0);
        seen
    }

    /// Our reader reads back what was written, and link types cannot be mixed.
    #[test]
    fn written_packets_are_read_back_and_link_types_do_not_mix() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("a.pcap");
        let mut files = PacketFiles::create(PcapOptions::new(path.clone())).unwrap();
        for (wire_len, bytes) in [(60, &b"abc"[..]), (1, b"x")] {
            files
                .write(&packet(5_000_000_007, LinkType::Ethernet, wire_len, bytes))
                .unwrap();
        }
        assert!(files.write(&packet(0, LinkType::Raw, 1, b"x")).is_err());
        let (summary, error) = files.finish();
        assert!(error.is_none());
        assert_eq!(
            (summary.packets, summary.files, summary.packets_lost),
            (2, 1, 0)
        );
        assert_eq!(summary.bytes, std::fs::metadata(&path).unwrap().len());
        let expected =
            |wire_len, bytes: &[u8]| (5_000_000_007, wire_len, LinkType::Ethernet, bytes.to_vec());
        assert_eq!(read(&path), [expected(60, b"abc"), expected(1, b"x")]);
        assert!(
            PacketFiles::create(PcapOptions::new(path)).is_err(),
            "an existing file is preserved"
        );
    }

    /// With named interfaces, the file records each packet's interface, and our reader reads it back.
    #[test]
    fn pcapng_files_record_the_interface_of_each_packet() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("a.pcapng");
        let interfaces = vec!["eth0".to_string(), "eth1".to_string()];
        let options = PcapOptions {
            interfaces,
            ..PcapOptions::new(path.clone())
        };
        let mut files = PacketFiles::create(options).unwrap();
        let time = |number: u64| 1_764_000_000_000_000_007 + number;
        for number in 0..10u32 {
            let bytes = vec![number as u8; 60 + number as usize];
            let packet = packet(time(number.into()), LinkType::Ethernet, 90, &bytes);
            files
                .write(&CapturedPacket {
                    interface: number % 2,
                    ..packet
                })
                .unwrap();
        }
        let (summary, error) = files.finish();
        assert!(error.is_none());
        assert_eq!(summary.bytes, std::fs::metadata(&path).unwrap().len());
        let mut source = FileSource::open(&path).unwrap();
        let (mut batch, mut seen) = (PacketBatch::default(), 0u32);
        while source.fill(&mut batch).unwrap() {
            for found in batch.packets() {
                assert_eq!((found.time_ns, found.wire_len), (time(seen.into()), 90));
                assert_eq!(
                    (found.interface, found.link),
                    (seen % 2, LinkType::Ethernet)
                );
                assert_eq!(found.bytes, vec![seen as u8; 60 + seen as usize]);
                seen += 1;
            }
        }
        assert_eq!((seen, source.cut_bytes()), (10, 0));
    }

    /// Files are limited by size and by time, none exceeds its limit, a budget keeps the newest files, and no packet
    /// is lost or duplicated.
    #[test]
    fn files_end_at_their_limits_and_no_packet_is_lost() {
        let check = |name: &str, size_max, age_max, keep_bytes, expected_files: u64| {
            let folder = TempDir::new().unwrap();
            let path = folder.path().join("n.f.s.pcap");
            let options = PcapOptions {
                size_max,
                age_max,
                keep_bytes,
                ..PcapOptions::new(path)
            };
            let mut files = PacketFiles::create(options).unwrap();
            for i in 0..1000u64 {
                let bytes = [i as u8; 84];
                files
                    .write(&packet(i * 1_000_000_000, LinkType::Ethernet, 84, &bytes))
                    .unwrap();
            }
            let (summary, error) = files.finish();
            assert!(error.is_none());
            assert_eq!(
                summary.files + summary.files_deleted,
                expected_files,
                "{name}: {summary:?}"
            );
            let all = files_in(&folder);
            assert_eq!(all.len() as u64, summary.files);
            let sizes: Vec<u64> = all
                .iter()
                .map(|file| std::fs::metadata(file).unwrap().len())
                .collect();
            assert!(
                sizes
                    .iter()
                    .all(|size| size_max.is_none_or(|max| *size <= max.max(124))),
                "{sizes:?}"
            );
            assert_eq!(sizes.iter().sum::<u64>(), summary.bytes);
            let times: Vec<u64> = all
                .iter()
                .flat_map(|file| read(file))
                .map(|p| p.0 / 1_000_000_000)
                .collect();
            let first = 1000 - times.len() as u64;
            assert!(times.into_iter().eq(first..1000));
            assert_eq!(first > 0, keep_bytes.is_some());
            assert!(
                keep_bytes.is_none_or(|keep| summary.bytes <= keep),
                "{name}: {summary:?}"
            );
        };
        // 100 bytes per packet plus 24 per file.
        check("size", Some(10_024), None, None, 10);
        check("odd", Some(10_023), None, None, 11);
        check("tiny", Some(1), None, None, 1000);
        check("age", None, Some(Duration::from_secs(100)), None, 10);
        check("keep", Some(10_024), None, Some(30_072), 10);
    }

    /// An empty capture is still a valid capture file.
    #[test]
    fn an_empty_capture_is_a_valid_file() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("a.pcap");
        let (summary, error) = PacketFiles::create(PcapOptions::new(path.clone()))
            .unwrap()
            .finish();
        assert!(error.is_none() && summary.packets == 0 && read(&path).is_empty());
    }
}
