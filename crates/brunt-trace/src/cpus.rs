//! Merges blktrace's files, one per CPU, into a single stream of events ordered by time. Used by [`crate::reader`].
//!
//! The rule: each CPU's events keep their order, and of two events with the same time, the lower CPU's
//! comes first. Files are merged event by event, so damage in one file loses no event of another.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use brunt_core::input::InputFile;

use crate::formats::blktrace::{EventAt, garbage, parse};

/// Bytes of a CPU's file read at a time; longer than any event.
const BUFFER_BYTES: usize = 256 << 10;
/// Separates a trace's name from the CPU number.
const INFIX: &str = ".blktrace.";

/// The files of all CPUs of a trace, given one of the files or the name before the infix; empty if there are none.
pub(crate) fn files_of(path: &Path) -> io::Result<Vec<CpuFile>> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return Ok(Vec::new());
    };
    let stem = match name.rfind(INFIX) {
        Some(at) if cpu_of(&name[at + INFIX.len()..]).is_some() => &name[..at],
        _ if path.exists() => return Ok(Vec::new()),
        _ => name,
    };
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let file = entry.file_name();
        let number = file
            .to_str()
            .and_then(|file| file.strip_prefix(stem)?.strip_prefix(INFIX));
        if let Some(cpu) = number.and_then(cpu_of) {
            found.push(CpuFile {
                cpu,
                path: entry.path(),
            });
        }
    }
    found.sort_unstable_by(|one, other| (one.cpu, &one.path).cmp(&(other.cpu, &other.path)));
    // A file may exist both compressed and uncompressed.
    found.dedup_by_key(|file| file.cpu);
    Ok(found)
}

/// A CPU's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CpuFile {
    pub cpu: u32,
    pub path: PathBuf,
}

/// Reports CPUs without a file if a CPU with a higher number has one.
pub(crate) fn gaps(files: &[CpuFile]) -> Option<String> {
    const NAMED_MAX: usize = 8;
    let last = files.last()?.cpu;
    let missing: Vec<String> = (0..last)
        .filter(|cpu| files.binary_search_by_key(cpu, |file| file.cpu).is_err())
        .take(NAMED_MAX + 1)
        .map(|cpu| cpu.to_string())
        .collect();
    let named = missing.get(..NAMED_MAX).unwrap_or(&missing).join(", ");
    let more = if missing.len() > NAMED_MAX {
        ", …"
    } else {
        ""
    };
    (!missing.is_empty()).then(|| {
        format!(
            "the files of CPUs {named}{more} are missing, although CPU {last} has one: their requests are not included"
        )
    })
}

