//! Experiments whose runs took turns (`brunt run --interleave`), and targets of one experiment, whose runs also took
//! turns. Comparisons pair their runs.
//!
//! The rule: only runs of the same repetition at the same point are a pair. A run without its counterpart is excluded
//! from paired comparisons.

use std::collections::BTreeMap;

use crate::experiment::{InterleavedWith, TargetKind, TargetSummary};
use crate::summary::{PointSummary, Summary};

impl Summary {
    /// Whether the runs of two results took turns.
    pub fn took_turns_with(&self, other: &Summary) -> bool {
        match (&self.interleaved, &other.interleaved) {
            (Some(one), Some(other)) => one.id == other.id && one.place != other.place,
            _ => false,
        }
    }

    /// A result for each target, as if the targets had been measured by experiments whose runs took turns: points are
    /// named without their target. The first is the reference. Empty with fewer than two targets.
    pub fn of_each_target(&self) -> Vec<(String, Summary)> {
        let Some((first, _)) = reference(&self.experiment.targets) else {
            return Vec::new();
        };
        let others = devices(&self.experiment.targets).filter(|name| *name != first);
        let names: Vec<&String> = std::iter::once(first).chain(others).collect();
        let interleaved = |place: usize| InterleavedWith {
            id: "targets of one experiment".into(),
            place: place as u32,
            results: names.iter().map(|name| name.to_string()).collect(),
        };
        let each = names.iter().enumerate().map(|(place, name)| {
            let summary = Summary {
                points: self.points_on(name),
                interleaved: Some(interleaved(place)),
                indexes: None,
                ..self.clone()
            };
            (name.to_string(), summary)
        });
        each.collect()
    }

    /// The points on a target, named without the target. Jobs of a group that also has other targets are left out.
    fn points_on(&self, target: &str) -> Vec<PointSummary> {
        let rest = |label: &str| Some(label.strip_prefix(target)?.strip_prefix(' ')?.to_string());
        let on_target = |point: &&PointSummary| point.target == target;
        let points = self.points.iter().filter(on_target).filter_map(|point| {
            let part_of = point.part_of.as_deref().map(rest);
            Some(PointSummary {
                label: rest(&point.label)?,
                part_of: part_of.map_or(Some(None), |whole| Some(Some(whole?)))?,
                ..point.clone()
            })
        });
        points.collect()
    }
}

/// The target that others are compared with: the network alone if it was measured, otherwise the first target. Also
/// returns whether it is the network. `None` with a single target.
pub fn reference(targets: &BTreeMap<String, TargetSummary>) -> Option<(&String, bool)> {
    if devices(targets).count() < 2 {
        return None;
    }
    let is_network = |name: &&String| targets[*name].kind == TargetKind::Network;
    let mut networks = devices(targets).filter(is_network);
    match (networks.next(), networks.next()) {
        (Some(network), None) => Some((network, true)),
        _ => Some((devices(targets).next()?, false)),
    }
}

