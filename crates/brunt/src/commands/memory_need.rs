//! Warns before a run whose in-memory devices may exceed the control group's memory limit: the kernel would kill this
//! program during the run, without a message.
//!
//! The rule: this is a note, never an error, because such devices take up memory only where they are written.

use std::collections::BTreeSet;

use brunt_block::backends::memory::memory_in;
use brunt_block::preview_url_with;
use brunt_core::units::format_size;
use brunt_probe::limits::{CgroupLimits, Cgroups};
use brunt_study::experiment::{Experiment, Plan};

use super::run_check::target_url;
use crate::cli::Output;
use crate::devices;

const ADVICE: &str = "write less to them (a workload's region.length; --size or --length on the \
 command line), choose smaller devices, or raise the group's limit (memory.max, in version 1 \
 memory.limit_in_bytes)";

/// Something that may take up memory, and how many bytes.
struct Need {
    what: String,
    bytes: u64,
}

/// Prints a note if an experiment may need more memory than is left.
pub(super) fn note_run(experiment: &Experiment, plan: &Plan, output: &Output) {
    let limits = Cgroups::own().limits();
    let note = scarce(&needs(experiment, plan), &limits);
    note.into_iter().for_each(|note| output.note(note));
}

/// Prints a note if a command may need more memory than is left: it writes `written` bytes to one device, with
/// `buffers` bytes of requests in flight.
pub(super) fn note_device(url: &str, written: u64, buffers: u64, output: &Output) {
    let device = Need {
        what: "the device".into(),
        bytes: match is_one_memory(url) {
            true => memory_in(url).min(written),
            false if written == 0 => 0,
            false => memory_in(url),
        },
    };
    let requests = Need {
        what: "its requests".into(),
        bytes: buffers,
    };
    let note = scarce(&[device, requests], &Cgroups::own().limits());
    note.into_iter().for_each(|note| output.note(note));
}

/// Describes the needs, if they exceed the memory that is left in the control group.
fn scarce(needs: &[Need], limits: &CgroupLimits) -> Option<String> {
    let (max, left) = limits.memory_max.zip(limits.memory_left)?;
    let total = needs
        .iter()
        .map(|need| need.bytes)
        .fold(0, u64::saturating_add);
    if total <= left {
        return None;
    }
    let needs = needs.iter().filter(|need| need.bytes > 0);
    let each: Vec<String> = needs
        .map(|need| format!("{} {}", need.what, format_size(need.bytes)))
        .collect();
    Some(format!(
        "this may need {} of memory ({}), but the control group allows {}, of which {} are left, and \
         the kernel kills processes that need more: {ADVICE}",
        format_size(total),
        each.join(", "),
        format_size(max),
        format_size(left)
    ))
}

/// The memory that the targets on this machine may take up once written, and the largest need of any point's loads.
fn needs(experiment: &Experiment, plan: &Plan) -> Vec<Need> {
    let served_remotely = experiment.served_remotely();
    let is_elsewhere = |name: &str| match experiment.targets[name].serve {
        Some(_) => served_remotely.iter().any(|(served, _)| served == name),
        None => plan.is_remote(name),
    };
    let written = plan.written.iter().map(|(name, ..)| name);
    let mut needs: Vec<Need> = written
        .filter(|name| !is_elsewhere(name))
        .filter_map(|name| {
            let url = target_url(&experiment.targets[name]).ok()??;
            let bytes = growth(plan, name, &url);
            (bytes > 0).then(|| Need {
                what: format!("target '{name}'"),
                bytes,
            })
        })
        .collect();
    let own = plan.heads().into_iter().map(|head| {
        let jobs = plan.jobs_of(head);
        let points = if jobs.is_empty() {
            head..head + 1
        } else {
            jobs
        };
        points
            .map(|point| own_bytes(experiment, plan, point))
            .fold(0, u64::saturating_add)
    });
    needs.push(Need {
        what: "requests and verification data".into(),
        bytes: own.max().unwrap_or(0),
    });
    needs
}

