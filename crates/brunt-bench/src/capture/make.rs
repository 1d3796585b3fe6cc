//! Writes the captures that other subjects measure, both complete and with lost packets, and keeps them for other
//! measurements (callgrind) that need the same bytes again.
//!
//! The rule: existing captures are replaced, and nothing else is touched.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;

use super::CaptureBench;
use super::loss::write_lossy;
use super::subject::{Made, SubjectCapture};
use crate::scratch::Scratch;
use crate::{BenchError, BenchResult, Console};

/// Writes the captures of `settings` to `folder`.
///
/// # Errors
/// There is nothing to write, or two captures would have the same name; a file cannot be read or written.
pub fn run(settings: &CaptureBench, folder: &Path, output: &dyn Console) -> BenchResult {
    let losses: Vec<f64> = settings.loss.iter().flatten().copied().collect();
    if !settings.files.is_empty() && losses.is_empty() {
        let what = "--make has nothing to write for an existing capture; add --loss for copies \
            with missing packets";
        return Err(BenchError::usage(what));
    }
    // Compressed captures are decompressed into a scratch folder inside this folder.
    let scratch = Scratch::new(Some(folder), "make")?;
    let subjects: Result<Vec<SubjectCapture>, BenchError> = match &settings.files[..] {
        [] => Made::ALL
            .iter()
            .map(|made| made.subject(folder, settings.quick))
            .collect(),
        files => files
            .iter()
            .map(|file| SubjectCapture::of_file(file, &scratch))
            .collect(),
    };
    let subjects = subjects?;
    let mut names = BTreeSet::new();
    for name in subjects
        .iter()
        .flat_map(|subject| losses.iter().map(|percent| lossy_name(subject, *percent)))
    {
        if let Some(name) = names.replace(name) {
            let what = "for two captures or losses; give each loss once, and captures with different names";
            return Err(BenchError::usage(format!(
                "--make would write {name} twice: {what}"
            )));
        }
    }
    let mut files = Vec::new();
    for subject in subjects {
        if subject.made {
            output.line(format_args!(
                "{}: {}, {} packets, {} calls",
                subject.path.display(),
                subject.name,
                subject.packets,
                subject.calls
            ));
            files.push(
                json!({ "path": subject.path, "packets": subject.packets, "lost_share": 0.0 }),
            );
        }
        for percent in &losses {
            if output.is_interrupted() {
                return Err(BenchError::interrupted(
                    "interrupted: the files listed so far are complete",
                ));
            }
            let path = folder.join(lossy_name(&subject, *percent));
            let kept = write_lossy(&subject.path, &path, percent / 100.0, settings.seed)?;
            let packets = kept.iter().filter(|kept| **kept).count();
            output.line(format_args!(
                "{}: {packets} of {} packets, {percent} % lost (seed {})",
                path.display(),
                kept.len(),
                settings.seed
            ));
            files.push(json!({ "path": path, "packets": packets, "lost_share": percent / 100.0 }));
        }
    }
    output.object(&json!({ "captures": files, "seed": settings.seed }));
    Ok(())
}

/// The file name of a capture that lacks this percentage of packets.
fn lossy_name(subject: &SubjectCapture, percent: f64) -> String {
    let name = subject
        .path
        .file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    format!("{name}-loss-{percent}.pcap")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::console::Unread;
    use crate::error::BenchErrorKind;

    /// Captures of a run don't overwrite each other, and a run that would write nothing fails.
    #[test]
    fn runs_that_would_write_nothing_are_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let capture = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../testdata/nfs3-small.pcap.zst"
        );
        let copy = |folder: &str, name: &str| -> PathBuf {
            let folder = temporary.path().join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::copy(capture, folder.join(name)).unwrap();
            folder.join(name)
        };
        let (one, other, same) = (copy("a", "x.zst"), copy("a", "y.zst"), copy("b", "x.zst"));
        let make = |files: &[&PathBuf], loss: &[f64]| {
            let into = temporary.path().join("into");
            let _ = std::fs::remove_dir_all(&into);
            std::fs::create_dir(&into).unwrap();
            let settings = CaptureBench {
                files: files.iter().map(|file| (*file).clone()).collect(),
                rounds: 1,
                quick: true,
                part: brunt_core::quantity::Size(0),
                folder: None,
                loss: (!loss.is_empty()).then(|| loss.to_vec()),
                tables: false,
                seed: 1,
                make: Some(into.clone()),
                replay: None,
                wire: None,
                times: 1,
                duration: None,
                rate: None,
            };
            let kind = run(&settings, &into, &Unread).map_err(|error| error.kind);
            (kind, std::fs::read_dir(&into).unwrap().count())
        };
        assert_eq!(
            make(&[&one, &same], &[1.0]),
            (Err(BenchErrorKind::Usage), 0)
        );
        assert_eq!(make(&[&one], &[1.0, 1.0]), (Err(BenchErrorKind::Usage), 0));
        assert_eq!(make(&[&one], &[]), (Err(BenchErrorKind::Usage), 0));
        assert_eq!(make(&[&one, &other], &[1.0, 2.0]), (Ok(()), 4));
    }
}
