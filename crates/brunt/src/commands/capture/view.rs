//! The live view: a `top`-like screen on a terminal, lines elsewhere.

use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brunt_capture::analysis::{HotLoad, Quantiles};
use brunt_core::units::format_size;
use ratatui::DefaultTerminal;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Table};

use super::picture::Picture;
use crate::cli::Output;

/// Without a terminal, print every tenth snapshot: one line every ten seconds.
const LINE_EVERY: u32 = 10;
/// Findings shown.
const FOUND_MAX: usize = 3;

/// Displays snapshots.
pub struct View {
    terminal: Option<DefaultTerminal>,
    output: Output,
    /// The previous snapshot, from which rates are computed.
    before: Picture,
    shown: u32,
}

impl View {
    /// Takes over the screen if there is a terminal and plain lines were not requested.
    pub fn new(plain: bool, output: &Output) -> View {
        let wanted = !plain && !output.is_json() && std::io::stdout().is_terminal();
        let terminal = wanted.then(ratatui::try_init).and_then(Result::ok);
        View {
            terminal,
            output: output.clone(),
            before: Picture::default(),
            shown: 0,
        }
    }

    /// Whether the view has taken over the screen.
    pub fn has_screen(&self) -> bool {
        self.terminal.is_some()
    }

    /// Displays a snapshot.
    pub fn show(&mut self, picture: &Picture) {
        self.shown += 1;
        if let Some(terminal) = &mut self.terminal {
            // Clears notes printed since the last snapshot, for example about a full disk.
            if self.shown.is_multiple_of(LINE_EVERY) {
                let _ = terminal.clear();
            }
            let before = &self.before;
            // If the terminal is gone, nothing is shown and the capture continues.
            let _ = terminal.draw(|frame| draw(frame, picture, before));
            self.before = picture.clone();
        } else if self.shown.is_multiple_of(LINE_EVERY) {
            self.output.note(line(picture, &self.before));
            self.before = picture.clone();
        }
    }

    /// Checks for `q` and Ctrl-C: in raw mode the terminal doesn't turn Ctrl-C into a signal.
    pub fn keys(&mut self) {
        if self.terminal.is_none() {
            return;
        }
        while event::poll(Duration::ZERO).unwrap_or(false) {
            if let Ok(Event::Key(key)) = event::read() {
                let interrupt =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if interrupt || key.code == KeyCode::Char('q') {
                    self.output.interrupt_flag().store(true, Ordering::Relaxed);
                }
            }
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if self.terminal.take().is_some() {
            ratatui::restore();
        }
    }
}

/// Rates per second between two snapshots.
struct Rates {
    operations: f64,
    errors: f64,
    gbit: f64,
    packets: f64,
    data: [f64; 2],
    seconds: f64,
}

impl Rates {
    fn between(now: &Picture, before: &Picture) -> Rates {
        let seconds = (now.at_s - before.at_s).max(1e-3);
        let (g, b) = (&now.glance, &before.glance);
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        Rates {
            operations: rate(g.calls(), b.calls()),
            errors: rate(g.errors(), b.errors()),
            gbit: rate(g.ledger.wire_bytes, b.ledger.wire_bytes) * 8e-9,
            packets: rate(g.ledger.packets, b.ledger.packets),
            data: [
                rate(g.data_bytes[0], b.data_bytes[0]),
                rate(g.data_bytes[1], b.data_bytes[1]),
            ],
            seconds,
        }
    }
}

fn bytes(rate: f64) -> String {
    format_size(rate as u64)
}

/// Formats a snapshot as a line.
fn line(now: &Picture, before: &Picture) -> String {
    let rates = Rates::between(now, before);
    format!(
        "{:.0} s: {:.0} op/s, {:.3} Gb/s, read {}/s, written {}/s, {:.0} errors/s; {} calls seen, {} packets dropped, \
         {} parcels waiting",
        now.at_s,
        rates.operations,
        rates.gbit,
        bytes(rates.data[0]),
        bytes(rates.data[1]),
        rates.errors,
        now.glance.calls(),
        now.live.counters.dropped,
        now.queued.iter().sum::<u32>()
    )
}

fn draw(frame: &mut Frame<'_>, now: &Picture, before: &Picture) {
    let rates = Rates::between(now, before);
    let found = now.found.latest.len().min(FOUND_MAX) as u16;
    let [head, operations, files, clients, findings, ledger] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(9),
        Constraint::Min(5),
        Constraint::Length(7),
        Constraint::Length(found + u16::from(found > 0)),
        Constraint::Length(5),
    ])
    .areas(frame.area());
    let title = format!(
        "brunt capture  {:>6.0} s   {:>9.0} op/s   {:>7.3} Gb/s   {:>9.0} packets/s   {:.0} errors/s",
        now.at_s, rates.operations, rates.gbit, rates.packets, rates.errors
    );
    let data = format!(
        "read {}/s   written {}/s   (q stops)",
        bytes(rates.data[0]),
        bytes(rates.data[1])
    );
    frame.render_widget(
        Paragraph::new(vec![Line::from(title), Line::from(data)]),
        head,
    );

    operations_table(frame, operations, now, before, rates.seconds);
    let before_files = |key| {
        before
            .glance
            .files
            .iter()
            .find(|file| file.0 == key)
            .map(|file| file.2)
    };
    let rows = now
        .glance
        .files
        .iter()
        .map(|(key, path, load)| hot(path, load, before_files(*key), rates.seconds));
    hot_table(frame, files, "hottest files", rows);
    let before_clients = |key| {
        before
            .glance
            .clients
            .iter()
            .find(|client| client.0 == key)
            .map(|client| client.1)
    };
    let rows = now.glance.clients.iter().map(|(address, load)| {
        hot(
            &address.to_string(),
            load,
            before_clients(*address),
            rates.seconds,
        )
    });
    hot_table(frame, clients, "hottest clients", rows);

    if found > 0 {
        findings_block(frame, findings, now);
    }
    ledger_block(frame, ledger, now);
}

