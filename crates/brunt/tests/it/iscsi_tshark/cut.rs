//! Captures with missing parts: files that end within a packet, and packets that are truncated. Every command that
//! tshark finds with its response is in the trace, and nothing in the trace is invented.

use std::path::Path;
use std::process::Command;

use super::commands::{Commands, Known, ours, tsharks};
use super::{leave_out_unshown, stored};
use crate::support::pdml::CaptureFile;
use crate::support::{TempDir, brunt, need, run_within, succeed};

/// Keeps facts that come from headers of commands and responses; data may be in the missing part.
const OF_HEADERS: [&str; 11] = [
    "request_first",
    "reply_first",
    "lun",
    "opcode",
    "lba",
    "blocks",
    "function",
    "referenced_tag",
    "expected_bytes",
    "response",
    "status",
];

fn of_headers(known: &Known) -> Known {
    known
        .iter()
        .filter(|(name, _)| OF_HEADERS.contains(name))
        .map(|(name, value)| (*name, *value))
        .collect()
}

/// The same command in the complete capture.
fn in_whole<'a>(whole: &'a Commands, key: &(u64, u64), known: &Known) -> Option<&'a Known> {
    whole
        .get(key)?
        .iter()
        .find(|whole| whole["request_first"] == known["request_first"])
}

/// Compares a cut capture with tshark's view of it and with the complete capture; returns the number of commands that
/// both found.
fn check_cut(name: &str, whole: &Commands, path: &Path, folder: &TempDir) -> usize {
    let trace = folder.join(&format!("trace-{name}"));
    let mut capture = brunt();
    capture.args(["capture", "-r"]).arg(path);
    let done = run_within(capture.arg("--out").arg(&trace), 300);
    // The exit status is 1 if packets are so short that no operation is left.
    assert!(
        matches!(done.status.code(), Some(0 | 1)),
        "{name}: {done:?}"
    );
    let (theirs, ours) = (tsharks(path, CaptureFile::Cut), ours(&trace));
    for (key, known) in ours
        .iter()
        .flat_map(|(key, same)| same.iter().map(move |known| (key, known)))
    {
        let whole = in_whole(whole, key, known);
        let whole = whole.unwrap_or_else(|| panic!("{name} {key:?}: made up: {known:?}"));
        let mut found = of_headers(known);
        leave_out_unshown(&mut found, whole);
        if whole.contains_key("reply_begins_before") {
            found.remove("reply_first");
        }
        for (field, value) in found {
            assert_eq!(
                whole.get(field),
                Some(&value),
                "{name} {key:?}: {field} of {known:?}, in {whole:?}"
            );
        }
    }
    let mut both = 0;
    for (key, known) in theirs
        .iter()
        .flat_map(|(key, same)| same.iter().map(move |known| (key, known)))
    {
        let theirs = of_headers(known);
        // tshark has matched command and response wrongly if the match differs from the one in the complete capture.
        let is_true = in_whole(whole, key, known).is_some_and(|whole| of_headers(whole) == theirs);
        if !known.contains_key("reply_first") || !is_true {
            continue;
        }
        let is_ours = ours.get(key).into_iter().flatten().any(|ours| {
            let mut ours = of_headers(ours);
            leave_out_unshown(&mut ours, &theirs);
            if known.contains_key("reply_begins_before") {
                ours.extend(theirs.get_key_value("reply_first"));
            }
            ours == theirs
        });
        assert!(
            is_ours,
            "{name} {key:?}: tshark's, but not ours: {known:?}; ours: {:?}",
            ours.get(key)
        );
        both += 1;
    }
    both
}

fn folder() -> Option<TempDir> {
    need("tshark", "tshark")?;
    need("editcap", "wireshark-common")?;
    Some(TempDir::new("iscsi-cut"))
}

/// tshark takes a second to start, so each capture uses a third of the cases; all captures together use all of them.
fn every_third<T>(cases: impl IntoIterator<Item = T>, capture: usize) -> impl Iterator<Item = T> {
    cases.into_iter().skip(capture % 3).step_by(3)
}

/// Files that end at arbitrary bytes.
#[test]
fn files_that_end_within_a_packet_invent_no_commands() {
    const CUTS: usize = 8;
    let Some(folder) = folder() else { return };
    let mut found = 0;
    for (index, (name, path)) in stored(&folder).into_iter().enumerate() {
        let (bytes, whole) = (
            std::fs::read(&path).unwrap(),
            tsharks(&path, CaptureFile::Whole),
        );
        for cut in every_third(1..=CUTS, index) {
            let end = bytes.len() * cut / (CUTS + 1) + cut * 7 % 31;
            let path = folder.join("cut.pcapng");
            std::fs::write(&path, &bytes[..end]).unwrap();
            let both = check_cut(&format!("{name}-{end}"), &whole, &path, &folder);
            println!(
                "{name}, {end} of {} bytes: {both} commands are tshark's",
                bytes.len()
            );
            found += both;
        }
    }
    assert!(found > 1000, "{found}");
}

/// Packets that are truncated within their headers, a PDU's header, or its data.
#[test]
fn truncated_packets_invent_no_commands() {
    let Some(folder) = folder() else { return };
    let mut found = 0;
    for (index, (name, path)) in stored(&folder).into_iter().enumerate() {
        let whole = tsharks(&path, CaptureFile::Whole);
        for snap in every_third([100, 114, 118, 138, 200, 400, 1000], index) {
            let cut = folder.join("cut.pcapng");
            succeed(
                Command::new("editcap")
                    .args(["-s", &snap.to_string()])
                    .arg(&path)
                    .arg(&cut),
                60,
            );
            let both = check_cut(&format!("{name}-{snap}"), &whole, &cut, &folder);
            println!("{name}, packets of {snap} bytes: {both} commands are tshark's");
            found += both;
        }
    }
    assert!(found > 250, "{found}");
}
