//! Shows the live page on a terminal, using its full height. The view is drawn from the page's own frames, so the
//! figures are the same. Drawing is a pure function of the frames, the progress and the terminal's size.
//!
//! The rule: lines that don't fit are left out, the least important first, and every line is narrower than the
//! terminal.

use std::collections::{BTreeMap, VecDeque};

use brunt_core::Nanos;
use brunt_core::units::format_grouped;
use brunt_web::live::{
    LiveFault, LiveFrame, LivePlan, LiveRun, LiveRunEnd, LiveSample, LiveStretch, LiveSubject,
};

use super::draw::{Line, Paint, TerminalCaps, head, help, micros, row, troubles};
use super::state::State;
use crate::host_figures::host_figures;

/// Maximum number of intervals kept: more than a terminal has columns.
const STRETCHES_MAX: usize = 256;
/// Maximum number of finished runs, log lines, hosts and faults kept.
const LISTED_MAX: usize = 64;
/// Maximum and minimum number of rows of the heat map; it isn't shown with less room.
const HEAT_ROWS: [usize; 2] = [12, 3];
/// Columns for the row names, to the left of the heat map.
const LABEL: usize = 10;
/// Maximum number of operation kinds shown.
const KINDS_MAX: usize = 4;
/// Maximum number of rows for the latest faults, hosts, runs and log lines, if there is room.
const FAULTS_SHOWN: usize = 2;
const HOSTS_SHOWN: usize = 8;
const RUNS_SHOWN: usize = 4;
const NOTES_SHOWN: usize = 4;

/// State collected from the frames.
#[derive(Default)]
pub struct Screen {
    plan: LivePlan,
    run: Option<LiveRun>,
    stretches: VecDeque<LiveStretch>,
    /// The latest sample of each host; samples of its processes arrive separately.
    samples: BTreeMap<(String, LiveSubject), LiveSample>,
    faults: BTreeMap<u32, LiveFault>,
    ended: VecDeque<LiveRunEnd>,
    notes: VecDeque<String>,
    /// Number of events that were lost before they reached the page.
    missed: u64,
}

fn keep<T>(list: &mut VecDeque<T>, item: T, items_max: usize) {
    if list.len() == items_max {
        list.pop_front();
    }
    list.push_back(item);
}

impl Screen {
    /// Updates the state from a frame.
    pub fn take(&mut self, frame: &LiveFrame) {
        match frame {
            LiveFrame::Plan(plan) => self.plan = plan.clone(),
            LiveFrame::RunBegins(run) => {
                self.run = Some(run.clone());
                self.stretches.clear();
                self.faults.clear();
            }
            LiveFrame::RunStarts { .. } => self.stretches.clear(),
            LiveFrame::Stretch(stretch) => {
                keep(&mut self.stretches, stretch.clone(), STRETCHES_MAX)
            }
            LiveFrame::Sample(sample) => {
                let key = sample.series();
                if self.samples.len() < LISTED_MAX || self.samples.contains_key(&key) {
                    self.samples.insert(key, sample.clone());
                }
            }
            LiveFrame::Fault(fault) => {
                if self.faults.len() < LISTED_MAX || self.faults.contains_key(&fault.index) {
                    self.faults.insert(fault.index, fault.clone());
                }
            }
            LiveFrame::RunEnds(run) => keep(&mut self.ended, run.clone(), LISTED_MAX),
            LiveFrame::Note { text, .. } => keep(&mut self.notes, text.clone(), LISTED_MAX),
            LiveFrame::Missed { events } => self.missed = *events,
            LiveFrame::Past(_) | LiveFrame::Now | LiveFrame::Lost { .. } | LiveFrame::Ends(_) => {}
        }
    }

