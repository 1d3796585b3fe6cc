//! Which requests a job sends: directions, block sizes and offsets.

use brunt_core::Size;
use brunt_load::Workload;
use brunt_load::block::patterns::{
    HotZones, Normal, OffsetDistribution, Pareto, Shuffled, Uniform, Zipf, Zone,
};
use brunt_load::block::sizes::{BlockSize, BlockSizes, SizeLaw, UniformSizes};

use super::Draft;
use crate::error::{Cause, FioError};
use crate::units;

impl<'a> Draft<'a> {
    pub(super) fn direction(&mut self, workload: &mut Workload) -> Result<(), FioError> {
        let written = self.text("rw").unwrap_or("read");
        let (rw, sequencer) = written.split_once(':').unwrap_or((written, ""));
        let mix = match (self.share("rwmixread")?, self.share("rwmixwrite")?) {
            (Some(read), _) => read,
            (None, Some(write)) => 1.0 - write,
            (None, None) => 0.5,
        };
        let (read, trim) = match rw.strip_prefix("rand").unwrap_or(rw) {
            "read" => (1.0, 0.0),
            "write" => (0.0, 0.0),
            "rw" => (mix, 0.0),
            "readwrite" if !rw.starts_with("rand") => (mix, 0.0),
            "trim" => (0.0, 1.0),
            "trimwrite" => (0.0, 0.5),
            _ => {
                let expected =
                    "read, write, rw, trim, trimwrite, or one of these with the prefix rand";
                return Err(self.wrong("rw", expected));
            }
        };
        if trim == 0.5 {
            self.lose(
                "rw",
                "fio trims each block, then writes it; here trims and writes are drawn independently",
            );
        }
        let random = rw.starts_with("rand");
        (workload.read, workload.trim) = (read, trim);
        workload.sequential = match (random, self.share("percentage_random")?) {
            (false, _) => 1.0,
            (true, share) => 1.0 - share.unwrap_or(1.0),
        };
        // fio keeps a separate position for each direction.
        workload.sequential_per_kind = workload.sequential > 0.0 && read > 0.0 && read < 1.0;
        if sequencer.is_empty() {
            Ok(())
        } else {
            self.sequencer(sequencer, workload)
        }
    }

    /// The part of "reads,writes,trims" that applies to this job, and whether the job uses two different parts. An
    /// omitted part has the value of the part before it.
    pub(super) fn side(workload: &Workload, text: &'a str) -> (&'a str, bool) {
        let mut sides = text.split(',');
        let reads = sides.next().unwrap_or_default();
        let writes = sides
            .next()
            .filter(|side| !side.is_empty())
            .unwrap_or(reads);
        let trims = sides
            .next()
            .filter(|side| !side.is_empty())
            .unwrap_or(writes);
        match (workload.read, workload.trim) {
            (_, 1.0) => (trims, false),
            (_, trim) if trim > 0.0 => (writes, writes != trims),
            (0.0, _) => (writes, false),
            (read, _) => (reads, reads != writes && read < 1.0),
        }
    }

    pub(super) fn blocks(&mut self, workload: &mut Workload) -> Result<(), FioError> {
        let (key, differs) = if let Some(text) = self.text("bssplit") {
            let (text, differs) = Self::side(workload, text);
            workload.blocks = self.split(text)?.into();
            ("bssplit", differs)
        } else if let Some(text) = self.text("bsrange") {
            let (text, differs) = Self::side(workload, text);
            let (low, high) = text.split_once('-').unwrap_or((text, text));
            let parse = |text| units::size(text, self.kb_base).filter(|size| *size > 0);
            let (Some(low), Some(high)) = (parse(low), parse(high)) else {
                return Err(self.wrong("bsrange", "two sizes such as 4k-64k"));
            };
            // fio draws multiples of the smallest size.
            let range = UniformSizes {
                min: Size(low),
                max: Size((high / low).max(1) * low),
                step: None,
            };
            workload.blocks = BlockSizes::Law(SizeLaw::Uniform(range));
            ("bsrange", differs)
        } else {
            let (text, differs) = Self::side(workload, self.text("bs").unwrap_or("4k"));
            // An empty part before the first comma selects fio's default.
            let text = if text.is_empty() { "4k" } else { text };
            let size = units::size(text, self.kb_base).filter(|size| *size > 0);
            let size = size.ok_or_else(|| self.wrong("bs", "a size such as 4k"))?;
            workload.blocks = BlockSizes::only(Size(size));
            ("bs", differs)
        };
        if differs {
            self.lose(
                key,
                "requests of all kinds have the same block sizes here: the first one is used",
            );
        }
        workload.align = self.size("ba")?.map(Size);
        let mut sizes = workload.blocks.corners().into_iter();
        if let Some(size) = sizes.find(|size| !size.0.is_multiple_of(512)) {
            let cause = Cause::BlockSize {
                job: self.job.name.clone(),
                bytes: size.0,
            };
            let location = self
                .settings
                .get(key)
                .map_or(&self.job.location, |setting| &setting.location);
            return Err(cause.at(location.clone()));
        }
        Ok(())
    }

