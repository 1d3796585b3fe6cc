//! Detects the available CPUs and their NUMA nodes from sysfs and the thread's affinity mask, so limits set by
//! containers or taskset are respected.

use std::fs;
use std::path::Path;

use brunt_core::cpus::parse_cpu_list;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where schedulers may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Anywhere. The kernel moves schedulers between CPUs, and they steal from each other across nodes. The best choice
    /// on machines that also run other work.
    #[default]
    Anywhere,
    /// Each on the CPUs of one NUMA node, stealing within the node first. Memory stays local, and
    /// the kernel can still move a scheduler away from a busy core.
    Node,
    /// Each on one core, stealing within the node first. Caches stay warmest, but if another
    /// process uses the core, the scheduler gets only half of it.
    Core,
}

/// Where one scheduler runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SchedulerCpus {
    /// Empty if unrestricted.
    pub cpus: Vec<usize>,
    pub node: usize,
}

/// Returns the CPUs this thread may use, grouped by NUMA node; nodes without any are omitted.
pub(crate) fn nodes() -> Vec<Vec<usize>> {
    let nodes = numbered_nodes().into_iter();
    nodes.map(|(_, cpus)| cpus).collect()
}

/// Returns the CPUs this thread may use, grouped by NUMA node, with the kernel's node numbers.
pub(crate) fn numbered_nodes() -> Vec<(usize, Vec<usize>)> {
    let allowed = sched_getaffinity(None).ok();
    nodes_at(Path::new("/sys/devices/system/node"), |cpu| {
        allowed
            .as_ref()
            .is_none_or(|set| cpu < CpuSet::MAX_CPU && set.is_set(cpu))
    })
}

fn nodes_at(root: &Path, allowed: impl Fn(usize) -> bool) -> Vec<(usize, Vec<usize>)> {
    let mut nodes: Vec<(usize, Vec<usize>)> = fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let number = entry
                .file_name()
                .to_str()?
                .strip_prefix("node")?
                .parse()
                .ok()?;
            let list = fs::read_to_string(entry.path().join("cpulist")).ok()?;
            let mut cpus = parse_cpu_list(&list);
            cpus.retain(|&cpu| allowed(cpu));
            (!cpus.is_empty()).then_some((number, cpus))
        })
        .collect();
    nodes.sort();
    if nodes.is_empty() {
        // This kernel has no NUMA information: one node with all CPUs.
        let count = std::thread::available_parallelism().map_or(1, |count| count.get());
        let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed(cpu));
        return vec![(0, cpus.take(count).collect())];
    }
    nodes
}

/// Assigns CPUs to each of `count` schedulers, in CPU order, filling one node before the next.
pub(crate) fn cpus_by_scheduler(
    placement: Placement,
    count: usize,
    nodes: &[Vec<usize>],
) -> Vec<SchedulerCpus> {
    let flat: Vec<(usize, usize)> = nodes
        .iter()
        .enumerate()
        .flat_map(|(node, cpus)| cpus.iter().map(move |&cpu| (node, cpu)))
        .collect();
    (0..count)
        .map(|index| {
            if placement == Placement::Anywhere || flat.is_empty() {
                return SchedulerCpus::default();
            }
            // As many schedulers as CPUs: one each, in order. Fewer: the first CPUs. More: start over from the first.
            let (node, cpu) = flat[index % flat.len()];
            let cpus = if placement == Placement::Core {
                vec![cpu]
            } else {
                nodes[node].clone()
            };
            SchedulerCpus { cpus, node }
        })
        .collect()
}

/// Assigns each of `count` schedulers one of these sets of CPUs in turn.
pub(crate) fn cpus_of_list(
    list: &[Vec<usize>],
    count: usize,
    nodes: &[Vec<usize>],
) -> Vec<SchedulerCpus> {
    let sets = list.iter().cycle().take(count);
    sets.map(|cpus| SchedulerCpus {
        cpus: cpus.clone(),
        node: nodes
            .iter()
            .position(|node| cpus.first().is_some_and(|cpu| node.contains(cpu)))
            .unwrap_or(0),
    })
    .collect()
}

/// The CPUs that the calling thread may use.
pub fn thread_cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect()
}

/// Pins the calling thread to CPUs, unless there are none. Returns false if that failed.
pub fn pin_thread(cpus: &[usize]) -> bool {
    if cpus.is_empty() {
        return true;
    }
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu);
    }
    sched_setaffinity(None, &set).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Schedulers take turns on the places of a list, and belong to the node of their CPUs.
    #[test]
    fn schedulers_take_turns_on_a_list() {
        let nodes = [vec![0, 2], vec![1, 3]];
        let got = cpus_of_list(&[vec![3], vec![0, 2]], 3, &nodes);
        let got: Vec<_> = got
            .iter()
            .map(|own| (own.cpus.as_slice(), own.node))
            .collect();
        let expected: [(&[usize], usize); 3] = [(&[3], 1), (&[0, 2], 0), (&[3], 1)];
        assert_eq!(got, expected);
    }

    /// Schedulers are placed on their node's CPUs, and wrap around if they outnumber the CPUs.
    #[test]
    fn schedulers_fill_the_nodes_in_order_and_wrap_around() {
        let nodes = [vec![0, 2], vec![1, 3]];
        let check = |placement, count, expected: &[(&[usize], usize)]| {
            let got = cpus_by_scheduler(placement, count, &nodes);
            let got: Vec<_> = got
                .iter()
                .map(|own| (own.cpus.as_slice(), own.node))
                .collect();
            assert_eq!(got, expected, "{placement:?} {count}");
        };
        check(Placement::Anywhere, 2, &[(&[], 0), (&[], 0)]);
        check(Placement::Core, 3, &[(&[0], 0), (&[2], 0), (&[1], 1)]);
        check(
            Placement::Node,
            3,
            &[(&[0, 2], 0), (&[0, 2], 0), (&[1, 3], 1)],
        );
        check(
            Placement::Core,
            5,
            &[(&[0], 0), (&[2], 0), (&[1], 1), (&[3], 1), (&[0], 0)],
        );
    }
}