/// Lines for the latest findings.
fn findings_block(frame: &mut Frame<'_>, area: Rect, now: &Picture) {
    let latest = now.found.latest.iter().rev().take(FOUND_MAX);
    let lines = latest.map(|found| Line::from(format!("{} {}", found.time(), found.finding.text)));
    let block = Block::new()
        .title("findings")
        .style(Style::new().fg(Color::Yellow));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), area);
}

/// The kinds of operations, busiest first.
fn operations_table(
    frame: &mut Frame<'_>,
    area: Rect,
    now: &Picture,
    before: &Picture,
    seconds: f64,
) {
    let mut busiest: Vec<_> = now.glance.operations.iter().collect();
    busiest.sort_by_key(|operation| std::cmp::Reverse(operation.calls));
    let rows = busiest.iter().map(|o| {
        let earlier = before
            .glance
            .operations
            .iter()
            .find(|other| other.name == o.name);
        let calls = o
            .calls
            .saturating_sub(earlier.map_or(0, |earlier| earlier.calls));
        let known = |text: String| {
            if o.latency.count() > 0 {
                text
            } else {
                "-".to_string()
            }
        };
        Row::new([
            o.name.to_string(),
            format!("{:.0}", calls as f64 / seconds),
            o.calls.to_string(),
            known(o.errors.to_string()),
            known(time(o.latency.quantile_ns(0.5))),
            known(time(o.latency.quantile_ns(0.99))),
        ])
    });
    let widths = [18, 10, 12, 10, 10, 10].map(Constraint::Length);
    let header = Row::new(["operation", "/s", "calls", "errors", "median", "99 %"]).style(HEADING);
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

/// Lines about losses and queue lengths.
fn ledger_block(frame: &mut Frame<'_>, area: Rect, now: &Picture) {
    let (l, c) = (&now.glance.ledger, &now.live.counters);
    let lines = [
        format!(
            "packets {} seen, {} dropped by the ring, {} unreadable",
            l.packets, c.dropped, l.packets_unreadable
        ),
        format!(
            "streams {} holes of {}, {} searches; kept {}",
            l.holes,
            format_size(l.hole_bytes),
            l.slow_mode_entries,
            format_size(now.glance.kept_bytes)
        ),
        format!(
            "calls   {} seen, {} open, {} timed out; {} replies without a call",
            l.calls, l.calls_open, l.calls_timed_out, l.replies_unmatched
        ),
        format!(
            "backlog {:?} parcels per parser; pool exhausted {} times",
            now.queued, now.live.pool_waits
        ),
    ];
    let style = if c.dropped > 0 {
        Style::new().fg(Color::Red)
    } else {
        Style::new()
    };
    let block = Block::new().title("ledger").style(style);
    frame.render_widget(
        Paragraph::new(lines.map(Line::from).to_vec()).block(block),
        area,
    );
}

const HEADING: Style = Style::new().fg(Color::Cyan);

fn hot(name: &str, load: &HotLoad, before: Option<HotLoad>, seconds: f64) -> Row<'static> {
    let before = before.unwrap_or_default();
    let operations = load.operations.saturating_sub(before.operations) as f64 / seconds;
    let moved = load.bytes.saturating_sub(before.bytes) as f64 / seconds;
    // Paths differ at the end, so keep the end.
    let count = name.chars().count();
    let name: String = name.chars().skip(count.saturating_sub(50)).collect();
    Row::new([
        name,
        format!("{operations:.0}"),
        format!("{}/s", bytes(moved)),
        load.operations.to_string(),
    ])
}

fn hot_table<'a>(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &'a str,
    rows: impl Iterator<Item = Row<'a>>,
) {
    let widths = [52, 10, 12, 12].map(Constraint::Length);
    let header = Row::new([title, "op/s", "data", "op"]).style(HEADING);
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

fn time(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.0} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}
