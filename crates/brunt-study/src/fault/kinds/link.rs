//! `link`: changes settings of a link in the lab, in one direction or both; settings that are not named stay as they
//! are.

use std::path::PathBuf;

use brunt_lab::link::{Settings, SettingsError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::experiment::{CarrierName, LinkBack};
use crate::fault::driver::{DriverError, LabDriver};
use crate::fault::kind::{
    About, FaultCommon, FaultContext, FileMistake, Info, Kind, Mistake, Pair, Prepared, Stage,
    Together,
};
use crate::host::HostName;
use crate::lab::directions;

pub(super) const INFO: Info = Info {
    keys: &["link", "set", "from"],
    on_hosts: false,
    help: "changes a link of the lab, in both directions or one (`from`): delay, loss, corruption, reordering, rate",
    proof: "probe packets over the link show the change, and later no longer do",
    example: "link = \"wan\"\nset = { loss = 0.005 }\nat = \"5s\"\nfor = \"2s\"",
};

/// The keys of a `link` fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkSet {
    /// Link of the lab to change; `set` has its new settings.
    pub link: String,
    /// With `link`: settings to change; all others stay as they are.
    pub set: Box<LinkBack>,
    /// With `link`: affects only packets that this host sends over the link; default: both directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<HostName>,
}

impl LinkSet {
    /// Whether the fault changes each direction, there and back, of a link between these hosts. `None` if the link
    /// doesn't end at the host in `from`.
    fn ways(&self, between: &[HostName; 2]) -> Option<[bool; 2]> {
        directions(between, self.from.as_ref())
    }

    /// The settings of both directions with the fault, based on the settings without it.
    fn with_fault(&self, before: &[Settings; 2], ways: [bool; 2]) -> [Settings; 2] {
        let mut during = before.clone();
        let meant = during.iter_mut().zip(ways).filter(|(_, meant)| *meant);
        meant.for_each(|(settings, _)| self.set.apply_to(settings));
        during
    }
}

impl Kind for LinkSet {
    fn about(&self) -> About {
        About::Machine
    }

    fn what(&self) -> String {
        match &self.from {
            None => self.set.describe(),
            Some(host) => format!("{} from {host}", self.set.describe()),
        }
    }

    fn place(&self, _common: &FaultCommon) -> String {
        format!("link {}", self.link)
    }

    fn recorded_as(&self, common: &FaultCommon) -> Option<String> {
        Some(format!("{}: {}", self.place(common), self.what()))
    }

    fn read_files(&mut self, folder: &dyn Fn(&[&str]) -> PathBuf) -> Result<(), FileMistake> {
        const KEY: &[&str] = &["set", "distribution"];
        let Some(distribution) = &mut self.set.distribution else {
            return Ok(());
        };
        let read = distribution.read(&folder(KEY));
        read.map_err(|error| FileMistake {
            key: KEY,
            what: format!("distribution: {error}"),
        })
    }

    /// Checks that the link supports these settings, and that they change something, at every point.
    fn check(&self, common: &FaultCommon, stage: &dyn Stage) -> Result<(), Mistake> {
        let name = &self.link;
        let Some(link) = stage.lab().and_then(|lab| lab.links.get(name)) else {
            let what = format!("unknown link '{name}'");
            return Err(Mistake::new(
                "link",
                what,
                "write a name from [lab.links.NAME]",
            ));
        };
        let [one, other] = &link.between;
        let help = format!("write one of {one}, {other}");
        if let Some(from) = &self.from {
            stage
                .hosts()
                .find(from)
                .map_err(|error| Mistake::new("from", error.to_string(), help.clone()))?;
        }
        let Some(ways) = self.ways(&link.between) else {
            let from = self.from.clone().unwrap_or_default();
            return Err(Mistake::new(
                "from",
                format!("link {name} does not connect '{from}'"),
                help,
            ));
        };
        for (label, before) in stage.link_at_points(name, &common.target) {
            let during = self.with_fault(&before, ways);
            if let Some(SettingsError { key, what, .. }) =
                during.iter().find_map(|way| way.check().err())
            {
                let whole =
                    format!("{key}: {what}, in combination with the link's settings at {label}");
                return Err(Mistake::new(
                    "set",
                    whole,
                    "the link's settings with these changes applied",
                ));
            }
            if during == before {
                let what = format!("link {name} already has these settings at {label}");
                let help = "write settings that differ from those under [lab.links] and [sweep]";
                return Err(Mistake::new("set", what, help));
            }
            if link.carrier == CarrierName::Bare {
                let what = format!("link {name} has no emulation (its carrier is bare)");
                return Err(Mistake::new("link", what, "omit the link's carrier"));
            }
        }
        Ok(())
    }

    fn overlap(&self, pair: &Pair<'_>) -> Option<Together> {
        let other = pair.other_as::<LinkSet>()?;
        if self.link != other.link {
            return None;
        }
        Together::refused(
            format!(
                "the fault that ends first would end the other on link {}",
                self.link
            ),
            "make them consecutive, with a third [[fault]] for the time in which both apply",
        )
    }

    fn prepare(
        &self,
        _common: &FaultCommon,
        scene: &mut FaultContext<'_>,
    ) -> Result<Prepared, DriverError> {
        let (fault, lab) = (self.clone(), scene.lab()?);
        let unfit = || {
            let names: Vec<String> = lab
                .links()
                .map(|link| format!("link = \"{link}\""))
                .collect();
            DriverError::unfit(
                format!("the lab has no such link '{}'", self.link),
                format!("write {}", names.join(" or ")),
            )
        };
        let ways = lab
            .between(&self.link)
            .and_then(|between| self.ways(between))
            .ok_or_else(unfit)?;
        Ok(Prepared::new(move || {
            let lab = lab.lab();
            // The run's own settings are changed, because a sweep may have varied them.
            let settings = fault.with_fault(&lab.settings(&fault.link)?, ways);
            Ok(LabDriver::boxed(lab.link_fault(&fault.link, settings)?))
        }))
    }
}
