//! A link's settings as command-line options: `delay=20ms`, `loss=0.01`, `preset=four-sites`. Called by `brunt bridge`
//! and `brunt lab set`.
//!
//! The rule: an option has the name and the values of a key of `[lab.links.NAME]`.

use std::path::Path;

use brunt_lab::link::{DistributionError, PRESETS, Settings, SettingsError, preset};
use serde::Deserialize;

use super::LinkBack;
use super::wording::reworded;

/// The settings of both directions, and the options given for each of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkOptions {
    /// The settings from the first end to the second, and back.
    pub settings: [Settings; 2],
    /// The keys and values given for each direction; if a key is repeated, its last value.
    set: [Vec<(String, String)>; 2],
}

/// An invalid option.
#[derive(Debug, thiserror::Error)]
#[error("{option}: {kind}")]
pub struct LinkOptionError {
    /// The option as written.
    pub option: String,
    /// What is wrong with it.
    pub kind: LinkOptionMistake,
}

/// What is wrong with an option.
#[derive(Debug, thiserror::Error)]
pub enum LinkOptionMistake {
    /// The `=` is missing.
    #[error("write KEY=VALUE, such as delay=20ms")]
    Form,
    /// Unknown key, or the wrong type of value.
    #[error("{}", describe(.0))]
    Value(toml::de::Error),
    /// Unknown preset.
    #[error("unknown preset; the presets are {}", presets())]
    Preset,
    /// A table of delays that cannot be read.
    #[error(transparent)]
    Distribution(DistributionError),
    /// A value that is out of range, or incompatible with other values.
    #[error(transparent)]
    Settings(SettingsError),
}

fn presets() -> String {
    PRESETS
        .iter()
        .map(|preset| preset.name)
        .collect::<Vec<_>>()
        .join(", ")
}

impl LinkOptions {
    /// Parses options for both directions, then those for the way back, which override them.
    ///
    /// # Errors
    /// Returns the first option that is invalid, by itself or in combination with others.
    pub fn parse(both: &[String], back: &[String]) -> Result<LinkOptions, LinkOptionError> {
        let mut all = LinkOptions::default();
        for option in both {
            all.apply_to(0, option)?;
        }
        all.settings[1] = all.settings[0].clone();
        all.set[1] = all.set[0].clone();
        for option in back {
            all.apply_to(1, option)?;
        }
        for (settings, options) in all.settings.iter().zip([both, back]) {
            let options = options.iter().chain(both);
            settings.check().map_err(|error| blamed(error, options))?;
        }
        Ok(all)
    }

    /// Applies these options to some directions of a link that has the settings `before`.
    ///
    /// # Errors
    /// Returns the first option that is invalid, by itself or in combination with others.
    pub fn over(
        options: &[String],
        before: &[Settings; 2],
        directions: [bool; 2],
    ) -> Result<[Settings; 2], LinkOptionError> {
        let mut all = LinkOptions {
            settings: before.clone(),
            set: Default::default(),
        };
        for (way, _) in directions
            .iter()
            .enumerate()
            .filter(|(_, is_meant)| **is_meant)
        {
            for option in options {
                all.apply_to(way, option)?;
            }
            let checked = all.settings[way].check();
            checked.map_err(|error| blamed(error, options.iter()))?;
        }
        Ok(all.settings)
    }

    /// Sets one option in both directions. Unlike [`LinkOptions::over`], this doesn't check whether the settings fit
    /// together, because more options may follow.
    ///
    /// # Errors
    /// The option is invalid by itself.
    pub(super) fn set_on(option: &str, ways: &mut [Settings; 2]) -> Result<(), LinkOptionError> {
        let mut all = LinkOptions {
            settings: ways.clone(),
            set: Default::default(),
        };
        (0..ways.len()).try_for_each(|way| all.apply_to(way, option))?;
        *ways = all.settings;
        Ok(())
    }

    /// The options of each direction as text; empty if there are none.
    pub fn texts(&self) -> [String; 2] {
        let said = |(key, value): &(String, String)| format!("{key} {value}");
        self.set
            .each_ref()
            .map(|all| all.iter().map(said).collect::<Vec<_>>().join(", "))
    }

