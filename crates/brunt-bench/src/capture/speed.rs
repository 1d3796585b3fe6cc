//! Measures how fast captures are analysed. Programs take turns, round by round; goals and ratios use the median over
//! rounds. tshark reads only a part of the capture, so it is compared by its rate.

use brunt_capture::trace::extents::ExtentSizes;
use brunt_core::quantity::Size;
use serde_json::{Value, json};

use super::programs::{Program, ProgramRun};
use super::subject::{MEMORY_BYTES_MAX, SubjectCapture};
use crate::sample::{extremes, median};
use crate::scratch::Scratch;
use crate::{BenchError, BenchResult, Console};

/// Rates are not judged on shorter captures, where the time for starting the program dominates.
const JUDGED_BYTES_MIN: u64 = 32 << 20;

/// A program's runs on one capture.
struct Contestant {
    program: Program,
    /// The input: the capture, or the first part of it.
    subject: SubjectCapture,
    runs: Vec<ProgramRun>,
}

impl Contestant {
    fn median(&self, figure: impl Fn(&ProgramRun) -> f64) -> f64 {
        median(&self.runs.iter().map(figure).collect::<Vec<f64>>())
    }

    fn gbit(&self, run: &ProgramRun) -> f64 {
        self.subject.wire_bytes as f64 * 8e-9 / run.wall.as_secs_f64()
    }

    /// Gigabits per second of CPU time.
    fn gbit_per_cpu_s(&self, run: &ProgramRun) -> f64 {
        self.subject.wire_bytes as f64 * 8e-9 / run.cpu.as_secs_f64()
    }

    fn calls_per_s(&self, run: &ProgramRun) -> f64 {
        self.subject.calls as f64 / run.wall.as_secs_f64()
    }

    /// Peak memory over all rounds.
    fn resident_bytes(&self) -> u64 {
        self.runs
            .iter()
            .map(|run| run.resident_bytes_max)
            .max()
            .unwrap_or(0)
    }
}

/// Measures all captures and prints a table for each.
pub fn run(
    subjects: &[SubjectCapture],
    rounds: u32,
    part: Size,
    scratch: &Scratch,
    output: &dyn Console,
) -> BenchResult {
    let all = present(output);
    let mut tables = Vec::new();
    for subject in subjects {
        let programs = readers(&all, subject);
        output.line(format_args!(
            "{}: {:.0} MB in {} packets, {} calls",
            subject.name,
            subject.file_bytes as f64 / 1e6,
            subject.packets,
            subject.calls
        ));
        let mut contestants = programs
            .iter()
            .map(|program| {
                let subject = match program {
                    Program::Tshark if subject.file_bytes > part.0 => {
                        subject.part(part.0, &scratch.join("part.pcap"))?
                    }
                    _ => subject.clone(),
                };
                Ok(Contestant {
                    program: *program,
                    subject,
                    runs: Vec::new(),
                })
            })
            .collect::<Result<Vec<Contestant>, BenchError>>()?;
        for _ in 0..rounds {
            for contestant in &mut contestants {
                if output.is_interrupted() {
                    return Err(BenchError::interrupted(
                        "interrupted: the tables printed so far are complete, and the others were not measured",
                    ));
                }
                contestant
                    .runs
                    .push(contestant.program.run(&contestant.subject.path, scratch)?);
            }
        }
        let zstd_bytes = zstd_bytes(subject)?;
        tables.push(print(subject, &contestants, zstd_bytes, output));
        // The next capture needs the space in the page cache.
        if subject.path.starts_with(scratch.join("")) {
            let _ = std::fs::remove_file(&subject.path);
        }
    }
    output.object(&json!({ "captures": tables, "rounds": rounds }));
    Ok(())
}

/// The installed programs; prints a note for those that are missing.
pub fn present(output: &dyn Console) -> Vec<Program> {
    let missing = Program::ALL.iter().filter_map(|program| program.missing());
    missing.for_each(|why| output.note(format_args!("left out: {why}")));
    Program::ALL
        .into_iter()
        .filter(|program| program.missing().is_none())
        .collect()
}

/// The `present` programs that find operations in this capture.
pub fn readers(present: &[Program], subject: &SubjectCapture) -> Vec<Program> {
    present
        .iter()
        .filter(|program| program.reads(subject))
        .copied()
        .collect()
}

/// The size of a capture compressed with `zstd -3`.
fn zstd_bytes(subject: &SubjectCapture) -> Result<u64, BenchError> {
    struct Count(u64);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    let file = std::fs::File::open(&subject.path).map_err(BenchError::failed)?;
    zstd::stream::copy_encode(file, &mut count, 3).map_err(BenchError::failed)?;
    Ok(count.0)
}