    /// Draws everything in at most `rows` lines.
    pub fn draw(&self, state: &State, now: Nanos, caps: &TerminalCaps, rows: usize) -> Vec<String> {
        let mut lines = head(state, now, caps);
        lines.extend(self.figures(caps));
        let mut trouble = troubles(state, caps);
        if self.missed > 0 {
            trouble.put(&format!("   {} events not shown", self.missed));
        }
        lines.push(trouble);
        // The help is the last line; the other parts share the remaining rows in order of importance.
        let mut left = rows.saturating_sub(lines.len() + 1);
        let mut parts = Vec::new();
        let below = [
            (self.faults_listed(caps), FAULTS_SHOWN),
            (self.hosts(caps), HOSTS_SHOWN),
            (self.runs(caps), RUNS_SHOWN),
            (self.log(caps), NOTES_SHOWN),
        ];
        // The heat map gets its minimum before the others, and any rows that they leave over.
        let [most, least] = HEAT_ROWS;
        let has_heat = left >= least + 2
            && self
                .stretches
                .iter()
                .any(|stretch| !stretch.heat.is_empty());
        let mut heat_rows = if has_heat { least } else { 0 };
        left -= if has_heat { least + 2 } else { 0 };
        for (mut part, shown) in below {
            let keep = shown.min(left).min(part.len());
            // The newest lines are the last.
            parts.push(part.split_off(part.len() - keep));
            left -= keep;
        }
        if has_heat {
            heat_rows += left.min(most - least);
            lines.extend(self.heat(caps, heat_rows));
        }
        lines.extend(parts.into_iter().flatten());
        lines.push(help(caps));
        lines.truncate(rows);
        lines.into_iter().map(|line| line.text).collect()
    }