/// Targets other than directories, which have their own phases.
fn devices(targets: &BTreeMap<String, TargetSummary>) -> impl Iterator<Item = &String> {
    let devices = targets.iter();
    devices
        .filter(|(_, target)| target.kind != TargetKind::Directory)
        .map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpKind;
    use crate::compare::compare_summaries;
    use crate::statistics::{MARGIN, Verdict};
    use crate::summary::tests::{empty, op, point, run};

    fn named(id: &str, place: u32) -> Summary {
        Summary {
            interleaved: Some(InterleavedWith {
                id: id.into(),
                place,
                results: vec!["a".into(), "b".into()],
            }),
            ..empty()
        }
    }

    #[test]
    fn only_different_results_with_one_id_took_turns() {
        assert!(named("x", 0).took_turns_with(&named("x", 1)));
        assert!(!named("x", 0).took_turns_with(&named("x", 0)));
        assert!(!named("x", 0).took_turns_with(&named("y", 1)));
        assert!(!named("x", 0).took_turns_with(&empty()));
        assert!(!empty().took_turns_with(&empty()));
    }

    /// Results of six rounds on a machine whose speed drifts by a third; response times of the second are `times` as
    /// long. Each result lacks one round.
    fn drifting(times: f64) -> [Summary; 2] {
        [(0, 1.0, 5), (1, times, 1)].map(|(place, times, missing)| {
            let runs = (0..8u32).filter(|round| *round != missing).map(|round| {
                let slow = times * (1.0 + f64::from(round) / 20.0);
                let jitter = 1.0 + 0.002 * f64::from((round * 7 + place * 3) % 5);
                let rate = 8000.0 / slow * jitter;
                let mut run = run(vec![op(OpKind::Read, 8000, 100.0 * slow / jitter)]);
                (run.repetition, run.requests_per_second) = (round, rate);
                run
            });
            Summary {
                points: vec![point("disk w", runs.collect())],
                ..named("x", place)
            }
        })
    }

    /// Pairs cancel the drift, which would hide a change of 5 % if the same runs were compared as two separate sets.
    #[test]
    fn runs_that_took_turns_are_compared_in_pairs() {
        let [a, b] = drifting(1.06);
        let verdict = |a: &Summary, b: &Summary| {
            let (lines, _) = compare_summaries(a, b, MARGIN, &[]);
            let iops = &lines[0].comparison;
            let effect = iops.effect.unwrap();
            (iops.verdict, effect.paired, iops.a.as_ref().unwrap().runs)
        };
        assert_eq!(verdict(&a, &b), (Verdict::Worse, true, 6));
        let apart = Summary {
            interleaved: None,
            waits: Vec::new(),
            ..b.clone()
        };
        assert_eq!(verdict(&a, &apart), (Verdict::Inconclusive, false, 7));
        let [a, b] = drifting(1.0);
        assert_eq!(verdict(&a, &b), (Verdict::Same, true, 6));
    }

    #[test]
    fn targets_of_one_result_are_compared_like_results() {
        let [a, b] = drifting(1.06);
        let on = |target: &str, of: &Summary| PointSummary {
            label: format!("{target} w depth=4"),
            target: target.into(),
            ..of.points[0].clone()
        };
        let mut both = Summary {
            points: vec![on("new", &b), on("old", &a)],
            interleaved: None,
            waits: Vec::new(),
            ..empty()
        };
        let device = TargetSummary::default();
        for name in ["new", "old"] {
            both.experiment.targets.insert(name.into(), device.clone());
        }
        let each = both.of_each_target();
        let names: Vec<&str> = each.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["new", "old"]);
        let (lines, alone) = compare_summaries(&each[0].1, &each[1].1, MARGIN, &[]);
        assert!(alone.is_empty(), "{alone:?}");
        assert_eq!(lines[0].label, "w depth=4");
        assert_eq!(lines[0].comparison.verdict, Verdict::Better);
        both.experiment.targets.remove("old");
        assert!(both.of_each_target().is_empty());
    }

    /// If one of the targets is the network, it is the reference, regardless of its name; otherwise the first target
    /// is.
    #[test]
    fn what_others_are_compared_with() {
        let check = |targets: &[(&str, TargetKind)], expected: Option<(&str, bool)>| {
            let target = |(name, kind): &(&str, TargetKind)| {
                let target = TargetSummary {
                    kind: *kind,
                    ..TargetSummary::default()
                };
                (name.to_string(), target)
            };
            let targets = targets.iter().map(target).collect();
            let found = reference(&targets);
            assert_eq!(
                found.map(|(name, network)| (name.as_str(), network)),
                expected
            );
        };
        use TargetKind::{Device, Directory, Network};
        check(&[("a", Network)], None);
        check(
            &[("disk", Device), ("network", Network)],
            Some(("network", true)),
        );
        check(
            &[("disk", Device), ("mirror", Device)],
            Some(("disk", false)),
        );
        check(&[("a", Directory), ("disk", Device)], None);
        check(
            &[("maximum", Network), ("standard", Network)],
            Some(("maximum", false)),
        );
    }
}
