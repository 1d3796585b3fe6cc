//! The table of trace formats, and their detection. To add one: a file in `formats/` with its [`Format`], and
//! its line here.
//!
//! The rule: a format is detected by parsing the beginning of a file with each of them; if several fit, the
//! user chooses.

use crate::format::{Format, FormatOptions};
use crate::formats::{
    alibaba, blkparse, blkreplay, blktrace, cloudphysics, csv, dtb, fiu, hfplayer, iolog, k5cloud,
    lcs, msr, oracle, spc, systor, tencent, vscsi,
};
use crate::record::Devices;

/// Bytes of a file, unpacked, that its format is detected from.
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
    iolog::FORMAT_2,
    iolog::FORMAT_3,
    hfplayer::FORMAT,
    dtb::FORMAT,
    oracle::FORMAT,
    lcs::FORMAT,
    csv::FORMAT,
];

/// The format of this name.
pub fn format_named(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

/// Formats that the beginning of a file fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Candidates {
    /// None.
    None,
    /// This one, by its name.
    One(&'static str),
    /// Several, by their names.
    Several(Vec<&'static str>),
}

/// Finds out which formats a file may have from its beginning; `whole`: there is no more of it.
pub fn detect(head: &[u8], whole: bool) -> Candidates {
    let fits = |format: &&Format| {
        if format.needs_columns {
            return false;
        }
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
        let rows = requests.len() + events as usize;
        // The last row may be cut by the end of the head.
        let cut = damaged.len().saturating_sub(usize::from(!whole));
        // A damaged row here and there does not make it another format.
        rows > 0 && cut * 20 <= rows
    };
    let names: Vec<&'static str> = FORMATS
        .iter()
        .filter(fits)
        .map(|format| format.name)
        .collect();
    match names.as_slice() {
        [] => Candidates::None,
        [one] => Candidates::One(one),
        _ => Candidates::Several(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_whole_and_its_example_is_found_out() {
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
        assert_eq!(detect(b"", true), Candidates::None);
        assert_eq!(detect(b"this is no trace\n", true), Candidates::None);
    }

    #[test]
    fn the_documentation_has_a_line_for_each() {
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

    /// Cut anywhere, in any two pieces, a file gives the same requests.
    #[test]
    fn pieces_do_not_matter() {
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
