//! Which target each device of a trace goes to. Several targets are driven as one device, one behind the other: each has
//! its part of that device's addresses.
//!
//! The rule: a device that nobody names is not replayed, unless no device is named at all.

use std::collections::BTreeMap;
use std::ops::Range;

use super::settings::ReplaySettings;

/// The targets of a replay, and what goes to each.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Routes {
    /// Their names, in the order of their parts; empty for one target without a name.
    targets: Vec<String>,
    /// Targets of devices, by name; `None`: all go to the first.
    named: Option<BTreeMap<String, u16>>,
}

impl Routes {
    /// As the settings name them, for these targets; without names, whatever is named goes to the one there is.
    pub(super) fn new(settings: &ReplaySettings, targets: &[String]) -> Routes {
        let place = |target: &String| match targets.iter().position(|known| known == target) {
            Some(at) => Some(at as u16),
            None => targets.is_empty().then_some(0),
        };
        let named = settings.devices.iter();
        let named = named
            .filter_map(|(device, target)| Some((device.clone(), place(target)?)))
            .collect();
        Routes {
            targets: targets.to_vec(),
            named: (!settings.devices.is_empty()).then_some(named),
        }
    }

    /// The number of the target that a device of the trace goes to.
    pub(super) fn of(&self, device: &str) -> Option<u16> {
        match &self.named {
            None => Some(0),
            Some(named) => named.get(device).copied(),
        }
    }

    /// How many targets there are.
    pub(super) fn count(&self) -> usize {
        self.targets.len().max(1)
    }

    /// A target's number, by its name.
    pub(super) fn number(&self, target: &str) -> Option<usize> {
        self.targets.iter().position(|name| name == target)
    }

    /// A target's name, if it has one.
    pub(super) fn target(&self, number: u16) -> Option<&str> {
        self.targets.get(usize::from(number)).map(String::as_str)
    }

    /// Devices that are named.
    pub(super) fn named(&self) -> impl Iterator<Item = &String> {
        self.named.iter().flat_map(BTreeMap::keys)
    }
}

/// The parts of a device of `size` bytes that targets have; the whole of it where there are none.
pub(super) fn rooms(parts: &[Range<u64>], size: u64) -> Vec<Range<u64>> {
    if parts.is_empty() {
        std::iter::once(0..size).collect()
    } else {
        parts.to_vec()
    }
}
