//! Where the CPU went: times and samples by phase and role, and flame graphs.
//!
//! The rule: the page reports what could not be sampled or named before it shows figures.

use std::collections::BTreeMap;
use std::path::Path;

use brunt_lake::{LakeError, read_table};
use brunt_result::profile::{CpuPart, PhaseProfile, RoleProfile, RunProfile, profile_over_runs};
use brunt_result::summary::{PointSummary, RunSummary, Summary};
use brunt_result::tables::profiles;

use super::details::Details;
use super::points::Points;
use crate::flame::FlameGraph;
use crate::format::three;
use crate::page::{Bar, Bars, Block, Cell, Choice, Notice, PageTable, Section, Tone};

/// Maximum number of flame graphs on the page; the table has all stacks.
const GRAPHS_MAX: usize = 24;
/// Maximum number of rows in tables, and of bars; `summary.json` has all.
const ROWS_MAX: usize = 200;

/// Flame graphs by point, phase and role.
pub type Flames = BTreeMap<(usize, String, String), FlameGraph>;

fn complete(point: &PointSummary) -> impl Iterator<Item = &RunSummary> {
    point.runs.iter().filter(|run| run.is_complete())
}

fn profiles_of(summary: &Summary) -> impl Iterator<Item = &RunProfile> {
    let runs = summary.points.iter().flat_map(complete);
    runs.filter_map(|run| run.profile.as_deref())
}

/// Reads the stacks of all complete runs, and reports damage.
pub(super) fn read(
    folder: &Path,
    summary: &Summary,
    flames: &mut Flames,
) -> Result<Vec<LakeError>, LakeError> {
    if profiles_of(summary).next().is_none() {
        return Ok(Vec::new());
    }
    let runs = summary.points.iter().enumerate();
    let runs = runs.flat_map(|(index, point)| complete(point).map(move |run| (index, run)));
    let runs = runs.filter_map(|(index, run)| {
        let profile = run.profile.as_deref()?;
        let titles: Vec<String> = profile.phases.iter().map(PhaseProfile::title).collect();
        Some((i64::from(run.order), (index, titles)))
    });
    let runs: BTreeMap<i64, (usize, Vec<String>)> = runs.collect();
    read_table(folder, &profiles::TABLE, |batch| {
        let (run, phase) = (batch.ints("run"), batch.ints("phase"));
        let samples = batch.ints("samples");
        let texts = batch.texts("role").zip(batch.texts("part"));
        for (row, ((role, part), stack)) in texts.zip(batch.texts("stack")).enumerate() {
            let Some((point, titles)) = runs.get(&run[row]) else {
                continue;
            };
            let Some(title) = titles.get(phase[row] as usize) else {
                continue;
            };
            let key = (*point, title.clone(), role.to_string());
            if !flames.contains_key(&key) && flames.len() >= GRAPHS_MAX {
                continue;
            }
            let part = CpuPart::named(part).unwrap_or(CpuPart::Unknown);
            let graph = flames.entry(key).or_default();
            graph.add(stack, part, samples[row].max(0) as u64);
        }
    })
}

/// `None` without a profile.
pub(super) fn section(
    summary: &Summary,
    points: &Points<'_>,
    details: &Details,
) -> Option<Section> {
    profiles_of(summary).next()?;
    let mut section = Section::new("Where the CPU goes");
    section.prose(
        "Samples of what ran on all processors of this machine, taken at regular intervals of CPU \
         time, and CPU times from the kernel's counters. A sample counts for the innermost function that is \
         known to belong to a part of the storage path. Samples are time on a processor: waiting for the network \
         or a disk appears as idle time. On loopback, the receiving side of the network runs in the sending \
         process. All figures are sums over all complete runs.",
    );
    let notices = notices(summary);
    if !notices.is_empty() {
        section.blocks.push(Block::Notices(notices));
    }
    let found = summary.points.iter().map(|point| {
        let profiles = complete(point).filter_map(|run| run.profile.as_deref());
        let phases = profile_over_runs(profiles);
        (points.full_name(point), phases)
    });
    let found: Vec<(String, Vec<PhaseProfile>)> = found.collect();
    let bars: Vec<Bar> = each_role(&found).filter_map(bar).take(ROWS_MAX).collect();
    if !bars.is_empty() {
        section.blocks.push(Block::Bars(Bars {
            title: "Parts of the storage path".into(),
            caption: "Shares of each role's samples.".into(),
            bars,
            parts: CpuPart::ALL.map(|part| part.title().to_string()).into(),
        }));
    }
    section.table(times(&found));
    section
        .blocks
        .extend(graphs(summary, points, &details.flames));
    let hottest = hottest(&found);
    if !hottest.rows.is_empty() {
        section.table(hottest.folded());
    }
    Some(section)
}

/// Every role in every phase, with the name of the point and the phase.
fn each_role(
    found: &[(String, Vec<PhaseProfile>)],
) -> impl Iterator<Item = (&str, &PhaseProfile, &RoleProfile)> {
    found.iter().flat_map(|(name, phases)| {
        let roles = phases
            .iter()
            .flat_map(|phase| phase.roles.iter().map(move |role| (phase, role)));
        roles.map(move |(phase, role)| (name.as_str(), phase, role))
    })
}

