//! `access`: changes the asymmetric access state (ALUA) of a served target's port group, as an array's controller does
//! for its paths when it fails over or reboots.
//!
//! The rule: the run's own requests provide the proof: the target refuses them because of the state, or notifies
//! their initiator of the change. The previous state is restored at the end.

use std::sync::Arc;
use std::time::Duration;

use brunt_core::{Clock, Nanos};
use brunt_lab::Proof;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::freeze::Freeze;
use super::kill::Kill;
use crate::control::{AccessAnswer, Command, Controls, PortState, Reply};
use crate::fault::driver::{DriverError, FaultDriver};
use crate::fault::kind::{
    About, FaultCommon, FaultContext, Info, Kind, Mistake, Pair, Prepared, Stage, Together,
};
use crate::rounded::rounded;

pub(super) const INFO: Info = Info {
    keys: &["access", "group"],
    on_hosts: false,
    help: "sets the asymmetric access state (ALUA) of a served target's port group: `non-optimized`, `standby`, `unavailable`, `offline` or `transitioning`",
    proof: "the commands that the target refused because of the state, or the initiators that it notified of the change, and later that the group is back in its previous state",
    example: "target = \"disk\"\naccess = \"transitioning\"\nat = \"5s\"\nfor = \"2s\"",
};

/// The keys of an `access` fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// Asymmetric access state (ALUA) for a target port group of a target that the experiment serves.
    pub access: PortState,
    /// With `access`: number of the target port group; default: 1, the group of the target's only portal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u16>,
}

impl Access {
    fn group(&self) -> u16 {
        self.group.unwrap_or(1)
    }
}

impl Kind for Access {
    fn about(&self) -> About {
        About::Process
    }

    fn what(&self) -> String {
        format!("port group {} {}", self.group(), self.access)
    }

    fn check(&self, common: &FaultCommon, stage: &dyn Stage) -> Result<(), Mistake> {
        if stage
            .role(&common.target)
            .is_none_or(|role| role.luns().is_none())
        {
            let what = "it needs a target that the experiment serves over iSCSI";
            return Err(Mistake::new(
                "access",
                what,
                "write serve = \"memory:1GiB\" for the target",
            ));
        }
        // A target that the experiment serves has one portal, which is in group 1.
        if self.group() != 1 {
            let what = format!("the target has no port group {}", self.group());
            return Err(Mistake::new(
                "group",
                what,
                "omit group, or write group = 1",
            ));
        }
        if self.access == PortState::Optimized {
            let what = "without a fault, groups are already optimized";
            let help = "write non-optimized, standby, unavailable, offline or transitioning";
            return Err(Mistake::new("access", what, help));
        }
        Ok(())
    }

    fn overlap(&self, pair: &Pair<'_>) -> Option<Together> {
        if !pair.same_target() {
            return None;
        }
        if let Some(other) = pair.other_as::<Access>() {
            let why = "a port group is in one state at a time";
            return (self.group() == other.group())
                .then(|| Together::refused(why, "make them consecutive"))
                .flatten();
        }
        let away = pair.other_as::<Kill>().is_some() || pair.other_as::<Freeze>().is_some();
        let why = "the state cannot be changed back while the target's process is not running, and is lost when it is \
                   killed";
        away.then(|| Together::refused(why, "make them consecutive"))
            .flatten()
    }

    fn prepare(
        &self,
        common: &FaultCommon,
        scene: &mut FaultContext<'_>,
    ) -> Result<Prepared, DriverError> {
        let controls = scene.controls(&common.target, false)?;
        let (group, state) = (self.group(), self.access);
        // A missing group is reported before the first run.
        ask(&*controls, None)?.state_of(group)?;
        Ok(Prepared::new(move || {
            let controls = Arc::clone(&controls);
            Ok(Box::new(AccessFault {
                controls,
                group,
                state,
                put: None,
                last: None,
            }))
        }))
    }
}