    fn apply_to(&mut self, way: usize, option: &str) -> Result<(), LinkOptionError> {
        let wrong = |kind| LinkOptionError {
            option: option.to_string(),
            kind,
        };
        let (key, value) = option
            .split_once('=')
            .ok_or_else(|| wrong(LinkOptionMistake::Form))?;
        let (key, value) = (key.trim(), value.trim());
        if key == "preset" {
            let preset = preset(value).ok_or_else(|| wrong(LinkOptionMistake::Preset))?;
            self.settings[way] = (preset.settings)();
        } else {
            // A value that isn't a TOML number, boolean or table is an unquoted string.
            let read = toml::from_str::<toml::Table>(&format!("value = {value}")).ok();
            let read = read
                .and_then(|mut table| table.remove("value"))
                .unwrap_or_else(|| value.to_string().into());
            let table = toml::Table::from_iter([(key.to_string(), read)]);
            let mut set = LinkBack::deserialize(table)
                .map_err(|error| wrong(LinkOptionMistake::Value(error)))?;
            if let Some(distribution) = &mut set.distribution {
                distribution
                    .read(Path::new("."))
                    .map_err(|error| wrong(LinkOptionMistake::Distribution(error)))?;
            }
            set.apply_to(&mut self.settings[way]);
        }
        match self.set[way].iter_mut().find(|(said, _)| said == key) {
            Some((_, said)) => *said = value.to_string(),
            None => self.set[way].push((key.to_string(), value.to_string())),
        }
        Ok(())
    }
}

/// The error about these options, which names the first one that sets the offending key.
fn blamed<'a>(
    error: SettingsError,
    mut options: impl Iterator<Item = &'a String>,
) -> LinkOptionError {
    let option = options.find(|option| option.split('=').next() == Some(error.key));
    LinkOptionError {
        option: option.cloned().unwrap_or_else(|| error.key.to_string()),
        kind: LinkOptionMistake::Settings(error),
    }
}

/// The parser's message, and what would be correct.
fn describe(error: &toml::de::Error) -> String {
    match reworded(error.message()) {
        (what, Some(help)) => format!("{what}; {help}"),
        (what, None) => what,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parse(both: &[&str], back: &[&str]) -> Result<LinkOptions, LinkOptionError> {
        let texts = |options: &[&str]| {
            options
                .iter()
                .map(|option| option.to_string())
                .collect::<Vec<_>>()
        };
        LinkOptions::parse(&texts(both), &texts(back))
    }

    #[test]
    fn options_are_keys_of_links() {
        let none = parse(&[], &[]).unwrap();
        assert!(none.settings.iter().all(Settings::is_clear) && none.texts() == ["", ""]);
        let all = [
            "delay=20ms",
            "loss=0.01",
            "rate=100Mb/s",
            "keep_order=false",
        ];
        let options = parse(
            &all,
            &[
                "delay = 5ms",
                "loss_bursts={ to_bad = 0.1, to_good = 0.5 }",
                "loss=0",
            ],
        )
        .unwrap();
        let [there, back] = &options.settings;
        assert_eq!(
            (there.delay.0, back.delay.0),
            (Duration::from_millis(20), Duration::from_millis(5))
        );
        assert!(!back.keep_order && there.loss == 0.01 && back.loss_bursts.is_some());
        let said = [
            "delay 20ms, loss 0.01, rate 100Mb/s, keep_order false",
            "delay 5ms, loss 0, rate 100Mb/s, keep_order false, loss_bursts { to_bad = 0.1, to_good = 0.5 }",
        ];
        assert_eq!(options.texts(), said);
        // Options override other settings in one direction.
        let plain = [there.clone(), there.clone()];
        let words = ["loss=1%", "rate=1Gb/s"].map(String::from);
        let [first, second] = LinkOptions::over(&words, &plain, [false, true]).unwrap();
        assert_eq!(first, *there);
        assert_eq!((second.loss, second.delay), (0.01, there.delay));
        assert_ne!(second.rate, there.rate);
        let bad = ["loss=2".to_string()];
        let error = LinkOptions::over(&bad, &plain, [true, true]).unwrap_err();
        assert!(error.to_string().contains("loss=2: "), "{error}");
        let preset = parse(&["preset=four-sites", "loss=0.5"], &[]).unwrap();
        assert_eq!(preset.settings[0].loss, 0.5);
        assert!(!preset.settings[1].delay.0.is_zero());
    }

    #[test]
    fn mistakes_name_the_option() {
        let check = |both: &[&str], back: &[&str], said: &str| {
            let error = parse(both, back).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        };
        check(&["delay"], &[], "delay: write KEY=VALUE");
        check(
            &["dealy=20ms"],
            &[],
            "unknown key 'dealy'; did you mean delay?",
        );
        check(&["mtu=9000"], &[], "mtu=9000: ");
        check(&["loss=many"], &[], "loss=many: ");
        check(&["loss=0.1"], &["loss=2"], "loss=2: ");
        check(&["preset=moon"], &[], "the presets are lan");
        check(
            &["distribution=/no/such.dist"],
            &[],
            "distribution=/no/such.dist: ",
        );
    }
}
