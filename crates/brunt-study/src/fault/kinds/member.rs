//! `member`: fails a member of an array. Proven by the array's state; ends once a spare has been rebuilt and the
//! array is intact again. At the end of a run, the failed member is replaced and the rest of the rebuild runs at full
//! speed, so that the next run starts with an intact array.

use std::sync::Arc;
use std::time::Duration;

use brunt_block::backends::array::{self, ArrayState, Level, MemberState};
use brunt_block::control;
use brunt_core::units::format_size;
use brunt_core::{Clock, Nanos};
use brunt_lab::Proof;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::freeze::Freeze;
use super::kill::Kill;
use super::storage::serves_no_client;
use crate::control::{Command, Controls, LayerStatus, Reply};
use crate::experiment::Target;
use crate::fault::driver::{DriverError, FaultDriver};
use crate::fault::kind::{
    About, FaultCommon, FaultContext, Info, Kind, Mistake, Pair, Prepared, Stage, Together,
};

/// Maximum time for a rebuild at full speed.
const REBUILD_MAX: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub(super) const INFO: Info = Info {
    keys: &["member", "layer"],
    on_hosts: false,
    help: "fails a member of the target's array; ends when the array is rebuilt",
    proof: "the array reports the member failed, and later all members good",
    example: "target = \"array\"\nmember = 1\nat = \"5s\"",
};

/// The keys of a `member` fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Fails this member (counted from 0) of the target's array (raid1 or raid5). The fault ends when the array is
    /// rebuilt.
    pub member: usize,
    /// Name of the layer of the target's device, if it has several of that kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
}

impl Kind for Member {
    fn about(&self) -> About {
        About::Target
    }

    fn what(&self) -> String {
        format!("member {} fails", self.member)
    }

    fn check(&self, common: &FaultCommon, stage: &dyn Stage) -> Result<(), Mistake> {
        let mistake = stage
            .target(&common.target)
            .and_then(|target| self.mistake(&common.target, target));
        mistake.map_or(Ok(()), |(what, help)| {
            Err(Mistake::new("member", what, help))
        })
    }

    fn overlap(&self, pair: &Pair<'_>) -> Option<Together> {
        if !pair.same_target() {
            return None;
        }
        if let Some(other) = pair.other_as::<Member>() {
            return match (self.layer == other.layer, self.member == other.member) {
                (false, _) => None,
                (true, true) => Together::refused(
                    "a member cannot fail twice",
                    "choose another member, or end the first fault (for = …) before the second starts",
                ),
                (true, false) => Together::both(
                    "the second member fails while the first is missing; both faults end when the array is rebuilt",
                ),
            };
        }
        let killed = pair.other_as::<Kill>().is_some();
        if (killed || pair.other_as::<Freeze>().is_some())
            && pair.other_times().cover(pair.my_times())
        {
            return serves_no_client(pair);
        }
        killed.then(|| Together::refused(
            "the failed member is recorded only in the process: after a restart the array would \
            appear intact",
            "end the member's fault (for = …) before the target is killed, or use freeze = true instead of kill = true",
        )).flatten()
    }

    fn prepare(
        &self,
        common: &FaultCommon,
        scene: &mut FaultContext<'_>,
    ) -> Result<Prepared, DriverError> {
        let lun = scene.lun(&common.target);
        let controls = scene.controls(&common.target, false)?;
        controls.must(&Command::Replace {
            lun,
            layer: self.layer.clone(),
        })?;
        let device = Some((Arc::clone(&controls), lun));
        let (layer, member) = (self.layer.clone(), self.member);
        let make = move || {
            let (controls, layer) = (Arc::clone(&controls), layer.clone());
            let fault = MemberFault {
                controls,
                lun,
                layer,
                member,
                failed: None,
                rebuilds: 0,
                degraded: 0,
            };
            Ok(Box::new(fault) as Box<dyn FaultDriver>)
        };
        Ok(Prepared {
            device,
            ..Prepared::new(make)
        })
    }
}

impl Member {
    /// Why this member of the target's array cannot fail and be replaced, and what to write instead. Arrays are
    /// recognized from the URL; if there are several, the choice is checked once they are open.
    fn mistake(&self, name: &str, target: &Target) -> Option<(String, String)> {
        let member = self.member;
        let arrays = array::named_in(target.place());
        let array = match (&self.layer, arrays.as_slice()) {
            (_, []) => {
                let what = format!("target {name} is not an array, so it has no member to fail");
                let help = "use an array as its url or serve, such as array:raid1,[…],[…]";
                return Some((what, help.to_string()));
            }
            (None, [(_, only)]) => only,
            (None, _) => return None,
            (Some(name), _) => control::find(&arrays, name)?,
        };
        let last = array.members.checked_sub(1)?;
        if member > last {
            return Some((
                format!("no member {member}"),
                format!("write one of 0 to {last}"),
            ));
        }
        // A RAID 0 that is degraded at the end of a run could not be repaired before the next one, unlike the other
        // levels.
        (array.level == Level::Raid0).then(|| {
            let what = format!(
                "member {member} of a RAID 0 cannot fail: without redundancy it cannot be rebuilt at the end of the fault or before the next run"
            );
            let help = format!(
                "write raid1 or raid5; or give the device of member {member} a fault layer ([…?fault=off]) and inject a fault there: storage = \"hardware-error\" with the layer's name, such \
                 as layer = \"{member}/fault\", for member = {member}"
            );
            (what, help)
        })
    }
}

