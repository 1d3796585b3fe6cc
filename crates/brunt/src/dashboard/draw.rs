//! The terminal display of a running experiment: a pure function of the state, the time and the terminal's capabilities.
//!
//! The rule: every line is narrower than the terminal, down to 20 columns, so that no line wraps.

use std::time::Duration;

use brunt_core::Nanos;
use brunt_core::units::format_grouped;

use super::state::{KindRate, State};

/// Minimum width of a line.
const COLUMNS_MIN: usize = 20;
/// Maximum width of a line: longer ones are hard to read.
const COLUMNS_MAX: usize = 120;
/// Widths of a row's name and of its figure.
const NAME: usize = 11;
const FIGURE: usize = 12;
/// Width of an operation kind's name, so that its rate is aligned with the total above it.
const KIND: usize = NAME - 2;
/// Maximum number of operation kinds shown; a file load may have twenty.
const KINDS_MAX: usize = 8;

/// What the terminal can display.
#[derive(Clone, Debug)]
pub struct TerminalCaps {
    /// Its width.
    pub columns: u16,
    /// Whether colours may be used (<https://no-color.org>).
    pub colours: bool,
    /// Whether the terminal can display more than ASCII.
    pub unicode: bool,
}

impl TerminalCaps {
    /// The capabilities of this program's terminal.
    pub fn of_terminal(columns: u16) -> TerminalCaps {
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        // The first variable that is set counts (locale(7)).
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .into_iter()
            .filter_map(|name| std::env::var(name).ok());
        let locale = locale
            .into_iter()
            .find(|value| !value.is_empty())
            .unwrap_or_default()
            .to_lowercase();
        TerminalCaps {
            columns,
            colours,
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Paint {
    Bold,
    Dim,
    Green,
    Red,
}

/// A line under construction, truncated at the width.
pub(super) struct Line<'a> {
    caps: &'a TerminalCaps,
    pub(super) text: String,
    pub(super) room: usize,
}

impl<'a> Line<'a> {
    /// An empty line for this terminal.
    pub(super) fn new(caps: &'a TerminalCaps) -> Line<'a> {
        let room = usize::from(caps.columns).clamp(COLUMNS_MIN, COLUMNS_MAX) - 1;
        Line {
            caps,
            text: String::new(),
            room,
        }
    }

    pub(super) fn put(&mut self, text: &str) {
        let fits: String = text
            .chars()
            .filter(|letter| !letter.is_control())
            .take(self.room)
            .collect();
        self.room -= fits.chars().count();
        self.text += &fits;
    }

    pub(super) fn paint(&mut self, paint: Paint, text: &str) {
        if !self.caps.colours {
            return self.put(text);
        }
        self.text += match paint {
            Paint::Bold => "\x1b[1m",
            Paint::Dim => "\x1b[2m",
            Paint::Green => "\x1b[32m",
            Paint::Red => "\x1b[31m",
        };
        self.put(text);
        self.text += "\x1b[0m";
    }
}

/// Draws the experiment as of time `now`.
pub fn draw(state: &State, now: Nanos, caps: &TerminalCaps) -> Vec<String> {
    let line = || Line::new(caps);
    let mut lines = head(state, now, caps);
    lines.extend(rates(state, line));
    lines.push(troubles(state, caps));
    if !state.faults.is_empty() {
        let mut faults = line();
        let names: Vec<&str> = state.faults.values().map(String::as_str).collect();
        faults.paint(Paint::Red, &format!("under {}", names.join(", ")));
        lines.push(faults);
    }
    lines.push(help(caps));
    lines.into_iter().map(|line| line.text).collect()
}

/// The experiment's name and progress.
pub(super) fn head<'a>(state: &State, now: Nanos, caps: &'a TerminalCaps) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    let mut head = Line::new(caps);
    head.paint(Paint::Bold, &state.name);
    let place = (state.done + 1).min(state.runs);
    head.put(&format!("  run {place} of {}", state.runs));
    lines.push(head);
    if let Some(run) = &state.run {
        let mut label = Line::new(caps);
        label.put(&run.label);
        lines.push(label);
    }
    let mut progress = Line::new(caps);
    let left = match state.left(now) {
        Some(left) => format!(" {} left", clock(left)),
        None => String::new(),
    };
    let share = state.progress(now);
    let after = format!(
        " {:>3.0}%  {}{left}",
        share * 100.0,
        clock(state.elapsed(now))
    );
    let columns = progress.room.saturating_sub(after.len()).min(60);
    bar(&mut progress, share, columns);
    progress.put(&after);
    lines.push(progress);
    lines
}

/// The line with the failures so far and the CPU use.
pub(super) fn troubles<'a>(state: &State, caps: &'a TerminalCaps) -> Line<'a> {
    let mut troubles = Line::new(caps);
    let losses = state.losses();
    if losses.is_empty() {
        troubles.put("no errors");
    }
    for (index, (what, count)) in losses.iter().enumerate() {
        troubles.put(if index > 0 { ", " } else { "" });
        troubles.paint(
            Paint::Red,
            &format!("{} {what}", format_grouped(*count as f64)),
        );
    }
    if let Some(cpu) = state.cpu {
        troubles.put(&format!("   CPU {:.0}%", cpu * 100.0));
        if let Some(own) = state.runner_cpus {
            troubles.put(&format!(" (ours {own:.2})"));
        }
    }
    troubles
}

