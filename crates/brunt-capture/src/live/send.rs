//! Sends raw frames on an interface as fast as it accepts them: the sender for tests of live capture.

use std::io;
use std::os::fd::OwnedFd;

use super::LiveError;
use super::sys;

/// An interface for sending frames.
#[derive(Debug)]
pub struct Transmitter {
    fd: OwnedFd,
}

impl Transmitter {
    /// Opens an interface for sending.
    ///
    /// # Errors
    /// The interface doesn't exist, or the process lacks CAP_NET_RAW.
    pub fn open(name: &str) -> Result<Transmitter, LiveError> {
        let fail = |what: &'static str| {
            move |source: io::Error| LiveError::Io {
                interface: name.to_string(),
                what,
                source,
            }
        };
        let fd = sys::socket().map_err(|error| LiveError::of_socket(name, error))?;
        let index =
            sys::interface_index(name).map_err(|_| LiveError::NoInterface(name.to_string()))?;
        // Passes frames straight to the driver, bypassing queueing disciplines, which could reorder or drop them.
        sys::set_option(&fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1i32)
            .map_err(fail("bypass the queueing discipline"))?;
        sys::bind(&fd, index, 0).map_err(fail("bind to the interface"))?;
        Ok(Transmitter { fd })
    }

    /// Sends all frames, each with its link header. Returns the number of retries, each because the interface's queue
    /// was full or a signal interrupted the call.
    ///
    /// # Errors
    /// A frame exceeds the interface's MTU, or the interface disappeared.
    pub fn send(&self, frames: &[&[u8]]) -> io::Result<u64> {
        let (mut rest, mut full) = (frames, 0);
        while !rest.is_empty() {
            match sys::send_many(&self.fd, rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::ENOBUFS | libc::EAGAIN | libc::EINTR)
                    ) =>
                {
                    full += 1;
                    std::thread::yield_now();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(full)
    }
}