/// The driver of a member fault.
struct MemberFault {
    controls: Arc<dyn Controls>,
    lun: u16,
    layer: Option<String>,
    member: usize,
    failed: Option<Nanos>,
    /// Rebuilds that the array had completed before the fault.
    rebuilds: u64,
    /// Requests that it had served without a member (degraded) before the fault.
    degraded: u64,
}

/// The status of the array.
struct Seen {
    state: ArrayState,
    members: Vec<MemberState>,
    degraded: u64,
    rate: u64,
    trouble: Option<String>,
    rebuilt: Option<(u64, u64)>,
    rebuilds: u64,
    last_rebuild: Option<(u64, f64)>,
}

impl Seen {
    /// Checks that this member exists and is good.
    fn has_good(&self, member: usize) -> Result<(), DriverError> {
        let what = match self.members.get(member) {
            Some(MemberState::Good) => return Ok(()),
            Some(state) => format!("member {member} is already {state}"),
            None => format!("no member {member}"),
        };
        let good = self
            .members
            .iter()
            .position(|state| *state == MemberState::Good);
        let advice = match good {
            Some(good) => format!("write member = {good}, which is good"),
            None => {
                "no member is good: write a serve or url = \"array:raid5,[…],[…],[…]\" with devices that work"
                    .into()
            }
        };
        Err(DriverError::unfit(what, advice))
    }

    /// Why an array is not intact, although repairing it started at `begin`.
    fn stays_broken(&self, begin: Nanos) -> DriverError {
        let (state, trouble) = (
            self.state,
            self.trouble.as_deref().unwrap_or("no error was reported"),
        );
        match self.rebuilt {
            Some((done, all)) if state != ArrayState::Failed => {
                let spent = Clock::Monotonic.now().since(begin).as_secs_f64();
                let fits = ((done / 10 * 9) >> 20).max(1);
                DriverError::unfit(
                    format!(
                        "after {spent:.0} s, the array is {state}, with {} of {} rebuilt: {trouble}",
                        format_size(done),
                        format_size(all)
                    ),
                    format!(
                        "members of {fits}MiB would have been rebuilt in that time: serve = \
                         \"array:…,[memory:{fits}MiB],…\""
                    ),
                )
            }
            _ => DriverError::unfit(
                format!("the array is {state} and does not recover: {trouble}"),
                "more members have failed than the array tolerates: give it working members, or write serve = \
                 \"array:raid1,[…],[…],[…]\", which needs only one of its three members",
            ),
        }
    }
}

impl MemberFault {
    fn array(&self) -> Array<'_> {
        Array {
            controls: self.controls.as_ref(),
            lun: self.lun,
            layer: self.layer.as_deref(),
        }
    }
}

/// An array, controlled from outside.
struct Array<'a> {
    controls: &'a dyn Controls,
    lun: u16,
    layer: Option<&'a str>,
}

/// Repairs a device's degraded arrays at full speed, before a run.
pub(crate) fn make_whole(controls: &dyn Controls, lun: u16) -> Result<(), DriverError> {
    let reply = controls.must(&Command::Status { lun })?;
    let Reply::Status { layers } = reply else {
        return Err(DriverError::mismatched(reply));
    };
    for (name, layer) in &layers {
        if matches!(layer, LayerStatus::Array { state, .. } if *state != ArrayState::Optimal) {
            Array {
                controls,
                lun,
                layer: Some(name),
            }
            .repair()?;
        }
    }
    Ok(())
}

