//! Finds the normal point for a point with faults: the same load on a target that is defined in the same way, in runs
//! without faults. Called once, at the start of a study.

use super::{Experiment, Plan, Point, Target};
use crate::fault::FaultEntry;

impl Point {
    /// Whether this fault is injected into the point's runs.
    pub fn has_fault(&self, fault: &FaultEntry) -> bool {
        let target = &fault.common.target;
        target.is_empty() || self.is_on(target)
    }
}

impl Experiment {
    /// Label of the normal point for `point`; `None` if no fault affects `point`, or if there is no such point.
    pub fn normal_point(&self, point: &Point, plan: &Plan) -> Option<String> {
        if !self.has_faults(point) || point.part_of.is_some() {
            return None;
        }
        let definition = self.definition(point)?;
        let is_normal = |other: &&Point| {
            other.part_of.is_none()
                && (&other.workload_name, &other.axes) == (&point.workload_name, &point.axes)
                && !self.has_faults(other)
                && self.definition(other).as_ref() == Some(&definition)
        };
        let normal = plan.points.iter().find(is_normal)?;
        Some(normal.label.clone())
    }

    /// Whether any fault is injected into a point's runs.
    fn has_faults(&self, point: &Point) -> bool {
        let mut faults = self.fault.iter();
        faults.any(|fault| point.has_fault(fault))
    }

    /// The definition of a point's target, without its list of workloads.
    fn definition(&self, point: &Point) -> Option<Target> {
        let target = self.targets.get(&point.target)?;
        Some(Target {
            workloads: None,
            ..target.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_point_has_the_same_load_and_definition() {
        let text = r#"
name = "x"
[targets.normal]
serve = "memory:1MiB"
[targets.sticky]
serve = "memory:1MiB"
[targets.other]
serve = "memory:2MiB"
[workloads.w]
stop = { time = "1s" }
[sweep]
queue_depth = [1, 2]
[[fault]]
target = "sticky"
storage = "slow:1ms"
[[fault]]
target = "other"
storage = "slow:1ms"
"#;
        let experiment = Experiment::parse("x.toml", text).expect("a good file");
        let plan = experiment.plan();
        let found: Vec<(&str, Option<String>)> = plan
            .points
            .iter()
            .map(|point| (point.label.as_str(), experiment.normal_point(point, &plan)))
            .collect();
        let expected = [
            ("normal w queue_depth=1", None),
            ("normal w queue_depth=2", None),
            ("other w queue_depth=1", None),
            ("other w queue_depth=2", None),
            (
                "sticky w queue_depth=1",
                Some("normal w queue_depth=1".to_string()),
            ),
            (
                "sticky w queue_depth=2",
                Some("normal w queue_depth=2".to_string()),
            ),
        ];
        assert_eq!(found, expected);
    }
}
