//! Places of those who are being answered. There are few, so that strangers cannot fill memory. Where all are taken, whoever
//! has had one longest is cut off: slow ones do not blind those who come after them. An answer that goes on, and one for
//! somebody with the token, gives its place up.
//!
//! The rule: a place is free when nothing works for its holder any more, and a page that is slow to make works on.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// Those who are answered at once; more wait until one of them has been answered, or cut off.
pub const CLIENTS_MAX: usize = 8;
/// Whoever has not asked and been answered after this is cut off.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Nobody is cut off for others before this: so long a client waits for its place at most, for each who waits before it.
const PLACE_LEAST: Duration = Duration::from_millis(100);

/// All places of a server.
pub struct Places {
    free: Arc<Semaphore>,
    /// Those who are being answered, in the order of their coming; some have gone.
    held: Mutex<VecDeque<Weak<Place>>>,
}

/// A client's place.
pub struct Place {
    since: Instant,
    cut: Notify,
    /// The place itself; given up by answers that go on.
    held: Mutex<Option<OwnedSemaphorePermit>>,
    /// Lives until the last byte of the answer is sent.
    kept: Mutex<Option<Box<dyn Any + Send>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Places {
    /// All free.
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
        assert!(held.len() <= CLIENTS_MAX, "more places than there are");
        place
    }

    /// Cuts off whoever has been there longest, once that was long enough.
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
    /// Whoever has it can take as long as it likes from now on.
    pub fn give_up(&self) {
        drop(lock(&self.held).take());
    }

    /// The same, and `kept` is dropped when the whole answer is sent or the client has gone.
    pub fn give_up_keeping(&self, kept: impl Any + Send) {
        *lock(&self.kept) = Some(Box::new(kept));
        self.give_up();
    }

    fn is_held(&self) -> bool {
        lock(&self.held).is_some()
    }

    /// Whether whoever has it has waited too long for an answer to be worth making.
    pub fn is_late(&self) -> bool {
        self.is_held() && self.since.elapsed() >= PATIENCE
    }

    /// Returns when whoever has it is to be cut off; never after it was given up.
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

    /// One is cut off for another, and no more; its place is free when what works for it is through.
    #[test]
    fn a_place_is_free_when_its_work_is_through() {
        run(async {
            let places = Places::new();
            let mut held = Vec::new();
            for _ in 0..CLIENTS_MAX {
                held.push(places.take().await);
            }
            // Works on, after its client was cut off.
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

    /// Streams make room at once, and are cut off for nobody.
    #[test]
    fn a_place_that_was_given_up_is_free() {
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
