//! Whether the runs of several experiments can take turns (`brunt run --interleave`).
//!
//! The rule: each run needs a counterpart in every other experiment, and no experiment may change what another one
//! measures. What can't be known before targets are opened, such as two names for the same remote LUN, isn't detected
//! here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use brunt_core::device_url::{split_options, without_secrets};

use super::{Experiment, Plan};
use crate::host::HostName;

/// Devices that are visible only to the process that opens them.
const PRIVATE_SCHEMES: [&str; 2] = ["null:", "memory:"];

/// One of the experiments that should take turns.
#[derive(Clone, Copy, Debug)]
pub struct InterleavedExperiment<'a> {
    /// The path of its file, for messages.
    pub file: &'a Path,
    /// The experiment.
    pub experiment: &'a Experiment,
    /// Its plan, which determines which targets are written to.
    pub plan: &'a Plan,
}

/// Why experiments can't take turns. `first` and `second` are the files of the two experiments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} and {} cannot take turns: {conflict}", first.display(), second.display())]
pub struct InterleaveError {
    first: PathBuf,
    second: PathBuf,
    /// The obstacle.
    pub conflict: InterleaveConflict,
}

/// What keeps two experiments from taking turns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InterleaveConflict {
    /// Paired runs would send different requests.
    #[error("the first has seed {0} and the second {1}, so they would send different requests")]
    Seed(u64, u64),
    /// The numbers of runs differ.
    #[error("the first makes {0} runs of each point, the second {1}")]
    Repetitions(u32, u32),
    /// Different stopping rules.
    #[error("their 'precision', 'repetitions_max' or 'time_max' differs")]
    Precision,
    /// Different steps.
    #[error("they have different phases: '{0}' of the first, '{1}' of the second")]
    Phase(String, String),
    /// A point without a counterpart.
    #[error(
        "only {} has the point '{label}'; give targets and workloads the same names in both files",
        file.display()
    )]
    Point {
        /// The file of the experiment that has the point.
        file: PathBuf,
        /// The point.
        label: String,
    },
    /// The same points in a different order, so runs would not be paired with their counterparts.
    #[error(
        "they have the same points in a different order: '{0}' of the first, '{1}' of the second; \
         list the values of each axis in the same order"
    )]
    Order(String, String),
    /// One experiment changes what the other measures.
    #[error(
        "target '{first}' of the first and target '{second}' of the second are the same storage ({place}), and at \
         least one of them is written to; measure different storage, or run one experiment after the other"
    )]
    Storage {
        /// The first experiment's target.
        first: String,
        /// The second's.
        second: String,
        /// The path or URL of the storage.
        place: String,
    },
    /// Both experiments create files in the same directory.
    #[error("both measure the file system in {}; use different file systems", .0.display())]
    Directory(PathBuf),
    /// Services that listen on the same port.
    #[error(
        "service '{first}' of the first and service '{second}' of the second both listen on port {port} of '{host}'; \
         write ready.port = 0 and use $BRUNT_PORT"
    )]
    Port {
        /// The first experiment's service.
        first: String,
        /// The second's.
        second: String,
        /// The host on which both listen.
        host: HostName,
        /// The port.
        port: u16,
    },
    /// Inline bridges on the same host that share an interface.
    #[error("both bridge interface {1} of host '{0}'")]
    Bridge(HostName, String),
}

