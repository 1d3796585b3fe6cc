//! Polls the parsers of a capture, shows their state (on the terminal, as metrics and on a page), and announces
//! findings. Runs on a separate thread, so that the packet reader never waits for it.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brunt_capture::analysis::ledger_findings;
use brunt_capture::trace::TraceStatus;
use brunt_capture::{Analysed, CaptureGlance, Ledger, LiveCapture, LiveReport, Parsers, Sink};
use brunt_remote::MoveCounts;
use brunt_web::http::HttpServer;

use super::findings::FindingBoard;
use super::health::{self, CaptureHealth};
use super::page::LiveState;
use super::picture::Picture;
use super::{metrics, view};
use crate::cli::{Failure, Output, bind_for};
use crate::metrics::{MetricsServer, serve};

/// Interval between polls of the parsers.
const EVERY: Duration = Duration::from_secs(1);
/// Number of polls between requests for findings, which take a parser a few milliseconds.
const FINDINGS_EVERY: u64 = 5;

/// Where to show a capture, besides the terminal.
pub struct WatchOptions<'a> {
    /// Address at which to serve metrics.
    pub metrics: Option<SocketAddr>,
    /// Address at which to serve the live page.
    pub serve: Option<SocketAddr>,
    /// Print lines instead of the live view.
    pub plain: bool,
    /// The board on which findings are announced.
    pub board: &'a FindingBoard,
    /// The interfaces.
    pub name: String,
}

enum News {
    /// A new poll, with the reader's figures.
    Round {
        at_s: f64,
        live: LiveReport,
        queued: Vec<u32>,
        messages: u64,
        moves: Option<MoveCounts>,
    },
    /// What a parser has seen.
    Seen(usize, Box<CaptureGlance>),
    /// The status of the trace in which to store the capture's health.
    Trace(TraceStatus),
}

/// Shows a capture while it runs.
pub struct Watch {
    news: Option<Sender<News>>,
    thread: Option<JoinHandle<()>>,
    started: Instant,
    next: Instant,
    polls: u64,
    metrics: Option<MetricsServer>,
    page: Option<HttpServer>,
}