/// The memory that a target may take up once written: all of its size, or the parts that its workloads write.
fn growth(plan: &Plan, name: &str, url: &str) -> u64 {
    let most = memory_in(url);
    if !is_one_memory(url) {
        return most;
    }
    let mut regions = BTreeSet::new();
    let points = (0..plan.points.len()).filter(|point| plan.jobs_of(*point).is_empty());
    for point in points.map(|point| &plan.points[point]) {
        if !point.is_on(name) || !point.load.info().writes {
            continue;
        }
        match point.workload().filter(|_| point.targets.len() == 1) {
            Some(workload) => {
                let start = workload.region.start.0.min(most);
                let length = workload.region.length.map_or(most, |length| length.0);
                regions.insert((start, length.min(most - start)));
            }
            // The requests of a trace, or of a workload on several joined targets, may go anywhere.
            None => return most,
        }
    }
    let lengths = regions.iter().map(|(_, length)| *length);
    lengths.fold(0, u64::saturating_add).min(most)
}

/// The memory that a point's load itself takes up on this machine, as far as known.
fn own_bytes(experiment: &Experiment, plan: &Plan, point: usize) -> u64 {
    let point = &plan.points[point];
    let Some(workload) = point.workload().filter(|_| point.hosts().is_empty()) else {
        return 0;
    };
    let size = |name: &String| {
        let url = target_url(experiment.targets.get(name)?).ok()??;
        let foreseen = preview_url_with(&url, &devices::BACKENDS).ok()?;
        Some(foreseen?.size_bytes)
    };
    let length = workload.region.length.map_or_else(
        || {
            let sizes = point.targets.iter().filter_map(size);
            sizes
                .fold(0, u64::saturating_add)
                .saturating_sub(workload.region.start.0)
        },
        |length| length.0,
    );
    workload.memory_bytes(length)
}

/// Whether the device is a single memory device, so that its offsets are offsets in memory.
fn is_one_memory(url: &str) -> bool {
    url.trim_start().starts_with("memory:")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit of 300 MiB, of which 290 MiB are left.
    fn limits() -> CgroupLimits {
        CgroupLimits {
            memory_max: Some(300 << 20),
            memory_left: Some(290 << 20),
            ..CgroupLimits::default()
        }
    }

    fn note_of(urls: &[&str], workload: &str) -> Option<String> {
        let mut text = "name = \"n\"\n".to_string();
        for (url, name) in urls.iter().zip(["a", "b"]) {
            text += &format!("[targets.{name}]\nurl = \"{url}\"\n");
        }
        text += &format!("[workloads.w]\nstop = {{ time = \"1s\" }}\n{workload}\n");
        let experiment = Experiment::parse("n.toml", &text).unwrap();
        scarce(&needs(&experiment, &experiment.plan()), &limits())
    }

    #[test]
    fn memory_beyond_the_limit_is_noted() {
        let check = |urls: &[&str], workload: &str, words: &[&str]| {
            let note = note_of(urls, workload).expect("a note");
            for word in words {
                assert!(note.contains(word), "{word}: {note}");
            }
        };
        let words = [
            "target 'a' 2GiB",
            "requests and verification data 4KiB",
            "allows 300MiB, of which 290MiB are left",
            "region.length",
            "memory.max",
        ];
        check(&["memory:2GiB"], "read = 0", &words);
        let array = "array:raid1,[memory:200MiB],[memory:200MiB]";
        check(&[array], "read = 0", &["target 'a' 400MiB"]);
        let two = ["memory:200MiB", "memory:200MiB?delay=const:1ms"];
        let each = "target 'a' 200MiB, target 'b' 200MiB";
        check(&two, "read = 0", &[each]);
        // Verification data takes up 8 bytes for each block of 4,096 bytes.
        let verify = "verify = {}\nread = 0.5\nworkers = 16";
        check(&["null:1TiB"], verify, &["verification data 2.0GiB"]);
    }

    #[test]
    fn memory_that_fits_is_not_noted() {
        let none = |url: &str, workload: &str| assert_eq!(note_of(&[url], workload), None);
        none("memory:2GiB", "read = 1");
        let region = "read = 0\nregion = { start = \"1GiB\", length = \"64MiB\" }";
        none("memory:2GiB", region);
        none("memory:256MiB", "read = 0");
        none("null:1TiB", "read = 0");
        let need = Need {
            what: "x".into(),
            bytes: u64::MAX,
        };
        assert_eq!(scarce(&[need], &CgroupLimits::default()), None);
    }
}
