//! The request record that an agent keeps during a run, in an unlinked file, which disappears with the agent however
//! that ends. Filled by [`crate::run_thread`], and read out when the controller requests it after the run.
//!
//! The rule: requests that cannot be kept are counted, and the run continues.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use brunt_core::Nanos;
use brunt_protocol::RecordEnd;
use brunt_result::op::TABLE;
use brunt_result::{RequestRecord, RequestStatus};
use rustix::fs::fstatvfs;

/// The record leaves this much space free on its file system.
const ROOM_BYTES: u64 = 64 << 20;
/// Bytes written between two checks of the free space.
const LOOK_BYTES: u64 = 4 << 20;
/// Bytes per request: worker and retries (4 each); index, offset, length and three times (8 each); operation and
/// status (1 each). Little-endian.
const REQUEST_BYTES: usize = 2 * 4 + 6 * 8 + 2;

/// The request record of a run.
#[derive(Debug)]
pub(crate) struct RequestSpool {
    file: File,
    pending: Vec<u8>,
    written_bytes: u64,
    next_look: u64,
    read_bytes: u64,
    end: RecordEnd,
}

/// Makes file names unique for the short time that they exist.
static NAMES: AtomicU64 = AtomicU64::new(0);

impl RequestSpool {
    /// Creates the record in this folder.
    ///
    /// # Errors
    /// No file can be created in the folder.
    pub fn create(folder: &Path) -> io::Result<RequestSpool> {
        unnamed_file(folder, "requests").map(RequestSpool::of)
    }

    fn of(file: File) -> RequestSpool {
        RequestSpool {
            file,
            pending: Vec::new(),
            written_bytes: 0,
            next_look: 0,
            read_bytes: 0,
            end: RecordEnd::default(),
        }
    }

    /// Keeps requests, or counts them as lost.
    pub fn push(&mut self, requests: &[RequestRecord]) {
        if self.end.lost > 0 {
            self.end.lost += requests.len() as u64;
            return;
        }
        self.pending.clear();
        requests
            .iter()
            .for_each(|request| pack(request, &mut self.pending));
        match self.write() {
            Ok(()) => self.end.kept += requests.len() as u64,
            Err(error) => {
                self.end.lost = requests.len() as u64;
                self.end.why = error.to_string();
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        if self.written_bytes >= self.next_look {
            let system = fstatvfs(&self.file)?;
            if system.f_bavail.saturating_mul(system.f_frsize) < ROOM_BYTES {
                let what = format!("less than {} MiB are free", ROOM_BYTES >> 20);
                return Err(io::Error::new(io::ErrorKind::StorageFull, what));
            }
            self.next_look = self.written_bytes + LOOK_BYTES;
        }
        // Overwrites incomplete data left by a failed attempt.
        self.file.write_all_at(&self.pending, self.written_bytes)?;
        self.written_bytes += self.pending.len() as u64;
        Ok(())
    }

    /// The number of requests kept and lost.
    pub fn end(&self) -> RecordEnd {
        self.end.clone()
    }

    /// The next kept requests, at most `at_most`; empty once all have been taken.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn take(&mut self, at_most: usize) -> io::Result<Vec<RequestRecord>> {
        let left =
            ((self.written_bytes - self.read_bytes) / REQUEST_BYTES as u64).min(at_most as u64);
        let mut bytes = vec![0; left as usize * REQUEST_BYTES];
        self.file.read_exact_at(&mut bytes, self.read_bytes)?;
        self.read_bytes += bytes.len() as u64;
        Ok(bytes.chunks_exact(REQUEST_BYTES).map(unpack).collect())
    }
}

/// Creates a file in this folder and unlinks it immediately; until then, its name contains `word`.
///
/// # Errors
/// No file can be created in the folder.
pub(crate) fn unnamed_file(folder: &Path, word: &str) -> io::Result<File> {
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("brunt-{word}-{}-{number}", std::process::id()));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn pack(request: &RequestRecord, out: &mut Vec<u8>) {
    let RequestRecord {
        worker,
        index,
        op,
        offset,
        len,
        intended,
        sent,
        completed,
        retries,
        status,
    } = *request;
    let time = |at: Option<Nanos>| at.unwrap_or(Nanos::MAX).0;
    let mut put = |bytes: &[u8]| out.write_all(bytes).expect("writing to a vector succeeds");
    [worker, retries]
        .iter()
        .for_each(|word| put(&word.to_le_bytes()));
    let words = [index, offset, len, intended.0, time(sent), time(completed)];
    words.iter().for_each(|word| put(&word.to_le_bytes()));
    put(&[op as u8, status as u8]);
}

fn unpack(bytes: &[u8]) -> RequestRecord {
    let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let word = |at: usize| {
        u64::from_le_bytes(
            bytes[8 + at * 8..16 + at * 8]
                .try_into()
                .expect("eight bytes"),
        )
    };
    let time = |at: usize| Some(Nanos(word(at))).filter(|at| *at != Nanos::MAX);
    RequestRecord {
        worker: half(0),
        index: word(0),
        op: TABLE[usize::from(bytes[56])].kind,
        offset: word(1),
        len: word(2),
        intended: Nanos(word(3)),
        sent: time(4),
        completed: time(5),
        retries: half(4),
        status: RequestStatus::ALL[usize::from(bytes[57])],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_result::OpKind;

    fn request(index: u64) -> RequestRecord {
        RequestRecord {
            worker: 3,
            index,
            op: OpKind::Truncate,
            offset: index << 40,
            len: 4096,
            intended: Nanos(index + 1),
            sent: (!index.is_multiple_of(3)).then_some(Nanos(index + 2)),
            completed: (!index.is_multiple_of(2)).then_some(Nanos(u64::MAX - 1)),
            retries: 7,
            status: RequestStatus::Skipped,
        }
    }

    /// All requests come back once and in order, in pieces that don't depend on how they were added; nothing is left in
    /// the folder.
    #[test]
    fn requests_round_trip_through_the_spool() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = RequestSpool::create(folder.path()).unwrap();
        let all: Vec<RequestRecord> = (0..1000).map(request).collect();
        all.chunks(77).for_each(|batch| spool.push(batch));
        assert_eq!(
            spool.end(),
            RecordEnd {
                kept: 1000,
                ..RecordEnd::default()
            }
        );
        let mut found = Vec::new();
        while let Some(more) = Some(spool.take(300).unwrap()).filter(|more| !more.is_empty()) {
            assert!(more.len() <= 300);
            found.extend(more);
        }
        assert_eq!(found, all);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(RequestSpool::create(Path::new("/proc/nowhere")).is_err());
    }

    /// On a full disk, earlier requests are kept, and later ones are counted as lost.
    #[test]
    fn requests_that_do_not_fit_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = RequestSpool::create(folder.path()).unwrap();
        spool.push(&[request(1); 10]);
        let kept = std::mem::replace(
            &mut spool.file,
            File::options().write(true).open("/dev/full").unwrap(),
        );
        spool.push(&[request(2); 5]);
        spool.push(&[request(3); 6]);
        let end = spool.end();
        assert_eq!((end.kept, end.lost), (10, 11));
        assert!(end.why.contains("No space"), "{end:?}");
        spool.file = kept;
        assert_eq!(spool.take(100).unwrap(), [request(1); 10]);
        assert!(spool.take(100).unwrap().is_empty());
    }
}
