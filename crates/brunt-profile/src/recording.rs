//! The recording of a run, and the profile of its phases.
//!
//! The rule: names are found once for each different stack, after the run, and only for samples within a phase.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use brunt_core::Nanos;
use brunt_result::degradation::PhaseKind;
use brunt_result::profile::{
    CpuPart, HotFunction, PhaseProfile, ProfileStack, RoleProfile, RunProfile,
};

use crate::parts::part_of;
use crate::processes::SampledProcess;
use crate::samples::{MARK_KERNEL, MARK_MIN, MARK_USER, RawStack};
use crate::symbols::{KernelSymbols, names_in};
use crate::times::{CpuTimes, ProcessIdentity};

/// Maximum number of stacks kept per run; the others are shortened to their innermost function.
const STACKS_KEPT_MAX: usize = 4_000;
/// Role of the kernel's own threads.
const KERNEL_THREADS: &str = "kernel threads";
/// Role of all programs that are not part of the experiment.
const OTHERS: &str = "other programs";

/// A part of a run. Times are in seconds from the start of measuring.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseSpan {
    /// Its position relative to the faults; `None` for a run without faults.
    pub kind: Option<PhaseKind>,
    /// Names of the faults in effect.
    pub faults: Vec<String>,
    /// Its begin.
    pub start_s: f64,
    /// Its end.
    pub end_s: f64,
}

/// What was recorded.
pub struct Recording {
    pub(crate) hz: u32,
    pub(crate) unavailable: Option<String>,
    pub(crate) stacks: Vec<RawStack>,
    /// When each sample was taken, and its stack.
    pub(crate) taken: Vec<(Nanos, u32)>,
    pub(crate) lost: u64,
    pub(crate) dropped: u64,
    pub(crate) processes: Vec<SampledProcess>,
    /// Processes of the experiment.
    pub(crate) roles: BTreeMap<ProcessIdentity, String>,
    pub(crate) times: CpuTimes,
    pub(crate) cpu: Duration,
}

/// A stack with names.
struct Named {
    role: String,
    /// From the program's name to the innermost function.
    frames: Vec<String>,
    part: CpuPart,
    /// Whether the innermost function has a name.
    has_name: bool,
}

/// A function, or the file of one without a name.
struct StackFrame {
    text: String,
    has_name: bool,
}

impl StackFrame {
    fn of(name: Option<&str>, place: &str) -> StackFrame {
        StackFrame {
            text: name.unwrap_or(place).to_string(),
            has_name: name.is_some(),
        }
    }
}

impl Recording {
    /// The profile of a run that was measured from `start`, for these phases in chronological order.
    pub fn profile(&self, start: Nanos, phases: &[PhaseSpan]) -> RunProfile {
        let at = |seconds: f64| start.after(Duration::from_secs_f64(seconds.max(0.0)));
        let spans: Vec<(Nanos, Nanos)> = phases
            .iter()
            .map(|phase| (at(phase.start_s), at(phase.end_s)))
            .collect();
        let mut counts: BTreeMap<(usize, u32), u64> = BTreeMap::new();
        for (time, stack) in &self.taken {
            let next = spans.partition_point(|(from, _)| from <= time);
            let phase = next.checked_sub(1).filter(|last| *time < spans[*last].1);
            if let Some(phase) = phase {
                *counts.entry((phase, *stack)).or_default() += 1;
            }
        }
        let used: BTreeSet<u32> = counts.keys().map(|(_, stack)| *stack).collect();
        let kernel = match used.is_empty() {
            true => KernelSymbols::default(),
            false => KernelSymbols::read(),
        };
        let names = self.file_names(&used);
        let named = used.iter().map(|stack| {
            let raw = &self.stacks[*stack as usize];
            (*stack, self.named(raw, &kernel, &names))
        });
        let named: HashMap<u32, Named> = named.collect();
        let profiled = phases.iter().enumerate().map(|(index, phase)| {
            let of_phase = counts.range((index, 0)..=(index, u32::MAX));
            let of_phase = of_phase.map(|((_, stack), samples)| (&named[stack], *samples));
            self.phase(phase, spans[index], of_phase)
        });
        let hidden = !used.is_empty() && kernel.is_empty();
        RunProfile {
            hz: self.hz,
            unavailable: self.unavailable.clone(),
            kernel_unnamed: hidden.then(|| {
                "the kernel hides the addresses of its functions: run Brunt as root, or set kernel.kptr_restrict to 0"
                    .to_string()
            }),
            lost: self.lost,
            dropped: self.dropped,
            sampler_cpu_s: self.cpu.as_secs_f64(),
            phases: profiled.collect(),
            stacks: folded(&counts, &named),
        }
    }

