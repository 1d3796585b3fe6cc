//! The message benchmarks of the Chronicle paper (section 7.1): a ring and all-to-all. The same
//! programs in Go and Erlang are in `benches/peers/actors` of the repository.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use crate::{Actor, ActorOptions, Address, Builder, Context, Placement, Shutdown, Snapshot};

/// Number of actors in the ring.
pub const RING_ACTORS: usize = 1000;
/// Number of messages that circulate in the ring at once.
pub const RING_IN_FLIGHT: usize = 100;
/// Number of actors in the all-to-all pattern; each starts with one message.
pub const MESH_ACTORS: usize = 100;

/// The message pattern to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchPattern {
    /// Each actor passes a message to the next.
    Ring,
    /// The ring with neighbours on different schedulers, so every message crosses. Not in the
    /// paper; the worst case for our choice of homes.
    RingAcross,
    /// Each actor passes a message to a random one.
    AllToAll,
}

/// Parameters of a benchmark.
#[derive(Clone, Copy, Debug)]
pub struct BenchConfig {
    /// The message pattern.
    pub pattern: BenchPattern,
    /// Number of schedulers.
    pub schedulers: usize,
    /// Where schedulers run.
    pub placement: Placement,
    /// Total number of messages.
    pub messages: u64,
}

/// The result of a benchmark.
#[derive(Clone, Debug)]
pub struct BenchOutcome {
    /// Messages handled.
    pub messages: u64,
    /// Time from the first send to the last message handled, without start-up and shutdown.
    pub elapsed: Duration,
    /// The final state of the system.
    pub snapshot: Snapshot,
}

impl BenchOutcome {
    /// Messages per second.
    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.elapsed.as_secs_f64()
    }
}

enum Hop {
    /// The receiver's peers: the next actor, or all actors.
    Peers(Box<Arc<[Address<Hop>]>>),
    /// Number of hops that the message has left.
    Left(u64),
}

struct Link {
    peers: Arc<[Address<Hop>]>,
    random: u64,
    done: Sender<()>,
}

impl Actor for Link {
    type Message = Hop;

    #[inline]
    fn handle(&mut self, message: Hop, context: &mut Context<'_, Hop>) {
        match message {
            Hop::Left(0) => {
                // The receiver outlives all messages, so this can't fail.
                let _ = self.done.send(());
            }
            Hop::Left(left) => {
                let count = self.peers.len() as u64;
                let next = if count == 1 {
                    0
                } else {
                    // xorshift64, as in the Go program.
                    self.random ^= self.random << 13;
                    self.random ^= self.random >> 7;
                    self.random ^= self.random << 17;
                    ((self.random >> 32) * count) >> 32
                };
                context.send(&self.peers[next as usize], Hop::Left(left - 1));
            }
            Hop::Peers(peers) => self.peers = *peers,
        }
    }
}

/// Runs one benchmark.
pub fn run(config: BenchConfig) -> BenchOutcome {
    let system = Builder::default()
        .schedulers(config.schedulers)
        .placement(config.placement)
        .start();
    let (done, finished) = channel();
    let (actors, in_flight) = match config.pattern {
        BenchPattern::Ring | BenchPattern::RingAcross => (RING_ACTORS, RING_IN_FLIGHT),
        BenchPattern::AllToAll => (MESH_ACTORS, MESH_ACTORS),
    };
    let addresses: Vec<Address<Hop>> = (0..actors)
        .map(|index| {
            let random = (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1;
            let link = Link {
                peers: Arc::default(),
                random,
                done: done.clone(),
            };
            let mut options = ActorOptions::named(format!("link-{index}"));
            if config.pattern == BenchPattern::RingAcross {
                options = options.on_scheduler(index);
            }
            system.spawn(link, options)
        })
        .collect();
    let all: Arc<[Address<Hop>]> = addresses.clone().into();
    for (index, address) in addresses.iter().enumerate() {
        let peers = match config.pattern {
            BenchPattern::AllToAll => all.clone(),
            _ => Arc::new([addresses[(index + 1) % actors].clone()]),
        };
        address
            .send(Hop::Peers(Box::new(peers)))
            .expect("a fresh actor takes messages");
    }
    let hops = (config.messages / in_flight as u64).max(1);
    let started = Instant::now();
    for start in 0..in_flight {
        let address = &addresses[start * actors / in_flight];
        address
            .send(Hop::Left(hops - 1))
            .expect("a running actor takes messages");
    }
    for _ in 0..in_flight {
        finished.recv().expect("the actors live until the end");
    }
    let elapsed = started.elapsed();
    let snapshot = system.snapshot();
    system.shutdown(Shutdown::Abort);
    BenchOutcome {
        messages: hops * in_flight as u64,
        elapsed,
        snapshot,
    }
}
