//! The table of trace formats, and their detection. To add one: a file in `formats/` with
//! its [`Format`], and its line here.
//!
//! The rule: a format is detected by parsing the beginning of a file with every format;
//! if several fit, the user chooses.

use crate::error::Closest;
use crate::format::{Format, FormatOptions};
use crate::formats::{
    alibaba, biosnoop, blkparse, blkreplay, blktrace, cloudphysics, csv, dtb, fiu, ftrace,
    hfplayer, iolog, k5cloud, lcs, msr, oracle, simulators, spc, systor, tencent, vscsi,
};
use crate::record::Devices;

/// Unpacked bytes of a file from which its format is detected.
pub(crate) const HEAD_BYTES: usize = 64 << 10;

/// All formats.
pub const FORMATS: &[Format] = &[
    blkreplay::FORMAT,
    vscsi::FORMAT_1,
    vscsi::FORMAT_2,
    spc::FORMAT,
    msr::FORMAT,
    alibaba::FORMAT,
    tencent::FORMAT,
    systor::FORMAT,
    k5cloud::FORMAT,
    fiu::FORMAT,
    cloudphysics::FORMAT,
    blktrace::FORMAT,
    blkparse::FORMAT,
    ftrace::FORMAT,
    biosnoop::FORMAT,
    simulators::DISKSIM,
    simulators::MQSIM,
    iolog::FORMAT_2,
    iolog::FORMAT_3,
    hfplayer::FORMAT,
    dtb::FORMAT,
    oracle::FORMAT,
    lcs::FORMAT,
    csv::FORMAT,
];

/// Looks up a format by name.
pub fn format_named(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

/// The formats that match the beginning of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Candidates {
    /// No format matches; the closest one, if any.
    None(Option<Closest>),
    /// One format, by its name.
    One(&'static str),
    /// One format, but it is doubtful because a large share of its rows goes back in time.
    Doubtful {
        /// The format's name.
        format: &'static str,
        /// The share of rows that go back in time.
        backwards: f64,
    },
    /// Several formats, by name.
    Several(Vec<&'static str>),
}

/// The result of parsing the beginning of a file as one format.
struct Reading {
    format: &'static Format,
    /// Number of requests and other events.
    rows: usize,
    damaged: usize,
    /// The first unreadable row.
    first_damaged: Option<u64>,
    /// The share of requests with an earlier time than the one before.
    backwards: f64,
}

/// In a trace in completion order, some rows go back in time; in random order, half of them do.
const BACKWARDS_MAX: f64 = 0.3;
/// With fewer rows, their order proves nothing.
const ORDERED_ROWS_MIN: usize = 50;

impl Reading {
    fn of(format: &'static Format, head: &[u8], whole: bool) -> Reading {
        let (mut requests, mut damaged) = (Vec::new(), Vec::new());
        let mut decoder = (format.decoder)(&FormatOptions::default());
        decoder.decode(
            head,
            true,
            &mut Devices::default(),
            &mut requests,
            &mut damaged,
        );
        let events = decoder
            .events()
            .map_or(0, |events| events.merges + events.splits + events.others);
        let back = requests
            .windows(2)
            .filter(|pair| pair[1].time_ns < pair[0].time_ns);
        let is_ordered = !decoder.by_completion() && requests.len() >= ORDERED_ROWS_MIN;
        Reading {
            format,
            rows: requests.len() + events as usize,
            // The last row may be cut at the end of the head.
            damaged: damaged.len().saturating_sub(usize::from(!whole)),
            first_damaged: damaged.first().map(|damaged| damaged.row),
            backwards: if is_ordered {
                back.count() as f64 / requests.len() as f64
            } else {
                0.0
            },
        }
    }

    /// Accepts up to one damaged row in twenty.
    fn fits(&self) -> bool {
        self.rows > 0 && self.damaged * 20 <= self.rows
    }
}

/// Detects the formats that match a file's beginning; `whole` means that there is nothing after it.
pub fn detect(head: &[u8], whole: bool) -> Candidates {
    let readings: Vec<Reading> = FORMATS
        .iter()
        .filter(|format| !format.needs_columns)
        .map(|format| Reading::of(format, head, whole))
        .collect();
    let fitting: Vec<&Reading> = readings.iter().filter(|reading| reading.fits()).collect();
    match fitting.as_slice() {
        [] => {
            let read = readings.iter().filter(|reading| reading.rows > 0);
            let closest = read.max_by_key(|reading| reading.rows);
            Candidates::None(closest.map(|reading| Closest {
                format: reading.format.name,
                rows: reading.rows as u64,
                row: reading.first_damaged.unwrap_or(1),
            }))
        }
        [one] if one.backwards > BACKWARDS_MAX => Candidates::Doubtful {
            format: one.format.name,
            backwards: one.backwards,
        },
        [one] => Candidates::One(one.format.name),
        several => Candidates::Several(several.iter().map(|one| one.format.name).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_complete_and_its_example_is_detected() {
        for (index, format) in FORMATS.iter().enumerate() {
            assert!(
                FORMATS[index + 1..]
                    .iter()
                    .all(|other| other.name != format.name),
                "{} twice",
                format.name
            );
            assert!(!format.help.is_empty() && !format.help.contains('\n'));
            if format.needs_columns {
                assert_ne!(detect(format.example, true), Candidates::One(format.name));
            } else {
                assert_eq!(detect(format.example, true), Candidates::One(format.name));
            }
            assert_eq!(
                format_named(format.name).map(|found| found.name),
                Some(format.name)
            );
        }
        assert_eq!(detect(b"", true), Candidates::None(None));
        assert_eq!(detect(b"this is no trace\n", true), Candidates::None(None));
    }

    #[test]
    fn the_documentation_lists_every_format() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/block-traces.md");
        let text = std::fs::read_to_string(path).unwrap();
        for format in FORMATS {
            let line = text
                .lines()
                .find(|line| line.starts_with(&format!("| `{}` |", format.name)));
            assert_eq!(
                line.map(|line| !line.contains("unchecked")),
                Some(format.checked),
                "{}",
                format.name
            );
        }
    }

    /// A file that is split at any point yields the same requests.
    #[test]
    fn requests_do_not_depend_on_how_a_file_is_split() {
        for format in FORMATS {
            let run = |cut: usize| {
                let (mut devices, mut requests, mut damaged) =
                    (Devices::default(), Vec::new(), Vec::new());
                let mut decoder = (format.decoder)(&FormatOptions::default());
                let used = decoder.decode(
                    &format.example[..cut],
                    false,
                    &mut devices,
                    &mut requests,
                    &mut damaged,
                );
                assert!(used <= cut);
                let rest = &format.example[used..];
                let used = decoder.decode(rest, true, &mut devices, &mut requests, &mut damaged);
                assert_eq!((used, damaged.len()), (rest.len(), 0), "{}", format.name);
                (requests, devices.names().to_vec())
            };
            let whole = run(0);
            assert!(!whole.0.is_empty());
            for cut in 1..=format.example.len() {
                assert_eq!(run(cut), whole, "{} cut at {cut}", format.name);
            }
        }
    }
}
