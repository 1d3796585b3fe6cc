//! Zones of the region, each with its share of the requests.

use brunt_core::random::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::{AccessPattern, Draw, PatternInfo};
use crate::load::{WorkloadError, wrong};

/// Maximum number of zones.
const ZONES_MAX: usize = 64;

/// Consecutive zones, each with its share of the requests; uniform within a zone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HotZones {
    /// Zones in order, from the region's start.
    pub zones: Vec<Zone>,
}

/// A zone: a part of the region and its share of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// Share of the requests; must sum to 1 over all zones.
    pub access: f64,
    /// Share of the region; must sum to 1 over all zones.
    pub size: f64,
}

/// For each zone: the cumulative probability up to its end, its first position, and its number of positions.
#[derive(Clone, Debug)]
pub(super) struct Sampler(Vec<(f64, u64, u64)>);

impl AccessPattern for HotZones {
    const INFO: PatternInfo = PatternInfo {
        name: "hot-zones",
        help: "consecutive zones, each with its share of the requests",
        example: "{ kind = \"hot-zones\", zones = [{ access = 0.9, size = 0.1 }, { access = 0.1, size = 0.9 }] }",
    };
    type Sampler = Sampler;

    fn check(&self) -> Result<(), WorkloadError> {
        let zones = &self.zones;
        let (access, size) = zones.iter().fold((0.0, 0.0), |sum, zone| {
            (sum.0 + zone.access, sum.1 + zone.size)
        });
        let positive = zones
            .iter()
            .all(|zone| zone.access >= 0.0 && zone.size > 0.0);
        if zones.is_empty() || zones.len() > ZONES_MAX || !positive {
            wrong(
                "distribution.zones",
                format!("give 1 to {ZONES_MAX} zones with sizes above 0"),
            )?;
        }
        if (access - 1.0_f64).abs() > 1e-6 || (size - 1.0_f64).abs() > 1e-6 {
            wrong(
                "distribution.zones",
                format!("access sums to {access} and size to {size}; both must sum to 1"),
            )?;
        }
        Ok(())
    }

    fn describe(&self) -> Option<String> {
        Some(format!("{} hot zones", self.zones.len()))
    }

    fn sampler(&self, count: u64) -> Sampler {
        let (mut access, mut size) = (0.0, 0.0);
        let mut table = Vec::with_capacity(self.zones.len());
        for zone in &self.zones {
            let first = (size * count as f64) as u64;
            access += zone.access;
            size += zone.size;
            let end = ((size * count as f64) as u64).min(count);
            table.push((
                access,
                first.min(count - 1),
                end.saturating_sub(first).max(1),
            ));
        }
        if let Some((access, first, positions)) = table.last_mut() {
            (*access, *positions) = (1.0, count - *first);
        }
        Sampler(table)
    }
}

impl Draw for Sampler {
    fn draw(&mut self, random: &mut Random) -> u64 {
        let draw = random.unit();
        let zone = self
            .0
            .iter()
            .find(|zone| draw < zone.0)
            .unwrap_or(&self.0[self.0.len() - 1]);
        zone.1 + random.below(zone.2)
    }
}