    /// Parses `4k/10:64k/50:32k/40`; entries without a percentage share the rest equally.
    fn split(&self, text: &str) -> Result<Vec<BlockSize>, FioError> {
        let wrong = || self.wrong("bssplit", "sizes and percentages such as 4k/60:64k/40");
        let mut entries = Vec::new();
        for entry in text.split(':') {
            let (size, percent) = entry.split_once('/').unwrap_or((entry, ""));
            let size = units::size(size, self.kb_base)
                .filter(|size| *size > 0)
                .ok_or_else(wrong)?;
            entries.push((size, percent_of(percent).ok_or_else(wrong)?));
        }
        let blocks = filled(entries).into_iter().map(|(size, weight)| BlockSize {
            size: Size(size),
            weight,
        });
        Ok(blocks.filter(|block| block.weight > 0.0).collect())
    }

    pub(super) fn distribution(&mut self, workload: &mut Workload) -> Result<(), FioError> {
        let text = self.text("random_distribution").unwrap_or("random");
        let wrong = |this: &Draft<'_>| {
            this.wrong(
                "random_distribution",
                "random, zipf:1.1, pareto:0.2, normal:10 or zoned:60/10:40/90",
            )
        };
        let (kind, value) = text.split_once(':').unwrap_or((text, ""));
        let (own, differs) = Self::side(workload, value);
        let number = || {
            own.split(':')
                .next()
                .and_then(|value| value.parse::<f64>().ok())
        };
        workload.distribution = match kind {
            "random" => self.plain_random(workload),
            "zipf" => OffsetDistribution::Zipf(Zipf {
                theta: number().ok_or_else(|| wrong(self))?,
            }),
            "pareto" => OffsetDistribution::Pareto(Pareto {
                skew: number().ok_or_else(|| wrong(self))?,
            }),
            // The deviation is a percentage of the region, around its middle.
            "normal" | "gauss" => {
                let deviation = number().ok_or_else(|| wrong(self))? / 100.0;
                OffsetDistribution::Normal(Normal {
                    mean: 0.5,
                    deviation,
                })
            }
            "zoned" => OffsetDistribution::HotZones(HotZones {
                zones: zones(own).ok_or_else(|| wrong(self))?,
            }),
            "zoned_abs" => {
                self.lose(
                    "random_distribution",
                    "zones are fractions of the region: write zoned:60/10:40/90",
                );
                OffsetDistribution::Uniform(Uniform {})
            }
            "sequence" => {
                self.lose(
                    "random_distribution",
                    "requests are drawn from a distribution, not read from a list",
                );
                OffsetDistribution::Uniform(Uniform {})
            }
            _ => return Err(wrong(self)),
        };
        if differs {
            self.lose(
                "random_distribution",
                "all kinds of requests share one access pattern here",
            );
        }
        Ok(())
    }

    /// Without `norandommap`, fio accesses each block once before it accesses any block again.
    fn plain_random(&mut self, workload: &Workload) -> OffsetDistribution {
        if workload.sequential >= 1.0 || self.is_on("norandommap") {
            return OffsetDistribution::Uniform(Uniform {});
        }
        let varies = workload.blocks.varies();
        match !varies && workload.block_bytes_max() == workload.align_bytes() {
            true if workload.sequential == 0.0 => OffsetDistribution::Shuffled(Shuffled {}),
            _ => {
                let why = if varies {
                    "block sizes and offsets are drawn independently; fio, without norandommap, \
                     visits each block once and shortens requests that reach a visited block, so it sends more \
                     and smaller requests"
                } else {
                    "blocks are drawn independently; fio, without norandommap, visits each block once \
                     before revisiting any"
                };
                self.note("rw", why);
                OffsetDistribution::Uniform(Uniform {})
            }
        }
    }
}

/// Parses a percentage; empty text means none.
#[expect(
    clippy::option_option,
    reason = "a missing number is not an invalid one"
)]
fn percent_of(text: &str) -> Option<Option<f64>> {
    match text {
        "" => Some(None),
        text => text
            .parse::<f64>()
            .ok()
            .filter(|percent| (0.0..=100.0).contains(percent))
            .map(Some),
    }
}

/// Entries without a percentage share the rest equally.
fn filled<T>(entries: Vec<(T, Option<f64>)>) -> Vec<(T, f64)> {
    let given: f64 = entries.iter().filter_map(|(_, percent)| *percent).sum();
    let open = entries
        .iter()
        .filter(|(_, percent)| percent.is_none())
        .count();
    let rest = (100.0 - given).max(0.0) / open.max(1) as f64;
    entries
        .into_iter()
        .map(|(entry, percent)| (entry, percent.unwrap_or(rest)))
        .collect()
}

/// Parses `50/5:30/15:20/`: accesses and sizes in percent. Entries without a size share the rest.
fn zones(text: &str) -> Option<Vec<Zone>> {
    let zone = |zone: &str| {
        let (access, size) = zone.split_once('/').unwrap_or((zone, ""));
        Some((percent_of(access)??, percent_of(size)?))
    };
    let zones: Option<Vec<(f64, Option<f64>)>> =
        text.trim_end_matches(':').split(':').map(zone).collect();
    let share = |(access, size): (f64, f64)| Zone {
        access: access / 100.0,
        size: size / 100.0,
    };
    Some(filled(zones?).into_iter().map(share).collect())
}
