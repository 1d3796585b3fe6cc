//! Determines which jobs fio runs concurrently (fio(1), `stonewall`, `wait_for`, `startdelay` and `exitall`). Called
//! once per job file, before its jobs are translated.
//!
//! A job with `stonewall`, and all jobs after it, wait for the jobs before it. The jobs between two such walls are a
//! [`JobStretch`]; they start together, except for those that `wait_for` another job or have a `startdelay`.

use std::time::Duration;

use crate::error::{Cause, FioError};
use crate::job::{Job, Setting};
use crate::remark::Remark;
use crate::units;

/// Jobs that are measured together; a single job is measured alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStretch {
    /// The jobs in file order.
    pub jobs: Vec<StretchJob>,
}

/// A job in a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StretchJob {
    /// The job's index among all jobs.
    pub index: usize,
    /// The job's start delay, relative to the start of the stretch.
    pub delay: Duration,
    /// Whether the end of this job ends all other jobs in the stretch.
    pub ends_run: bool,
    /// Whether the end of a copy of this job ends only the other copies.
    pub ends_group: bool,
}

/// Divides the jobs into stretches, in the order in which fio runs them. Differences from fio are added to `remarks`.
///
/// # Errors
/// A delay is not a valid time.
pub fn stretches(jobs: &[&Job], remarks: &mut Vec<Remark>) -> Result<Vec<JobStretch>, FioError> {
    // `exitall` applies to the whole file: fio has a single flag.
    let exit_all = jobs
        .iter()
        .find_map(|job| setting(job, "exitall").filter(|set| is_on(set)));
    let walls: Vec<usize> = (0..jobs.len())
        .filter(|index| *index == 0 || is_walled(jobs[*index]))
        .collect();
    let ends = walls.iter().skip(1).copied().chain([jobs.len()]);
    let mut stretches = Vec::new();
    let groups = groups(jobs);
    for (start, end) in walls.iter().copied().zip(ends) {
        let indexes = start..end;
        let waits = |index: usize| {
            let named = setting(jobs[index], "wait_for");
            named.filter(|named| {
                jobs[start..end]
                    .iter()
                    .any(|other| other.name == named.value)
            })
        };
        let in_turn =
            |index: &usize| waits(*index).is_some_and(|named| named.value == jobs[index - 1].name);
        if indexes.clone().skip(1).all(|index| in_turn(&index)) {
            // A delay makes no difference to a job that runs alone.
            let (delay, ends_run) = (Duration::ZERO, exit_all.is_some());
            let alone = |index| JobStretch {
                jobs: vec![StretchJob {
                    index,
                    delay,
                    ends_run,
                    ends_group: false,
                }],
            };
            stretches.extend(indexes.map(alone));
            continue;
        }
        for named in indexes.clone().filter_map(waits) {
            let why = "fio starts the job when that job ends, while others continue; here, concurrent \
             jobs must start at known times";
            lose(remarks, named, why);
        }
        let mut at_once = Vec::new();
        for index in indexes {
            let delay = delay(jobs[index], start > 0, remarks)?;
            let ends_run = match exit_all {
                Some(switch) => ends_all(switch, index, jobs, &groups[start..end], end, remarks)?,
                None => false,
            };
            let ends_group = exit_all.is_some() && !ends_run;
            at_once.push(StretchJob {
                index,
                delay,
                ends_run,
                ends_group,
            });
        }
        stretches.push(JobStretch { jobs: at_once });
    }
    Ok(stretches)
}

fn setting<'a>(job: &'a Job, key: &str) -> Option<&'a Setting> {
    job.by_key().get(key).copied()
}

fn is_on(setting: &Setting) -> bool {
    setting.value != "0"
}

fn is_walled(job: &Job) -> bool {
    ["stonewall", "wait_for_previous"]
        .iter()
        .any(|key| setting(job, key).is_some_and(is_on))
}

fn lose(remarks: &mut Vec<Remark>, setting: &Setting, why: &str) {
    let (location, key) = (setting.location.clone(), setting.key.clone());
    let remark = Remark {
        location,
        key,
        why: why.to_string(),
        loss: true,
    };
    if !remarks.contains(&remark) {
        remarks.push(remark);
    }
}

/// The start delay of a job; `late` means that the job comes after a wall.
fn delay(job: &Job, late: bool, remarks: &mut Vec<Remark>) -> Result<Duration, FioError> {
    let Some(set) = setting(job, "startdelay").filter(|set| set.value != "0") else {
        return Ok(Duration::ZERO);
    };
    if set.value.contains('-') {
        lose(
            remarks,
            set,
            "a random delay is not supported: write a single time",
        );
        return Ok(Duration::ZERO);
    }
    if late {
        lose(
            remarks,
            set,
            "fio counts the delay from its own start, not from the start of the jobs after a stonewall",
        );
    }
    units::time(&set.value, Duration::from_secs(1)).ok_or_else(|| {
        let (option, value) = (set.key.clone(), set.value.clone());
        Cause::Value {
            option,
            value,
            expected: "a time such as 30s",
        }
        .at(set.location.clone())
    })
}

/// The reporting group of each job: `new_group` and a wall each start a new group.
fn groups(jobs: &[&Job]) -> Vec<usize> {
    let begins = |job: &Job| is_walled(job) || setting(job, "new_group").is_some_and(is_on);
    let mut group = 0;
    let groups = jobs.iter().enumerate().map(|(index, job)| {
        group += usize::from(index > 0 && begins(job));
        group
    });
    groups.collect()
}

