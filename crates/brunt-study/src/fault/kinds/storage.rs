//! `storage`: storage faults, written as in a device's `fault=` option. A storage fault is armed at a layer, proven
//! by the run's requests that it affects, and gone when it is disarmed. The driver sends no requests itself: they
//! would distort the measurement, and a fault that affects no request of the run is irrelevant.
//!
//! The rule: an armed fault is lost with the target's process. If another fault kills and restarts that process, the
//! storage fault is armed again as soon as the target is back, and must be proven again; its record shows the gap.

use std::sync::Arc;
use std::time::Duration;

use brunt_block::Op;
use brunt_block::layers::fault::{DeviceFault, FaultEffect};
use brunt_core::{Clock, Nanos};
use brunt_lab::Proof;
use brunt_result::event::FaultGap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::freeze::Freeze;
use super::kill::Kill;
use crate::control::{Absence, Command, Controls, ProcessState, Reason, Reply};
use crate::fault::driver::{DriverError, FaultDriver};
use crate::fault::kind::{
    About, FaultCommon, FaultContext, Info, Kind, Mistake, Pair, Prepared, Stage, Together,
};
use crate::rounded::rounded;

pub(super) const INFO: Info = Info {
    keys: &["storage", "layer"],
    on_hosts: false,
    help: "injects a storage fault into the requests of a target, written as in a device's `fault=` option",
    proof: "the number of requests that it affected, and later that it is disarmed",
    example: "target = \"disk\"\nstorage = \"aborted-command,p=0.5\"\nat = \"5s\"\nfor = \"5s\"",
};

/// The keys of a `storage` fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// A storage fault, written as in the `fault=` option of a device: `medium-error,p=0.1,op=read`, `slow:10ms`,
    /// `hang`. If the target's URL has no fault layer, one is added on top.
    pub storage: String,
    /// Name of the layer of the target's device, if it has several of that kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
}

impl Kind for Storage {
    fn about(&self) -> About {
        About::Target
    }

    fn wants_fault_layer(&self) -> bool {
        self.layer.is_none()
    }

    fn what(&self) -> String {
        self.storage.clone()
    }

    fn check(&self, common: &FaultCommon, stage: &dyn Stage) -> Result<(), Mistake> {
        if let Some(role) = stage
            .role(&common.target)
            .filter(|role| role.luns().is_none())
        {
            let what = format!(
                "target {} is a {}, which has no storage",
                common.target,
                role.info().name
            );
            let help = "write serve = \"memory:1GiB\" for the target, or inject a \
                        fault into the sink's process: freeze = true or kill = true";
            return Err(Mistake::new("storage", what, help));
        }
        let fault = DeviceFault::parse(&self.storage).map_err(|error| {
            Mistake::new(
                "storage",
                error.to_string(),
                "the same as a device's fault= option",
            )
        })?;
        if fault.does_nothing() {
            let what = format!("{fault} affects no request");
            let help = "write p= above 0, or a delay above 0: slow:10ms, slow:x2";
            return Err(Mistake::new("storage", what, help));
        }
        Ok(())
    }

    fn overlap(&self, pair: &Pair<'_>) -> Option<Together> {
        if !pair.same_target() {
            return None;
        }
        if let Some(other) = pair.other_as::<Storage>() {
            return (self.layer == other.layer)
                .then(|| self.at_one_layer(other, pair))
                .flatten();
        }
        let (frozen, killed) = (
            pair.other_as::<Freeze>().is_some(),
            pair.other_as::<Kill>().is_some(),
        );
        if (frozen || killed) && pair.other_times().cover(pair.my_times()) {
            return serves_no_client(pair);
        }
        match (frozen, killed) {
            (true, _) => Together::both(
                "the storage fault stays armed and affects requests when the target resumes",
            ),
            (_, true) => Together::both(
                "the storage fault is lost with the process and injected again when the target is back",
            ),
            _ => None,
        }
    }