pub(super) fn help(caps: &TerminalCaps) -> Line<'_> {
    let mut help = Line::new(caps);
    help.paint(Paint::Dim, "Ctrl-C ends it and keeps what was measured");
    help
}

/// Figures for the last second, each with its sparkline.
fn rates<'a>(state: &State, line: impl Fn() -> Line<'a>) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    match state.shown {
        None => {
            let mut waiting = line();
            let what = if state.started.is_some() {
                "ramping up, or no interval yet"
            } else {
                "getting ready"
            };
            waiting.paint(Paint::Dim, what);
            lines.push(waiting);
        }
        Some(last) => {
            let rates: Vec<f64> = state
                .history
                .iter()
                .map(|stretch| stretch.requests_per_second)
                .collect();
            lines.push(row(
                line(),
                "requests/s",
                &format_grouped(last.requests_per_second),
                &rates,
                true,
            ));
            lines.push(row(
                line(),
                "MB/s",
                &format!("{:.1}", last.bytes_per_second / 1e6),
                &[],
                true,
            ));
            let tails: Vec<f64> = state
                .history
                .iter()
                .map(|stretch| stretch.p99_us.unwrap_or(0.0))
                .collect();
            let p99 = last.p99_us.map_or_else(|| "-".into(), micros);
            lines.push(row(line(), "p99", &p99, &tails, false));
            lines.extend(kinds(&state.kinds).map(|text| {
                let mut kind = line();
                kind.put(&text);
                kind
            }));
        }
    }
    lines
}

/// A figure with its name and as much of its sparkline as fits.
pub(super) fn row<'a>(
    mut line: Line<'a>,
    name: &str,
    figure: &str,
    history: &[f64],
    more_is_better: bool,
) -> Line<'a> {
    line.put(&format!("{name:<NAME$}"));
    line.paint(Paint::Bold, &format!("{figure:>FIGURE$}"));
    line.put("  ");
    let room = line.room;
    let shown = &history[history.len().saturating_sub(room)..];
    let paint = if more_is_better {
        Paint::Green
    } else {
        Paint::Dim
    };
    if !shown.is_empty() && room > 0 {
        line.paint(paint, &sparkline(shown, line.caps.unicode));
    }
    line
}

/// One line per kind of operation, if there are several.
fn kinds(kinds: &[KindRate]) -> impl Iterator<Item = String> {
    let hidden = kinds.len().saturating_sub(KINDS_MAX);
    let shown = kinds.iter().take(KINDS_MAX).map(|kind| {
        let mean = kind.mean_us.map_or_else(|| "-".into(), micros);
        let rate = format_grouped(kind.requests_per_second.round());
        format!("  {:<KIND$}{rate:>FIGURE$}  mean {mean}", kind.op.name())
    });
    shown.chain((hidden > 0).then(|| format!("  and {hidden} more kinds")))
}

/// A progress bar `columns` wide.
fn bar(line: &mut Line<'_>, share: f64, columns: usize) {
    if columns < 4 {
        return;
    }
    let inner = columns - 2;
    let done = ((share * inner as f64).round() as usize).min(inner);
    let (full, empty) = if line.caps.unicode {
        ("━", "─")
    } else {
        ("#", "-")
    };
    line.put("[");
    line.paint(Paint::Green, &full.repeat(done));
    line.paint(Paint::Dim, &empty.repeat(inner - done));
    line.put("]");
}

/// One character per value, scaled from zero to the largest value.
fn sparkline(values: &[f64], unicode: bool) -> String {
    let steps: &[char] = if unicode {
        &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
    } else {
        &['_', '.', '-', '=', '+', '*', '%', '#']
    };
    let top = values.iter().copied().fold(0.0, f64::max);
    let step = |value: f64| {
        let place = if top > 0.0 {
            value / top * (steps.len() - 1) as f64
        } else {
            0.0
        };
        steps[(place.round() as usize).min(steps.len() - 1)]
    };
    values.iter().map(|value| step(*value)).collect()
}

/// Formats a number with three digits and a unit.
pub(super) fn micros(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.2} us"),
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e4 => format!("{:.2} ms", us / 1e3),
        us if us < 1e6 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

