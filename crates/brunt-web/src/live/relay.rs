//! Sends the live page's frames from a run's process to the server that started it, over one socket, as lines of
//! server-sent events. The other direction carries no bytes: when it is closed, the run stops, either because the
//! server requests it or because the server is gone.
//!
//! The rule: the run doesn't wait for the server, just as it doesn't wait for any viewer. Frames that the server
//! doesn't take in time are lost and counted.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::frame::LiveFrame;
use super::viewers::{NextFrames, Viewers};

/// How long the sender waits for a frame before it checks for the end again.
const QUIET: Duration = Duration::from_secs(3600);
/// A write that waits longer than this fails: the server isn't reading.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval at which the receiver checks whether the process still runs.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Sends frames until there are no more. The thread ends when the last frame has been sent.
pub fn send(
    socket: UnixStream,
    viewers: &Arc<Viewers>,
    stop: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let viewer = viewers.join().ok_or(ErrorKind::QuotaExceeded)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let asked = socket.try_clone()?;
    let listen = move || {
        // Only the end of the stream arrives here; a read error counts as the end, too.
        let _ = io::copy(&mut (&asked).take(u64::MAX), &mut io::sink());
        stop();
    };
    Builder::new().name("live stop".into()).spawn(listen)?;
    let work = move || {
        loop {
            match runtime.block_on(viewer.next(QUIET)) {
                NextFrames::Frames(bytes) if (&socket).write_all(&bytes).is_err() => return,
                NextFrames::Frames(_) | NextFrames::Quiet => {}
                NextFrames::Over => return,
            }
        }
    };
    Builder::new().name("live sender".into()).spawn(work)
}

/// Receives frames until there are no more: the sender has closed its side, or `is_over` reports that its process has
/// ended and nothing is left to read. Returns the number of invalid frames.
pub fn receive(
    socket: &UnixStream,
    mut take: impl FnMut(LiveFrame),
    is_over: impl Fn() -> bool,
) -> u64 {
    let mut broken = 0;
    if socket.set_read_timeout(Some(POLL_INTERVAL)).is_err() {
        return 1;
    }
    let mut lines = BufReader::new(socket);
    let mut line = Vec::new();
    loop {
        // Check in this order: otherwise, frames sent just before the end would be lost.
        let over = is_over();
        match lines.read_until(b'\n', &mut line) {
            Ok(0) => return broken,
            Ok(_) => {
                match LiveFrame::decode(String::from_utf8_lossy(&line).trim_end()) {
                    Some(Ok(frame)) => take(frame),
                    Some(Err(_)) => broken += 1,
                    None => {}
                }
                line.clear();
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if over {
                    return broken;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return broken,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;
    use std::sync::mpsc::channel;

    use super::super::frame::LivePlan;
    use super::*;

    fn note(text: &str) -> LiveFrame {
        LiveFrame::Note {
            at_s: 0.0,
            text: text.into(),
        }
    }

    /// All frames arrive in order, and the sender notices the request to stop.
    #[test]
    fn frames_arrive_in_order_and_a_stop_request_is_noticed() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let viewers = Arc::new(Viewers::new(LivePlan::default()));
        let (stopped, hears) = channel();
        let sender = send(theirs, &viewers, move || {
            stopped.send(()).expect("the test waits")
        })
        .expect("threads");
        for index in 0..50 {
            viewers.publish(&note(&index.to_string()));
        }
        assert!(hears.try_recv().is_err());
        ours.shutdown(Shutdown::Write).expect("open");
        hears
            .recv_timeout(Duration::from_secs(60))
            .expect("the sender is asked to stop");
        viewers.publish(&note("last"));
        let ends = std::thread::spawn(move || viewers.close(Duration::from_secs(60)));
        let mut seen = Vec::new();
        assert_eq!(
            receive(&ours, |frame| seen.push(frame), || sender.is_finished()),
            0
        );
        ends.join().expect("it ends");
        let (lost, rest): (Vec<_>, Vec<_>) = seen
            .into_iter()
            .partition(|frame| matches!(frame, LiveFrame::Lost { .. }));
        assert!(lost.is_empty());
        assert!(
            matches!(rest.first(), Some(LiveFrame::Plan(_))) && rest.last() == Some(&note("last"))
        );
        assert_eq!(
            rest.iter()
                .filter(|frame| matches!(frame, LiveFrame::Note { .. }))
                .count(),
            51
        );
    }

    /// A server that disappears also stops the run, and invalid lines are counted.
    #[test]
    fn a_vanished_server_stops_the_run() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let viewers = Arc::new(Viewers::new(LivePlan::default()));
        let (stopped, hears) = channel();
        send(theirs, &viewers, move || {
            stopped.send(()).expect("the test waits")
        })
        .expect("threads");
        drop(ours);
        hears
            .recv_timeout(Duration::from_secs(60))
            .expect("the sender is asked to stop");
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        theirs
            .write_all(b"data: {\"frame\":\"strange\"}\n\n: quiet\ndata: {\"frame\":\"now\"}\n")
            .expect("room");
        let mut seen = Vec::new();
        assert_eq!(receive(&ours, |frame| seen.push(frame), || true), 1);
        assert_eq!(seen, [LiveFrame::Now]);
    }
}
