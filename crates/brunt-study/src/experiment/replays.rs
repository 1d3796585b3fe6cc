//! Checks the settings of trace replays beyond a workload's own keys: the trace's path, and which of its devices go
//! to which target.
//!
//! The rule: no trace is opened here; `brunt run --check` and the run itself do that.

use brunt_load::replay::settings::QUEUE_DEPTH;

use super::Experiment;
use super::mistake::{FileError, Source};

impl Experiment {
    /// Resolves the paths of traces relative to the file that names them, and gives replays without a queue depth a
    /// default: at the trace's own times, sending one request at a time would delay the requests behind it.
    pub(super) fn settle_replays(&mut self, source: &Source<'_>) {
        for (name, workload) in self.workloads.on_targets_mut() {
            let Some(trace) = &mut workload.trace else {
                continue;
            };
            if trace.is_relative() && !trace.as_os_str().is_empty() {
                *trace = source.folder(&["workloads", name, "trace"]).join(&*trace);
            }
            if !workload.hosts.is_empty()
                && let Ok(path) = std::path::absolute(&*trace)
            {
                // Agents on other hosts have another working directory.
                *trace = path;
            }
            if !source.has(&["workloads", name, "queue_depth"]) {
                workload.queue_depth = QUEUE_DEPTH;
            }
        }
    }

    /// Checks that the devices of traces go to existing targets that run the workload, and that part of the trace
    /// goes to every target.
    pub(super) fn check_replays(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        for (name, workload) in self
            .workloads
            .on_targets()
            .filter(|(_, workload)| !workload.devices.is_empty())
        {
            let path = ["workloads", name.as_str(), "devices"];
            let known = || {
                self.targets
                    .keys()
                    .map(String::as_str)
                    .collect::<Vec<&str>>()
                    .join(", ")
            };
            if let Some(unknown) = workload
                .devices
                .values()
                .find(|target| !self.targets.contains_key(*target))
            {
                let what = format!("devices: no target named {unknown}");
                return Err(source.mistake(
                    &path,
                    what,
                    Some(format!("the targets are {}", known())),
                ));
            }
            let apart = workload
                .devices
                .values()
                .find(|target| !self.runs_on(target, name));
            if let Some(target) = apart {
                let what = format!("devices: target {target} does not run workload {name}");
                let help = format!("add {name} to workloads in [targets.{target}]");
                return Err(source.mistake(&path, what, Some(help)));
            }
            let idle = self.targets.keys().find(|target| {
                self.runs_on(target, name)
                    && !workload.devices.values().any(|named| named == *target)
            });
            if let Some(target) = idle {
                let what = format!("devices: no part of the trace goes to target {target}");
                let help = format!(
                    "name it in devices, or remove workload {name} from [targets.{target}]"
                );
                return Err(source.mistake(&path, what, Some(help)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{assert_mistake, changed};

    const TEXT: &str = r#"
name = "replay"
[targets.a]
url = "null:1GiB"
[targets.b]
url = "null:1GiB"
[workloads.w]
trace = "traces/x.vscsi"
devices = { "0" = "a", "1" = "b" }
[sweep]
speed = [1, 2, 4]
"#;

    #[test]
    fn trace_paths_are_relative_to_the_file() {
        let experiment = Experiment::parse("/some/where/x.toml", TEXT).unwrap();
        let workload = &experiment.workloads["w"];
        assert_eq!(
            workload.trace.as_deref(),
            Some(std::path::Path::new("/some/where/traces/x.vscsi"))
        );
        assert_eq!(workload.queue_depth, QUEUE_DEPTH);
        let points = experiment.points();
        assert_eq!(points.len(), 3);
        assert!(points[0].is_on("a") && points[0].is_on("b") && !points[0].is_on("c"));
        assert!(
            points
                .iter()
                .all(|point| point.load.kind() == "replay" && point.workload().is_none())
        );
        assert_eq!(points[1].label, "a+b w speed=2");
        assert_eq!(
            (points[1].target.as_str(), points[1].url.as_str()),
            ("a+b", "null:1GiB + null:1GiB")
        );
        let again = Experiment::parse("elsewhere.toml", &experiment.written_out()).unwrap();
        assert_eq!(again.workloads, experiment.workloads);
    }

    #[test]
    fn mistakes_have_their_line() {
        let check = |from: &str, to: &str, line, said: &str| {
            drop(assert_mistake(&changed(TEXT, from, to), line, said))
        };
        check("\"1\" = \"b\"", "\"1\" = \"c\"", 9, "no target named c");
        check(
            ", \"1\" = \"b\"",
            "",
            9,
            "no part of the trace goes to target b",
        );
        let other = "[workloads.v]\nstop = { time = \"1s\" }\n[targets.b]\nworkloads = [\"v\"]";
        check("[targets.b]", other, 12, "add w to workloads");
        check(
            "trace = \"traces/x.vscsi\"\n",
            "stop = { time = \"1s\" }\n",
            9,
            "`trace` is missing",
        );
        check(
            "speed = [1, 2, 4]",
            "speed = [0]",
            11,
            "out of range (above 0",
        );
        check("speed = [1, 2, 4]", "rate = [100]", 11, "not an open loop");
        check(
            "[sweep]",
            "timing = \"depth\"\n[sweep]",
            12,
            "does not replay",
        );
        check(
            "[sweep]",
            "tining = \"depth\"\n[sweep]",
            10,
            "did you mean timing?",
        );
        check(
            "[sweep]",
            "format = \"tape\"\n[sweep]",
            10,
            "the formats are",
        );
        check("[sweep]", "read = 0.5\n[sweep]", 10, "omit this key");
    }
}
