//! How often are the verdicts about a fault right? Judges labelled experiments of four runs each, whose noise, effect
//! and times are known, as `brunt run` does, and compares the results with a detector that knows the noise.
//!
//! The rule: the same seed produces the same experiments on any machine.

mod case;
mod noise;
mod recorded;
mod score;

use brunt_core::random::Random;
use serde_json::json;

use crate::{BenchResult, Console};
use case::{Case, EFFECTS, Effect, RUNS};
use noise::{HELD_OUT, SHAPES, Shape};
use score::{Score, score};

/// Settings of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct VerdictsBench {
    /// Experiments per noise shape and effect; four times as many without an effect.
    pub experiments: u32,
    /// Seed of the experiments.
    pub seed: u64,
    /// Use the noise shapes that were not used to choose the methods.
    pub held_out: bool,
}

/// Judges the experiments recorded on real machines (`testdata/verdicts/recorded.jsonl.zst`) and prints the table.
pub fn judge_recorded(console: &dyn Console) -> BenchResult {
    recorded::run(RECORDED, console)
}

const RECORDED: &[u8] = include_bytes!("../../../../testdata/verdicts/recorded.jsonl.zst");

impl VerdictsBench {
    /// Judges the experiments and prints the tables.
    pub fn run(self, console: &dyn Console) -> BenchResult {
        let shapes = if self.held_out { HELD_OUT } else { SHAPES };
        let mut scored: Vec<Scored> = Vec::new();
        let halves: Vec<Vec<Scored>> = std::thread::scope(|scope| {
            let half = |odd: usize| {
                let mine = shapes
                    .iter()
                    .enumerate()
                    .filter(move |(index, _)| index % 2 == odd);
                move || {
                    mine.flat_map(|(index, (_, shape))| self.of_shape(index as u64, *shape))
                        .collect()
                }
            };
            let threads = [0, 1].map(|odd| scope.spawn(half(odd)));
            threads
                .map(|thread| thread.join().expect("scoring doesn't panic"))
                .into()
        });
        scored.extend(halves.into_iter().flatten());
        console.line(format_args!(
            "{} experiments of {RUNS} runs, seed {}",
            scored.len(),
            self.seed
        ));
        let mut objects = Vec::new();
        console.line(format_args!("{}", Row::HEAD));
        for (name, effect) in EFFECTS {
            let of: Vec<&Scored> = scored.iter().filter(|one| one.effect == *effect).collect();
            objects.push(print(console, name, &of));
        }
        console.line("");
        console.line(format_args!("{}", Row::HEAD));
        for (name, shape) in shapes {
            let of = |none: bool| -> Vec<&Scored> {
                let of = scored.iter().filter(|one| one.shape == *shape);
                of.filter(|one| (one.effect == Effect::None) == none)
                    .collect()
            };
            objects.push(print(console, &format!("{name}, no effect"), &of(true)));
            objects.push(print(console, &format!("{name}, effects"), &of(false)));
        }
        let blips: Vec<&Scored> = scored.iter().filter(|one| one.has_blips).collect();
        objects.push(print(console, "with blips, no effect", &with(&blips, true)));
        objects.push(print(console, "with blips, effects", &with(&blips, false)));
        let all: Vec<&Scored> = scored.iter().collect();
        objects.push(print(console, "all, no effect", &with(&all, true)));
        objects.push(print(console, "all, effects", &with(&all, false)));
        console.object(&json!({ "verdicts": objects }));
        Ok(())
    }

    fn of_shape(self, index: u64, shape: Shape) -> Vec<Scored> {
        let mut all = Vec::new();
        for (at, (_, effect)) in EFFECTS.iter().enumerate() {
            let count = match effect {
                Effect::None => 4 * self.experiments,
                _ => self.experiments,
            };
            for number in 0..count {
                let part = (index << 40) + ((at as u64) << 32) + u64::from(number);
                let case = Case::draw(&mut Random::for_part(self.seed, part), shape, *effect);
                all.push(Scored {
                    shape,
                    effect: *effect,
                    has_blips: case.has_blips,
                    score: score(&case),
                });
            }
        }
        all
    }
}

struct Scored {
    shape: Shape,
    effect: Effect,
    has_blips: bool,
    score: Score,
}

fn with<'a>(of: &[&'a Scored], none: bool) -> Vec<&'a Scored> {
    let of = of.iter().copied();
    of.filter(|one| (one.effect == Effect::None) == none)
        .collect()
}

/// A row of the table, in percent.
struct Row {
    name: String,
    count: usize,
    cells: [Option<f64>; 14],
}

impl Row {
    const HEAD: &'static str = "                                     detect ceiling  of99  open   drop  cover   lost   wait  seen-t  back-t  back-m  never  openrec  false-back";

    fn of(name: &str, of: &[&Scored]) -> Row {
        let share = |get: &dyn Fn(&Score) -> Option<bool>| {
            let known: Vec<bool> = of.iter().filter_map(|one| get(&one.score)).collect();
            let yes = known.iter().filter(|yes| **yes).count();
            (!known.is_empty()).then(|| 100.0 * yes as f64 / known.len() as f64)
        };
        let count = |get: &dyn Fn(&Score) -> [usize; 2]| {
            let (mut yes, mut all) = (0, 0);
            for one in of {
                let [some, of] = get(&one.score);
                yes += some;
                all += of;
            }
            (all > 0).then(|| 100.0 * yes as f64 / all as f64)
        };
        let ceiling = of.iter().map(|one| one.score.ceiling).sum::<f64>() / of.len() as f64;
        Row {
            name: name.to_string(),
            count: of.len(),
            cells: [
                share(&|score| Some(score.detected)),
                Some(100.0 * ceiling),
                share(&|score| (score.ceiling >= 0.99).then_some(score.detected)),
                share(&|score| Some(score.open)),
                share(&|score| score.drop_right),
                share(&|score| score.drop_covered),
                share(&|score| score.lost_right),
                share(&|score| score.wait_right),
                count(&|score| score.detected_in_time),
                count(&|score| score.recovered_in_time),
                share(&|score| score.recovered_right),
                count(&|score| score.false_never),
                count(&|score| score.recovery_open),
                count(&|score| score.false_return),
            ],
        }
    }
}

fn print(console: &dyn Console, name: &str, of: &[&Scored]) -> serde_json::Value {
    let row = Row::of(name, of);
    let cells: String = row
        .cells
        .iter()
        .map(|cell| cell.map_or("      -".to_string(), |cell| format!("{cell:7.1}")))
        .collect();
    console.line(format_args!("{:<32}{:>5}{cells}", row.name, row.count));
    json!({ "name": row.name, "experiments": row.count, "percent": row.cells })
}
