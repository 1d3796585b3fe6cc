//! What reads disks, for handlers: they reach it beside the thread that answers, and nowhere else.
//!
//! The rule: a folder that is slow, such as one of a network that is down, holds up whoever asks for it, and nobody who
//! watches a run or stops it.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;

use crate::http::answer::trouble;

/// Something that handlers must not touch on the thread that answers.
pub struct Beside<T>(Arc<T>);

impl<T> Clone for Beside<T> {
    fn clone(&self) -> Beside<T> {
        Beside(Arc::clone(&self.0))
    }
}

impl<T: Send + Sync + 'static> Beside<T> {
    /// From here on it is reached by [`Beside::with`] alone.
    pub fn new(kept: T) -> Beside<T> {
        Beside(Arc::new(kept))
    }

    /// Does this with it.
    ///
    /// # Errors
    /// The answer to give where the work panicked.
    pub async fn with<R: Send + 'static>(
        &self,
        work: impl FnOnce(&T) -> R + Send + 'static,
    ) -> Result<R, Response> {
        let kept = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || work(&kept))
            .await
            .map_err(|_| {
                let what = "this could not be done: the program has a mistake";
                trouble(StatusCode::INTERNAL_SERVER_ERROR, what, None)
            })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// The only thread of a runtime goes on while work waits for something that this thread brings about.
    #[test]
    fn work_that_waits_does_not_hold_up_the_thread_that_answers() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let (go_on, waits) = channel::<u32>();
        let slow = Beside::new(std::sync::Mutex::new(waits));
        let found = runtime.block_on(async {
            let asked = tokio::spawn(async move {
                slow.with(|waits| waits.lock().expect("whole").recv().expect("a number"))
                    .await
            });
            // It has begun, and waits.
            tokio::task::yield_now().await;
            go_on.send(7).expect("it waits");
            asked.await.expect("no panic")
        });
        assert_eq!(found.ok(), Some(7));
    }

    #[test]
    fn work_that_panics_is_answered() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let answer = runtime.block_on(Beside::new(()).with(|()| -> () { panic!("on purpose") }));
        assert_eq!(
            answer.err().map(|answer| answer.status()),
            Some(StatusCode::INTERNAL_SERVER_ERROR)
        );
    }
}
