//! Which analyses run: the `--analyses` option of `brunt capture` and `brunt analyze`. The one rule: an analysis that
//! is left out costs one bit test per event, and the report lists it as left out instead of showing zeros.

use serde::{Deserialize, Serialize};

use super::table::ANALYSES;

/// The report is built on these analyses, so they always run.
const ALWAYS: [&str; 2] = ["rates", "mix"];

/// A set of analyses, each identified by its place in [`ANALYSES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnalysisSet(u32);

/// No analysis has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no analysis is named {0:?}")]
pub struct UnknownAnalysis(pub String);

impl Default for AnalysisSet {
    /// All analyses.
    fn default() -> AnalysisSet {
        const { assert!(ANALYSES.len() <= 32) };
        AnalysisSet(u32::MAX)
    }
}

impl AnalysisSet {
    /// The named analyses, and those that always run.
    ///
    /// # Errors
    /// One of the names is unknown.
    pub fn of<N: AsRef<str>>(
        names: impl IntoIterator<Item = N>,
    ) -> Result<AnalysisSet, UnknownAnalysis> {
        let mut set = AnalysisSet(0);
        for name in ALWAYS {
            set.0 |= 1 << place(name).unwrap_or_default();
        }
        for name in names {
            let name = name.as_ref().trim();
            let place = place(name).ok_or_else(|| UnknownAnalysis(name.to_string()))?;
            set.0 |= 1 << place;
        }
        Ok(set)
    }

    /// Names of the analyses that can be left out.
    pub fn optional() -> impl Iterator<Item = &'static str> {
        let names = ANALYSES.iter().map(|analysis| analysis.name);
        names.filter(|name| !ALWAYS.contains(name))
    }

    /// Whether an analysis runs.
    pub fn has(self, name: &str) -> bool {
        place(name).is_some_and(|place| self.has_place(place))
    }

    #[inline]
    pub(super) fn has_place(self, place: u32) -> bool {
        self.0 >> place & 1 == 1
    }

    /// The analyses in both sets: a merged state has only what both states counted.
    pub(super) fn and(self, other: AnalysisSet) -> AnalysisSet {
        AnalysisSet(self.0 & other.0)
    }

    /// The analyses that don't run.
    pub fn left_out(self) -> Vec<&'static str> {
        AnalysisSet::optional()
            .filter(|name| !self.has(name))
            .collect()
    }
}

fn place(name: &str) -> Option<u32> {
    let place = ANALYSES.iter().position(|analysis| analysis.name == name)?;
    u32::try_from(place).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_what_was_named_and_what_always_runs() {
        assert_eq!(AnalysisSet::default().left_out(), [""; 0]);
        let set = AnalysisSet::of(["hot", " errors"]).unwrap();
        assert!(set.has("hot") && set.has("errors") && set.has("rates") && set.has("mix"));
        assert!(!set.has("profile") && set.left_out().contains(&"profile"));
        assert!(!set.left_out().contains(&"mix"));
        assert_eq!(set.and(AnalysisSet::default()), set);
        let unknown = AnalysisSet::of(["hot", "cold"]);
        assert_eq!(unknown, Err(UnknownAnalysis("cold".into())));
    }
}