/// Whether the end of a job ends all jobs in its stretch. `at_once` contains the groups of the concurrent jobs; jobs
/// from index `end` on start later.
fn ends_all(
    switch: &Setting,
    index: usize,
    jobs: &[&Job],
    at_once: &[usize],
    end: usize,
    remarks: &mut Vec<Remark>,
) -> Result<bool, FioError> {
    let own = at_once[index + at_once.len() - end];
    let what = setting(jobs[index], "exit_what");
    match what.map(|what| (what, what.value.as_str())) {
        Some((_, "stonewall")) => Ok(true),
        Some((what, "all")) => {
            if end < jobs.len() {
                lose(
                    remarks,
                    what,
                    "jobs after a stonewall are separate points, which no other job ends",
                );
            }
            Ok(true)
        }
        None | Some((_, "group")) => {
            let members = at_once.iter().filter(|group| **group == own).count();
            if members > 1 && members < at_once.len() {
                let why = "ends the jobs in one reporting group (new_group), while others continue";
                lose(remarks, switch, why);
            }
            Ok(members == at_once.len())
        }
        Some((what, _)) => {
            let (option, value) = (what.key.clone(), what.value.clone());
            let cause = Cause::Value {
                option,
                value,
                expected: "group, stonewall or all",
            };
            Err(cause.at(what.location.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job;

    /// Parses `text` and renders its stretches: `a+b@5!, c` means that a runs with b, which starts after five seconds
    /// and whose end also ends a, and that c runs afterwards.
    fn shown(text: &str) -> (String, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.fio");
        std::fs::write(&path, text).unwrap();
        let jobs = job::read(&path).unwrap();
        let mut remarks = Vec::new();
        let stretches = stretches(&jobs.iter().collect::<Vec<_>>(), &mut remarks).unwrap();
        let shown = stretches.iter().map(|stretch| {
            let each = stretch.jobs.iter().map(|job| {
                let name = &jobs[job.index].name;
                let end = if job.ends_run { "!" } else { "" };
                match job.delay.as_secs() {
                    0 => format!("{name}{end}"),
                    seconds => format!("{name}@{seconds}{end}"),
                }
            });
            each.collect::<Vec<String>>().join("+")
        });
        let lost = remarks
            .iter()
            .filter(|remark| remark.loss)
            .map(|remark| remark.key.clone());
        let mut lost: Vec<String> = lost.collect();
        lost.dedup();
        (shown.collect::<Vec<String>>().join(", "), lost)
    }

    #[test]
    fn jobs_wait_for_a_wall_or_a_name() {
        let check = |text: &str, expected: &str| {
            assert_eq!(shown(text), (expected.to_string(), Vec::new()), "{text}");
        };
        check("[a]\nstonewall", "a");
        check("[a]\n[b]", "a+b");
        check("[a]\n[b]\nstonewall", "a, b");
        check("[a]\n[b]\nstonewall=0", "a+b");
        check("[global]\nstonewall\n[a]\n[b]\n[c]", "a, b, c");
        check("[a]\n[b]\nwait_for=a\n[c]\nwait_for=b", "a, b, c");
        check("[a]\n[b]\nwait_for_previous\n[c]", "a, b+c");
        check("[a]\n[b]\n[c]\nstonewall\nwait_for=a\n[d]", "a+b, c+d");
        check("[a]\n[b]\nstartdelay=5\n[c]\nstartdelay=2m", "a+b@5+c@120");
        check("[a]\nstartdelay=5\n[b]\nstonewall\nstartdelay=5", "a, b");
        check("[a]\nexitall\n[b]\n[c]\nstonewall", "a!+b!, c!");
        check("[a]\n[b]\nexitall=0", "a+b");
        check("[global]\nexitall\nexit_what=all\n[a]\n[b]", "a!+b!");
        check(
            "[global]\nexitall\n[a]\nexit_what=stonewall\n[b]\nnew_group\n[c]\nstonewall",
            "a!+b, c!",
        );
        check(
            "[global]\nexitall\n[a]\n[b]\nstonewall\nexit_what=all\n[c]",
            "a!, b!+c!",
        );
        check("[a]\n[b]\nnew_group\nexitall", "a+b");
    }

    #[test]
    fn a_loss_names_the_offending_option() {
        let check = |text: &str, expected: &str, lost: &str| {
            assert_eq!(
                shown(text),
                (expected.to_string(), vec![lost.to_string()]),
                "{text}"
            );
        };
        check("[a]\n[b]\nwait_for=a\n[c]\nwait_for=a", "a+b+c", "wait_for");
        check("[a]\n[b]\nwait_for=a\n[c]", "a+b+c", "wait_for");
        check("[a]\n[b]\nstartdelay=1-9", "a+b", "startdelay");
        check(
            "[a]\n[b]\nstonewall\n[c]\nstartdelay=1",
            "a, b+c@1",
            "startdelay",
        );
        check("[a]\nexitall\n[b]\n[c]\nnew_group", "a+b+c", "exitall");
        check(
            "[global]\nexitall\nexit_what=all\n[a]\n[b]\n[c]\nstonewall",
            "a!+b!, c!",
            "exit_what",
        );
    }
}