fn print(
    subject: &SubjectCapture,
    contestants: &[Contestant],
    zstd_bytes: u64,
    output: &dyn Console,
) -> Value {
    output.line(format_args!(
        "  {:<32} {:>8} {:>17} {:>11} {:>8} {:>8} {:>13} {:>6}",
        "", "Gb/s", "min … max", "calls/s", "wall s", "CPU s", "Gb/s by CPU s", "MiB"
    ));
    let mut rows = Vec::new();
    for contestant in contestants {
        let rates: Vec<f64> = contestant
            .runs
            .iter()
            .map(|run| contestant.gbit(run))
            .collect();
        let (least, most) = extremes(&rates);
        let (wall, cpu) = (
            |run: &ProgramRun| run.wall.as_secs_f64(),
            |run: &ProgramRun| run.cpu.as_secs_f64(),
        );
        let by_cpu = contestant.median(|run| contestant.gbit_per_cpu_s(run));
        let calls = contestant.median(|run| contestant.calls_per_s(run));
        let resident = contestant.resident_bytes();
        output.line(format_args!(
            "  {:<32} {:>8.3} {:>17} {:>11.0} {:>8.3} {:>8.3} {:>13.3} {:>6}",
            contestant.program.name(),
            median(&rates),
            format!("{least:.2} … {most:.2}"),
            calls,
            contestant.median(wall),
            contestant.median(cpu),
            by_cpu,
            resident >> 20
        ));
        if contestant.subject.packets < subject.packets {
            output.line(format_args!(
                "  {:<32} on the first {:.0} MB: {} calls",
                "",
                contestant.subject.file_bytes as f64 / 1e6,
                contestant.subject.calls
            ));
        }
        let found = contestant.runs[0].calls;
        rows.push(json!({
            "who": contestant.program.name(), "gbit_per_s": median(&rates), "rounds": rates,
            "calls_per_s": calls, "wall_s": contestant.median(wall), "cpu_s": contestant.median(cpu),
            "gbit_per_cpu_s": by_cpu, "resident_bytes_max": resident, "wire_bytes": contestant.subject.wire_bytes,
            "calls": contestant.subject.calls, "calls_found": found,
            "trace_bytes": contestant.runs[0].trace_bytes,
        }));
    }
    let extents = extents(contestants, output);
    let verdicts = verdicts(subject, contestants, zstd_bytes);
    for verdict in &verdicts {
        output.line(format_args!("  = {}", verdict.text));
    }
    output.line("");
    let goals: Vec<Value> = verdicts
        .iter()
        .map(|verdict| json!({ "text": verdict.text, "value": verdict.value, "reached": verdict.reached }))
        .collect();
    json!({
        "capture": subject.name, "file_bytes": subject.file_bytes, "wire_bytes": subject.wire_bytes,
        "packets": subject.packets, "calls": subject.calls, "zstd_bytes": zstd_bytes,
        "programs": rows, "extents": extents, "goals": goals,
    })
}

/// The trace's bytes by content, with and without compression (Figure 9 of the Chronicle paper).
fn extents(contestants: &[Contestant], output: &dyn Console) -> Vec<Value> {
    let found = contestants
        .iter()
        .flat_map(|contestant| &contestant.runs[0].extents);
    let line = |ExtentSizes { extent, sizes }: &ExtentSizes| {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let smaller = sizes.value_bytes as f64 / sizes.file_bytes.max(1) as f64;
        output.line(format_args!(
            "  of the trace: {:<28} {:>9.3} MB as values, {:>8.3} packed, {:>8.3} compressed ({smaller:.0} to 1)",
            extent.name(),
            megabytes(sizes.value_bytes),
            megabytes(sizes.packed_bytes),
            megabytes(sizes.file_bytes),
        ));
        json!({
            "extent": extent.name(), "rows": sizes.rows, "value_bytes": sizes.value_bytes,
            "packed_bytes": sizes.packed_bytes, "file_bytes": sizes.file_bytes,
        })
    };
    found.map(line).collect()
}

/// A figure that is compared with a goal, or a ratio without one.
struct Verdict {
    text: String,
    value: f64,
    reached: Option<bool>,
}

impl Verdict {
    fn ratio(text: String, value: f64) -> Verdict {
        Verdict {
            text,
            value,
            reached: None,
        }
    }

    fn goal(text: String, value: f64, reached: bool) -> Verdict {
        let text = format!("{text} ({})", if reached { "reached" } else { "MISSED" });
        Verdict {
            text,
            value,
            reached: Some(reached),
        }
    }
}

