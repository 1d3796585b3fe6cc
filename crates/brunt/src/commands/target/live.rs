//! The state of a running target, and how it changes: by commands (`--control`) and by reloading its file (SIGHUP,
//! `reload`). The rule: everything new is checked and opened before anything in service changes, so a mistake changes
//! nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use brunt_block::Handles;
use brunt_core::Size;
use brunt_core::units::format_size;
use brunt_iscsi::scsi::{AccessReport, Alua, LogicalUnit, LunMap, NoSuchGroup, PortGroup};
use brunt_iscsi::target_node::{ServedTarget, TargetServer};
use brunt_study::control::{
    AccessAnswer, Command, Local, PortState, Reason, Refusal, Reply, ServedLuns,
};

use super::build::{self, BuiltTarget, Ports};
use super::file::{Misplaced, Plan, TargetEntry, TargetFile};
use super::lun::{self, LunWords};
use super::reload::Renewal;
use crate::cli::{Failure, Output};

/// How long a command waits for outstanding requests to a removed LUN.
const DRAIN: Duration = Duration::from_secs(5);
/// How long initiators may take to log out of a removed target.
const GRACE: Duration = Duration::from_secs(2);

/// A running target.
pub struct Live {
    pub server: TargetServer,
    config: Option<PathBuf>,
    output: Output,
    state: Mutex<State>,
}

struct State {
    /// The current configuration, including changes made by commands.
    file: TargetFile,
    targets: BTreeMap<String, LiveTarget>,
}

struct LiveTarget {
    luns: Arc<LunMap>,
    /// The target's ports, with the initial states for LUNs added from now on.
    ports: Ports,
}

impl LiveTarget {
    /// The ports after a reload: groups that the file doesn't change keep their current state.
    fn renewed(&self, renewal: &Renewal) -> Ports {
        let mut ports = renewal.ports.clone();
        for (id, words) in &mut ports.groups {
            let now = self
                .ports
                .groups
                .get(id)
                .filter(|_| !renewal.renewed.contains(id));
            *words = now.copied().unwrap_or(*words);
        }
        ports
    }
}

/// Changes that a reloaded file makes to a target's LUNs.
#[derive(Default)]
struct Changes {
    remove: Vec<u16>,
    add: Vec<(u16, Arc<LogicalUnit>)>,
    resize: Vec<(u16, u64)>,
}

/// The targets that a reloaded file adds, ready to be served.
#[derive(Default)]
struct Successors {
    served: Vec<ServedTarget>,
    /// Changes to the LUNs of targets that remain.
    changes: Vec<(String, Arc<LunMap>, Changes)>,
    /// The ports of each target, by target name.
    ports: BTreeMap<String, Ports>,
}

impl Live {
    /// Starts the state of a target from this plan; `config` is the file to reload.
    pub fn new(
        server: TargetServer,
        plan: &Plan,
        ports: Ports,
        config: Option<PathBuf>,
        output: &Output,
    ) -> Arc<Live> {
        let targets = server.targets().into_iter().map(|target| {
            let live = LiveTarget {
                luns: Arc::clone(&target.luns),
                ports: ports.clone(),
            };
            (target.name.clone(), live)
        });
        let state = State {
            file: plan.file.clone(),
            targets: targets.collect(),
        };
        Arc::new(Live {
            server,
            config,
            output: output.clone(),
            state: Mutex::new(state),
        })
    }

    /// The targets' names.
    pub fn names(&self) -> Vec<String> {
        self.lock().targets.keys().cloned().collect()
    }

    /// Executes a command for a target.
    pub fn local(self: &Arc<Live>, name: &str) -> Local {
        Local::of(LiveDevices {
            live: Arc::clone(self),
            target: name.to_string(),
        })
    }

    /// Reloads the file, applies it, and describes the changes.
    pub fn reload(&self) -> Result<String, Failure> {
        let path = self.config.as_ref().ok_or_else(|| {
            Failure::usage("no configuration file to reload")
                .advise("start the target with --config FILE")
        })?;
        let plan = Plan::read(path)?;
        let mut state = self.lock();
        let done = self
            .adopt(&plan.file, &mut state)
            .map_err(|wrong| plan.failure(wrong))?;
        let done = if done.is_empty() {
            "nothing changed".to_string()
        } else {
            done.join(", ")
        };
        Ok(format!("{}: {done}", path.display()))
    }

