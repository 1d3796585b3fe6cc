//! The progress display of `brunt run`: on a terminal, a few lines that are redrawn in place; otherwise, plain lines:
//! one per run, and one every ten seconds during a long run.
//!
//! The rule: the display disturbs neither the workers nor the terminal. Events only update a few numbers; drawing
//! happens on a separate thread, at most ten times a second. The terminal's modes are not changed, so nothing has to
//! be restored, however this program ends or is stopped. The rule also applies to `--dashboard`, which fills the
//! terminal (`screen`).

mod draw;
mod screen;
mod state;

use std::io::{self, IsTerminal};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_core::{Clock, Nanos};
use brunt_study::experiment::Plan;
use brunt_study::observe::{Event, JobEvent, Observer};
use brunt_web::live::LivePage;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::Output;
use crate::live::Served;
use draw::{TerminalCaps, draw};
use screen::Screen;
use state::State;

/// Interval between redraws.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// Interval between plain lines within one run.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Assumed width of a terminal that doesn't report it.
const COLUMNS: u16 = 80;

/// Whether standard error is a terminal that can be redrawn; otherwise plain lines are printed.
pub fn can_draw() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    io::stderr().is_terminal() && !is_dumb
}

/// Creates the observer that displays an experiment. It also displays the live page if that was requested for the
/// terminal.
pub fn of(name: &str, plan: &Plan, output: &Output, live: Option<&Served>) -> Box<dyn Observer> {
    let state = State::new(name, plan, Clock::Monotonic.now());
    if can_draw() {
        Box::new(Dashboard::new(
            state,
            output.clone(),
            live.and_then(Served::on_terminal),
        ))
    } else {
        Box::new(Lines {
            state,
            output: output.clone(),
            printed_at: Nanos(0),
        })
    }
}

/// Prints a line for each run when it ends, and at intervals during a long run.
struct Lines {
    state: State,
    output: Output,
    /// When the last line was printed.
    printed_at: Nanos,
}

impl Observer for Lines {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        let now = Clock::Monotonic.now();
        self.state.event(event, now);
        match event {
            Event::RunStarts(start) => self.printed_at = self.printed_at.max(*start),
            Event::Interval(_) if now.since(self.printed_at) >= LINE_EVERY => {
                self.printed_at = now;
                self.output.note(self.state.interval_line(now));
            }
            Event::RunEnds(info, run, _) | Event::Job(_, JobEvent::RunEnds(info, run, _)) => {
                self.output.note(state::run_line(info, run))
            }
            _ => {}
        }
        Ok(())
    }
}

/// The display that is redrawn in place.
struct Dashboard {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    output: Output,
}

struct Shared {
    state: Mutex<State>,
    /// The full-screen display, if requested.
    screen: Option<Mutex<Screen>>,
    over: Mutex<bool>,
    ended: Condvar,
    bar: ProgressBar,
}

impl Dashboard {
    fn new(state: State, output: Output, page: Option<&LivePage>) -> Dashboard {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(20));
        bar.set_style(ProgressStyle::with_template("{msg}").expect("a valid template"));
        let (state, screen) = (Mutex::new(state), page.map(|_| Mutex::default()));
        let shared = Arc::new(Shared {
            state,
            screen,
            over: Mutex::new(false),
            ended: Condvar::new(),
            bar,
        });
        if let Some(page) = page {
            let watcher = Arc::clone(&shared);
            page.watch(Box::new(move |frame| {
                watcher
                    .screen
                    .iter()
                    .for_each(|screen| lock(screen).take(frame));
            }));
        }
        output.set_above(Some(shared.bar.clone()));
        let thread = std::thread::Builder::new().name("dashboard".into());
        let drawn = Arc::clone(&shared);
        // If the thread can't be started, the experiment continues without a display.
        let thread = thread.spawn(move || drawn.keep_drawing()).ok();
        Dashboard {
            shared,
            thread,
            output,
        }
    }

    /// Removes the display; later output starts in its place.
    fn end(&mut self) {
        *lock(&self.shared.over) = true;
        self.shared.ended.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.output.set_above(None);
        self.shared.bar.finish_and_clear();
    }
}

impl Observer for Dashboard {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        lock(&self.shared.state).event(event, Clock::Monotonic.now());
        match event {
            Event::RunEnds(info, run, _) | Event::Job(_, JobEvent::RunEnds(info, run, _)) => {
                self.output.note(state::run_line(info, run))
            }
            Event::Ends(_) => self.end(),
            _ => {}
        }
        Ok(())
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn keep_drawing(&self) {
        let mut over = lock(&self.over);
        while !*over {
            let (rows, columns) = window();
            let (now, caps) = (Clock::Monotonic.now(), TerminalCaps::of_terminal(columns));
            let room = usize::from(rows.saturating_sub(1)).max(1);
            let mut lines = match &self.screen {
                None => draw(&lock(&self.state), now, &caps),
                Some(screen) => lock(screen).draw(&lock(&self.state), now, &caps, room),
            };
            lines.truncate(room);
            self.bar.set_message(lines.join("\n"));
            self.bar.tick();
            over = self
                .ended
                .wait_timeout(over, DRAW_EVERY)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// Rows and columns of the terminal, queried each time because windows are resized.
fn window() -> (u16, u16) {
    match rustix::termios::tcgetwinsize(io::stderr()) {
        Ok(size) if size.ws_col > 0 => (size.ws_row.max(2), size.ws_col),
        _ => (24, COLUMNS),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic on the drawing thread has already been reported; keep processing events.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