/// The verdict on a figure that should be at least `goal`; only a ratio if it is not judged.
fn least(judged: bool, text: &str, value: f64, goal: f64) -> Verdict {
    match judged {
        true => Verdict::goal(format!("{text}; goal {goal:.1}"), value, value >= goal),
        false => Verdict::ratio(
            format!("{text} (not judged: the capture is too short)"),
            value,
        ),
    }
}

/// The trace's size compared with the capture and with the compressed capture.
fn size_verdicts(subject: &SubjectCapture, trace: &Contestant, zstd_bytes: u64) -> Vec<Verdict> {
    let (goals, judged) = (subject.goals(), subject.file_bytes >= JUDGED_BYTES_MIN);
    let trace_bytes = trace
        .runs
        .iter()
        .filter_map(|run| run.trace_bytes)
        .max()
        .unwrap_or(0);
    if trace_bytes == 0 {
        return Vec::new();
    }
    let smaller = subject.file_bytes as f64 / trace_bytes as f64;
    let size = format!(
        "the trace of {:.1} MB is {smaller:.1} times smaller than the capture",
        trace_bytes as f64 / 1e6
    );
    let of_zstd = trace_bytes as f64 / zstd_bytes as f64;
    let text = format!(
        "the trace is {of_zstd:.2} times as large as the capture compressed with `zstd -3` ({:.1} MB)",
        zstd_bytes as f64 / 1e6
    );
    let zstd = match goals.below_zstd && judged {
        true => Verdict::goal(format!("{text}; goal below 1"), of_zstd, of_zstd < 1.0),
        false => Verdict::ratio(text, of_zstd),
    };
    vec![least(judged, &size, smaller, goals.smaller), zstd]
}

/// How many times as fast one of our programs is as another program.
fn speed_ratio(ours: &Contestant, other: &Contestant) -> Verdict {
    // Computed within each round, because the machine's speed drifts.
    let ratio = |figure: fn(&Contestant, &ProgramRun) -> f64| {
        let pairs = ours.runs.iter().zip(&other.runs);
        median(
            &pairs
                .map(|(a, b)| figure(ours, a) / figure(other, b))
                .collect::<Vec<f64>>(),
        )
    };
    let (wall, cpu) = (ratio(Contestant::gbit), ratio(Contestant::gbit_per_cpu_s));
    Verdict::ratio(
        format!(
            "{} is {wall:.1} times as fast as {}; {cpu:.1} times by CPU time",
            ours.program.name(),
            other.program.name()
        ),
        wall,
    )
}

fn verdicts(subject: &SubjectCapture, contestants: &[Contestant], zstd_bytes: u64) -> Vec<Verdict> {
    let goals = subject.goals();
    let find = |program| {
        contestants
            .iter()
            .find(|contestant| contestant.program == program)
    };
    let (analyses, trace) = find(Program::Analyses)
        .zip(find(Program::Trace))
        .expect("our own programs always run");
    let mut found = Vec::new();
    let judged = subject.file_bytes >= JUDGED_BYTES_MIN;
    let at_least = |what: &str, value: f64, goal: f64, unit: &str| {
        least(judged, &format!("{what} {value:.1} {unit}"), value, goal)
    };
    let gbit = |contestant: &Contestant| contestant.median(|run| contestant.gbit(run));
    found.push(at_least(
        "all analyses on one core:",
        gbit(analyses),
        goals.analyses_gbit,
        "Gb/s",
    ));
    if let Some(goal) = goals.trace_gbit {
        found.push(at_least(
            "with the trace on two cores:",
            gbit(trace),
            goal,
            "Gb/s",
        ));
    }
    if let Some(goal) = goals.trace_calls {
        let calls = trace.median(|run| trace.calls_per_s(run));
        found.push(at_least(
            "with the trace on two cores:",
            calls / 1e6,
            goal / 1e6,
            "million calls/s",
        ));
    }
    found.extend(size_verdicts(subject, trace, zstd_bytes));
    let resident = analyses.resident_bytes().max(trace.resident_bytes());
    let text = format!(
        "memory: {} MiB; goal below {}",
        resident >> 20,
        MEMORY_BYTES_MAX >> 20
    );
    found.push(Verdict::goal(
        text,
        resident as f64,
        resident < MEMORY_BYTES_MAX,
    ));
    for program in [Program::Nfstrace, Program::Tshark] {
        let Some(other) = find(program) else { continue };
        found.extend([analyses, trace].map(|ours| speed_ratio(ours, other)));
    }
    found
}