/// Checks that the runs of these experiments can take turns.
///
/// # Errors
/// Returns the first pair of experiments that can't take turns, and why.
pub fn check_interleaved(all: &[InterleavedExperiment<'_>]) -> Result<(), Box<InterleaveError>> {
    for (index, second) in all.iter().enumerate() {
        for first in &all[..index] {
            if let Some(conflict) = conflict(first, second) {
                return Err(Box::new(InterleaveError {
                    first: first.file.to_path_buf(),
                    second: second.file.to_path_buf(),
                    conflict,
                }));
            }
        }
    }
    Ok(())
}

fn conflict(
    one: &InterleavedExperiment<'_>,
    other: &InterleavedExperiment<'_>,
) -> Option<InterleaveConflict> {
    let (a, b) = (one.experiment, other.experiment);
    if a.seed != b.seed {
        return Some(InterleaveConflict::Seed(a.seed, b.seed));
    }
    if a.repetitions != b.repetitions {
        return Some(InterleaveConflict::Repetitions(
            a.repetitions,
            b.repetitions,
        ));
    }
    if (&a.precision, a.repetitions_max, a.time_max)
        != (&b.precision, b.repetitions_max, b.time_max)
    {
        return Some(InterleaveConflict::Precision);
    }
    phases(a, b)
        .or_else(|| points(one, other))
        .or_else(|| storage(one, other))
        .or_else(|| directory(a, b))
        .or_else(|| port(a, b))
        .or_else(|| bridge(a, b))
}

fn phases(a: &Experiment, b: &Experiment) -> Option<InterleaveConflict> {
    let name = |of: &Experiment, at: usize| of.phase.get(at).map_or("none".into(), |p| p.label());
    (0..a.phase.len().max(b.phase.len()))
        .find(|at| match (a.phase.get(*at), b.phase.get(*at)) {
            (Some(a), Some(b)) => {
                (a.label(), &a.workloads, a.once) != (b.label(), &b.workloads, b.once)
            }
            _ => true,
        })
        .map(|at| InterleaveConflict::Phase(name(a, at), name(b, at)))
}

/// The first point that only one of the two experiments has, or that isn't paired with its counterpart.
fn points(
    one: &InterleavedExperiment<'_>,
    other: &InterleavedExperiment<'_>,
) -> Option<InterleaveConflict> {
    let only = |one: &InterleavedExperiment<'_>, other: &InterleavedExperiment<'_>| {
        let known: BTreeSet<&str> = other.plan.points.iter().map(|p| p.label.as_str()).collect();
        let mut points = one.plan.points.iter();
        let point = points.find(|point| !known.contains(point.label.as_str()))?;
        Some(InterleaveConflict::Point {
            file: one.file.to_path_buf(),
            label: point.label.clone(),
        })
    };
    let order = || {
        let mut both = one.plan.points.iter().zip(&other.plan.points);
        let (a, b) = both.find(|(a, b)| a.label != b.label)?;
        Some(InterleaveConflict::Order(a.label.clone(), b.label.clone()))
    };
    only(one, other).or_else(|| only(other, one)).or_else(order)
}

fn storage(
    one: &InterleavedExperiment<'_>,
    other: &InterleavedExperiment<'_>,
) -> Option<InterleaveConflict> {
    let is_written = |of: &InterleavedExperiment<'_>, name: &str| {
        of.plan.written.iter().any(|(written, ..)| written == name)
    };
    for (first, place) in places(one.experiment) {
        for (second, other_place) in places(other.experiment) {
            let is_changed = is_written(one, first) || is_written(other, second);
            if place == other_place && is_changed {
                return Some(InterleaveConflict::Storage {
                    first: first.to_string(),
                    second: second.to_string(),
                    place: without_secrets(&place),
                });
            }
        }
    }
    None
}

/// The targets whose storage other processes can reach, each with its place: the path of a file or device without
/// symbolic links, or a URL without its options.
fn places(experiment: &Experiment) -> impl Iterator<Item = (&str, String)> {
    let far = experiment.served_remotely();
    experiment.targets.iter().filter_map(move |(name, target)| {
        let (place, _) = split_options(target.place());
        let is_private = PRIVATE_SCHEMES
            .iter()
            .any(|scheme| place.starts_with(scheme));
        // A sink stores nothing.
        let is_sink = target.role().is_some_and(|role| role.luns().is_none());
        let is_elsewhere = target.is_known_late() && target.serve.is_none();
        if is_private || is_sink || place.is_empty() || is_elsewhere {
            return None;
        }
        if let Some((_, host)) = far.iter().find(|(served, _)| served == name) {
            return Some((name.as_str(), format!("{place} on {host}")));
        }
        let path = place.strip_prefix("file:").unwrap_or(place);
        // A file that doesn't exist yet is identified by its directory and name.
        let created = || {
            let (folder, name) = (Path::new(path).parent()?, Path::new(path).file_name()?);
            let is_here = folder.as_os_str().is_empty();
            let folder = if is_here { Path::new(".") } else { folder };
            Some(folder.canonicalize().ok()?.join(name))
        };
        let real = Path::new(path).canonicalize().ok().or_else(created);
        let place = real.map_or(path.to_string(), |real| real.display().to_string());
        Some((name.as_str(), place))
    })
}

fn directory(a: &Experiment, b: &Experiment) -> Option<InterleaveConflict> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let known: BTreeSet<PathBuf> = a
        .workloads
        .own()
        .filter_map(|(_, entry)| entry.directory())
        .map(real)
        .collect();
    let mut others = b
        .workloads
        .own()
        .filter_map(|(_, entry)| entry.directory())
        .map(real);
    let both = others.find(|directory| known.contains(directory))?;
    Some(InterleaveConflict::Directory(both))
}

fn port(a: &Experiment, b: &Experiment) -> Option<InterleaveConflict> {
    // A lab's hosts are private to its experiment.
    let is_own = |of: &Experiment, host: &HostName| {
        of.lab.as_ref().is_some_and(|lab| lab.hosts.contains(host))
    };
    let listening = |of: &Experiment| {
        let services = of.services.iter().filter_map(|(name, service)| {
            let port = service.ready.port.filter(|port| *port > 0)?;
            let host = of.host_of_service(service);
            (!is_own(of, &host)).then(|| (name.clone(), host, port))
        });
        services.collect::<Vec<_>>()
    };
    let others = listening(b);
    listening(a).into_iter().find_map(|(first, host, port)| {
        let (second, ..) = others.iter().find(|of| (&of.1, of.2) == (&host, port))?;
        Some(InterleaveConflict::Port {
            first,
            second: second.clone(),
            host,
            port,
        })
    })
}

