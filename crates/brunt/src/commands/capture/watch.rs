//! Polls the parsers of a capture and shows their state on the terminal, as lines, and as metrics. Runs on a separate
//! thread, so that the packet reader never waits for it.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brunt_capture::{Analysed, CaptureGlance, LiveCapture, LiveReport, Parsers, Sink};
use brunt_remote::MoveCounts;

use super::{metrics, view};
use crate::cli::{Failure, Output, bind_for};
use crate::metrics::{MetricsServer, serve};

/// Interval between polls of the parsers.
const EVERY: Duration = Duration::from_secs(1);

/// A snapshot of the capture.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Seconds since the start.
    pub at_s: f64,
    /// What the parsers have seen.
    pub glance: CaptureGlance,
    /// State and counters of the rings.
    pub live: LiveReport,
    /// Queued parcels, by parser.
    pub queued: Vec<u32>,
    /// Messages handled by the parsers.
    pub messages: u64,
    /// Parts on their way to an object store; `None` if they stay here.
    pub moves: Option<MoveCounts>,
}

enum News {
    /// A new round, with the reader's figures.
    Round {
        at_s: f64,
        live: LiveReport,
        queued: Vec<u32>,
        messages: u64,
        moves: Option<MoveCounts>,
    },
    /// What a parser has seen.
    Seen(usize, Box<CaptureGlance>),
}

/// Shows a capture while it runs.
pub struct Watch {
    news: Option<Sender<News>>,
    thread: Option<JoinHandle<()>>,
    started: Instant,
    next: Instant,
    server: Option<MetricsServer>,
}

impl Watch {
    /// Starts watching `parsers` parsers.
    pub fn start(
        parsers: usize,
        metrics: Option<SocketAddr>,
        plain: bool,
        output: &Output,
    ) -> Result<Watch, Failure> {
        let page = Arc::new(Mutex::new(metrics::page(&Picture::default())));
        let shown = Arc::clone(&page);
        let current = move || shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let server = serve(bind_for("metrics", metrics)?, output, current)?;
        let (sender, news) = channel();
        let output = output.clone();
        let thread = std::thread::Builder::new()
            .name("watch".into())
            .spawn(move || show(&news, parsers, &page, plain, &output))
            .map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))?;
        let now = Instant::now();
        Ok(Watch {
            news: Some(sender),
            thread: Some(thread),
            started: now,
            next: now + EVERY,
            server,
        })
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
        // The view may have ended; the capture continues.
        let _ = news.send(round);
        let news = news.clone();
        parsers.query(move |index, pipeline| {
            let _ = news.send(News::Seen(index, Box::new(CaptureGlance::of(pipeline))));
        });
    }

    /// Ends the view and restores the terminal.
    pub fn finish(&mut self) {
        self.news = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.server = None;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The watching thread: assembles snapshots and shows them.
fn show(news: &Receiver<News>, parsers: usize, page: &Mutex<String>, plain: bool, output: &Output) {
    // Take over the screen only once the capture runs: earlier messages stay readable and don't appear below the first
    // snapshot.
    let mut view = None;
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
                view.get_or_insert_with(|| view::View::new(plain, output));
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
                // Show it only when all parsers have answered: rates of only some would be wrong.
                if glances.iter().all(Option::is_some) {
                    let mut all = CaptureGlance::default();
                    glances
                        .iter_mut()
                        .filter_map(Option::take)
                        .for_each(|glance| all.merge(*glance));
                    all.ledger.packets_dropped = picture.live.counters.dropped;
                    picture.glance = all;
                    *page.lock().unwrap_or_else(PoisonError::into_inner) = metrics::page(&picture);
                    view.iter_mut().for_each(|view| view.show(&picture));
                }
            }
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
        }
        view.iter_mut().for_each(view::View::keys);
    }
}
