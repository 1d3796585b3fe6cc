//! Lists of CPUs as users write them: `0-3,8` or `node1`. The one rule: a list is checked against the CPUs that this
//! process may use before any thread is placed, so that mistakes are reported rather than ignored.

use std::fmt;
use std::str::FromStr;

use brunt_core::cpus::CPUS_MAX;

use crate::topology;

/// Places where threads run: thread `i` runs on place `i` modulo the number of places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(Vec<CpuPlace>);

/// Where one thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CpuPlace {
    /// On one CPU.
    Cpu(usize),
    /// On any CPU of a NUMA node.
    Node(usize),
}

/// Why a list can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    /// The text can't be parsed.
    #[error(
        "{0:?} is not a list of CPUs: write numbers and ranges, such as 0-3,8, or NUMA nodes, such as node1"
    )]
    Malformed(String),
    /// This process may not use the CPU, or it does not exist.
    #[error("CPU {cpu} does not exist, or this process may not use it; it may use {allowed}")]
    NoCpu {
        /// The CPU.
        cpu: usize,
        /// The CPUs this process may use, as a list.
        allowed: String,
    },
    /// There is no such node, or this process may use none of its CPUs.
    #[error(
        "NUMA node {node} does not exist, or this process may use none of its CPUs; it may use those of {allowed}"
    )]
    NoNode {
        /// The node.
        node: usize,
        /// The nodes this process may use, as a list.
        allowed: String,
    },
}

impl FromStr for CpuList {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<CpuList, CpuListError> {
        let malformed = || CpuListError::Malformed(text.to_string());
        let mut places = Vec::new();
        for part in text.split(',').map(str::trim) {
            let number = |text: &str| text.parse::<usize>().ok().filter(|cpu| *cpu < CPUS_MAX);
            if let Some(node) = part.strip_prefix("node") {
                places.push(CpuPlace::Node(number(node).ok_or_else(malformed)?));
                continue;
            }
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first), number(last));
            let (first, last) = first.zip(last).ok_or_else(malformed)?;
            if first > last {
                return Err(malformed());
            }
            places.extend((first..=last).map(CpuPlace::Cpu));
        }
        Ok(CpuList(places))
    }
}

impl CpuList {
    /// The CPUs of each place.
    ///
    /// # Errors
    /// The list names a CPU or node that doesn't exist or that this process may not use.
    pub fn resolve(&self) -> Result<Vec<Vec<usize>>, CpuListError> {
        self.resolve_among(&topology::numbered_nodes())
    }

    fn resolve_among(
        &self,
        nodes: &[(usize, Vec<usize>)],
    ) -> Result<Vec<Vec<usize>>, CpuListError> {
        let places = self.0.iter().map(|place| match *place {
            CpuPlace::Cpu(cpu) => match nodes.iter().any(|(_, cpus)| cpus.contains(&cpu)) {
                true => Ok(vec![cpu]),
                false => {
                    let mut all: Vec<usize> =
                        nodes.iter().flat_map(|(_, cpus)| cpus).copied().collect();
                    all.sort_unstable();
                    let allowed = CpuRanges(&all).to_string();
                    Err(CpuListError::NoCpu { cpu, allowed })
                }
            },
            CpuPlace::Node(node) => match nodes.iter().find(|(number, _)| *number == node) {
                Some((_, cpus)) => Ok(cpus.clone()),
                None => {
                    let names = nodes.iter().map(|(number, _)| format!("node{number}"));
                    let allowed = names.collect::<Vec<_>>().join(", ");
                    Err(CpuListError::NoNode { node, allowed })
                }
            },
        });
        places.collect()
    }
}

/// Sorted CPUs as a list with ranges.
struct CpuRanges<'a>(&'a [usize]);

impl fmt::Display for CpuRanges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(&first) = rest.first() {
            let run = rest
                .iter()
                .zip(first..)
                .take_while(|(cpu, next)| *cpu == next);
            let count = run.count();
            let comma = if rest.len() < self.0.len() { "," } else { "" };
            match count {
                1 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{}", rest[count - 1])?,
            }
            rest = &rest[count..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_cpus_ranges_and_nodes() {
        let nodes = [(0, vec![0, 2, 4]), (3, vec![1, 3])];
        let check = |text: &str, expected: &[&[usize]]| {
            let found = text.parse::<CpuList>().unwrap().resolve_among(&nodes);
            assert_eq!(found.unwrap(), expected, "{text}");
        };
        check("0", &[&[0]]);
        check("1-3, 0", &[&[1], &[2], &[3], &[0]]);
        check("node3,4", &[&[1, 3], &[4]]);
        for wrong in ["", "x", "3-1", "1,", "-1", "node", "99999", "0-99999999999"] {
            let error = wrong.parse::<CpuList>();
            assert_eq!(error, Err(CpuListError::Malformed(wrong.into())), "{wrong}");
        }
    }

    #[test]
    fn cpus_and_nodes_of_other_machines_are_refused() {
        let nodes = [(0, vec![0, 1, 2, 7]), (2, vec![4])];
        let error = |text: &str| {
            let found = text.parse::<CpuList>().unwrap().resolve_among(&nodes);
            found.unwrap_err().to_string()
        };
        assert_eq!(
            error("0,9"),
            "CPU 9 does not exist, or this process may not use it; it may use 0-2,4,7"
        );
        assert!(error("node1").ends_with("it may use those of node0, node2"));
    }
}
