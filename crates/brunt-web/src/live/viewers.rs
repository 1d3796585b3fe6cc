//! The viewers of a page, each with a bounded queue from which its response is sent.
//!
//! The rule: a slow viewer loses frames, and a frame in their place reports how many. Key frames, without which a
//! viewer would display something wrong (a run's end, a fault's end), are still queued when the queue is full for
//! other frames. A viewer whose queue is full even for key frames is cut off: it reconnects and receives the history
//! so far.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;

use super::frame::{LiveFrame, LiveLosses, LivePlan};
use super::record::LiveRecord;

/// Maximum number of concurrent viewers; further viewers are rejected.
pub const VIEWERS_MAX: usize = 64;
/// Maximum number of frames queued for a viewer, enough for about a minute of a run.
const FRAMES_MAX: usize = 256;
/// Maximum number of frames queued for a viewer including key frames, which are the last to be dropped.
const KEY_FRAMES_MAX: usize = 1024;

/// All viewers, and the record of the frames sent to them.
pub struct Viewers {
    state: Mutex<State>,
    /// Signalled when a viewer leaves.
    gone: Condvar,
    seen: AtomicU64,
    lost: AtomicU64,
}

struct State {
    record: LiveRecord,
    queues: Vec<Arc<Queue>>,
    watchers: Vec<LiveWatcher>,
    over: bool,
}

/// A watcher within this program: it receives the history so far, then each new frame. Viewers wait for the watcher,
/// so it must be quick.
pub type LiveWatcher = Box<dyn FnMut(&LiveFrame) + Send>;

struct Queue {
    waiting: Mutex<Waiting>,
    more: Notify,
}

#[derive(Default)]
struct Waiting {
    frames: VecDeque<Arc<[u8]>>,
    /// Number of frames dropped since the last one that was queued.
    lost: u64,
    /// Whether no more frames will come.
    over: bool,
}

/// A connected viewer, until it is dropped.
pub struct Viewer {
    all: Arc<Viewers>,
    queue: Arc<Queue>,
}

