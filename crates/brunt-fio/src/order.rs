//! Which jobs fio runs at the same time (fio(1), `stonewall` and `wait_for`).
//! Called once for a job file, before its jobs are translated.

use crate::job::Job;

/// The first job that runs at the same time as the one before it, by its index.
///
/// A job waits for all before a `stonewall`, its own included, and for the one that `wait_for` names. So the jobs behind
/// a stonewall come one after the other only if each waits for the one before it.
pub fn first_at_once(jobs: &[&Job]) -> Option<usize> {
    (1..jobs.len()).find(|index| {
        let by_key = jobs[*index].by_key();
        let walled = ["stonewall", "wait_for_previous"]
            .iter()
            .any(|key| by_key.get(key).is_some_and(|setting| setting.value != "0"));
        let waits = by_key.get("wait_for").is_some_and(|setting| setting.value == jobs[*index - 1].name);
        !walled && !waits
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job;

    #[test]
    fn jobs_wait_for_a_wall_or_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.fio");
        let check = |text: &str, expected: Option<usize>| {
            std::fs::write(&path, text).unwrap();
            let jobs = job::read(&path).unwrap();
            assert_eq!(first_at_once(&jobs.iter().collect::<Vec<_>>()), expected, "{text}");
        };
        check("[a]\nstonewall", None);
        check("[a]\n[b]", Some(1));
        check("[a]\n[b]\nstonewall", None);
        check("[a]\n[b]\nstonewall=0", Some(1));
        check("[global]\nstonewall\n[a]\n[b]\n[c]", None);
        check("[a]\n[b]\nwait_for=a\n[c]\nwait_for=b", None);
        check("[a]\n[b]\nwait_for=a\n[c]\nwait_for=a", Some(2));
        check("[a]\n[b]\nwait_for_previous\n[c]", Some(2));
    }
}