/// Sets a group's state, or only queries it.
fn ask(
    controls: &dyn Controls,
    set: Option<(u16, PortState)>,
) -> Result<AccessAnswer, DriverError> {
    let (group, state) = (set.map(|set| set.0), set.map(|set| set.1));
    let command = Command::Access {
        group,
        state,
        preferred: None,
        lun: None,
    };
    match controls.must(&command)? {
        Reply::Access(answer) => Ok(answer),
        other => Err(DriverError::mismatched(other)),
    }
}

impl AccessAnswer {
    fn state_of(&self, group: u16) -> Result<PortState, DriverError> {
        let unfit = || {
            let there = self.groups.keys().next().map_or("1", String::as_str);
            DriverError::unfit(
                format!("the target has no port group {group}"),
                format!("write group = {there}"),
            )
        };
        self.groups
            .get(&group.to_string())
            .copied()
            .ok_or_else(unfit)
    }
}

/// The driver of an access fault.
struct AccessFault {
    controls: Arc<dyn Controls>,
    group: u16,
    state: PortState,
    put: Option<StateBefore>,
    /// The latest counts.
    last: Option<AccessAnswer>,
}

/// The state when the fault was injected.
struct StateBefore {
    at: Nanos,
    before: PortState,
    counted: AccessAnswer,
}

impl AccessFault {
    /// Commands refused and initiators notified since the fault was injected.
    fn effect(&self) -> (u64, u64) {
        let (Some(put), Some(last)) = (&self.put, &self.last) else {
            return (0, 0);
        };
        (
            last.refused - put.counted.refused,
            last.told - put.counted.told,
        )
    }

    fn effect_in_words(&self) -> String {
        let (refused, told) = self.effect();
        format!(
            "the target refused {refused} commands and notified {told} initiators of the change"
        )
    }
}

impl FaultDriver for AccessFault {
    fn describe(&self) -> String {
        format!("port group {} {}", self.group, self.state)
    }

    fn put(&mut self) -> Result<Option<Nanos>, DriverError> {
        let before = ask(&*self.controls, None)?.state_of(self.group)?;
        let at = Clock::Monotonic.now();
        let counted = ask(&*self.controls, Some((self.group, self.state)))?;
        self.put = Some(StateBefore {
            at,
            before,
            counted,
        });
        Ok(Some(at))
    }

    fn poll(&mut self) -> Result<Option<Proof>, DriverError> {
        self.last = Some(ask(&*self.controls, None)?);
        let (refused, told) = self.effect();
        let shown = if self.state.refuses() { refused } else { told };
        let Some(put) = self.put.as_ref().filter(|_| shown > 0) else {
            return Ok(None);
        };
        let (at, seen) = (put.at, Clock::Monotonic.now());
        Ok(Some(Proof {
            at,
            seen,
            what: self.effect_in_words(),
            value: Some(shown as f64),
        }))
    }

    fn seen_instead(&self) -> String {
        self.effect_in_words()
    }

    fn advice(&self, looked: Duration) -> Option<String> {
        let longer = rounded((looked * 2).max(Duration::from_millis(100)));
        Some(format!(
            "a request must reach the target during the fault; make the fault last longer (for = \"{longer}\")"
        ))
    }

    fn take_away(&mut self) -> Result<Proof, DriverError> {
        let put = self.put.take().ok_or(DriverError::NotThere)?;
        let at = Clock::Monotonic.now();
        let counted = ask(&*self.controls, Some((self.group, put.before)))?;
        let now = ask(&*self.controls, None)?.state_of(self.group)?;
        if now != put.before {
            return Err(DriverError::NotGone {
                seen: format!("port group {} is {now}", self.group),
            });
        }
        let refused = counted.refused - put.counted.refused;
        let what = format!(
            "{refused} commands refused; port group {} is {now} again",
            self.group
        );
        Ok(Proof {
            at,
            seen: Clock::Monotonic.now(),
            what,
            value: Some(refused as f64),
        })
    }
}

impl Drop for AccessFault {
    fn drop(&mut self) {
        if let Some(put) = self.put.take() {
            let _ = ask(&*self.controls, Some((self.group, put.before)));
        }
    }
}