    /// Replaces the current configuration with that of a file.
    fn adopt(&self, file: &TargetFile, state: &mut State) -> Result<Vec<String>, Misplaced> {
        // Nothing has changed yet, so everything up to here may fail.
        let described = build::describe(file)?;
        let discovery = build::discovery(file)?;
        let renewal = Renewal::prepare(&self.server, &state.file, file)?;
        let Successors {
            served,
            changes,
            mut ports,
        } = self.successors(file, described, state, &renewal)?;
        let mut done = renewal.changes.clone();
        let groups = renewal.ports.groups();
        for (_, luns, _) in &changes {
            luns.units()
                .iter()
                .for_each(|(_, unit)| unit.renew_groups(&groups, &renewal.renewed));
        }
        for (name, luns, change) in changes {
            self.change(&name, &luns, change, &mut done);
        }
        let is_new = |name: &String| !state.targets.contains_key(name);
        let named = |target: &ServedTarget| target.name.clone();
        done.extend(
            served
                .iter()
                .map(named)
                .filter(is_new)
                .map(|name| format!("{name} added")),
        );
        let stays = |name: &&String| served.iter().any(|target| target.name == **name);
        let gone = state.targets.keys().filter(|name| !stays(name));
        done.extend(gone.map(|name| format!("{name} removed")));
        let targets = served.iter().map(|target| {
            let ports = ports
                .remove(&target.name)
                .expect("each target that is served has its ports");
            let live = LiveTarget {
                luns: Arc::clone(&target.luns),
                ports,
            };
            (target.name.clone(), live)
        });
        state.targets = targets.collect();
        state.file = file.clone();
        self.server.replace(served, discovery, GRACE);
        renewal.apply(&self.server, GRACE);
        Ok(done)
    }

    /// Checks and opens everything that the file adds; nothing in service changes.
    fn successors(
        &self,
        file: &TargetFile,
        described: Vec<BTreeMap<u16, LunWords>>,
        state: &State,
        renewal: &Renewal,
    ) -> Result<Successors, Misplaced> {
        let mut next = Successors::default();
        for (index, (entry, luns)) in file.targets.iter().zip(described).enumerate() {
            let users =
                build::users_of(entry).map_err(|failure| build::wrong(index, "chap", failure))?;
            let live = state.targets.get(&entry.name);
            let ports = live.map_or_else(|| renewal.ports.clone(), |live| live.renewed(renewal));
            match live {
                None => {
                    let target = serve(build::target(index, entry, luns, &ports)?, &self.output);
                    next.served.push(target);
                }
                Some(live) => {
                    let before = state
                        .file
                        .targets
                        .iter()
                        .find(|target| target.name == entry.name);
                    let change = differences(index, entry, luns, before, (live, &ports))?;
                    let luns = Arc::clone(&live.luns);
                    next.served.push(ServedTarget {
                        users,
                        ..ServedTarget::new(&entry.name, Arc::clone(&luns))
                    });
                    next.changes.push((entry.name.clone(), luns, change));
                }
            }
            next.ports.insert(entry.name.clone(), ports);
        }
        Ok(next)
    }

    fn change(&self, name: &str, luns: &LunMap, change: Changes, done: &mut Vec<String>) {
        let Changes {
            remove,
            add,
            resize,
        } = change;
        let of = |lun: u16| format!("LUN {lun} of {name}");
        for (lun, unit) in &add {
            remark(&self.output, *lun, unit);
            done.push(format!(
                "{} {}",
                of(*lun),
                if remove.contains(lun) {
                    "replaced"
                } else {
                    "added"
                }
            ));
        }
        let is_replaced = |lun: &u16| add.iter().any(|(new, _)| new == lun);
        done.extend(
            remove
                .iter()
                .filter(|lun| !is_replaced(lun))
                .map(|lun| format!("{} removed", of(*lun))),
        );
        if !remove.is_empty() || !add.is_empty() {
            luns.change(&remove, add);
        }
        for (lun, size) in resize {
            let Some(unit) = luns.get(lun) else { continue };
            done.push(match self.resize(lun, &unit, size) {
                Ok(()) => format!("{} resized to {}", of(lun), format_size(size)),
                Err(error) => format!("{} not resized: {error}", of(lun)),
            });
        }
    }