    fn phase<'a>(
        &self,
        span: &PhaseSpan,
        (from, until): (Nanos, Nanos),
        stacks: impl Iterator<Item = (&'a Named, u64)>,
    ) -> PhaseProfile {
        let used = self.times.between(from, until);
        let mut roles: BTreeMap<&str, RoleProfile> = BTreeMap::new();
        for (key, role) in &self.roles {
            let of_role = roles.entry(role).or_default();
            if let Some([user, system]) = used.processes.get(key) {
                *of_role.user_s.get_or_insert_default() += user;
                *of_role.system_s.get_or_insert_default() += system;
            }
        }
        let mut hottest: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
        for (stack, samples) in stacks {
            let of_role = roles.entry(&stack.role).or_default();
            of_role.samples += samples;
            of_role.unnamed += if stack.has_name { 0 } else { samples };
            *of_role.parts.entry(stack.part).or_default() += samples;
            if let Some(function) = stack.frames.last() {
                let of_role = hottest.entry(&stack.role).or_default();
                *of_role.entry(function).or_default() += samples;
            }
        }
        let roles = roles.into_iter().map(|(name, mut role)| {
            let hot = |(function, samples): (&str, u64)| HotFunction {
                function: function.to_string(),
                samples,
            };
            let functions = hottest.remove(name).unwrap_or_default();
            role.hottest = functions.into_iter().map(hot).collect();
            role.keep_hottest();
            role.role = name.to_string();
            role
        });
        let mut roles: Vec<RoleProfile> = roles.collect();
        // The experiment's own processes first.
        roles.sort_by_key(|role| role.user_s.is_none());
        PhaseProfile {
            kind: span.kind,
            faults: span.faults.clone(),
            start_s: span.start_s,
            seconds: span.end_s - span.start_s,
            machine: used.machine,
            roles,
        }
    }

    /// The names of functions of the experiment's programs, by file and position. Names in other programs would take
    /// too long to find.
    fn file_names(&self, used: &BTreeSet<u32>) -> HashMap<PathBuf, BTreeMap<u64, String>> {
        let mut wanted: HashMap<PathBuf, BTreeSet<u64>> = HashMap::new();
        for stack in used {
            let raw = &self.stacks[*stack as usize];
            let process = &self.processes[raw.process as usize];
            let (user, _) = split(&raw.frames);
            if self.role(process) == OTHERS {
                continue;
            }
            for address in user {
                let Some(mapping) = process.mapping(address) else {
                    continue;
                };
                if let Some(path) = &mapping.path {
                    let offset = address - mapping.start + mapping.offset;
                    wanted.entry(path.clone()).or_default().insert(offset);
                }
            }
        }
        let names = wanted.into_iter().map(|(path, offsets)| {
            let names = names_in(&path, &offsets);
            (path, names)
        });
        names.collect()
    }

    fn role(&self, process: &SampledProcess) -> &str {
        let Some(stat) = &process.stat else {
            return OTHERS;
        };
        match self.roles.get(&(process.pid, stat.start_ticks)) {
            Some(role) => role,
            None if stat.is_kernel_thread => KERNEL_THREADS,
            None => OTHERS,
        }
    }

    fn named(
        &self,
        raw: &RawStack,
        kernel: &KernelSymbols,
        files: &HashMap<PathBuf, BTreeMap<u64, String>>,
    ) -> Named {
        let process = &self.processes[raw.process as usize];
        let (user, system) = split(&raw.frames);
        // Both lists of frames start with the innermost.
        let of_kernel = |address: &u64| StackFrame::of(kernel.name(*address), "[kernel]");
        let system: Vec<StackFrame> = system.iter().map(of_kernel).collect();
        let mut user_frames = Vec::new();
        for (place, address) in user.iter().enumerate() {
            match process.mapping(*address) {
                Some(mapping) => {
                    let offset = address - mapping.start + mapping.offset;
                    let names = mapping.path.as_ref().and_then(|path| files.get(path));
                    let name = names.and_then(|names| names.get(&offset));
                    let name = name.map(String::as_str);
                    user_frames.push(StackFrame::of(name, &file_name(&mapping.name)));
                }
                None if place == 0 => user_frames.push(StackFrame::of(None, "[memory]")),
                // The address isn't in code, so it isn't a return address: the caller was compiled without frame
                // pointers.
                None => break,
            }
        }
        let of_mode = if system.is_empty() {
            &user_frames
        } else {
            &system
        };
        let has_name = of_mode.first().is_some_and(|frame| frame.has_name);
        let part = match has_name {
            true => {
                let known = of_mode.iter().filter(|frame| frame.has_name);
                part_of(known.map(|frame| frame.text.as_str()))
            }
            false => CpuPart::Unknown,
        };
        let comm = process.stat.as_ref();
        let comm = comm.map_or("(exited)", |stat| &stat.comm).to_string();
        let inner = system.into_iter().chain(user_frames);
        let mut frames: Vec<String> = inner.map(|frame| frame.text).collect();
        frames.push(comm);
        frames.reverse();
        Named {
            role: self.role(process).to_string(),
            frames,
            part,
            has_name,
        }
    }
}

