//! Takes turns with other experiments: before each run, asks the process that started all of them, and waits for
//! permission. A run's turn ends when the experiment asks for the next one, or when its process ends.
//!
//! The rule: nothing is measured out of turn. If the other process is gone, the experiment ends as if interrupted.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brunt_result::experiment::InterleavedWith;

/// Sent to ask for a turn.
pub const ASK: u8 = b'?';
/// The reply that it is this experiment's turn.
pub const GO: u8 = b'!';
/// Interval between checks for an interruption.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The connection on which this experiment asks for its turns.
#[derive(Debug)]
pub struct StudyTurns {
    socket: UnixStream,
    /// The experiments to take turns with, for the results.
    pub(super) with: InterleavedWith,
}

impl StudyTurns {
    /// Uses this socket to ask for turns.
    ///
    /// # Errors
    /// The socket can't be set up.
    pub fn new(socket: UnixStream, with: InterleavedWith) -> io::Result<StudyTurns> {
        socket.set_read_timeout(Some(POLL_INTERVAL))?;
        Ok(StudyTurns { socket, with })
    }

    /// Waits for the next turn. Returns `false` if `stop` was set first, or if there will be no further turns.
    pub(super) fn wait(&mut self, stop: &AtomicBool) -> bool {
        if self.socket.write_all(&[ASK]).is_err() {
            return false;
        }
        let mut answer = [0];
        while !stop.load(Ordering::Relaxed) {
            match self.socket.read(&mut answer) {
                Ok(1) => return answer == [GO],
                Err(error) if is_timeout(&error) => {}
                Ok(_) | Err(_) => return false,
            }
        }
        false
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns() -> (StudyTurns, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let turns = StudyTurns::new(ours, InterleavedWith::default()).unwrap();
        (turns, theirs)
    }

    #[test]
    fn a_turn_is_asked_for_and_given() {
        let (mut turns, mut giver) = turns();
        giver.write_all(&[GO]).unwrap();
        assert!(turns.wait(&AtomicBool::new(false)));
        let mut asked = [0; 1];
        giver.read_exact(&mut asked).unwrap();
        assert_eq!(asked, [ASK]);
    }

    /// An experiment that waits for a turn ends when no further turn will come.
    #[test]
    fn an_interruption_and_a_lost_giver_end_the_wait() {
        let (mut turns, giver) = turns();
        assert!(!turns.wait(&AtomicBool::new(true)));
        drop(giver);
        assert!(!turns.wait(&AtomicBool::new(false)));
    }
}