    fn prepare(
        &self,
        common: &FaultCommon,
        scene: &mut FaultContext<'_>,
    ) -> Result<Prepared, DriverError> {
        let lun = scene.lun(&common.target);
        let fault = DeviceFault::parse(&self.storage)?;
        let controls = scene.controls(&common.target, self.wants_fault_layer())?;
        // A missing layer is reported before the first run.
        let probe = Command::Look {
            lun,
            layer: self.layer.clone(),
            id: u64::MAX,
        };
        if let Err(error) = controls.must(&probe)
            && error.reason() != Some(Reason::NotArmed)
        {
            return Err(error.into());
        }
        let (device, layer) = (Some((Arc::clone(&controls), lun)), self.layer.clone());
        let make = move || {
            let (controls, layer, fault) = (Arc::clone(&controls), layer.clone(), fault.clone());
            Ok(Box::new(StorageFault::new(controls, lun, layer, fault)) as Box<dyn FaultDriver>)
        };
        Ok(Prepared {
            device,
            ..Prepared::new(make)
        })
    }
}

/// The refusal of a storage fault whose target is unavailable for the fault's whole duration.
pub(super) fn serves_no_client(pair: &Pair<'_>) -> Option<Together> {
    let away = pair.other.kind.what();
    Together::refused(
        format!(
            "the target serves no requests for all of that time ({away}), so the fault could have no effect"
        ),
        "make the storage fault start before the fault of the process, or end after it",
    )
}

impl Storage {
    /// The combined effect with another fault at the same layer.
    fn at_one_layer(&self, other: &Storage, pair: &Pair<'_>) -> Option<Together> {
        // If two faults match a request, the older one takes precedence.
        let (mine, others) = (pair.my_times(), pair.other_times());
        let ((older, its), (younger, later)) = match mine.begin <= others.begin {
            true => ((self, mine), (other, others)),
            false => ((other, others), (self, mine)),
        };
        if let (Ok(first), Ok(second)) = (
            DeviceFault::parse(&older.storage),
            DeviceFault::parse(&younger.storage),
        ) && first.leaves_nothing_to(&second)
            && its.cover(later)
        {
            return Together::refused(
                format!(
                    "{first} affects every request that {second} matches, and at one layer the older fault takes precedence"
                ),
                "give the older one a p= below 1, or give each its own layer in the target's URL: ?fault=off;name=a&fault=off;name=b, with layer = \"a\" and layer = \"b\"",
            );
        }
        Together::both("where both match a request, the older one takes precedence")
    }
}

/// Interval between checks whether a frozen target has resumed.
const THAW_POLL: Duration = Duration::from_millis(1);

/// The driver of a storage fault.
struct StorageFault {
    controls: Arc<dyn Controls>,
    lun: u16,
    layer: Option<String>,
    fault: DeviceFault,
    armed: Option<Armed>,
    /// When the fault was first armed.
    put_at: Option<Nanos>,
    gaps: Vec<FaultGap>,
}

#[derive(Clone, Copy)]
struct Armed {
    id: u64,
    /// The life of the target's process in which the fault was armed.
    life: u32,
    at: Nanos,
    seen: u64,
    shown: bool,
    /// If the fault has been armed again: when it was last lost.
    lost: Option<Nanos>,
}

impl StorageFault {
    fn new(
        controls: Arc<dyn Controls>,
        lun: u16,
        layer: Option<String>,
        fault: DeviceFault,
    ) -> StorageFault {
        StorageFault {
            controls,
            lun,
            layer,
            fault,
            armed: None,
            put_at: None,
            gaps: Vec::new(),
        }
    }

