//! Interaction of simultaneous faults. Each kind defines its own rules; this module applies them to all pairs of
//! faults in an experiment, and adds up the shares that faults take of each core.
//!
//! The rule: two faults may overlap only if each can be proven, and can be removed without removing the other.

use std::collections::BTreeMap;

use super::entry::FaultEntry;
use super::kind::{Pair, Stage, Times, Together};

/// Two faults of an experiment, by index in its list (from 0), and their combined effect.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Overlap {
    /// The fault that comes first in the file.
    pub first: usize,
    /// The fault that comes later in the file.
    pub second: usize,
    /// Their combined effect.
    pub together: Together,
}

/// All pairs of faults that affect each other, in the order of the file; `stage` is the rest of the file.
pub fn overlaps(faults: &[FaultEntry], stage: &dyn Stage) -> Vec<Overlap> {
    let mut found = Vec::new();
    for (second, b) in faults.iter().enumerate() {
        for (first, a) in faults[..second].iter().enumerate() {
            if let Some(together) = in_same_runs(a, b).then(|| of(a, b, stage)).flatten() {
                found.push(Overlap {
                    first,
                    second,
                    together,
                });
            }
        }
    }
    found.extend(busy_cores(faults));
    found
}

/// Whether two faults can be in the same run. A fault without a target is in every run. Faults on different hosts don't
/// affect each other.
fn in_same_runs(a: &FaultEntry, b: &FaultEntry) -> bool {
    if a.common.host != b.common.host {
        return false;
    }
    let (a, b) = (&a.common.target, &b.common.target);
    a.is_empty() || b.is_empty() || a == b
}

fn of(a: &FaultEntry, b: &FaultEntry, stage: &dyn Stage) -> Option<Together> {
    let (a_side, b_side) = (a.side(), b.side());
    let ways = [
        Pair {
            me: a_side,
            other: b_side,
            stage,
        },
        Pair {
            me: b_side,
            other: a_side,
            stage,
        },
    ];
    if let Some(clash) = ways.iter().find_map(|pair| pair.me.kind.clash(pair)) {
        return Some(clash);
    }
    if !Times::of(&a.common).meet(Times::of(&b.common)) {
        return None;
    }
    ways.iter().find_map(|pair| pair.me.kind.overlap(pair))
}

