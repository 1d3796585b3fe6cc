//! Opens a connection to a networked device in several attempts. Blocks the calling thread, with a limit on the total
//! time.
//!
//! The one rule: a lost packet costs another attempt, which is counted, and doesn't fail the run. After a lost SYN, a
//! connection starts with a retransmission timeout of seconds (RFC 6298, 5.7), so waiting for it to recover from the
//! next lost packet would take much longer than a new connection.

use std::time::{Duration, Instant};

/// Time limit of the first attempt; each further attempt gets twice as long.
const FIRST_ATTEMPT: Duration = Duration::from_secs(3);
/// Pause before the next attempt if the last one failed immediately.
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum attempts: with the times above, more would take longer than any sensible time limit.
const ATTEMPTS_MAX: u32 = 8;

/// The result of a successful series of attempts.
#[derive(Debug)]
pub struct Attempted<T, E> {
    /// The opened connection.
    pub value: T,
    /// Number of failed attempts before the successful one.
    pub retries: u32,
    /// Why the last failed attempt failed.
    pub trouble: Option<E>,
}

/// All attempts failed.
#[derive(Debug)]
pub struct AttemptsFailed<E> {
    /// Why the last attempt failed.
    pub last: E,
    /// Number of attempts.
    pub attempts: u32,
    /// Total time of all attempts.
    pub time: Duration,
}

/// Retries until an attempt succeeds or fails with a permanent error, or until the time limit or `ATTEMPTS_MAX` is
/// reached. Each attempt is passed its own time limit.
///
/// # Errors
/// No attempt succeeded.
pub fn in_attempts<T, E>(
    limit: Duration,
    is_transient: impl Fn(&E) -> bool,
    mut attempt: impl FnMut(Duration) -> Result<T, E>,
) -> Result<Attempted<T, E>, AttemptsFailed<E>> {
    let start = Instant::now();
    let (mut retries, mut trouble) = (0, None);
    loop {
        let left = limit.saturating_sub(start.elapsed());
        let time = (FIRST_ATTEMPT * 2_u32.pow(retries))
            .min(left)
            .max(Duration::from_millis(1));
        let last = match attempt(time) {
            Ok(value) => {
                return Ok(Attempted {
                    value,
                    retries,
                    trouble,
                });
            }
            Err(error) => error,
        };
        let attempts = retries + 1;
        if !is_transient(&last) || start.elapsed() + PAUSE >= limit || attempts == ATTEMPTS_MAX {
            return Err(AttemptsFailed {
                last,
                attempts,
                time: start.elapsed(),
            });
        }
        std::thread::sleep(PAUSE);
        (retries, trouble) = (attempts, Some(last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn attempts_are_counted_and_bounded() {
        let mut made = 0;
        let mut third = |time: Duration| {
            made += 1;
            assert_eq!(
                time,
                FIRST_ATTEMPT * 2_u32.pow(made - 1),
                "each may take twice as long"
            );
            if made == 3 { Ok(made) } else { Err(made) }
        };
        let opened = in_attempts(LONG, |_| true, &mut third).unwrap();
        assert_eq!(
            (opened.value, opened.retries, opened.trouble),
            (3, 2, Some(2))
        );
        let gave_up = in_attempts(LONG, |_| true, |_| Err::<(), _>("no")).unwrap_err();
        assert_eq!((gave_up.last, gave_up.attempts), ("no", ATTEMPTS_MAX));
        let refused = in_attempts(LONG, |_| false, |_| Err::<(), _>("refused")).unwrap_err();
        assert_eq!((refused.last, refused.attempts), ("refused", 1));
        let short = in_attempts(PAUSE, |_| true, |time| Err::<(), _>(time <= PAUSE)).unwrap_err();
        assert_eq!((short.last, short.attempts), (true, 1));
    }
}