    /// Sends a command; `None` if the process is away, or has restarted since `life`.
    fn ask(&self, command: &Command, life: u32) -> Result<Option<Reply>, DriverError> {
        let is_there = || {
            let state = self.controls.state();
            state.away.is_none() && state.life == life
        };
        if !is_there() {
            return Ok(None);
        }
        match self.controls.must(command) {
            Ok(answer) => Ok(Some(answer)),
            // The process was killed, and perhaps restarted, before it answered.
            Err(_) if !is_there() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn arm(&self, lost: Option<Nanos>) -> Result<Option<Armed>, DriverError> {
        let life = self.controls.state().life;
        let command = Command::Arm {
            lun: self.lun,
            layer: self.layer.clone(),
            fault: self.fault.to_string(),
        };
        let at = Clock::Monotonic.now();
        Ok(match self.ask(&command, life)? {
            Some(Reply::Armed { id }) => Some(Armed {
                id,
                life,
                at,
                seen: 0,
                shown: false,
                lost,
            }),
            Some(other) => return Err(DriverError::mismatched(other)),
            None => None,
        })
    }

    /// Arms the fault again if its process has restarted; `None` while the process is away.
    fn present(&mut self) -> Result<Option<Armed>, DriverError> {
        let Some(armed) = self.armed else {
            return Ok(None);
        };
        let state = self.controls.state();
        if state.away.is_some() {
            return Ok(None);
        }
        if state.life == armed.life {
            return Ok(Some(armed));
        }
        // A fault whose effect was never proven was never in effect, so there is no gap.
        let lost = if armed.shown {
            state.last_end
        } else {
            armed.lost
        };
        if let Some(again) = self.arm(lost)? {
            self.armed = Some(again);
        }
        Ok(self.armed.filter(|now| now.life != armed.life))
    }

    /// The number of requests affected since the fault was armed, if the process can be queried now.
    fn counts(&mut self) -> Result<Option<(Armed, u64)>, DriverError> {
        let Some(mut armed) = self.present()? else {
            return Ok(None);
        };
        let command = Command::Look {
            lun: self.lun,
            layer: self.layer.clone(),
            id: armed.id,
        };
        let (seen, injected) = match self.ask(&command, armed.life)? {
            Some(Reply::Counts { seen, injected }) => (seen, injected),
            Some(other) => return Err(DriverError::mismatched(other)),
            None => return Ok(None),
        };
        (armed.seen, armed.shown) = (seen, armed.shown || injected > 0);
        self.armed = Some(armed);
        Ok(Some((armed, injected)))
    }
}

fn hits(injected: u64, seen: u64) -> String {
    format!("affected {injected} of the first {seen} matching requests")
}

impl FaultDriver for StorageFault {
    fn describe(&self) -> String {
        self.fault.to_string()
    }

    fn put(&mut self) -> Result<Option<Nanos>, DriverError> {
        self.armed = self.arm(None)?;
        self.put_at = self.armed.map(|armed| armed.at);
        Ok(self.put_at)
    }

    fn poll(&mut self) -> Result<Option<Proof>, DriverError> {
        let Some((armed, injected)) = self.counts()? else {
            return Ok(None);
        };
        Ok((injected > 0).then(|| Proof {
            at: armed.at,
            seen: Clock::Monotonic.now(),
            what: hits(injected, armed.seen),
            value: Some(injected as f64),
        }))
    }

    fn seen_instead(&self) -> String {
        let seen = self.armed.as_ref().map_or(0, |armed| armed.seen);
        format!("it affected none of {seen} matching requests")
    }

    fn advice(&self, looked: Duration) -> Option<String> {
        Some(advice(
            &self.fault,
            self.armed.as_ref().map_or(0, |armed| armed.seen),
            looked,
        ))
    }

    fn tend(&mut self) -> Result<(), DriverError> {
        // Within one life of the process nothing can have changed, so the target isn't queried.
        let Some(Armed { life, shown, .. }) = self.armed else {
            return Ok(());
        };
        if shown && self.controls.state().life == life {
            return Ok(());
        }
        let Some((armed, injected)) = self.counts()? else {
            return Ok(());
        };
        if let (true, Some(from)) = (armed.shown, armed.lost) {
            let shown_by = hits(injected, armed.seen);
            self.gaps.push(FaultGap {
                from,
                until: armed.at,
                shown: Clock::Monotonic.now(),
                shown_by,
            });
            self.armed = Some(Armed {
                lost: None,
                ..armed
            });
        }
        Ok(())
    }

    fn gaps(&self) -> &[FaultGap] {
        &self.gaps
    }

    fn take_away(&mut self) -> Result<Proof, DriverError> {
        // A frozen target keeps the fault until it resumes.
        let state = self.thawed();
        let at = Clock::Monotonic.now();
        let Some(armed) = self.armed.take() else {
            return Err(DriverError::NotThere);
        };
        let command = Command::Disarm {
            lun: self.lun,
            layer: self.layer.clone(),
            id: armed.id,
        };
        let Some(answer) = self.ask(&command, armed.life)? else {
            return Ok(self.lost_with_process(state, at));
        };
        let Reply::Counts { seen, injected } = answer else {
            return Err(DriverError::mismatched(answer));
        };
        self.check_disarmed(armed.id, state)?;
        if let Some(from) = armed.lost {
            if injected == 0 {
                let seen = format!("it affected none of {seen} matching requests");
                let again = (at.since(armed.at) * 2).max(Duration::from_millis(100));
                let lasts = rounded(at.since(self.put_at.unwrap_or(armed.at)) + again);
                return Err(DriverError::NotShownAgain { lasts, seen });
            }
            let shown_by = hits(injected, seen);
            self.gaps.push(FaultGap {
                from,
                until: armed.at,
                shown: at,
                shown_by,
            });
        }
        let again = if self.gaps.is_empty() {
            ""
        } else {
            " since it was armed again"
        };
        let what = format!("{injected} requests affected{again}; it is disarmed");
        Ok(Proof {
            at,
            seen: Clock::Monotonic.now(),
            what,
            value: Some(injected as f64),
        })
    }
}

impl StorageFault {
    /// Waits while the target is frozen, and returns its state.
    fn thawed(&self) -> ProcessState {
        loop {
            let state = self.controls.state();
            if !matches!(state.away, Some((Absence::Frozen, _))) {
                return state;
            }
            std::thread::sleep(THAW_POLL);
        }
    }

    /// The proof for a fault that was lost when its target's process was killed, after `before` was observed at `at`.
    fn lost_with_process(&self, before: ProcessState, at: Nanos) -> Proof {
        let now = self.controls.state();
        let ended = now
            .away
            .map(|(_, since)| since)
            .or(now.last_end)
            .or(before.last_end);
        Proof {
            at: ended.unwrap_or(at),
            seen: Clock::Monotonic.now(),
            what: "lost when the target's process was killed".to_string(),
            value: None,
        }
    }

    /// Checks that the target no longer lists the fault; `state` is that of the target's process before the fault was
    /// disarmed.
    fn check_disarmed(&self, id: u64, state: ProcessState) -> Result<(), DriverError> {
        // The proof comes from outside: the target no longer knows the fault's number.
        let command = Command::Look {
            lun: self.lun,
            layer: self.layer.clone(),
            id,
        };
        match self.controls.ask(&command) {
            Ok(Reply::Refused(refusal)) if refusal.reason == Reason::NotArmed => Ok(()),
            Err(_) if self.controls.state() != state => Ok(()),
            other => {
                let seen = format!("the target's answer to the query was {other:?}");
                Err(DriverError::NotGone { seen })
            }
        }
    }
}

impl Drop for StorageFault {
    fn drop(&mut self) {
        if let Some(armed) = self.armed {
            let command = Command::Disarm {
                lun: self.lun,
                layer: self.layer.clone(),
                id: armed.id,
            };
            let _ = self.ask(&command, armed.life);
        }
    }
}

/// Number of affected requests to expect with the advice: the probability that none is affected is then e^-11.5 =
/// 10^-5.
const EXPECTED: f64 = 11.5;

/// What to write so that the fault affects a request, if it affected none of the `seen` requests that it matched
/// during the time `looked`.
fn advice(fault: &DeviceFault, seen: u64, looked: Duration) -> String {
    let share = |least: f64| (least.min(1.0) * 1000.0).ceil() / 1000.0;
    let longer = rounded((looked * 2).max(Duration::from_millis(100)));
    match (fault.kind, seen) {
        (FaultEffect::Flaky { up, .. }, 0) if up >= looked => {
            let time = rounded(looked / 4);
            return format!(
                "the device was up for all of that time; write flaky:{time}/{time}, or for = \"{}\"",
                rounded(up * 2)
            );
        }
        (FaultEffect::BadBlocks { percent }, 0) if percent < 100.0 => {
            return format!(
                "no bad block was read; write bad-blocks:{}%",
                (percent * 10.0).min(100.0)
            );
        }
        (FaultEffect::Torn { blocks: 2.. }, 0) => {
            return "no write was longer than that; write torn:1, or a larger block_size for the workload"
                .to_string();
        }
        (_, 1..) if fault.probability < 1.0 => {
            let least = share(EXPECTED / seen as f64);
            return format!(
                "with a probability of {} it may affect none of these; write p={least}",
                fault.probability
            );
        }
        (_, 1..) if fault.every > seen => return format!("write every={}", (seen / 5).max(1)),
        (_, 1..) => return format!("make the fault last longer (for = \"{longer}\")"),
        _ => {}
    }
    let writes_only = matches!(
        fault.kind,
        FaultEffect::Drop
            | FaultEffect::Torn { .. }
            | FaultEffect::Misdirect { .. }
            | FaultEffect::Flaky {
                drops_writes: true,
                ..
            }
    );
    let only = |op: Op| {
        [Op::Read, Op::Write, Op::Flush, Op::Unmap]
            .into_iter()
            .all(|other| fault.ops.has(other) == (other == op))
    };
    match () {
        () if fault.blocks.is_some() => {
            "no request touched its blocks; write lba= within the workload's region, or omit it"
                .to_string()
        }
        () if writes_only || only(Op::Write) => {
            "no request was a write; write read = 0.5 for the workload".to_string()
        }
        () if only(Op::Read) => {
            "no request was a read; write read = 0.5 for the workload".to_string()
        }
        () if only(Op::Flush) => {
            "no request was a flush; write fsync = 100 for the workload".to_string()
        }
        () if only(Op::Unmap) => {
            "no request was a trim; write trim = 0.1 for the workload".to_string()
        }
        () => {
            format!("no matching request was sent; make the fault last longer (for = \"{longer}\")")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The suggested fault would have affected the requests that were sent.
    #[test]
    fn advice_names_a_setting_and_a_value() {
        let check = |words: &str, seen: u64, expected: &str| {
            let advised = advice(
                &DeviceFault::parse(words).unwrap(),
                seen,
                Duration::from_millis(200),
            );
            assert!(advised.contains(expected), "{words}: {advised}");
        };
        check("busy,p=0.000001", 1000, "write p=0.012");
        check("busy,p=0.1", 3, "write p=1");
        check("busy,every=1000", 100, "write every=20");
        check("busy", 0, "for = \"400ms\"");
        check(
            "busy,lba=9-10",
            0,
            "write lba= within the workload's region",
        );
        check("drop", 0, "write read = 0.5");
        check("medium-error,op=write", 0, "no request was a write");
        check("medium-error,op=read", 0, "no request was a read");
        check("medium-error,op=flush", 0, "write fsync = 100");
        check("medium-error,op=unmap", 0, "write trim = 0.1");
        check(
            "flaky:1h/1ms",
            0,
            "write flaky:50ms/50ms, or for = \"7200s\"",
        );
        check("bad-blocks:1%", 0, "write bad-blocks:10%");
        check("torn:9", 0, "write torn:1");
        check("bad-blocks", 0, "for = ");
    }
}