fn bridge(a: &Experiment, b: &Experiment) -> Option<InterleaveConflict> {
    let others = b.bridges();
    a.bridges().into_iter().find_map(|bridge| {
        let other = others.iter().find(|other| other.name == bridge.name)?;
        let mut both = bridge.interfaces.into_iter();
        let interface = both.find(|name| other.interfaces.contains(name))?;
        Some(InterleaveConflict::Bridge(bridge.name, interface))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"x\"\nrepetitions = 4\n[targets.disk]\nurl = \"null:1GiB?delay=const:1ms\"\n[workloads.w]\n\
                        stop = { time = \"1s\" }\n";

    fn found(one: &str, other: &str) -> Option<InterleaveConflict> {
        let parsed = [one, other].map(|text| {
            let experiment = Experiment::parse("x.toml", text);
            experiment.unwrap_or_else(|error| panic!("{}", error.one_line()))
        });
        let plans = parsed.each_ref().map(|experiment| {
            let mut plan = experiment.plan();
            plan.find_written().unwrap();
            plan
        });
        let files = ["a.toml", "b.toml"].map(Path::new);
        let all: Vec<InterleavedExperiment<'_>> = (0..2)
            .map(|at| InterleavedExperiment {
                file: files[at],
                experiment: &parsed[at],
                plan: &plans[at],
            })
            .collect();
        check_interleaved(&all).err().map(|error| {
            assert_eq!((&*error.first, &*error.second), (files[0], files[1]));
            error.conflict
        })
    }

    #[test]
    fn experiments_that_differ_in_what_is_measured_take_turns() {
        assert_eq!(found(TEXT, TEXT), None);
        assert_eq!(
            found(TEXT, &TEXT.replace("delay=const:1ms", "delay=const:2ms")),
            None
        );
        assert_eq!(found(TEXT, &TEXT.replace("null", "memory")), None);
    }

    #[test]
    fn every_run_needs_a_counterpart() {
        use InterleaveConflict::{Phase, Point, Precision, Repetitions, Seed};
        let check = |from: &str, to: &str, expected| {
            assert_eq!(found(TEXT, &TEXT.replace(from, to)), Some(expected));
        };
        check("repetitions = 4", "repetitions = 6", Repetitions(4, 6));
        check("repetitions = 4", "repetitions = 4\nseed = 7", Seed(1, 7));
        check(
            "repetitions = 4",
            "repetitions = 4\nprecision = \"5%\"",
            Precision,
        );
        let only = |file: &str, label: &str| Point {
            file: file.into(),
            label: label.into(),
        };
        check("targets.disk", "targets.ssd", only("a.toml", "disk w"));
        let swept = format!("{TEXT}[sweep]\nqueue_depth = [1, 2]\n");
        assert_eq!(found(TEXT, &swept), Some(only("a.toml", "disk w")));
        let phases = format!("{TEXT}[[phase]]\nworkloads = [\"w\"]\n");
        assert_eq!(found(TEXT, &phases), Some(Phase("none".into(), "w".into())));
        assert_eq!(found(&phases, &phases), None);
    }

    /// Two paths to the same file count as one place. Experiments that only read the file can take turns.
    #[test]
    fn no_experiment_changes_what_another_measures() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, [0; 4096]).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let on = |path: &Path, read: f64| {
            let url = format!("{}?direct=no", path.display());
            TEXT.replace("null:1GiB?delay=const:1ms", &url)
                .replace("[workloads.w]", &format!("[workloads.w]\nread = {read}"))
        };
        assert_eq!(found(&on(&file, 1.0), &on(&link, 1.0)), None);
        for (one, other) in [(1.0, 0.5), (0.0, 1.0)] {
            let conflict = found(&on(&file, one), &on(&link, other));
            let place = file.canonicalize().unwrap().display().to_string();
            let (first, second) = ("disk".into(), "disk".into());
            let expected = InterleaveConflict::Storage {
                first,
                second,
                place,
            };
            assert_eq!(conflict, Some(expected));
        }
        let files = format!(
            "name = \"x\"\n[filesystems.f]\ndirectory = \"{}\"\n",
            folder.path().display()
        );
        let directory = folder.path().canonicalize().unwrap();
        assert_eq!(
            found(&files, &files),
            Some(InterleaveConflict::Directory(directory))
        );
    }

    /// Services of two experiments must not listen on the same port of a host, except in labs, where each experiment
    /// has its own hosts.
    #[test]
    fn services_need_different_ports() {
        let with = |port: u16, lab: &str| {
            format!(
                "{TEXT}[services.store]\ncommand = [\"/bin/true\"]\nready = {{ port = {port} }}\n{lab}"
            )
        };
        let expected = InterleaveConflict::Port {
            first: "store".into(),
            second: "store".into(),
            host: HostName::local(),
            port: 9000,
        };
        assert_eq!(found(&with(9000, ""), &with(9000, "")), Some(expected));
        assert_eq!(found(&with(9000, ""), &with(9001, "")), None);
        assert_eq!(found(&with(0, ""), &with(0, "")), None);
        let lab = "host = \"server\"\n[lab]\nhosts = [\"client\", \"server\"]\n[lab.links.wire]\nbetween = [\"client\", \"server\"]\n";
        assert_eq!(found(&with(9000, lab), &with(9000, lab)), None);
    }
}
