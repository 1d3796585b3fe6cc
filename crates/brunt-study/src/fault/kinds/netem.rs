//! `netem`: attaches the kernel's link emulator to an interface of a host, for machines that no link of a lab
//! reaches.

use brunt_lab::faults::Netem as NetemFault;
use brunt_lab::link::Settings;
use brunt_protocol::HostFault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::experiment::LinkBack;
use crate::fault::driver::{DriverError, LabDriver};
use crate::fault::kind::{
    About, FaultCommon, FaultContext, Info, Kind, Mistake, Pair, Prepared, Stage, Together,
};

pub(super) const INFO: Info = Info {
    keys: &["netem", "interface"],
    on_hosts: true,
    help: "attaches the kernel's emulator (netem) to an interface: delay, loss and more for outgoing packets",
    proof: "the kernel shows netem there and counts the packets that leave through it, and later no longer shows it",
    example: "host = \"array\"\nnetem = { delay = \"10ms\", loss = 0.01 }\ninterface = \"eth1\"\nat = \"5s\"\nfor = \"5s\"",
};

/// The keys of a `netem` fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Netem {
    /// Settings of the kernel's link emulator, with the keys of a link; `interface` selects the
    /// interface.
    pub netem: Box<LinkBack>,
    /// With `netem`: the interface to attach it to. The fault affects packets sent through it.
    pub interface: String,
}

impl Netem {
    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        self.netem.apply_to(&mut settings);
        settings
    }
}

impl Kind for Netem {
    fn about(&self) -> About {
        About::Machine
    }

    fn what(&self) -> String {
        format!("netem {} on {}", self.netem.describe(), self.interface)
    }

    fn check(&self, common: &FaultCommon, stage: &dyn Stage) -> Result<(), Mistake> {
        if self.interface.is_empty() || self.interface.contains(['/', ' ']) {
            let what = format!("'{}' is not a valid interface name", self.interface);
            return Err(Mistake::new(
                "interface",
                what,
                "write interface = \"eth1\"",
            ));
        }
        if stage.lab().is_some() && common.host.is_none() {
            let what = "the hosts of a lab have links";
            return Err(Mistake::new(
                "netem",
                what,
                "write link = \"NAME\" and set = { … } instead",
            ));
        }
        let settings = self.settings();
        if settings == Settings::default() {
            return Err(Mistake::new(
                "netem",
                "it changes nothing",
                "write netem = { delay = \"10ms\" }",
            ));
        }
        let refused = settings.check().and_then(|()| NetemFault::check(&settings));
        refused.map_err(|error| {
            Mistake::new(
                "netem",
                format!("{}: {}", error.key, error.what),
                "change netem",
            )
        })
    }

    fn overlap(&self, pair: &Pair<'_>) -> Option<Together> {
        let other = pair.other_as::<Netem>()?;
        if self.interface != other.interface {
            return None;
        }
        Together::refused(
            format!("{} can have only one netem", self.interface),
            "make them consecutive, with a third [[fault]] for the time in which both apply",
        )
    }

    fn on_host(&self, _common: &FaultCommon) -> Option<HostFault> {
        // Settings consist of numbers, strings and booleans, so JSON can represent them.
        let settings = serde_json::to_value(self.settings()).unwrap_or_default();
        Some(HostFault::Netem {
            interface: self.interface.clone(),
            settings,
        })
    }

    fn prepare(
        &self,
        _common: &FaultCommon,
        _scene: &mut FaultContext<'_>,
    ) -> Result<Prepared, DriverError> {
        let (interface, settings) = (self.interface.clone(), self.settings());
        Ok(Prepared::new(move || {
            Ok(LabDriver::boxed(NetemFault::new(
                &interface,
                settings.clone(),
            )))
        }))
    }
}