    fn figures<'a>(&self, caps: &'a TerminalCaps) -> Vec<Line<'a>> {
        let Some(last) = self.stretches.back() else {
            let mut waiting = Line::new(caps);
            let what = if self.run.is_some() {
                "ramping up, or no interval yet"
            } else {
                "getting ready"
            };
            waiting.paint(Paint::Dim, what);
            return vec![waiting];
        };
        let series = |value: fn(&LiveStretch) -> f64| -> Vec<f64> {
            self.stretches.iter().map(value).collect()
        };
        let line = || Line::new(caps);
        let mut lines = vec![
            row(
                line(),
                "requests/s",
                &format_grouped(last.requests_per_second.round()),
                &series(|stretch| stretch.requests_per_second),
                true,
            ),
            row(
                line(),
                "MB/s",
                &format!("{:.1}", last.bytes_per_second / 1e6),
                &[],
                true,
            ),
            row(
                line(),
                "in flight",
                &format!("{:.1}", last.depth),
                &series(|stretch| stretch.depth),
                false,
            ),
        ];
        if let Some(at) = &last.response {
            let p99 = series(|stretch| stretch.response.map_or(0.0, |at| at.p99_us));
            lines.push(row(line(), "p99", &micros(at.p99_us), &p99, false));
            let mut all = line();
            let figures = [
                ("mean", at.mean_us),
                ("p50", at.p50_us),
                ("p90", at.p90_us),
                ("p99.9", at.p99_9_us),
                ("max", at.max_us),
            ];
            let figures = figures.map(|(name, us)| format!("{name} {}", micros(us)));
            all.put(&format!("  {}", figures.join("  ")));
            lines.push(all);
        }
        if last.kinds.len() > 1 {
            lines.extend(last.kinds.iter().take(KINDS_MAX).map(|kind| {
                let mean = kind.mean_us.map_or_else(|| "-".into(), micros);
                let rate = format_grouped(kind.requests_per_second.round());
                let mut text = line();
                text.put(&format!("  {:<9}{rate:>12}  mean {mean}", kind.op.name()));
                text
            }));
        }
        lines
    }

    /// The heat map in at most `rows` rows, with the slowest responses at the top; below it the faults and the time
    /// axis.
    fn heat<'a>(&self, caps: &'a TerminalCaps, rows: usize) -> Vec<Line<'a>> {
        let columns = Line::new(caps).room.saturating_sub(LABEL);
        let shown: Vec<&LiveStretch> = self
            .stretches
            .iter()
            .skip(self.stretches.len().saturating_sub(columns))
            .collect();
        let used = || {
            shown
                .iter()
                .flat_map(|stretch| stretch.heat.iter().map(|(row, _)| usize::from(*row)))
        };
        let (Some(low), Some(high)) = (used().min(), used().max()) else {
            return Vec::new();
        };
        // Each row combines this many rows of the page.
        let each = (high - low + 1).div_ceil(rows).max(1);
        let mut cells = vec![vec![0u64; shown.len()]; (high - low + 1).div_ceil(each)];
        for (column, stretch) in shown.iter().enumerate() {
            for (row, count) in &stretch.heat {
                cells[(usize::from(*row) - low) / each][column] += count;
            }
        }
        let top = cells.iter().flatten().copied().max().unwrap_or(0);
        let mut lines = Vec::new();
        for (row, counts) in cells.iter().enumerate().rev() {
            let bound = self.plan.heat_bounds_us.get(low + (row + 1) * each - 1);
            let name = bound.map_or_else(|| "slower".into(), |us| micros(*us));
            lines.push(labelled(
                caps,
                &name,
                &counts
                    .iter()
                    .map(|count| shade(*count, top, caps))
                    .collect::<String>(),
            ));
        }
        let is_under = |stretch: &&LiveStretch| {
            let over = |fault: &LiveFault| fault.end_s.is_none_or(|end| end > stretch.start_s);
            self.faults
                .values()
                .any(|fault| fault.start_s < stretch.end_s && over(fault))
        };
        let mark = if caps.unicode { '▓' } else { 'X' };
        let faults: String = shown
            .iter()
            .map(|one| if is_under(one) { mark } else { ' ' })
            .collect();
        let mut under = Line::new(caps);
        under.put(&format!(
            "{:>width$} ",
            if self.faults.is_empty() { "" } else { "faults" },
            width = LABEL - 1
        ));
        under.paint(Paint::Red, faults.trim_end());
        lines.push(under);
        let (from, to) = (shown[0].start_s, shown[shown.len() - 1].end_s);
        let to = format!("{to:.1} s");
        let from = format!("{from:.1} s");
        let gap = shown.len().saturating_sub(from.len() + to.len()).max(1);
        lines.push(labelled(
            caps,
            "time",
            &format!("{from}{}{to}", " ".repeat(gap)),
        ));
        lines
    }

    fn faults_listed<'a>(&self, caps: &'a TerminalCaps) -> Vec<Line<'a>> {
        let text = |fault: &LiveFault| {
            let mut line = Line::new(caps);
            let until = fault
                .end_s
                .map_or_else(|| "now".into(), |end| format!("{end:.1} s"));
            let words = format!(
                "{} at {}, {:.1} s to {until}",
                fault.name, fault.place, fault.start_s
            );
            match fault.end_s {
                None => line.paint(Paint::Red, &words),
                Some(_) => line.put(&words),
            }
            line
        };
        self.faults.values().map(text).collect()
    }

    fn hosts<'a>(&self, caps: &'a TerminalCaps) -> Vec<Line<'a>> {
        // The page also shows processes and devices; here, the other figures of this program are shown next to the
        // errors.
        let machines = self
            .samples
            .iter()
            .filter(|((_, subject), _)| *subject == LiveSubject::Machine);
        machines
            .map(|((host, _), sample)| {
                let values = sample
                    .values
                    .iter()
                    .map(|one| (&*one.0, &*one.1, &*one.2, one.3));
                let figures = host_figures(values).join("  ");
                labelled(
                    caps,
                    host,
                    &if caps.unicode {
                        figures
                    } else {
                        figures.replace('°', "")
                    },
                )
            })
            .collect()
    }

    /// Lines for finished runs, and one for the next run.
    fn runs<'a>(&self, caps: &'a TerminalCaps) -> Vec<Line<'a>> {
        let over = self.ended.iter().map(|run| {
            let p99 = run
                .response
                .map_or_else(|| "-".into(), |at| micros(at.p99_us));
            let rate = format_grouped(run.requests_per_second.round());
            let note = if run.complete { "" } else { ", not complete" };
            let what = format!("{} of {}", run.order + 1, run.runs);
            labelled(
                caps,
                &what,
                &format!("{rate}/s  p99 {p99}  {}{note}", run.label),
            )
        });
        let next = self.run.as_ref().map_or(0, |run| run.order as usize + 1);
        let to_come = (self.plan.runs as usize).saturating_sub(next);
        let point = self
            .plan
            .order
            .get(next)
            .and_then(|point| self.plan.points.get(*point as usize));
        let next = point.map(|point| {
            let others = if to_come > 1 {
                format!(", and {} more", to_come - 1)
            } else {
                String::new()
            };
            labelled(caps, "next", &format!("{}{others}", point.label))
        });
        over.chain(next).collect()
    }

    fn log<'a>(&self, caps: &'a TerminalCaps) -> Vec<Line<'a>> {
        self.notes
            .iter()
            .map(|note| labelled(caps, "log", note))
            .collect()
    }
}

