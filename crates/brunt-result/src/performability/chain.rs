//! Stationary probabilities of a system whose components fail and are repaired. [`super::Performability`] weights
//! measured figures with them.
//!
//! Each component is a birth-death chain over its number of failed units: with n units, r of which are repaired at
//! once, units fail at the rate (n - j) / MTTF and are repaired at the rate min(j, r) / MTTR while j have failed. Its
//! stationary distribution is a product of ratios of these rates (K. S. Trivedi, Probability and Statistics with
//! Reliability, Queuing, and Computer Science Applications, 2nd edition, 8.2). Components are independent, so the
//! probability of a state of the system is the product of its components' probabilities (product form).
//!
//! The rule: use only closed forms, so that a probability of 1e-12 is as precise as one of 0.5.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Units of one kind that fail and are repaired independently of all other components.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailingComponent {
    /// Name of the component.
    pub name: String,
    /// Faults that emulate failures of units: the first fault for one failed unit, the first two together for two,
    /// and so on.
    pub faults: Vec<String>,
    /// Number of units.
    pub units: u32,
    /// Mean time to failure of a working unit, in seconds.
    pub mttf_s: f64,
    /// Mean time to repair a unit, in seconds.
    pub mttr_s: f64,
    /// Maximum number of units that are repaired at the same time.
    pub repairs_at_once: u32,
}

/// A state of the system.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ChainState {
    /// Faults in effect, in the order of the components.
    pub faults: Vec<String>,
    /// Components with more failed units than faults.
    pub more: Vec<String>,
    /// Share of time that the system spends in the state.
    pub probability: f64,
}

/// All states of the system, most likely first.
pub(super) fn states(components: &[FailingComponent]) -> Vec<ChainState> {
    let mut states = vec![ChainState {
        faults: Vec::new(),
        more: Vec::new(),
        probability: 1.0,
    }];
    for component in components {
        let levels = levels(component);
        let with_each = |state: ChainState| {
            let with = |(failed, probability): (usize, &f64)| {
                let mut state = state.clone();
                state.probability *= probability;
                match component.faults.get(..failed) {
                    Some(faults) => state.faults.extend_from_slice(faults),
                    None => state.more.push(component.name.clone()),
                }
                state
            };
            levels.iter().enumerate().map(with).collect::<Vec<_>>()
        };
        states = states.into_iter().flat_map(with_each).collect();
    }
    states.sort_by(|a, b| b.probability.total_cmp(&a.probability));
    states
}

/// The probability of each number of failed units from 0 to the number of the component's faults, and of more failed
/// units if the component has more.
fn levels(component: &FailingComponent) -> Vec<f64> {
    let units = component.units as usize;
    let repairs = component.repairs_at_once as usize;
    // Logarithms, because powers of a ratio like 1e-6 would underflow with many units.
    let ratio = (component.mttr_s / component.mttf_s).ln();
    let mut weights = vec![0.0; units + 1];
    for failed in 0..units {
        let (working, repaired) = (units - failed, (failed + 1).min(repairs));
        let step = ratio + (working as f64 / repaired as f64).ln();
        weights[failed + 1] = weights[failed] + step;
    }
    let most = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    weights
        .iter_mut()
        .for_each(|weight| *weight = (*weight - most).exp());
    // Add the smallest first, because they would be lost if added to a large sum.
    let mut ascending = weights.clone();
    ascending.sort_by(f64::total_cmp);
    let all: f64 = ascending.iter().sum();
    let (known, more) = weights.split_at((component.faults.len() + 1).min(units + 1));
    let mut levels: Vec<f64> = known.iter().map(|weight| weight / all).collect();
    if !more.is_empty() {
        levels.push(more.iter().rev().sum::<f64>() / all);
    }
    levels
}

#[cfg(test)]
mod tests;