/// `1:02:03`, `2:03`.
pub(super) fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::{at, info, interval, state};
    use super::*;
    use brunt_study::observe::{Event, FaultRecord, Sample, SampleValue};

    fn plain(columns: u16) -> TerminalCaps {
        TerminalCaps {
            columns,
            colours: false,
            unicode: true,
        }
    }

    fn fault(end: Option<Nanos>) -> FaultRecord {
        FaultRecord {
            index: 0,
            name: "stall".into(),
            kind: "storage".into(),
            place: "disk".into(),
            what: "stalls".into(),
            start: at(2000),
            shown: at(2000),
            shown_by: "a late read".into(),
            end,
            gone: end,
            gone_by: String::new(),
            gaps: Vec::new(),
        }
    }

    /// A run in its fourth second; the third second was slow and had errors.
    fn under_way() -> State {
        let mut state = state();
        state.event(&Event::RunBegins(info(0, 0).into()), at(0));
        state.event(&Event::RunStarts(at(0)), at(0));
        for (index, reads, us) in [
            (0, 8000, 100),
            (1, 8000, 110),
            (2, 1000, 9000),
            (3, 4000, 150),
        ] {
            let mut interval = interval(index, 1000, reads, us);
            if index == 2 {
                interval.figures.counts.by_status[brunt_result::RequestStatus::Os as usize] = 1234;
            }
            state.event(&Event::Interval(interval.into()), at(index * 1000 + 1000));
        }
        let value =
            |probe: &'static str, instance: &str, metric: &'static str, value| SampleValue {
                probe: probe.into(),
                instance: instance.into(),
                metric: metric.into(),
                value,
            };
        let values = vec![
            value("cpu", "", "busy_share", 0.5),
            value("cpu", "cpu0", "busy_share", 1.0),
            value("process", "runner", "user_cpus", 0.75),
            value("process", "runner", "system_cpus", 0.25),
        ];
        let sample = Sample {
            host: "local".into(),
            start: at(0),
            end: at(1000),
            values,
        };
        state.event(&Event::Sample(sample.into()), at(4000));
        state.event(&Event::Fault(fault(None).into()), at(4000));
        state
    }

    /// The display shows every event and figure of such a run.
    #[test]
    fn eighty_columns_show_every_figure() {
        let lines = draw(&under_way(), at(4000), &plain(80));
        let expected = [
            "block sizes  run 1 of 4",
            "disk w queue_depth=0",
            "[━━━━━━────────────────────────────────────────────────────]  10%  0:04 0:36 left",
            "requests/s        4,000  ██▂▅",
            "MB/s               16.4  ",
            "p99              150 us  ▁▁█▁",
            "1,234 errors   CPU 50% (ours 1.00)",
            "under stall at disk",
            "Ctrl-C ends it and keeps what was measured",
        ];
        assert_eq!(lines.len(), expected.len(), "{lines:#?}");
        for (line, expected) in lines.iter().zip(expected) {
            if expected.starts_with('[') {
                assert!(
                    line.starts_with("[━━━━━") && line.ends_with("]  10%  0:04 0:36 left"),
                    "{line}"
                );
            } else {
                assert_eq!(line, expected);
            }
        }
    }

    /// A fault is shown as long as it is active.
    #[test]
    fn a_fault_is_shown_while_it_is_active() {
        let mut state = under_way();
        let shown = |state: &State| {
            draw(state, at(4000), &plain(80))
                .iter()
                .any(|l| l.contains("stall"))
        };
        assert!(
            shown(&state)
                && state
                    .interval_line(at(4000))
                    .ends_with(", under stall at disk")
        );
        state.event(&Event::Fault(fault(Some(at(4000))).into()), at(4000));
        assert!(!shown(&state));
    }

    /// No line reaches the right edge, at any width and time and with any labels, with and without colour. Colour
    /// changes nothing else.
    #[test]
    fn no_line_reaches_the_right_edge_at_any_width() {
        let mut early = state();
        let mut states = vec![under_way()];
        early.event(&Event::RunBegins(info(3, 1).into()), at(0));
        early.name = "a name\nwith \x1b[31m control and many, many letters ".repeat(9);
        states.push(early);
        states.push(state());
        for state in &states {
            for columns in 1..200u16 {
                for unicode in [true, false] {
                    let lines = draw(
                        state,
                        at(5000),
                        &TerminalCaps {
                            columns,
                            colours: false,
                            unicode,
                        },
                    );
                    let coloured = draw(
                        state,
                        at(5000),
                        &TerminalCaps {
                            columns,
                            colours: true,
                            unicode,
                        },
                    );
                    for (line, coloured) in lines.iter().zip(&coloured) {
                        assert!(
                            line.chars().count() < usize::from(columns.max(20)),
                            "{columns}: {line}"
                        );
                        assert!(unicode || line.is_ascii(), "{line}");
                        assert!(!line.contains(['\n', '\x1b']));
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

    /// Figures are short enough to read at a glance.
    #[test]
    fn figures_are_short_enough_to_read_at_a_glance() {
        let check = |shown: String, expected: &str| assert_eq!(shown, expected);
        check(micros(4.321), "4.32 us");
        check(micros(4321.0), "4.32 ms");
        check(micros(43_210.0), "43 ms");
        check(micros(4_321_000.0), "4.3 s");
        check(clock(Duration::from_secs(3723)), "1:02:03");
        check(sparkline(&[0.0, 1.0, 0.5], false), "_#+");
        check(sparkline(&[0.0, 0.0], true), "▁▁");
    }
}