/// The next item for a viewer.
#[derive(Debug, PartialEq, Eq)]
pub enum NextFrames {
    /// Encoded frames, concatenated.
    Frames(Vec<u8>),
    /// Nothing within the time limit.
    Quiet,
    /// The end: no more frames will come.
    Over,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Viewers {
    /// Starts without viewers; on a server that hasn't begun an experiment, also without a plan.
    pub fn new(plan: impl Into<Option<LivePlan>>) -> Viewers {
        Viewers {
            state: Mutex::new(State {
                record: LiveRecord::new(plan),
                queues: Vec::new(),
                watchers: Vec::new(),
                over: false,
            }),
            gone: Condvar::new(),
            seen: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Sends a frame to all viewers, and records it for later ones.
    pub fn publish(&self, frame: &LiveFrame) {
        let mut state = lock(&self.state);
        state.record.take(frame);
        state.watchers.iter_mut().for_each(|watcher| watcher(frame));
        if state.queues.is_empty() {
            return;
        }
        let bytes: Arc<[u8]> = frame.encode().into();
        for queue in &state.queues {
            self.lost
                .fetch_add(queue.push(&bytes, frame.is_key()), Ordering::Relaxed);
        }
    }

    /// Adds a watcher within this program, which must accept frames at once and never wait.
    pub fn watch(&self, mut watcher: LiveWatcher) {
        let mut state = lock(&self.state);
        state.record.past().iter().for_each(&mut watcher);
        state.watchers.push(watcher);
    }

    /// Adds a viewer whose first frames are the history so far; `None` if there are too many viewers.
    pub fn join(self: &Arc<Self>) -> Option<Viewer> {
        let mut state = lock(&self.state);
        if state.queues.len() >= VIEWERS_MAX {
            return None;
        }
        let past = state.record.past();
        let waiting = Waiting {
            frames: VecDeque::new(),
            lost: 0,
            over: state.over,
        };
        let queue = Arc::new(Queue {
            waiting: Mutex::new(waiting),
            more: Notify::new(),
        });
        state.queues.push(Arc::clone(&queue));
        self.seen.fetch_add(1, Ordering::Relaxed);
        drop(state);
        let viewer = Viewer {
            all: Arc::clone(self),
            queue,
        };
        // The history may take megabytes, so encode it outside the lock; frames that arrive meanwhile follow it.
        let past: Vec<u8> = past.iter().flat_map(LiveFrame::encode).collect();
        lock(&viewer.queue.waiting).frames.push_front(past.into());
        Some(viewer)
    }

    /// Frames and events lost so far.
    pub fn losses(&self, events: u64) -> LiveLosses {
        let (viewers, frames) = (
            self.seen.load(Ordering::Relaxed),
            self.lost.load(Ordering::Relaxed),
        );
        LiveLosses {
            viewers,
            frames,
            events,
        }
    }

    /// Ends all queues and waits at most this long for viewers to drain them; the remaining frames are lost.
    pub fn close(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let mut state = lock(&self.state);
        state.over = true;
        state.queues.iter().for_each(|queue| queue.end());
        while !state.queues.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self
                .gone
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        for queue in &state.queues {
            let left = std::mem::take(&mut lock(&queue.waiting).frames).len();
            self.lost.fetch_add(left as u64, Ordering::Relaxed);
        }
    }
}

impl Queue {
    /// Queues a frame if there is room; returns how many frames were lost.
    fn push(&self, bytes: &Arc<[u8]>, is_key: bool) -> u64 {
        let mut waiting = lock(&self.waiting);
        if waiting.over {
            return 0;
        }
        if waiting.frames.len() >= KEY_FRAMES_MAX {
            // Once a key frame is lost, everything that the viewer displays would be wrong.
            let left = waiting.frames.len() as u64 + 1;
            waiting.frames.clear();
            waiting.over = true;
            self.more.notify_one();
            return left;
        }
        if waiting.frames.len() >= FRAMES_MAX && !is_key {
            waiting.lost += 1;
            return 1;
        }
        waiting.say_lost();
        waiting.frames.push_back(Arc::clone(bytes));
        self.more.notify_one();
        0
    }

    fn end(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.say_lost();
        waiting.over = true;
        self.more.notify_one();
    }
}

impl Waiting {
    fn say_lost(&mut self) {
        if self.lost > 0 {
            let frames = std::mem::take(&mut self.lost);
            self.frames
                .push_back(LiveFrame::Lost { frames }.encode().into());
        }
    }
}

impl Viewer {
    /// Waits at most this long for the next frames. Only one caller at a time may wait.
    pub async fn next(&self, patience: Duration) -> NextFrames {
        if let Some(next) = self.ready() {
            return next;
        }
        // Frames that arrived in the meantime aren't missed, because `Notify` keeps one permit. A stale permit only
        // causes a spurious wake-up.
        let ready = async {
            loop {
                self.queue.more.notified().await;
                if let Some(next) = self.ready() {
                    return next;
                }
            }
        };
        timeout(patience, ready).await.unwrap_or(NextFrames::Quiet)
    }

    /// The queued frames, or the end.
    fn ready(&self) -> Option<NextFrames> {
        let mut waiting = lock(&self.queue.waiting);
        if waiting.frames.is_empty() {
            return waiting.over.then_some(NextFrames::Over);
        }
        waiting.say_lost();
        let frames = std::mem::take(&mut waiting.frames);
        drop(waiting);
        Some(NextFrames::Frames(
            frames
                .iter()
                .flat_map(|frame| frame.iter().copied())
                .collect(),
        ))
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let mut state = lock(&self.all.state);
        state
            .queues
            .retain(|queue| !Arc::ptr_eq(queue, &self.queue));
        drop(state);
        self.all.gone.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::ZERO;

    /// Blocks until the next item.
    fn next_of(viewer: &Viewer, patience: Duration) -> NextFrames {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        runtime.block_on(viewer.next(patience))
    }

    fn note(index: usize) -> LiveFrame {
        LiveFrame::Note {
            at_s: 0.0,
            text: format!("line {index}"),
        }
    }

    fn text(next: NextFrames) -> String {
        match next {
            NextFrames::Frames(bytes) => String::from_utf8(bytes).expect("text"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_late_viewer_gets_the_past() {
        let viewers = Arc::new(Viewers::new(LivePlan {
            experiment: "x y".into(),
            ..LivePlan::default()
        }));
        viewers.publish(&note(1));
        let viewer = viewers.join().expect("room");
        viewers.publish(&note(2));
        let seen = text(next_of(&viewer, AT_ONCE));
        assert!(
            seen.starts_with("data: {\"frame\":\"plan\",\"experiment\":\"x y\""),
            "{seen}"
        );
        let places = ["line 1", "\"now\"", "line 2"].map(|what| seen.find(what).expect(what));
        assert!(places.is_sorted(), "{seen}");
        assert_eq!(next_of(&viewer, AT_ONCE), NextFrames::Quiet);
        assert_eq!(
            viewers.losses(0),
            LiveLosses {
                viewers: 1,
                frames: 0,
                events: 0
            }
        );
    }

    /// Each event is valid for a browser: one line that begins with `data: `, and an empty line.
    #[test]
    fn texts_do_not_break_events() {
        let frame = LiveFrame::Note {
            at_s: 0.0,
            text: "a\n\ndata: b\r\u{2028}".into(),
        };
        let bytes = String::from_utf8(frame.encode()).expect("text");
        assert!(
            bytes.ends_with("\n\n") && bytes.trim_end().lines().count() == 1,
            "{bytes}"
        );
    }

    /// The fast viewer loses nothing; the slow viewer is told how many frames it lost, and where.
    #[test]
    fn a_slow_viewer_loses_frames_and_gets_their_number() {
        let viewers = Arc::new(Viewers::new(LivePlan::default()));
        let (slow, quick) = (viewers.join().expect("room"), viewers.join().expect("room"));
        let mut seen = String::new();
        let more = 44;
        for index in 0..FRAMES_MAX + more {
            viewers.publish(&note(index));
            seen += &text(next_of(&quick, AT_ONCE));
        }
        assert_eq!(
            seen.matches("\"frame\":\"note\"").count(),
            FRAMES_MAX + more
        );
        assert!(!seen.contains("\"frame\":\"lost\""));
        // The history takes one slot.
        let lost = more as u64 + 1;
        assert_eq!(viewers.losses(0).frames, lost);
        // A key frame is still queued, and comes after the report of lost frames.
        viewers.publish(&LiveFrame::RunStarts {
            at_s: 1.0,
            trial: 0,
        });
        let seen = text(next_of(&slow, AT_ONCE));
        let told = seen
            .find(&format!("{{\"frame\":\"lost\",\"frames\":{lost}}}"))
            .expect("told");
        assert!(
            seen.find("run-starts").expect("the key frame") > told,
            "{seen}"
        );
        assert_eq!(seen.matches("\"frame\":\"note\"").count(), FRAMES_MAX - 1);
        viewers.publish(&note(7));
        assert!(
            !text(next_of(&slow, AT_ONCE)).contains("lost"),
            "it is told once"
        );
    }

    /// Without the lost key frames, the viewer would show faults that are gone, so it must reconnect.
    #[test]
    fn a_viewer_without_room_for_key_frames_is_cut_off() {
        let viewers = Arc::new(Viewers::new(LivePlan::default()));
        let viewer = viewers.join().expect("room");
        for _ in 0..=KEY_FRAMES_MAX {
            viewers.publish(&LiveFrame::RunStarts {
                at_s: 1.0,
                trial: 0,
            });
        }
        assert_eq!(next_of(&viewer, AT_ONCE), NextFrames::Over);
        assert_eq!(viewers.losses(0).frames, KEY_FRAMES_MAX as u64 + 1);
    }

    #[test]
    fn a_viewer_that_leaves_makes_room_for_another() {
        let viewers = Arc::new(Viewers::new(LivePlan::default()));
        let mut all: Vec<Viewer> = (0..VIEWERS_MAX)
            .map(|_| viewers.join().expect("room"))
            .collect();
        assert!(viewers.join().is_none());
        all.pop();
        assert!(viewers.join().is_some());
    }

    /// At the end, the page waits for viewers that read, not for those that don't, and counts the frames that they
    /// did not take.
    #[test]
    fn the_end_comes_after_the_last_frame() {
        let viewers = Arc::new(Viewers::new(LivePlan::default()));
        let (reading, deaf) = (viewers.join().expect("room"), viewers.join().expect("room"));
        let reader = std::thread::spawn(move || {
            let mut seen = String::new();
            while let NextFrames::Frames(bytes) = next_of(&reading, Duration::from_secs(60)) {
                seen += std::str::from_utf8(&bytes).expect("text");
            }
            seen
        });
        viewers.publish(&note(77));
        // The reader may be paused for a while, so this takes longer than a pause.
        viewers.close(Duration::from_secs(4));
        assert!(reader.join().expect("it ends").contains("line 77"));
        // The viewer receives the history and a line.
        assert!(viewers.losses(0).frames >= 2);
        assert_eq!(next_of(&deaf, AT_ONCE), NextFrames::Over);
        // Late viewers still receive the history, and nothing more.
        let late = viewers.join().expect("room");
        assert!(text(next_of(&late, AT_ONCE)).contains("line 77"));
        assert_eq!(next_of(&late, AT_ONCE), NextFrames::Over);
    }
}
