//! Makes texts and figures from the other side of a connection safe to display, save and add up.
//!
//! The rule: nothing from the other side reaches a terminal or a result without passing through here.

use brunt_core::IoEngine;
use brunt_core::device_url::text_without_secrets;
use brunt_protocol::Proof;
use brunt_result::choice::{EngineChoice, EngineTrial, PageCache, RingChoice, RingMode, RingTrial};
use brunt_result::event::Sample;

/// Maximum length of an agent's text that is forwarded.
pub(crate) const TEXT_CHARS_MAX: usize = 500;
/// Maximum number of texts in a list that are forwarded.
const TEXTS_MAX: usize = 300;

/// Whether these page cache figures are possible.
pub(crate) fn is_possible(cache: &PageCache) -> bool {
    cache
        .read_share
        .is_none_or(|share| (0.0..=1.0).contains(&share))
        && (0.0..1e9).contains(&cache.flush_s)
}

/// Rates that no host can reach are dropped.
fn plain_rate(rate: Option<f64>) -> Option<f64> {
    rate.filter(|rate| (0.0..1e12).contains(rate))
}

/// An engine choice with displayable texts, and with rates small enough to be added.
pub(crate) fn plain_engine(choice: EngineChoice) -> EngineChoice {
    let trial = |trial: EngineTrial| EngineTrial {
        requests_per_second: plain_rate(trial.requests_per_second),
        error: trial.error.as_deref().map(plain),
        ..trial
    };
    let trials = choice.trials.into_iter().take(IoEngine::ALL.len());
    EngineChoice {
        engine: choice.engine,
        why: plain(&choice.why),
        trials: trials.map(trial).collect(),
    }
}

/// A ring choice with displayable texts, and with rates small enough to be added.
pub(crate) fn plain_ring(ring: RingChoice) -> RingChoice {
    let trial = |trial: RingTrial| RingTrial {
        requests_per_second: plain_rate(trial.requests_per_second),
        error: trial.error.as_deref().map(plain),
        ..trial
    };
    let trials = ring.trials.into_iter().take(RingMode::ALL.len());
    RingChoice {
        mode: ring.mode,
        why: plain(&ring.why),
        trials: trials.map(trial).collect(),
    }
}

/// A proof with a displayable text.
pub(crate) fn plain_proof(proof: Proof) -> Proof {
    Proof {
        what: plain(&proof.what),
        ..proof
    }
}

/// At most [`TEXTS_MAX`] texts, each made safe by [`plain`].
pub(crate) fn plain_list(texts: &[String]) -> Vec<String> {
    texts
        .iter()
        .take(TEXTS_MAX)
        .map(|text| plain(text))
        .collect()
}

/// Makes a text safe for terminals and results: short, without passwords and control characters.
pub(crate) fn plain(text: &str) -> String {
    text_without_secrets(text)
        .chars()
        .filter(|one| !one.is_control())
        .take(TEXT_CHARS_MAX)
        .collect()
}

/// Whether the names can be displayed.
pub(crate) fn has_plain_names(sample: &Sample) -> bool {
    let plain = |name: &str| !name.chars().any(char::is_control);
    let mut values = sample.values.iter();
    plain(&sample.host)
        && values.all(|one| plain(&one.probe) && plain(&one.instance) && plain(&one.metric))
}
