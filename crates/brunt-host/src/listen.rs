//! Agents that wait for their controller on a port, behind TLS. Each connection has a thread.
//!
//! The rule: a stranger costs a thread for [`HELLO_TIME`] and some kilobytes, and learns a certificate's public part.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::agent::AgentEnd;
use crate::serve::{AgentConfig, serve};
use crate::stream::{MessageStream, StreamError};
use crate::tls::AgentTls;

/// Connections at once, strangers' included; more are closed at once.
const CONNECTIONS_MAX: usize = 64;
/// Who has not shown a certificate by then is closed.
const HELLO_TIME: Duration = Duration::from_secs(5);
/// How often the listener looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// What a listening agent went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenStats {
    /// Conversations with controllers.
    pub controllers: u64,
    /// Connections of somebody who showed no certificate of ours.
    pub strangers: u64,
    /// Connections that were one too many.
    pub refused: u64,
}

/// An agent on a port.
#[derive(Debug)]
pub struct AgentListener {
    listener: TcpListener,
    address: SocketAddr,
    tls: AgentTls,
    config: AgentConfig,
}

impl AgentListener {
    /// Binds the port; 0 picks a free one.
    ///
    /// # Errors
    /// It is taken, or the address is not this machine's.
    pub fn bind(
        address: SocketAddr,
        tls: AgentTls,
        config: AgentConfig,
    ) -> io::Result<AgentListener> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(AgentListener {
            listener,
            address,
            tls,
            config,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`; what there is to say of a connection goes to `note`. All conversations are over when this
    /// returns.
    pub fn run(&self, stop: &AtomicBool, note: impl Fn(String) + Sync) -> ListenStats {
        let stats = Mutex::new(ListenStats::default());
        let open = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            while !stop.load(Ordering::Relaxed) {
                let Ok((socket, peer)) = self.listener.accept() else {
                    std::thread::sleep(LOOK);
                    continue;
                };
                if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                    open.fetch_sub(1, Ordering::Relaxed);
                    stats.lock().unwrap_or_else(PoisonError::into_inner).refused += 1;
                    continue;
                }
                let (stats, open, note) = (&stats, &open, &note);
                let converse = move || {
                    match self.converse(socket, stop, stats) {
                        Ok(AgentEnd::Closed | AgentEnd::Stopped) => {}
                        Ok(AgentEnd::LeaseOver) => {
                            note(format!("{peer}: the controller was not heard any more"))
                        }
                        Ok(AgentEnd::Greeting(error)) => note(format!("{peer}: {error}")),
                        Err(error) => note(format!("{peer}: {error}")),
                    }
                    open.fetch_sub(1, Ordering::Relaxed);
                };
                let started = std::thread::Builder::new()
                    .name("agent".into())
                    .spawn_scoped(scope, converse);
                if let Err(error) = started {
                    open.fetch_sub(1, Ordering::Relaxed);
                    note(format!("{peer}: no thread: {error}"));
                }
            }
        });
        stats.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn converse(
        &self,
        socket: TcpStream,
        stop: &AtomicBool,
        stats: &Mutex<ListenStats>,
    ) -> Result<AgentEnd, StreamError> {
        let greeted = self.tls.seal().map_err(StreamError::from).and_then(|seal| {
            let mut stream = MessageStream::sealed(socket, seal)?;
            stream.greet(HELLO_TIME)?;
            Ok(stream)
        });
        let mut counts = stats.lock().unwrap_or_else(PoisonError::into_inner);
        match greeted {
            Ok(_) => counts.controllers += 1,
            Err(_) => counts.strangers += 1,
        }
        drop(counts);
        serve(greeted?, &self.config, stop)
    }
}