impl Array<'_> {
    fn status(&self) -> Result<Seen, DriverError> {
        let reply = self.controls.must(&Command::Status { lun: self.lun })?;
        let Reply::Status { layers } = reply else {
            return Err(DriverError::mismatched(reply));
        };
        let is_array = |layer: &LayerStatus| matches!(layer, LayerStatus::Array { .. });
        let arrays: Vec<String> = layers
            .iter()
            .filter(|(_, layer)| is_array(layer))
            .map(|(name, _)| name.clone())
            .collect();
        let found = layers.into_iter().find_map(|(name, layer)| match layer {
            LayerStatus::Array {
                state,
                members,
                degraded_requests,
                rebuild_bytes_per_second,
                trouble,
                rebuilt_bytes,
                rebuilds,
                last_rebuild,
                ..
            } if self.layer.is_none_or(|wanted| name == wanted) => Some(Seen {
                state,
                members,
                degraded: degraded_requests,
                rate: rebuild_bytes_per_second,
                trouble,
                rebuilt: rebuilt_bytes,
                rebuilds,
                last_rebuild,
            }),
            _ => None,
        });
        found.ok_or_else(|| {
            let names: Vec<String> = arrays
                .iter()
                .map(|name| format!("layer = \"{name}\""))
                .collect();
            let advice = match names.is_empty() {
                true => {
                    "write serve = \"array:raid1,[memory:64MiB],[memory:64MiB]\", or another array"
                        .to_string()
                }
                false => format!("write {}", names.join(" or ")),
            };
            DriverError::unfit("no such array", advice)
        })
    }

    fn command(&self, make: impl Fn(u16, Option<String>) -> Command) -> Result<(), DriverError> {
        Ok(self
            .controls
            .must(&make(self.lun, self.layer.map(str::to_string)))
            .map(drop)?)
    }

    /// Replaces the failed member and rebuilds the array at full speed.
    fn repair(&self) -> Result<Seen, DriverError> {
        let rate = self.status()?.rate;
        self.command(|lun, layer| Command::Replace { lun, layer })?;
        self.command(|lun, layer| Command::Rate {
            lun,
            layer,
            bytes_per_second: 0,
        })?;
        let begin = Clock::Monotonic.now();
        let whole = loop {
            let seen = self.status()?;
            if seen.state == ArrayState::Optimal {
                break Ok(seen);
            }
            if seen.state == ArrayState::Failed || Clock::Monotonic.now().since(begin) > REBUILD_MAX
            {
                break Err(seen.stays_broken(begin));
            }
            if seen.state == ArrayState::Degraded {
                // The error doesn't matter if a rebuild has already started automatically.
                let _ = self.command(|lun, layer| Command::Rebuild { lun, layer });
            }
            std::thread::sleep(LOOK_EVERY);
        };
        self.command(|lun, layer| Command::Rate {
            lun,
            layer,
            bytes_per_second: rate,
        })?;
        whole
    }
}

impl FaultDriver for MemberFault {
    fn describe(&self) -> String {
        format!("member {} fails", self.member)
    }

    fn put(&mut self) -> Result<Option<Nanos>, DriverError> {
        if self.controls.state().away.is_some() {
            return Ok(None);
        }
        let seen = self.array().status()?;
        seen.has_good(self.member)?;
        (self.rebuilds, self.degraded) = (seen.rebuilds, seen.degraded);
        let at = Clock::Monotonic.now();
        let member = self.member;
        self.array()
            .command(|lun, layer| Command::Fail { lun, layer, member })?;
        self.failed = Some(at);
        Ok(Some(at))
    }

    fn poll(&mut self) -> Result<Option<Proof>, DriverError> {
        let Some(at) = self.failed else {
            return Ok(None);
        };
        let seen = self.array().status()?;
        let member = seen.members.get(self.member).copied();
        let word = member.map_or("not there".to_string(), |state| state.to_string());
        // A completed rebuild proves the failure too, even if it was too quick to be observed.
        let shows = member != Some(MemberState::Good) || seen.rebuilds > self.rebuilds;
        let degraded = seen.degraded.saturating_sub(self.degraded);
        let what = format!(
            "member {} is {word}, the array {}; {degraded} requests served without it",
            self.member, seen.state
        );
        Ok(shows.then(|| Proof {
            at,
            seen: Clock::Monotonic.now(),
            what,
            value: Some(degraded as f64),
        }))
    }

    fn seen_instead(&self) -> String {
        "the array is back in its previous state".to_string()
    }

    fn is_over(&self) -> bool {
        self.array()
            .status()
            .is_ok_and(|seen| seen.state == ArrayState::Optimal)
    }

    fn take_away(&mut self) -> Result<Proof, DriverError> {
        if self.failed.take().is_none() {
            return Err(DriverError::NotThere);
        }
        let at = Clock::Monotonic.now();
        let before = self.array().status()?;
        let seen = self.array().repair()?;
        // The speed of the regular rebuild, excluding the part that was rebuilt at full speed.
        let speed = |(bytes, seconds): (u64, f64)| {
            format!(
                "{} in {seconds:.2} s, {:.1} MB/s",
                format_size(bytes),
                bytes as f64 / seconds / 1e6
            )
        };
        let how = match (before.rebuilt, before.last_rebuild) {
            (Some((done, all)), _) => {
                format!(
                    "the rest ({} of {}) was rebuilt afterwards",
                    format_size(all - done),
                    format_size(all)
                )
            }
            (None, Some(last))
                if before.state == ArrayState::Optimal && before.rebuilds > self.rebuilds =>
            {
                format!("rebuilt by itself ({})", speed(last))
            }
            (None, _) => "rebuilt afterwards".to_string(),
        };
        let degraded = seen.degraded.saturating_sub(self.degraded);
        let what =
            format!("the array is intact: {how}; {degraded} requests served without a member");
        Ok(Proof {
            at,
            seen: Clock::Monotonic.now(),
            what,
            value: Some(degraded as f64),
        })
    }
}

impl Drop for MemberFault {
    fn drop(&mut self) {
        if self.failed.is_some() {
            let _ = self.array().repair();
        }
    }
}