/// The data that the servers show.
struct WatchShown {
    metrics: Mutex<String>,
    /// Present only if a live page is served.
    live: Option<Mutex<LiveState>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Starts watching `parsers` parsers.
    pub fn start(
        parsers: usize,
        options: WatchOptions<'_>,
        output: &Output,
    ) -> Result<Watch, Failure> {
        let live = LiveState::of(options.name);
        let shown = Arc::new(WatchShown {
            metrics: Mutex::new(metrics::page(&Picture::default())),
            live: options.serve.map(|_| Mutex::new(live)),
        });
        let current = Arc::clone(&shown);
        let current = move || lock(&current.metrics).clone();
        let metrics = serve(bind_for("metrics", options.metrics)?, output, current)?;
        let page = serve_page(options.serve, &shown, output)?;
        let (sender, news) = channel();
        let viewer = Viewer {
            view: None,
            plain: options.plain,
            output: output.clone(),
            board: options.board.clone(),
            shown,
            before_window: (None, Ledger::default()),
            trace: None,
        };
        let thread = std::thread::Builder::new()
            .name("watch".into())
            .spawn(move || viewer.run(&news, parsers))
            .map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))?;
        let now = Instant::now();
        Ok(Watch {
            news: Some(sender),
            thread: Some(thread),
            started: now,
            next: now + EVERY,
            polls: 0,
            metrics,
            page,
        })
    }

    /// Also stores the capture's health in the trace, if one is written.
    pub fn tell_trace(&self, status: Option<&TraceStatus>) {
        if let (Some(news), Some(status)) = (&self.news, status) {
            let _ = news.send(News::Trace(status.clone()));
        }
    }

    /// Polls the parsers when due. Never waits.
    pub fn tick<S: Sink + Analysed + Send + 'static>(
        &mut self,
        capture: &LiveCapture,
        parsers: &Parsers<S>,
        moves: Option<MoveCounts>,
    ) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = (self.next + EVERY).max(now);
        let Some(news) = &self.news else { return };
        let snapshot = parsers.snapshot();
        let round = News::Round {
            at_s: (now - self.started).as_secs_f64(),
            live: capture.report(),
            queued: snapshot.actors.iter().map(|actor| actor.queued).collect(),
            messages: snapshot.messages(),
            moves,
        };
        // The view may have ended; the capture continues without it.
        let _ = news.send(round);
        self.polls += 1;
        let with_findings = self.polls.is_multiple_of(FINDINGS_EVERY);
        let news = news.clone();
        parsers.query(move |index, pipeline| {
            let glance = match with_findings {
                true => CaptureGlance::with_findings(pipeline),
                false => CaptureGlance::of(pipeline),
            };
            let _ = news.send(News::Seen(index, Box::new(glance)));
        });
    }

    /// Ends the view and restores the terminal.
    pub fn finish(&mut self) {
        self.news = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.metrics = None;
        self.page = None;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Serves the live page, if an address was given.
fn serve_page(
    address: Option<SocketAddr>,
    shown: &Arc<WatchShown>,
    output: &Output,
) -> Result<Option<HttpServer>, Failure> {
    let Some(listener) = bind_for("the live page", address)? else {
        return Ok(None);
    };
    let address = listener.local_addr().map_err(Failure::failed)?;
    let state = |make: fn(&LiveState) -> String| {
        let shown = Arc::clone(shown);
        move || {
            let live = shown.live.as_ref().map(|live| lock(live).clone());
            make(&live.unwrap_or_default())
        }
    };
    let server =
        brunt_web::capture::serve(listener, state(LiveState::html), state(LiveState::json))
            .map_err(|error| Failure::failed(format!("cannot serve the live page: {error}")))?;
    output.note(format_args!("live page at http://{address}/"));
    Ok(Some(server))
}

/// The watching thread.
struct Viewer {
    view: Option<view::View>,
    plain: bool,
    output: Output,
    board: FindingBoard,
    shown: Arc<WatchShown>,
    /// The current window, and the counters at its start.
    before_window: (Option<u64>, Ledger),
    trace: Option<TraceStatus>,
}

impl Viewer {
    /// Assembles snapshots and shows them.
    fn run(mut self, news: &Receiver<News>, parsers: usize) {
        let mut glances: Vec<Option<Box<CaptureGlance>>> = vec![None; parsers];
        let mut picture = Picture::default();
        loop {
            match news.recv_timeout(Duration::from_millis(100)) {
                Ok(News::Round {
                    at_s,
                    live,
                    queued,
                    messages,
                    moves,
                }) => {
                    // Take over the screen only once the capture runs, so that earlier messages stay readable and
                    // don't appear below the first snapshot.
                    let view = || view::View::new(self.plain, &self.output);
                    let view = self.view.get_or_insert_with(view);
                    self.board.set_quiet(view.has_screen());
                    picture = Picture {
                        at_s,
                        live,
                        queued,
                        messages,
                        moves,
                        ..picture
                    };
                }
                Ok(News::Seen(index, glance)) => {
                    glances[index] = Some(glance);
                    // Show a snapshot only when all parsers have answered: with some missing, the rates would be
                    // wrong.
                    if glances.iter().all(Option::is_some) {
                        let mut all = CaptureGlance::default();
                        glances
                            .iter_mut()
                            .filter_map(Option::take)
                            .for_each(|glance| all.merge(*glance));
                        all.ledger.packets_dropped = picture.live.counters.dropped;
                        picture.glance = all;
                        self.show(&mut picture);
                    }
                }
                Ok(News::Trace(status)) => self.trace = Some(status),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
            }
            self.view.iter_mut().for_each(view::View::keys);
        }
        self.view = None;
        self.board.set_quiet(false);
    }

    fn show(&mut self, picture: &mut Picture) {
        self.announce(&picture.glance);
        picture.found = self.board.so_far();
        picture.health = CaptureHealth::now();
        if let Some(trace) = &self.trace {
            trace.set_health(health::row(picture));
        }
        *lock(&self.shown.metrics) = metrics::page(picture);
        if let Some(live) = &self.shown.live {
            lock(live).add(picture);
        }
        self.view.iter_mut().for_each(|view| view.show(picture));
    }

    /// Announces the parsers' findings, and losses that only the rings can detect.
    fn announce(&mut self, glance: &CaptureGlance) {
        if self.before_window.0 != glance.window_ns {
            self.before_window = (glance.window_ns, glance.ledger.clone());
        }
        let since = glance.ledger.since(&self.before_window.1);
        let found = match glance.window_ns {
            Some(_) => ledger_findings(&since),
            None => ledger_findings(&glance.ledger),
        };
        for findings in [&found, &glance.findings] {
            self.board.add(glance.window_ns, glance.now_ns, findings);
        }
    }
}