fn bar((name, phase, role): (&str, &PhaseProfile, &RoleProfile)) -> Option<Bar> {
    let share = |part| role.share(part);
    let parts: Option<Vec<f64>> = CpuPart::ALL.into_iter().map(share).collect();
    Some(Bar {
        name: format!("{name}, {}, {}", phase.title(), role.role),
        parts: parts?,
        shown: format!("{} samples", role.samples),
        ..Bar::default()
    })
}

/// Notices about what was not sampled or named.
fn notices(summary: &Summary) -> Vec<Notice> {
    let mut texts: Vec<&String> = profiles_of(summary)
        .flat_map(|profile| profile.unavailable.iter().chain(&profile.kernel_unnamed))
        .collect();
    texts.sort_unstable();
    texts.dedup();
    let sentence = |text: &&String| Notice::new(Tone::Warning, crate::format::sentence_case(text));
    let mut notices: Vec<Notice> = texts.iter().map(sentence).collect();
    let sum = |get: fn(&RunProfile) -> u64| profiles_of(summary).map(get).sum::<u64>();
    let (lost, dropped) = (sum(|one| one.lost), sum(|one| one.dropped));
    if lost + dropped > 0 {
        let text = format!("{lost} samples were lost by the kernel, and {dropped} were not kept.");
        notices.push(Notice::new(Tone::Warning, text));
    }
    let roles = || {
        let phases = profiles_of(summary).flat_map(|profile| &profile.phases);
        let roles = phases.flat_map(|phase| &phase.roles);
        roles.filter(|role| role.user_s.is_some())
    };
    let unnamed: u64 = roles().map(|role| role.unnamed).sum();
    let samples: u64 = roles().map(|role| role.samples).sum();
    // A few samples always hit code that has no symbols, such as code of the C library.
    if unnamed * 20 > samples {
        let text = format!(
            "{unnamed} of {samples} samples of the experiment's processes are in functions without a \
             name. Release builds of Brunt have no symbols: build it with --profile profiling, and install debug \
             symbols for other programs."
        );
        notices.push(Notice::new(Tone::Note, text));
    }
    let cpu: f64 = profiles_of(summary)
        .map(|profile| profile.sampler_cpu_s)
        .sum();
    let text = format!(
        "Reading samples and counters took {} s of CPU time.",
        three(cpu)
    );
    notices.push(Notice::new(Tone::Note, text));
    notices
}

fn times(found: &[(String, Vec<PhaseProfile>)]) -> PageTable {
    let columns = [
        "point",
        "phase",
        "role",
        "user",
        "system",
        "interrupts",
        "idle",
        "stolen",
    ];
    let mut rows = Vec::new();
    for (name, phase) in found
        .iter()
        .flat_map(|(name, phases)| phases.iter().map(move |phase| (name, phase)))
    {
        let cpus = |seconds: Option<f64>| {
            let cpus = seconds.map(|seconds| seconds / phase.seconds.max(f64::MIN_POSITIVE));
            cpus.map_or(Cell::Empty, |cpus| Cell::number(format!("{cpus:.3}")))
        };
        let row = |role: &str, times: [Option<f64>; 5]| {
            let names = [name.clone(), phase.title(), role.to_string()].map(Cell::Text);
            names
                .into_iter()
                .chain(times.map(cpus))
                .collect::<Vec<Cell>>()
        };
        rows.extend(phase.machine.map(|all| {
            let times = [
                all.user_s,
                all.system_s,
                all.interrupt_s,
                all.idle_s,
                all.stolen_s,
            ];
            row("machine", times.map(Some))
        }));
        let own = phase.roles.iter().filter(|role| role.user_s.is_some());
        rows.extend(
            own.map(|role| row(&role.role, [role.user_s, role.system_s, None, None, None])),
        );
    }
    rows.truncate(ROWS_MAX);
    PageTable::new("CPU time, as a number of processors", &columns, rows)
}

fn graphs(summary: &Summary, points: &Points<'_>, flames: &Flames) -> Option<Block> {
    let graph = |((point, phase, role), graph): (&(usize, String, String), &FlameGraph)| {
        let name = points.full_name(summary.points.get(*point)?);
        let block = Block::Flame(Box::new(graph.clone()));
        Some((format!("{name}, {phase}, {role}"), vec![block]))
    };
    let options: Vec<(String, Vec<Block>)> = flames.iter().filter_map(graph).collect();
    (!options.is_empty()).then(|| {
        Block::Choice(Choice {
            label: "Flame graph".into(),
            options,
        })
    })
}

fn hottest(found: &[(String, Vec<PhaseProfile>)]) -> PageTable {
    let columns = ["point", "phase", "role", "function", "samples", "share"];
    let rows = each_role(found).flat_map(|(name, phase, role)| {
        role.hottest.iter().map(move |hot| {
            let share = hot.samples as f64 / role.samples.max(1) as f64 * 100.0;
            vec![
                Cell::text(name),
                Cell::text(phase.title()),
                Cell::text(&role.role),
                Cell::text(&hot.function),
                Cell::number(hot.samples.to_string()),
                Cell::number(format!("{share:.1} %")),
            ]
        })
    });
    PageTable::new(
        "Hottest functions, not counting what they call",
        &columns,
        rows.take(ROWS_MAX),
    )
}
