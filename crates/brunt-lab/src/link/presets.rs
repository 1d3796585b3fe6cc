//! Named link settings that others have measured or used, each a single table entry.

use std::time::Duration;

use brunt_core::Span;

use super::settings::Settings;

/// Settings whose values have a cited source.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name used in experiments.
    pub name: &'static str,
    /// One-line help.
    pub help: &'static str,
    /// The source of the values.
    pub source: &'static str,
    /// The values, for each direction.
    pub settings: fn() -> Settings,
}

/// All presets.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "lan",
        help: "a link without impairments",
        source: "passes packets unchanged",
        settings: Settings::default,
    },
    Preset {
        name: "paxson-wan",
        help: "loss, corruption and reordering of the Internet of the 1990s; add your own delay",
        source: "V. Paxson, End-to-end Internet packet dynamics, IEEE/ACM Transactions on Networking 7(3), 1999, \
                 as used in section 5 of the iSCSI performance analysis: 2.7% lost, 0.02% corrupted, 2.0% reordered",
        settings: || Settings {
            loss: 0.027,
            corrupt: 0.0002,
            reorder: 0.02,
            ..Settings::default()
        },
    },
    Preset {
        name: "four-sites",
        help: "between two of four data centres: 10 ms each way",
        source: "the latency configuration of the distributed storage study (its figure 3): four groups of nodes, \
                 no delay within a group, 10 ms in each direction between groups",
        settings: || Settings {
            delay: Span(Duration::from_millis(10)),
            ..Settings::default()
        },
    },
];

/// The preset with this name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are unique, every preset has a help text and a source, and its values are valid.
    #[test]
    fn every_preset_has_a_source() {
        for (index, this) in PRESETS.iter().enumerate() {
            assert!(
                PRESETS[..index].iter().all(|other| other.name != this.name),
                "{} twice",
                this.name
            );
            assert!(
                !this.help.is_empty() && !this.source.is_empty(),
                "{}",
                this.name
            );
            assert_eq!((this.settings)().check(), Ok(()), "{}", this.name);
            assert_eq!(preset(this.name).map(|found| found.help), Some(this.help));
        }
    }
}
