//! `bridge`: another host's bridge impairs the packets that pass through it. For machines in the network path that
//! run no other part of an experiment.

use brunt_lab::link::Settings;
use brunt_protocol::HostFault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::experiment::LinkBack;
use crate::fault::driver::DriverError;
use crate::fault::kind::{
    About, FaultCommon, FaultContext, Info, Kind, Mistake, Pair, Prepared, Stage, Together,
};

pub(super) const INFO: Info = Info {
    keys: &["bridge", "back"],
    on_hosts: true,
    help: "makes the bridge of an inline host delay, drop or otherwise impair packets, in both directions or differently on the way `back`",
    proof: "the bridge counts the packets that arrived during the fault and what happened to them, and later forwards them unimpaired",
    example: "host = \"wire\"\nbridge = { delay = \"10ms\", loss = 0.01 }\nat = \"5s\"\nfor = \"5s\"",
};

/// The keys of a `bridge` fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BridgeSet {
    /// Settings for the bridge of `host`, with the keys of a link; without the fault, the bridge forwards everything
    /// unchanged.
    pub bridge: Box<LinkBack>,
    /// With `bridge`: settings for the direction from the second interface to the first, where they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<Box<LinkBack>>,
}

impl BridgeSet {
    /// The settings there and back.
    fn settings(&self) -> [Settings; 2] {
        let mut there = Settings::default();
        self.bridge.apply_to(&mut there);
        let mut back = there.clone();
        self.back.iter().for_each(|set| set.apply_to(&mut back));
        [there, back]
    }
}

impl Kind for BridgeSet {
    fn about(&self) -> About {
        About::Machine
    }

    fn what(&self) -> String {
        match &self.back {
            None => format!("bridge {}", self.bridge.describe()),
            Some(back) => format!(
                "bridge {}, back {}",
                self.bridge.describe(),
                back.describe()
            ),
        }
    }

    fn check(&self, common: &FaultCommon, stage: &dyn Stage) -> Result<(), Mistake> {
        let bridges = stage.hosts().bridges();
        if !bridges
            .iter()
            .any(|bridge| common.host.as_ref() == Some(&bridge.name))
        {
            let what = "it names no host that has a bridge";
            let help =
                "write host = \"wire\", and bridge = [\"eth0\", \"eth1\"] under [hosts.wire]";
            return Err(Mistake::new("host", what, help));
        }
        let settings = self.settings();
        if settings.iter().all(Settings::is_clear) {
            return Err(Mistake::new(
                "bridge",
                "it changes nothing",
                "write bridge = { delay = \"10ms\" }",
            ));
        }
        for (key, settings) in ["bridge", "back"].into_iter().zip(&settings) {
            let wrong = |error: brunt_lab::link::SettingsError| {
                Mistake::new(key, format!("{}: {}", error.key, error.what), "change it")
            };
            settings.check().map_err(wrong)?;
            if settings.distribution.is_some() {
                let what =
                    "a distribution is a file on this machine, which the other host does not have";
                return Err(Mistake::new(key, what, "use jitter and jitter_shape"));
            }
        }
        Ok(())
    }

    fn overlap(&self, pair: &Pair<'_>) -> Option<Together> {
        pair.other_as::<BridgeSet>()?;
        Together::refused(
            "the fault that ends first would end the other on the bridge",
            "make them consecutive, with a third [[fault]] for the time in which both apply",
        )
    }

    fn on_host(&self, _common: &FaultCommon) -> Option<HostFault> {
        // Settings consist of numbers, strings and booleans, so JSON can represent them.
        let settings = self
            .settings()
            .map(|settings| serde_json::to_value(settings).unwrap_or_default());
        Some(HostFault::Impair {
            settings: Box::new(settings),
        })
    }

    fn prepare(
        &self,
        _common: &FaultCommon,
        _scene: &mut FaultContext<'_>,
    ) -> Result<Prepared, DriverError> {
        Err(DriverError::unfit(
            "a bridge is always on another host",
            "write host = \"wire\"",
        ))
    }
}
