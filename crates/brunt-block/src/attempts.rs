//! Opens a connection in several attempts, for devices behind a network. Blocking, with a limit for the whole.
//!
//! The one rule: a packet that the network loses costs another attempt, which is counted, not the run. A
//! connection whose first SYN was lost starts with a retransmission timeout of seconds (RFC 6298, 5.7), so what is lost
//! on it next would be waited for much longer than a new connection takes.

use std::time::{Duration, Instant};

/// How long the first attempt may take; each further one twice as long as the one before.
const FIRST_ATTEMPT: Duration = Duration::from_secs(3);
/// Before the next attempt, where the last one failed at once.
const PAUSE: Duration = Duration::from_millis(50);
/// Attempts at most: with the times above more would not fit into any sensible time limit.
const ATTEMPTS_MAX: u32 = 8;

/// What an attempt came to.
#[derive(Debug)]
pub struct Attempted<T, E> {
    /// What was opened.
    pub value: T,
    /// Attempts that failed before.
    pub retries: u32,
    /// Why the last of them failed.
    pub trouble: Option<E>,
}

/// That no attempt came to anything.
#[derive(Debug)]
pub struct GaveUp<E> {
    /// Why the last one failed.
    pub last: E,
    /// How many there were.
    pub attempts: u32,
    /// How long all took.
    pub time: Duration,
}

/// Attempts until one succeeds, fails for a reason that is not transient, or the limit or `ATTEMPTS_MAX` is reached. An
/// attempt is told how long it may take.
///
/// # Errors
/// None succeeded.
pub fn in_attempts<T, E>(
    limit: Duration,
    is_transient: impl Fn(&E) -> bool,
    mut attempt: impl FnMut(Duration) -> Result<T, E>,
) -> Result<Attempted<T, E>, GaveUp<E>> {
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
            return Err(GaveUp {
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