/// The addresses of a stack in the program and in the kernel, each innermost first. An outer address is the one that a
/// call returns to; the address before it belongs to the call.
fn split(frames: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let (mut user, mut kernel) = (Vec::new(), Vec::new());
    let mut into: Option<&mut Vec<u64>> = None;
    for frame in frames {
        match *frame {
            MARK_USER => into = Some(&mut user),
            MARK_KERNEL => into = Some(&mut kernel),
            MARK_MIN.. => into = None,
            address => {
                if let Some(into) = into.as_deref_mut() {
                    let is_call = !into.is_empty();
                    into.push(address.saturating_sub(u64::from(is_call)));
                }
            }
        }
    }
    (user, kernel)
}

/// Placeholder for a function without a name: `[libc.so.6]`.
fn file_name(mapping: &str) -> String {
    let name = mapping.rsplit('/').next().unwrap_or_default();
    match name {
        "" => "[memory]".to_string(),
        name if name.starts_with('[') => name.to_string(),
        name => format!("[{name}]"),
    }
}

/// All stacks as rows. Many addresses have the same names; rare stacks are shortened if there are still too many.
fn folded(counts: &BTreeMap<(usize, u32), u64>, named: &HashMap<u32, Named>) -> Vec<ProfileStack> {
    let mut rows: BTreeMap<(usize, &str, String), (CpuPart, u64)> = BTreeMap::new();
    for ((phase, stack), samples) in counts {
        let one = &named[stack];
        let row = rows.entry((*phase, &one.role, one.frames.join(";")));
        row.or_insert((one.part, 0)).1 += samples;
    }
    let mut all: Vec<_> = rows.into_iter().collect();
    all.sort_by_key(|(_, (_, samples))| std::cmp::Reverse(*samples));
    let mut kept: BTreeMap<(usize, &str, String), (CpuPart, u64)> = BTreeMap::new();
    for (number, ((phase, role, stack), (part, samples))) in all.into_iter().enumerate() {
        let stack = match number < STACKS_KEPT_MAX {
            true => stack,
            false => shortened(&stack),
        };
        kept.entry((phase, role, stack)).or_insert((part, 0)).1 += samples;
    }
    let row = |((phase, role, stack), (part, samples)): ((usize, &str, String), (CpuPart, u64))| {
        ProfileStack {
            phase,
            role: role.to_string(),
            stack,
            part,
            samples,
        }
    };
    kept.into_iter().map(row).collect()
}

/// A stack without the functions between the program and its innermost function.
fn shortened(stack: &str) -> String {
    let parts = stack.split_once(';').zip(stack.rsplit_once(';'));
    let short = parts.map(|((program, _), (_, function))| format!("{program};(rare);{function}"));
    short.unwrap_or_else(|| stack.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_calls() {
        let frames = [MARK_KERNEL, 100, 90, MARK_USER, 50, 40, MARK_MIN, 7];
        assert_eq!(split(&frames), (vec![50, 39], vec![100, 89]));
        assert_eq!(split(&[1, 2]), (vec![], vec![]));
    }

    /// Stacks with the same names become one row, and rare ones are shortened only if there are too many rows.
    #[test]
    fn stacks_are_rows() {
        let stack = |function: String| Named {
            role: "t".into(),
            frames: vec!["brunt".into(), "main".into(), function],
            part: CpuPart::Scsi,
            has_name: true,
        };
        let (few, many) = (2, STACKS_KEPT_MAX as u32 + 2);
        let mut named: HashMap<u32, Named> =
            (0..many).map(|at| (at, stack(format!("f{at}")))).collect();
        named.insert(1, stack("f0".into()));
        let samples = |at: u32| if at < few { 5 } else { 1 };
        let of = |count: u32| {
            let counts = (0..count).map(|at| ((0, at), samples(at))).collect();
            folded(&counts, &named)
        };
        let rows = of(few);
        assert_eq!(
            (rows.len(), rows[0].samples, &*rows[0].stack),
            (1, 10, "brunt;main;f0")
        );
        let rows = of(many);
        let rare = rows
            .iter()
            .filter(|row| row.stack.contains("(rare)"))
            .count();
        assert_eq!((rows.len(), rare), (STACKS_KEPT_MAX + 1, 1));
        assert_eq!(shortened("brunt"), "brunt");
    }

    #[test]
    fn places_without_a_name() {
        assert_eq!(file_name("/usr/lib/libc.so.6"), "[libc.so.6]");
        assert_eq!(file_name("[vdso]"), "[vdso]");
        assert_eq!(file_name(""), "[memory]");
    }
}