    fn resize(&self, lun: u16, unit: &LogicalUnit, size: u64) -> std::io::Result<()> {
        unit.backend().resize(size)?;
        // Check at once, so that the next SCSI command reports the change.
        for event in unit.poll_medium() {
            self.output.note(format!("LUN {lun}: {event}"));
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The changes that turn a target's current LUNs into those of its new entry; new LUNs are already open.
fn differences(
    index: usize,
    entry: &TargetEntry,
    described: BTreeMap<u16, LunWords>,
    before: Option<&TargetEntry>,
    (live, ports): (&LiveTarget, &Ports),
) -> Result<Changes, Misplaced> {
    let mut change = Changes {
        remove: numbers(&live.luns),
        ..Changes::default()
    };
    for (number, words) in described {
        let key = number.to_string();
        let text = &entry.luns[&key];
        let old = before.and_then(|before| before.luns.get(&key));
        let stays = old.is_some_and(|old| old == text || lun::differ_in_size(old, text));
        match live.luns.get(number).filter(|_| stays) {
            Some(unit) => {
                change.remove.retain(|lun| *lun != number);
                let block = u64::from(unit.block_bytes());
                let size = lun::memory_size(text).map(|size| size / block * block);
                let other = size.filter(|size| *size != unit.blocks() * block);
                change.resize.extend(other.map(|size| (number, size)));
            }
            None => {
                let unit = lun::open(text, &words, number, &entry.name, ports)
                    .map_err(|failure| build::lun_is_wrong(index, &key, failure))?;
                change.add.push((number, unit));
            }
        }
    }
    Ok(change)
}

fn numbers(luns: &LunMap) -> Vec<u16> {
    luns.units().iter().map(|(lun, _)| *lun).collect()
}

/// Prepares a built target for a server, and prints remarks about its media.
pub fn serve(target: BuiltTarget, output: &Output) -> ServedTarget {
    target
        .units
        .iter()
        .for_each(|(lun, unit)| remark(output, *lun, unit));
    let map = LunMap::new(target.units.into_iter().collect());
    ServedTarget {
        users: target.users,
        ..ServedTarget::new(target.name, map)
    }
}

/// Prints the remarks about a medium.
fn remark(output: &Output, lun: u16, unit: &LogicalUnit) {
    for note in unit.backend().info().remarks() {
        output.note(format!("LUN {lun}: {note}"));
    }
}

/// Changes the state or preference that a LUN reports for a group.
fn set_access(
    unit: &LogicalUnit,
    group: u16,
    (state, preferred): (Option<PortState>, Option<bool>),
) -> Result<(), NoSuchGroup> {
    if let Some(state) = state {
        unit.set_access(group, build::access_state(state))?;
    }
    preferred.map_or(Ok(()), |preferred| unit.set_preferred(group, preferred))
}

/// The LUNs of one target, as commands see them.
struct LiveDevices {
    live: Arc<Live>,
    target: String,
}

impl LiveDevices {
    fn target<'a>(&self, state: &'a State) -> Result<&'a LiveTarget, Refusal> {
        let gone = || Reason::NoTarget.because(format!("{} is no longer served", self.target));
        state.targets.get(&self.target).ok_or_else(gone)
    }

    fn luns_of(&self, state: &State) -> Result<Arc<LunMap>, Refusal> {
        self.target(state).map(|live| Arc::clone(&live.luns))
    }

    fn unit(&self, state: &State, lun: u16) -> Result<Arc<LogicalUnit>, Refusal> {
        let luns = self.luns_of(state)?;
        luns.get(lun).ok_or_else(|| {
            let known: Vec<String> = numbers(&luns).iter().map(ToString::to_string).collect();
            Reason::NoLun.because(format!(
                "unknown LUN {lun}; the LUNs are {}",
                known.join(", ")
            ))
        })
    }

    fn add(&self, lun: u16, device: &str) -> Result<Reply, Refusal> {
        let mut state = self.live.lock();
        let luns = self.luns_of(&state)?;
        if luns.get(lun).is_some() {
            return Err(
                Reason::BadLun.because(format!("LUN {lun} already exists; remove it first"))
            );
        }
        let mut file = state.file.clone();
        let index = file
            .targets
            .iter()
            .position(|target| target.name == self.target);
        let index = index.expect("every served target has an entry");
        file.targets[index]
            .luns
            .insert(lun.to_string(), device.to_string());
        let bad = |failure: Failure| Reason::BadLun.because(failure.in_a_line());
        let described = build::describe(&file).map_err(|wrong| bad(wrong.failure))?;
        let unit = lun::open(
            device,
            &described[index][&lun],
            lun,
            &self.target,
            &self.target(&state)?.ports,
        )
        .map_err(bad)?;
        remark(&self.live.output, lun, &unit);
        luns.change(&[], vec![(lun, unit)]);
        state.file = file;
        Ok(Reply::Done)
    }

    fn access(
        &self,
        group: Option<u16>,
        wanted: (Option<PortState>, Option<bool>),
        lun: Option<u16>,
    ) -> Result<Reply, Refusal> {
        let mut state = self.live.lock();
        let ports = self.target(&state)?.ports.clone();
        if ports.alua == Alua::Off {
            return Err(Reason::WrongState
                .because("asymmetric access is disabled: the target has --alua off"));
        }
        let units = match lun {
            Some(lun) => vec![self.unit(&state, lun)?],
            None => self
                .luns_of(&state)?
                .units()
                .into_iter()
                .map(|(_, unit)| unit)
                .collect(),
        };
        if wanted != (None, None) {
            let known = || {
                ports
                    .groups
                    .keys()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            let group = group
                .filter(|group| ports.groups.contains_key(group))
                .ok_or_else(|| {
                    Reason::BadCommand.because(format!(
                        "\"group\" must be a target port group: one of {}",
                        known()
                    ))
                })?;
            for unit in &units {
                set_access(unit, group, wanted)
                    .map_err(|error| Reason::BadCommand.because(error))?;
            }
            if lun.is_none() {
                let live = state
                    .targets
                    .get_mut(&self.target)
                    .expect("present a moment ago");
                let words = live.ports.groups.entry(group).or_default();
                words.state = wanted.0.unwrap_or(words.state);
                words.preferred = wanted.1.unwrap_or(words.preferred);
            }
        }
        let reports: Vec<AccessReport> = units.iter().map(|unit| unit.access()).collect();
        // Without LUNs, report the initial states for new LUNs.
        let groups = reports.first().map_or_else(
            || self.target(&state).map(|live| live.ports.groups()),
            |report| Ok(report.groups.clone()),
        )?;
        let word = |group: &PortGroup| (group.id.to_string(), build::port_state(group.state));
        Ok(Reply::Access(AccessAnswer {
            groups: groups.iter().map(word).collect(),
            preferred: groups
                .iter()
                .filter(|group| group.preferred)
                .map(|group| group.id)
                .collect(),
            refused: reports.iter().map(|report| report.refused).sum(),
            told: reports.iter().map(|report| report.notified).sum(),
        }))
    }

    fn remove(&self, lun: u16) -> Result<Reply, Refusal> {
        let mut state = self.live.lock();
        self.unit(&state, lun)?;
        let left = self.luns_of(&state)?.change(&[lun], Vec::new());
        let own = state
            .file
            .targets
            .iter_mut()
            .find(|target| target.name == self.target);
        own.expect("every served target has an entry")
            .luns
            .remove(&lun.to_string());
        drop(state);
        let deadline = Instant::now() + DRAIN;
        while left.iter().any(|(_, unit)| unit.is_open()) {
            if Instant::now() > deadline {
                self.live.output.note(format!(
                    "LUN {lun} was removed, but commands are still in progress on its device, which stays open"
                ));
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Reply::Done)
    }
}

impl ServedLuns for LiveDevices {
    fn handles(&self, lun: u16) -> Option<Handles> {
        let luns = self.luns_of(&self.live.lock()).ok()?;
        luns.get(lun).map(|unit| unit.backend().handles())
    }

    fn luns(&self) -> Vec<u16> {
        self.luns_of(&self.live.lock())
            .map(|luns| numbers(&luns))
            .unwrap_or_default()
    }

    fn serve(&self, command: &Command) -> Result<Reply, Refusal> {
        match command {
            Command::Add { lun, device } => self.add(*lun, device),
            Command::Remove { lun } => self.remove(*lun),
            Command::Access {
                group,
                state,
                preferred,
                lun,
            } => self.access(*group, (*state, *preferred), *lun),
            Command::Resize {
                lun,
                size: Size(size),
            } => {
                let unit = self.unit(&self.live.lock(), *lun)?;
                let resized = self.live.resize(*lun, &unit, *size);
                resized.map_err(|error| Reason::BadLun.because(format!("LUN {lun}: {error}")))?;
                Ok(Reply::Done)
            }
            Command::Reload => match self.live.reload() {
                Ok(done) => {
                    self.live.output.note(done);
                    Ok(Reply::Done)
                }
                Err(failure) => Err(Reason::BadLun.because(failure.in_a_line())),
            },
            _ => unreachable!("commands for devices are handled there"),
        }
    }
}
