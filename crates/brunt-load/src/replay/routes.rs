//! Determines the target of each device of a trace. Several targets are driven as a single device, one after the other,
//! each with its part of that device's addresses.
//!
//! The rule: a device that is not named is not replayed, unless no device is named at all.

use std::collections::BTreeMap;
use std::ops::Range;

use super::settings::ReplaySettings;

/// The targets of a replay, and the devices that go to each.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Routes {
    /// The targets' names, in the order of their parts; empty for a single unnamed target.
    targets: Vec<String>,
    /// The target of each named device; `None` if all devices go to the first target.
    named: Option<BTreeMap<String, u16>>,
}

impl Routes {
    /// Creates the routes in the settings for these targets. If `targets` is empty, all named devices go to a single
    /// target.
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

    /// Returns the number of the target for a device of the trace.
    pub(super) fn of(&self, device: &str) -> Option<u16> {
        match &self.named {
            None => Some(0),
            Some(named) => named.get(device).copied(),
        }
    }

    /// Returns the number of targets.
    pub(super) fn count(&self) -> usize {
        self.targets.len().max(1)
    }

    /// Returns a target's number by its name.
    pub(super) fn number(&self, target: &str) -> Option<usize> {
        self.targets.iter().position(|name| name == target)
    }

    /// Returns a target's name, if it has one.
    pub(super) fn target(&self, number: u16) -> Option<&str> {
        self.targets.get(usize::from(number)).map(String::as_str)
    }

    /// Returns the named devices.
    pub(super) fn named(&self) -> impl Iterator<Item = &String> {
        self.named.iter().flat_map(BTreeMap::keys)
    }
}

/// Returns the targets' parts of a device of `size` bytes; the whole device if there are none.
pub(super) fn rooms(parts: &[Range<u64>], size: u64) -> Vec<Range<u64>> {
    if parts.is_empty() {
        std::iter::once(0..size).collect()
    } else {
        parts.to_vec()
    }
}