/// The CPU number in a file name, which may have a compression suffix.
fn cpu_of(text: &str) -> Option<u32> {
    let number = text
        .split_once('.')
        .map_or(text, |(number, packed)| match packed {
            "gz" | "zst" | "xz" | "bz2" | "lz4" => number,
            _ => text,
        });
    if is_number(number) {
        number.parse().ok()
    } else {
        None
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Merges the events of several CPUs into one stream.
pub(crate) struct MergedCpus {
    cpus: Vec<Cpu>,
    /// The time of each CPU's next event, and the CPU.
    next: BinaryHeap<Reverse<(u64, usize)>>,
}

struct Cpu {
    input: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    used: usize,
    /// Bytes of the next event that were not returned yet.
    left: usize,
    ended: bool,
    last_ns: u64,
}

impl Cpu {
    /// Advances to the next event and returns its time. Garbage gets the time of the event before it.
    fn advance(&mut self) -> io::Result<Option<u64>> {
        loop {
            let rest = &self.buffer[self.used..];
            if rest.is_empty() && self.ended {
                return Ok(None);
            }
            self.left = match parse(rest) {
                EventAt::Whole(head) => {
                    self.last_ns = head.time_ns;
                    head.bytes
                }
                EventAt::Cut if !self.ended => {
                    self.fill()?;
                    continue;
                }
                EventAt::Cut | EventAt::Garbage => {
                    // Garbage of this CPU must not swallow another CPU's next event, so it is
                    // replaced by a single byte that cannot begin an event.
                    let len = garbage(rest, self.ended);
                    self.used += len - 1;
                    self.buffer[self.used] = 0;
                    1
                }
            };
            return Ok(Some(self.last_ns));
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.used);
        self.used = 0;
        let room = BUFFER_BYTES - self.buffer.len();
        assert!(room > 0, "events are shorter than the buffer");
        let read = (&mut self.input)
            .take(room as u64)
            .read_to_end(&mut self.buffer)?;
        self.ended = read < room;
        Ok(())
    }
}

impl MergedCpus {
    /// Opens the files, which are in CPU order.
    pub fn open(files: &[CpuFile]) -> io::Result<MergedCpus> {
        let mut inputs: Vec<Box<dyn Read + Send>> = Vec::new();
        for file in files {
            inputs.push(brunt_unpack::unpacked(Box::new(InputFile::open(
                &file.path,
            )?))?);
        }
        MergedCpus::of(inputs)
    }

    fn of(inputs: Vec<Box<dyn Read + Send>>) -> io::Result<MergedCpus> {
        let cpu = |input| Cpu {
            input,
            buffer: Vec::new(),
            used: 0,
            left: 0,
            ended: false,
            last_ns: 0,
        };
        let mut merged = MergedCpus {
            cpus: inputs.into_iter().map(cpu).collect(),
            next: BinaryHeap::new(),
        };
        for (index, cpu) in merged.cpus.iter_mut().enumerate() {
            merged
                .next
                .extend(cpu.advance()?.map(|time| Reverse((time, index))));
        }
        Ok(merged)
    }
}

impl Read for MergedCpus {
    /// Fills the buffer with events; if the last one doesn't fit, its rest comes with the next call.
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < out.len() {
            let Some(mut next) = self.next.peek_mut() else {
                break;
            };
            let Reverse((_, index)) = *next;
            let cpu = &mut self.cpus[index];
            let copied = cpu.left.min(out.len() - filled);
            out[filled..filled + copied].copy_from_slice(&cpu.buffer[cpu.used..cpu.used + copied]);
            filled += copied;
            cpu.used += copied;
            cpu.left -= copied;
            if cpu.left > 0 {
                continue;
            }
            match cpu.advance()? {
                Some(time) => *next = Reverse((time, index)),
                None => drop(PeekMut::pop(next)),
            }
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::blktrace::encode;
    use crate::formats::{blktrace, read};

    fn cpu(times: &[u64]) -> Vec<u8> {
        times
            .iter()
            .flat_map(|time| encode(7, false, *time, 7 | 2 << 16, 8 * time, 512))
            .collect()
    }

    fn merged(inputs: &[Vec<u8>]) -> Vec<u8> {
        let inputs = inputs
            .iter()
            .map(|bytes| Box::new(io::Cursor::new(bytes.clone())) as Box<dyn Read + Send>);
        let mut all = Vec::new();
        MergedCpus::of(inputs.collect())
            .unwrap()
            .read_to_end(&mut all)
            .unwrap();
        all
    }

    #[test]
    fn events_of_all_cpus_are_in_order() {
        let mut damaged = cpu(&[2, 3]);
        damaged.extend(b"what is this?");
        damaged.extend(cpu(&[9]));
        let all = merged(&[cpu(&[1, 4, 10]), damaged.clone(), Vec::new()]);
        let (requests, _, damaged) = read(&blktrace::FORMAT, &all);
        let times: Vec<u64> = requests.iter().map(|request| request.time_ns).collect();
        assert_eq!(
            (times.as_slice(), damaged.len()),
            (&[1, 2, 3, 4, 9, 10][..], 1)
        );
        // More events than fit in a buffer.
        let long = |first: u64| {
            (0..10_000)
                .map(|index| first + 2 * index)
                .collect::<Vec<_>>()
        };
        let (requests, _, damaged) =
            read(&blktrace::FORMAT, &merged(&[cpu(&long(0)), cpu(&long(1))]));
        assert!(damaged.is_empty() && requests.iter().map(|request| request.time_ns).eq(0..20_000));
    }

    /// Wherever a CPU's file is truncated, all whole events are read, from this file and the others.
    #[test]
    fn a_truncated_file_costs_no_event_of_another() {
        let times = |first: u64| (0..30).map(|index| first + 3 * index).collect::<Vec<_>>();
        let files = [cpu(&times(0)), cpu(&times(1)), cpu(&times(2))];
        let event = files[0].len() / 30;
        for cut in 0..files[0].len() {
            let merged = merged(&[files[0][..cut].to_vec(), files[1].clone(), files[2].clone()]);
            let (requests, _, damaged) = read(&blktrace::FORMAT, &merged);
            assert_eq!(requests.len(), 60 + cut / event, "cut at {cut}");
            assert_eq!(damaged.len(), usize::from(cut % event != 0), "cut at {cut}");
        }
    }

    #[test]
    fn compressed_files_are_read_and_missing_cpus_reported() {
        let folder = tempfile::tempdir().unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        io::Write::write_all(&mut gzip, &cpu(&[2])).unwrap();
        for (name, bytes) in [
            ("x.blktrace.0", cpu(&[1])),
            ("x.blktrace.2.gz", gzip.finish().unwrap()),
            ("x.blktrace.5.gzz", Vec::new()),
        ] {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        let files = files_of(&folder.path().join("x.blktrace.2.gz")).unwrap();
        let cpus: Vec<u32> = files.iter().map(|file| file.cpu).collect();
        assert_eq!(cpus, [0, 2]);
        assert_eq!(
            gaps(&files).as_deref(),
            Some(
                "the files of CPUs 1 are missing, although CPU 2 has one: their requests \
                 are not included"
            )
        );
        assert_eq!(gaps(&files[..1]), None);
        let mut all = Vec::new();
        let mut merged = MergedCpus::open(&files).unwrap();
        merged.read_to_end(&mut all).unwrap();
        assert_eq!(read(&blktrace::FORMAT, &all).0.len(), 2);
    }

    #[test]
    fn the_files_of_a_trace_are_found_by_one_of_them_or_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "sda.blktrace.0",
            "sda.blktrace.1",
            "sda.blktrace.10",
            "sdab.blktrace.0",
            "sda.blktrace.x",
        ] {
            std::fs::write(folder.path().join(name), b"").unwrap();
        }
        let files = |name: &str| {
            let files = files_of(&folder.path().join(name)).unwrap();
            files
                .iter()
                .map(|file| file.path.file_name().unwrap().to_str().unwrap().to_string())
                .collect::<Vec<_>>()
        };
        let all = ["sda.blktrace.0", "sda.blktrace.1", "sda.blktrace.10"];
        assert_eq!(
            (files("sda.blktrace.1"), files("sda")),
            (all.map(String::from).to_vec(), files("sda.blktrace.0"))
        );
        assert!(files("sda.blktrace.x").is_empty() && files("none").is_empty());
    }
}
