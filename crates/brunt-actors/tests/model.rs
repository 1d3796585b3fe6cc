//! Model-checks the schedulers' protocol with shuttle: locks, wake-ups, parking and stealing in
//! many interleavings. A lost wake-up shows up as a deadlock, a lost message as a low count.
//! `cargo test -p brunt-actors --features model-check --test model`

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use brunt_actors::{Actor, ActorOptions, Address, Builder, Context, Shutdown, System};

fn check(iterations: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    // Idle schedulers look for work for a while, which makes long schedules; these are not
    // livelocks.
    config.max_steps = shuttle::MaxSteps::FailAfter(2_000_000);
    config.stack_size = 1 << 20;
    let scenario = std::sync::Arc::new(scenario);
    let random = scenario.clone();
    shuttle::Runner::new(
        shuttle::scheduler::RandomScheduler::new(iterations),
        config.clone(),
    )
    .run(move || random());
    shuttle::Runner::new(shuttle::scheduler::PctScheduler::new(3, iterations), config)
        .run(move || scenario());
}

fn drained(system: System) -> brunt_actors::SystemReport {
    // Under shuttle no time passes, so this limit never takes effect.
    let report = system.shutdown(Shutdown::Drain(Duration::from_secs(3600)));
    assert!(report.drained, "{report:?}");
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    report
}

struct Pass {
    next: Option<Address<u32>>,
    expected: u32,
    done: Sender<u32>,
}

impl Actor for Pass {
    type Message = u32;

    fn handle(&mut self, message: u32, context: &mut Context<'_, u32>) {
        assert_eq!(message, self.expected, "overtaken");
        self.expected += 1;
        if let Some(next) = &self.next {
            context.send(next, message);
        }
    }

    fn finish(&mut self, _: &mut Context<'_, u32>) {
        self.done.send(self.expected).unwrap();
    }
}

fn pipeline(stages: usize, messages: u32, capacity: u32, home: fn(usize) -> usize) {
    let system = Builder::default().schedulers(2).budget(2).start();
    let (done, results) = channel();
    let mut next = None;
    for stage in 0..stages {
        let pass = Pass {
            next,
            expected: 0,
            done: done.clone(),
        };
        next = Some(
            system.spawn(
                pass,
                ActorOptions::default()
                    .capacity(capacity)
                    .on_scheduler(home(stage)),
            ),
        );
    }
    let first = next.unwrap();
    for message in 0..messages {
        first.send(message).unwrap();
    }
    let report = drained(system);
    assert_eq!(
        results.try_iter().collect::<Vec<_>>(),
        vec![messages; stages]
    );
    for actor in report.snapshot.actors {
        assert!(actor.queued_max <= actor.capacity);
    }
}

/// A message to a sleeping scheduler always wakes it.
#[test]
fn a_wake_up_is_never_lost() {
    check(300, || pipeline(2, 3, 1024, |stage| stage));
}

/// Senders that wait for a full inbox, inside and outside, are always resumed, and order is kept
/// while actors are parked, resumed and stolen.
#[test]
fn a_parked_sender_is_always_resumed() {
    check(200, || pipeline(3, 30, 12, |stage| stage));
}

/// Senders that wait for a full inbox are always resumed, even with all work on one scheduler while the other steals.
#[test]
fn stolen_actors_keep_their_order() {
    check(200, || pipeline(4, 12, 12, |_| 0));
}

struct Both {
    peer: Option<Address<Play>>,
}

enum Play {
    Peer(Address<Play>),
    Hops(u32),
}

impl Actor for Both {
    type Message = Play;

    fn handle(&mut self, message: Play, context: &mut Context<'_, Play>) {
        match message {
            Play::Peer(peer) => self.peer = Some(peer),
            Play::Hops(0) => {}
            Play::Hops(hops) => {
                for _ in 0..2 {
                    context.send(self.peer.as_ref().unwrap(), Play::Hops(hops - 1));
                }
            }
        }
    }
}

/// Two actors on two schedulers that fill each other's inboxes never deadlock.
#[test]
fn a_cycle_never_deadlocks() {
    check(150, || {
        let system = Builder::default().schedulers(2).budget(2).start();
        let spawn = |index| {
            system.spawn(
                Both { peer: None },
                ActorOptions::default().capacity(12).on_scheduler(index),
            )
        };
        let (left, right) = (spawn(0), spawn(1));
        left.send(Play::Peer(right.clone())).unwrap();
        right.send(Play::Peer(left.clone())).unwrap();
        left.send(Play::Hops(4)).unwrap();
        let report = drained(system);
        assert_eq!(report.snapshot.messages(), 2 + 31);
    });
}

/// An abort ends the system in any state, and no thread is left waiting.
#[test]
fn an_abort_always_ends_the_system() {
    check(200, || {
        let system = Builder::default().schedulers(2).start();
        let (done, _results) = channel();
        let pass = Pass {
            next: None,
            expected: 0,
            done,
        };
        let address = system.spawn(pass, ActorOptions::default().capacity(12));
        let sender = shuttle::thread::spawn(move || {
            for message in 0..20 {
                if address.send(message).is_err() {
                    break;
                }
            }
        });
        system.shutdown(Shutdown::Abort);
        sender.join().unwrap();
    });
}
