//! Limits how many clients are served at once, which bounds their memory. If a new client finds all places taken, the
//! client that has held its place longest is cut off, so slow clients can't lock out others. Streaming responses and
//! requests with the token release their place early.
//!
//! The rule: a place becomes free only when the work for its holder has finished, so a page that is slow to render
//! keeps its place.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// Maximum number of clients that are served at once; others wait until one is finished or cut off.
pub const CLIENTS_MAX: usize = 8;
/// A client whose request isn't answered within this time is cut off.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Minimum time that a client has before it is cut off for another. A client waits for its place at most this long
/// for each client ahead of it.
const PLACE_LEAST: Duration = Duration::from_millis(100);

/// All places of a server.
pub struct Places {
    free: Arc<Semaphore>,
    /// The clients being served, in order of arrival; some are gone.
    held: Mutex<VecDeque<Weak<Place>>>,
}

/// A client's place.
pub struct Place {
    since: Instant,
    cut: Notify,
    /// The permit, which streaming responses release early.
    held: Mutex<Option<OwnedSemaphorePermit>>,
    /// A value that is kept until the last byte of the response is sent.
    kept: Mutex<Option<Box<dyn Any + Send>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Places {
    /// All places, free.
    pub fn new() -> Places {
        Places {
            free: Arc::new(Semaphore::new(CLIENTS_MAX)),
            held: Mutex::default(),
        }
    }

    /// Waits for a place.
    pub async fn take(&self) -> Arc<Place> {
        let permit = match Arc::clone(&self.free).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.make_room().await,
        };
        let place = Arc::new(Place {
            since: Instant::now(),
            cut: Notify::new(),
            held: Mutex::new(Some(permit)),
            kept: Mutex::default(),
        });
        let mut held = lock(&self.held);
        held.retain(|place| place.upgrade().is_some_and(|place| place.is_held()));
        held.push_back(Arc::downgrade(&place));
        assert!(held.len() <= CLIENTS_MAX, "more clients than places");
        place
    }

    /// Cuts off the client that has held its place longest, once it has had its minimum time.
    async fn make_room(&self) -> OwnedSemaphorePermit {
        let freed = Arc::clone(&self.free).acquire_owned();
        let mut freed = std::pin::pin!(freed);
        let longest = lock(&self.held)
            .iter()
            .filter_map(Weak::upgrade)
            .find(|place| place.is_held());
        if let Some(longest) = longest {
            let wait = PLACE_LEAST.saturating_sub(longest.since.elapsed());
            if let Ok(permit) = timeout(wait, freed.as_mut()).await {
                return permit.expect("nobody closes it");
            }
            longest.cut.notify_one();
        }
        freed.await.expect("nobody closes it")
    }
}

impl Place {
    /// Releases the place; its holder then has no time limit.
    pub fn give_up(&self) {
        drop(lock(&self.held).take());
    }

    /// Like [`Place::give_up`], but also drops `kept` when the whole response has been sent or the client has gone.
    pub fn give_up_with(&self, kept: impl Any + Send) {
        *lock(&self.kept) = Some(Box::new(kept));
        self.give_up();
    }

    fn is_held(&self) -> bool {
        lock(&self.held).is_some()
    }

    /// Whether the holder has waited too long for a response to be worthwhile.
    pub fn is_late(&self) -> bool {
        self.is_held() && self.since.elapsed() >= PATIENCE
    }

    /// Returns when the holder must be cut off; never returns if the place has been released.
    pub async fn ends(&self) {
        let _ = timeout(
            PATIENCE.saturating_sub(self.since.elapsed()),
            self.cut.notified(),
        )
        .await;
        if !self.is_held() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime")
            .block_on(work)
    }

    /// Exactly one client is cut off for another, and its place becomes free when the work for it has finished.
    #[test]
    fn a_place_becomes_free_when_its_work_is_finished() {
        run(async {
            let places = Places::new();
            let mut held = Vec::new();
            for _ in 0..CLIENTS_MAX {
                held.push(places.take().await);
            }
            // The client's work continues after it was cut off.
            let works = Arc::clone(&held[0]);
            let mut next = std::pin::pin!(places.take());
            assert!(timeout(PLACE_LEAST * 3, next.as_mut()).await.is_err());
            timeout(Duration::from_secs(60), held[0].ends())
                .await
                .expect("the first is cut off");
            for other in &held[1..] {
                assert!(timeout(Duration::ZERO, other.cut.notified()).await.is_err());
            }
            held.remove(0);
            assert!(
                timeout(Duration::from_millis(1), next.as_mut())
                    .await
                    .is_err()
            );
            drop(works);
            timeout(Duration::from_secs(60), next)
                .await
                .expect("a place");
        });
    }

    /// Streams free their place at once and are never cut off.
    #[test]
    fn a_place_given_up_is_free_at_once() {
        run(async {
            let places = Places::new();
            let mut streams = Vec::new();
            for _ in 0..3 * CLIENTS_MAX {
                let place = timeout(Duration::from_secs(60), places.take())
                    .await
                    .expect("a place");
                place.give_up();
                assert!(!place.is_late());
                streams.push(place);
            }
            assert!(
                timeout(Duration::from_millis(1), streams[0].ends())
                    .await
                    .is_err()
            );
        });
    }
}