/// A line with a label.
fn labelled<'a>(caps: &'a TerminalCaps, name: &str, text: &str) -> Line<'a> {
    let mut line = Line::new(caps);
    let short: String = name.chars().take(LABEL - 1).collect();
    line.paint(Paint::Dim, &format!("{short:>width$} ", width = LABEL - 1));
    line.put(text);
    line
}

/// The shade for a count relative to the largest count; logarithmic, so that a tenth of it is still visible.
fn shade(count: u64, top: u64, caps: &TerminalCaps) -> char {
    let steps = if caps.unicode {
        [' ', '░', '▒', '▓', '█']
    } else {
        [' ', '.', ':', '+', '#']
    };
    if count == 0 {
        return steps[0];
    }
    let share = (count as f64).ln_1p() / (top as f64).ln_1p();
    steps[((share * 4.0).ceil() as usize).clamp(1, 4)]
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::state;
    use super::*;
    use brunt_result::summary::Latencies;
    use brunt_web::live::{LivePoint, LiveValue};

    fn caps(columns: u16, colours: bool, unicode: bool) -> TerminalCaps {
        TerminalCaps {
            columns,
            colours,
            unicode,
        }
    }

    fn stretch(second: u32, row: u16) -> LiveFrame {
        let at = Latencies {
            min_us: 1.0,
            mean_us: 120.0,
            p50_us: 100.0,
            p90_us: 200.0,
            p99_us: 900.0,
            p99_9_us: 1500.0,
            p99_99_us: 1600.0,
            max_us: 2000.0,
        };
        LiveFrame::Stretch(LiveStretch {
            start_s: f64::from(second),
            end_s: f64::from(second + 1),
            of: 1,
            completed: 1000,
            requests_per_second: 1000.0,
            bytes_per_second: 4e6,
            depth: 3.5,
            response: Some(at),
            heat: vec![(4, 990), (row, 10)],
            ..LiveStretch::default()
        })
    }

    /// A run in its tenth second, with a fault from the third to the fifth second that slowed some requests.
    fn screen() -> Screen {
        let mut screen = Screen::default();
        let points = vec![LivePoint {
            label: "disk w".into(),
            stated_s: None,
        }];
        let heat_bounds_us = (0..30).map(|row| f64::from(1u32 << row)).collect();
        let plan = LivePlan {
            runs: 3,
            order: vec![0, 0, 0],
            points,
            heat_bounds_us,
            ..LivePlan::default()
        };
        let run = LiveRun {
            order: 0,
            runs: 3,
            point: 0,
            label: "disk w".into(),
            repetition: 0,
            at_s: 0.0,
        };
        let fault = LiveFault {
            index: 0,
            name: "stall".into(),
            kind: "storage".into(),
            place: "disk".into(),
            what: "stalls".into(),
            start_s: 3.0,
            shown_by: String::new(),
            end_s: Some(5.0),
            gone_by: String::new(),
        };
        let value = LiveValue("cpu".into(), String::new(), "busy_share".into(), 0.5);
        let sample = LiveSample {
            host: "node7".into(),
            start_s: 0.0,
            end_s: 1.0,
            of: 1,
            values: vec![value],
            left_out: 0,
        };
        screen.take(&LiveFrame::Plan(plan));
        screen.take(&LiveFrame::RunBegins(run));
        screen.take(&LiveFrame::RunStarts {
            at_s: 0.0,
            trial: 0,
        });
        screen.take(&LiveFrame::Fault(fault));
        (0..10).for_each(|second| {
            screen.take(&stretch(
                second,
                if (3..5).contains(&second) { 11 } else { 5 },
            ))
        });
        screen.take(&LiveFrame::Sample(sample));
        screen.take(&LiveFrame::Note {
            at_s: 1.0,
            text: "a line of the log".into(),
        });
        screen
    }

    #[test]
    fn the_screen_has_the_figures_of_the_page() {
        let lines = screen().draw(&state(), Nanos(0), &caps(60, false, true), 30);
        let has = |text: &str| {
            assert!(
                lines.iter().any(|line| line.contains(text)),
                "{text}: {lines:#?}"
            )
        };
        for text in [
            "requests/s        1,000",
            "in flight           3.5",
            "p99.9 1.50 ms",
            "no errors",
        ] {
            has(text);
        }
        // The page's eight rows, from 16 us to 2 ms, fit into eight rows: the slow requests are at the top, above the
        // fault.
        let slowest = lines
            .iter()
            .position(|line| line.starts_with("  2.05 ms    ▒▒"));
        assert_eq!(
            slowest.map(|at| lines[at + 8].starts_with("   faults    ▓▓")),
            Some(true),
            "{lines:#?}"
        );
        has("   32 us ▒▒▒  ▒▒▒▒▒");
        has("   16 us ██████████");
        has("    time 0.0 s 10.0 s");
        // With less room, adjacent rows are merged and nothing is lost.
        let low = screen().draw(&state(), Nanos(0), &caps(60, false, true), 20);
        let slow = low
            .iter()
            .position(|line| line.ends_with("    ▒▒     "))
            .expect("slow requests");
        assert!(
            low.len() <= 20 && low[slow..].iter().any(|line| line.contains("faults    ▓▓")),
            "{low:#?}"
        );
        has("stall at disk, 3.0 s to 5.0 s");
        has("   node7 cpu 50.0 %");
        has("    next disk w, and 1 more");
        has("     log a line of the log");
        assert!(
            lines
                .last()
                .is_some_and(|line| line.starts_with("Ctrl-C ends it")),
            "{lines:#?}"
        );
    }

    /// At any size, there are never more lines than rows, and no line is as wide as the terminal. Colour changes
    /// nothing else.
    #[test]
    fn the_screen_fits_at_any_size() {
        for (screen, state) in [(screen(), state()), (Screen::default(), state())] {
            for rows in 1..40 {
                for columns in [1, 19, 20, 33, 80, 119, 200u16] {
                    for unicode in [true, false] {
                        let lines =
                            screen.draw(&state, Nanos(0), &caps(columns, false, unicode), rows);
                        let coloured =
                            screen.draw(&state, Nanos(0), &caps(columns, true, unicode), rows);
                        assert!(lines.len() <= rows, "{rows}: {lines:#?}");
                        for (line, coloured) in lines.iter().zip(&coloured) {
                            assert!(
                                line.chars().count() < usize::from(columns.max(20)),
                                "{columns}: {line}"
                            );
                            assert!(unicode || line.is_ascii(), "{line}");
                            let mut bare = coloured.clone();
                            for code in ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m"] {
                                bare = bare.replace(code, "");
                            }
                            assert_eq!(bare, *line);
                        }
                    }
                }
            }
        }
    }

    /// Memory use stays bounded during a run of several days with many hosts.
    #[test]
    fn memory_is_bounded_over_days_with_many_hosts() {
        let mut screen = screen();
        for index in 0..10_000 {
            screen.take(&stretch(index, 5));
            screen.take(&LiveFrame::Note {
                at_s: 0.0,
                text: index.to_string(),
            });
        }
        assert_eq!(
            (screen.stretches.len(), screen.notes.len()),
            (STRETCHES_MAX, LISTED_MAX)
        );
    }
}
