//! The live page of a run: an observer of the experiment's events, and a site that sends them to browsers as
//! server-sent events.
//!
//! Events go through a bounded channel to a separate thread (`feed`), which turns them into `frame`s, keeps what late
//! viewers need (`record`), and passes them to the `viewers`: browsers (`site`), or the server that started the run
//! (`relay`).
//!
//! The rule: neither the run nor the terminal waits for a viewer. Events that don't fit into the channel, and frames
//! that don't fit into a viewer's queue, are counted and reported: on the page, and when the run ends.

mod feed;
mod frame;
mod record;
pub(crate) mod relay;
pub(crate) mod site;
mod stretch;
mod thinned;
pub(crate) mod viewers;

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_core::{Clock, Nanos};
use brunt_study::observe::Observer;

use self::feed::{Feed, FeedMessage, Witness};
pub use self::frame::{
    LiveEnd, LiveEnding, LiveFault, LiveFrame, LiveKind, LiveLosses, LivePlan, LivePoint, LiveRun,
    LiveRunEnd, LiveSample, LiveStretch, LiveSubject, LiveThinning, LiveValue,
};
pub use self::viewers::LiveWatcher;
use self::viewers::Viewers;
use crate::api::RunControl;
use crate::http::HttpServer;

/// Capacity of the event channel. An event can hold an interval's histograms, up to a megabyte.
const EVENTS_MAX: usize = 256;
/// How long shutdown waits for viewers to take their last frames.
const CLOSING_TIME: Duration = Duration::from_secs(1);
/// How long shutdown waits for the server that started this program to take its last frames.
const CLOSING_TIME_RELAYED: Duration = Duration::from_secs(20);

/// A live page.
pub struct LivePage {
    feed: SyncSender<FeedMessage>,
    missed: Arc<AtomicU64>,
    viewers: Arc<Viewers>,
    thread: Option<JoinHandle<()>>,
    outlet: Option<LiveOutlet>,
}

/// The destination of frames.
enum LiveOutlet {
    /// To browsers.
    #[allow(dead_code)] // serves until it is dropped
    Server(HttpServer),
    /// Frames go to the server that started this program.
    Sender(JoinHandle<()>),
    /// Frames stay within this program.
    Here,
}

impl LivePage {
    /// Serves the page on this listener until [`LivePage::close`]. Clients with the token can stop the run.
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn start(
        listener: TcpListener,
        plan: LivePlan,
        control: RunControl,
    ) -> io::Result<LivePage> {
        LivePage::start_at(listener, plan, control, Clock::Monotonic.now())
    }

    /// Like [`LivePage::start`], but with an explicit zero for the page's times.
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn start_at(
        listener: TcpListener,
        plan: LivePlan,
        control: RunControl,
        zero: Nanos,
    ) -> io::Result<LivePage> {
        LivePage::shown_by(plan, zero, |viewers| {
            let site = site::site(viewers, control.routes());
            Ok(LiveOutlet::Server(HttpServer::start(
                listener,
                "live page",
                site,
            )?))
        })
    }

    /// Sends the page's frames over this socket to the server that started this program (`brunt serve`). Calls `stop`
    /// when the server requests it or is gone.
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn send(
        socket: UnixStream,
        plan: LivePlan,
        stop: impl FnOnce() + Send + 'static,
    ) -> io::Result<LivePage> {
        LivePage::shown_by(plan, Clock::Monotonic.now(), |viewers| {
            let sender = relay::send(socket, &viewers, stop)?;
            Ok(LiveOutlet::Sender(sender))
        })
    }

    /// A page that is only watched by this program ([`LivePage::watch`]).
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn unserved(plan: LivePlan) -> io::Result<LivePage> {
        LivePage::shown_by(plan, Clock::Monotonic.now(), |_| Ok(LiveOutlet::Here))
    }

    fn shown_by(
        plan: LivePlan,
        zero: Nanos,
        open: impl FnOnce(Arc<Viewers>) -> io::Result<LiveOutlet>,
    ) -> io::Result<LivePage> {
        let folder = plan.folder.clone();
        let viewers = Arc::new(Viewers::new(plan));
        let missed = Arc::new(AtomicU64::new(0));
        let (feed, said) = sync_channel(EVENTS_MAX);
        let mut work = Feed::new(Arc::clone(&viewers), Arc::clone(&missed), zero, folder);
        let outlet = open(Arc::clone(&viewers))?;
        let thread = std::thread::Builder::new().name("live feed".into());
        let thread =
            thread.spawn(move || while said.recv().is_ok_and(|said| work.take(said)) {})?;
        Ok(LivePage {
            feed,
            missed,
            viewers,
            thread: Some(thread),
            outlet: Some(outlet),
        })
    }

    /// Adds a watcher within this program: it receives the history so far, then each new frame.
    pub fn watch(&self, watcher: LiveWatcher) {
        self.viewers.watch(watcher);
    }

    /// The observer that receives the experiment's events.
    pub fn observer(&self) -> Box<dyn Observer> {
        Box::new(Witness::new(self.feed.clone(), Arc::clone(&self.missed)))
    }

    /// A listener for the terminal's lines.
    pub fn listener(&self) -> impl Fn(&str) + Send + 'static {
        let witness = Witness::new(self.feed.clone(), Arc::clone(&self.missed));
        move |text| witness.note(text)
    }

    /// Frames and events lost so far.
    pub fn losses(&self) -> LiveLosses {
        self.viewers.losses(self.missed.load(Ordering::Relaxed))
    }

    /// Announces the end to viewers, waits briefly for them to take the last frames, and shuts down. Events from
    /// observers that still exist are ignored from then on.
    pub fn close(mut self, ending: LiveEnding) -> LiveLosses {
        self.end(ending);
        self.losses()
    }

    fn end(&mut self, ending: LiveEnding) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        // If the channel is full, this waits only until the feed has processed an earlier message.
        let _ = self.feed.send(FeedMessage::Closes(ending));
        let _ = thread.join();
        match self.outlet.take() {
            // The receiver is a Brunt process, which reads as fast as it can. If the receiver is gone, the sender's
            // thread notices, so waiting longer does no harm.
            Some(LiveOutlet::Sender(sender)) => {
                self.viewers.close(CLOSING_TIME_RELAYED);
                drop(sender);
            }
            outlet => {
                self.viewers.close(CLOSING_TIME);
                drop(outlet);
            }
        }
    }
}

impl Drop for LivePage {
    fn drop(&mut self) {
        self.end(LiveEnding {
            trouble: Some("the run ended before its results were complete".into()),
            report: None,
        });
    }
}