/// Pairs of faults whose combined shares exceed a core.
fn busy_cores(faults: &[FaultEntry]) -> Vec<Overlap> {
    let all = brunt_lab::usable_cores();
    let shares: Vec<(usize, f64, Vec<usize>)> = faults
        .iter()
        .enumerate()
        .filter_map(|(index, fault)| {
            let (share, cores) = fault.kind.as_kind().core_share()?;
            let cores = if cores.is_empty() {
                all.clone()
            } else {
                cores.to_vec()
            };
            Some((index, share, cores))
        })
        .collect();
    let times = |index: usize| Times::of(&faults[index].common);
    let mut found = BTreeMap::new();
    for (second, share, cores) in &shares {
        // At the start of each fault, add the shares of the faults in effect at that time.
        let there = shares.iter().filter(|(index, _, _)| {
            let older = (times(*index).begin, index) < (times(*second).begin, second);
            older
                && in_same_runs(&faults[*index], &faults[*second])
                && times(*index).meet(times(*second))
        });
        let there: Vec<_> = there.collect();
        for core in cores {
            let on_it: Vec<_> = there
                .iter()
                .filter(|(_, _, cores)| cores.contains(core))
                .collect();
            let Some((first, _, _)) = on_it.first() else {
                continue;
            };
            let sum = share + on_it.iter().map(|(_, share, _)| share).sum::<f64>();
            let together = if sum > 1.0 {
                Together::Refused {
                    why: format!("together they require {:.0}% of core {core}", sum * 100.0),
                    instead: "write shares that sum to at most 1",
                }
            } else {
                Together::Both(format!(
                    "together they take {:.0}% of core {core}",
                    sum * 100.0
                ))
            };
            let pair = (*first.min(second), *first.max(second));
            let known = found.entry(pair).or_insert_with(|| together.clone());
            if matches!(together, Together::Refused { .. }) {
                *known = together;
            }
        }
    }
    found
        .into_iter()
        .map(|((first, second), together)| Overlap {
            first,
            second,
            together,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{LabEntry, Target};
    use crate::host::Hosts;
    use brunt_lab::link::Settings;

    /// The rest of an experiment file that contains only faults.
    struct Bare;

    impl Stage for Bare {
        fn target(&self, _name: &str) -> Option<&Target> {
            None
        }

        fn target_names(&self) -> Vec<String> {
            Vec::new()
        }

        fn unknown_service(&self, _name: &str) -> Option<String> {
            None
        }

        fn is_remote_service(&self, _name: &str) -> bool {
            false
        }

        fn lab(&self) -> Option<&LabEntry> {
            None
        }

        fn hosts(&self) -> Hosts {
            Hosts::default()
        }

        fn link_at_points(&self, _link: &str, _target: &str) -> Vec<(String, [Settings; 2])> {
            Vec::new()
        }
    }

    fn entries(text: &str) -> Vec<FaultEntry> {
        #[derive(serde::Deserialize)]
        struct File {
            fault: Vec<FaultEntry>,
        }
        let lines = text
            .split(" | ")
            .map(|fault| format!("[[fault]]\n{}\n", fault.replace("; ", "\n")));
        toml::from_str::<File>(&lines.collect::<String>())
            .unwrap_or_else(|error| panic!("{text}: {error}"))
            .fault
    }

    /// For every two kinds that affect each other, either both are possible at once, or the refusal states a reason;
    /// their order in the file doesn't matter.
    #[test]
    fn overlapping_kinds_are_allowed_or_refused_in_any_order() {
        let check = |a: &str, b: &str, expected: Option<Result<&str, &str>>| {
            for text in [format!("{a} | {b}"), format!("{b} | {a}")] {
                let found = overlaps(&entries(&text), &Bare);
                match (found.as_slice(), expected) {
                    ([], None) => {}
                    (
                        [
                            Overlap {
                                together: Together::Both(how),
                                ..
                            },
                        ],
                        Some(Ok(words)),
                    ) => {
                        assert!(how.contains(words), "{text}: {how}")
                    }
                    (
                        [
                            Overlap {
                                together: Together::Refused { why, .. },
                                ..
                            },
                        ],
                        Some(Err(words)),
                    ) => {
                        assert!(why.contains(words), "{text}: {why}")
                    }
                    other => panic!("{text}: {other:?}"),
                }
            }
        };
        let at = |what: &str, at: u64, lasts: u64| {
            format!("target = \"t\"; {what}; at = \"{at}s\"; for = \"{lasts}s\"")
        };
        let busy = "storage = \"busy,p=0.5\"";
        let (kill, freeze) = ("kill = true", "freeze = true");
        check(&at(busy, 1, 4), &at(kill, 2, 1), Some(Ok("injected again")));
        check(
            &at(busy, 1, 4),
            &at(freeze, 2, 1),
            Some(Ok("target resumes")),
        );
        check(
            &at(busy, 2, 1),
            &at(kill, 1, 3),
            Some(Err("serves no requests")),
        );
        check(
            &at(busy, 2, 1),
            &at(freeze, 2, 1),
            Some(Err("serves no requests")),
        );
        check(&at(busy, 1, 1), &at(kill, 2, 1), None);
        check(
            &at(busy, 1, 4),
            &at(kill, 2, 1).replace("\"t\"", "\"u\""),
            None,
        );
        check(
            &at("member = 1", 1, 4),
            &at(kill, 2, 1),
            Some(Err("would appear intact")),
        );
        check(
            "target = \"t\"; member = 1; at = \"1s\"",
            &at(kill, 9, 1),
            Some(Err("would appear intact")),
        );
        check(&at("member = 1", 1, 4), &at(freeze, 2, 1), None);
        check(
            &at(kill, 1, 3),
            &at(freeze, 2, 1),
            Some(Err("neither frozen nor killed")),
        );
        check(&at(kill, 1, 3), &at(kill, 4, 1), None);
        check(
            "target = \"t\"; kill = true",
            &at(kill, 4, 1),
            Some(Err("neither frozen nor killed")),
        );
        check(
            &at("member = 1", 1, 4),
            &at("member = 1", 2, 4),
            Some(Err("fail twice")),
        );
        check(
            &at("member = 1", 1, 4),
            &at("member = 2", 2, 4),
            Some(Ok("second member")),
        );
        let link = |loss: &str, at: u64| {
            format!("link = \"wan\"; set = {{ loss = {loss} }}; at = \"{at}s\"; for = \"2s\"")
        };
        check(
            &link("0.1", 1),
            &link("0.2", 2),
            Some(Err("end the other on link wan")),
        );
        check(&link("0.1", 1), &link("0.2", 3), None);
        check(
            "memory = \"1MiB\"",
            "memory = \"2MiB\"; at = \"1s\"",
            Some(Ok("add up")),
        );
    }

    /// Two faults at one layer are refused only if the younger one could never have an effect.
    #[test]
    fn at_one_layer() {
        let check = |older: &str, younger: &str, possible: bool| {
            let text = format!(
                "target = \"t\"; storage = \"{older}\" | target = \"t\"; storage = \"{younger}\"; at = \"1s\"; for = \"1s\""
            );
            let found = overlaps(&entries(&text), &Bare);
            let [Overlap { together, .. }] = found.as_slice() else {
                panic!("{found:?}")
            };
            assert_eq!(
                matches!(together, Together::Both(_)),
                possible,
                "{text}: {together:?}"
            );
        };
        check("busy", "slow:1ms", false);
        check("busy,p=0.5", "slow:1ms", true);
        check("busy,p=0.5", "busy,p=0.5", true);
        check("busy,every=2", "slow:1ms", true);
        check("busy,times=9", "slow:1ms", true);
        check("busy,op=read", "slow:1ms", true);
        check("busy,op=read", "slow:1ms,op=read", false);
        check("busy,op=read+write", "drop", true);
        check("busy,lba=0-9", "slow:1ms", true);
        check("busy,lba=0-9", "slow:1ms,lba=2-3", true);
        check("torn:4", "drop", true);
        let layers = entries(
            "target = \"t\"; storage = \"busy\"; layer = \"a\" | target = \"t\"; storage = \"slow:1ms\"; layer = \"b\"",
        );
        assert_eq!(overlaps(&layers, &Bare), []);
        let younger_stays = entries(
            "target = \"t\"; storage = \"busy\"; at = \"1s\"; for = \"1s\" | target = \"t\"; storage = \"slow:1ms\"; at = \"1s\"",
        );
        assert!(matches!(
            overlaps(&younger_stays, &Bare)[0].together,
            Together::Both(_)
        ));
    }

    /// At any time, the shares of faults may add up to at most a whole core; a target stays on its cores.
    #[test]
    fn shares_of_a_core() {
        let cpu =
            |share: f64, core: usize, more: &str| format!("cpu = {share}; cores = [{core}]{more}");
        let refusals = |text: String| {
            let found = overlaps(&entries(&text), &Bare);
            found
                .iter()
                .filter(|one| matches!(one.together, Together::Refused { .. }))
                .count()
        };
        assert_eq!(
            refusals(format!(
                "{} | {}",
                cpu(0.5, 0, ""),
                cpu(0.5, 0, "; at = \"1s\"")
            )),
            0
        );
        assert_eq!(
            refusals(format!(
                "{} | {}",
                cpu(0.5, 0, ""),
                cpu(0.6, 0, "; at = \"1s\"")
            )),
            1
        );
        assert_eq!(
            refusals(format!(
                "{} | {}",
                cpu(0.5, 0, ""),
                cpu(0.6, 1, "; at = \"1s\"")
            )),
            0
        );
        let three = [
            cpu(0.4, 0, ""),
            cpu(0.4, 0, "; at = \"1s\""),
            cpu(0.4, 0, "; at = \"2s\""),
        ];
        assert_eq!(refusals(three.join(" | ")), 1);
        let apart = "; target = \"t\"; at = \"1s\"; for = \"1s\" | target = \"t\"; cpu = 0.1; cores = [1]; at = \"3s\"";
        assert_eq!(refusals(cpu(0.1, 0, apart)), 1);
    }
}
