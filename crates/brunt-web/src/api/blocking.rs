//! Runs the disk accesses of handlers on blocking threads instead of on the thread that answers requests.
//!
//! The rule: a slow folder, such as one on an unreachable network file system, delays only the request that needs it,
//! never the requests that watch or stop a run.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;

use crate::http::answer::trouble;

/// A value that handlers must not access on the thread that answers requests.
pub struct Blocking<T>(Arc<T>);

impl<T> Clone for Blocking<T> {
    fn clone(&self) -> Blocking<T> {
        Blocking(Arc::clone(&self.0))
    }
}

impl<T: Send + Sync + 'static> Blocking<T> {
    /// Wraps a value, which is then accessible only through [`Blocking::with`].
    pub fn new(kept: T) -> Blocking<T> {
        Blocking(Arc::new(kept))
    }

    /// Runs `work` on the value.
    ///
    /// # Errors
    /// The response to send if the work panicked.
    pub async fn with<R: Send + 'static>(
        &self,
        work: impl FnOnce(&T) -> R + Send + 'static,
    ) -> Result<R, Response> {
        let kept = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || work(&kept))
            .await
            .map_err(|_| {
                let what = "internal error: the request failed because of a bug in brunt";
                trouble(StatusCode::INTERNAL_SERVER_ERROR, what, None)
            })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// The runtime's only thread keeps running while the work waits for something that this thread triggers.
    #[test]
    fn work_that_waits_does_not_hold_up_the_thread_that_answers() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let (resume, waits) = channel::<u32>();
        let slow = Blocking::new(std::sync::Mutex::new(waits));
        let found = runtime.block_on(async {
            let asked = tokio::spawn(async move {
                slow.with(|waits| waits.lock().expect("whole").recv().expect("a number"))
                    .await
            });
            // The work has begun and is waiting.
            tokio::task::yield_now().await;
            resume.send(7).expect("it waits");
            asked.await.expect("no panic")
        });
        assert_eq!(found.ok(), Some(7));
    }

    #[test]
    fn work_that_panics_is_answered() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let answer = runtime.block_on(Blocking::new(()).with(|()| -> () { panic!("on purpose") }));
        assert_eq!(
            answer.err().map(|answer| answer.status()),
            Some(StatusCode::INTERNAL_SERVER_ERROR)
        );
    }
}
