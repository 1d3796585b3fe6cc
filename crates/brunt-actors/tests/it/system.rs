//! Schedulers on real threads and driven by a test: order, bounds, failures and shutdown.
#![cfg(not(feature = "model-check"))]

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use brunt_actors::{
    Actor, ActorFailureKind, ActorOptions, ActorState, Address, Builder, Context, Placement,
    Refused, Shutdown,
};

const SOON: Duration = Duration::from_secs(600);

/// Forwards each message to `next`, tagged with this actor's number.
struct Forward {
    number: u64,
    next: Address<(u64, u64)>,
}

impl Actor for Forward {
    type Message = u64;

    fn handle(&mut self, message: u64, context: &mut Context<'_, u64>) {
        context.send(&self.next, (self.number, message));
    }
}

/// Checks that each sender's messages arrive in order, and reports the counts when it finishes.
struct InOrder {
    next: Vec<u64>,
    result: Sender<Vec<u64>>,
}

impl Actor for InOrder {
    type Message = (u64, u64);

    fn handle(&mut self, (from, message): (u64, u64), _: &mut Context<'_, (u64, u64)>) {
        assert_eq!(
            message, self.next[from as usize],
            "messages of sender {from} overtook each other"
        );
        self.next[from as usize] += 1;
    }

    fn finish(&mut self, _: &mut Context<'_, (u64, u64)>) {
        self.result.send(self.next.clone()).unwrap();
    }
}

/// No message is lost, duplicated or reordered between any two actors, with many senders on several schedulers,
/// stealing, and inboxes that are always full; no inbox ever exceeds its capacity.
#[test]
fn nothing_is_lost_or_overtaken() {
    for (schedulers, placement) in [
        (1, Placement::Anywhere),
        (2, Placement::Core),
        (4, Placement::Node),
    ] {
        let system = Builder::default()
            .schedulers(schedulers)
            .placement(placement)
            .start();
        let (result, results) = channel();
        let (senders, messages) = (20, 5_000);
        let sink = system.spawn(
            InOrder {
                next: vec![0; senders],
                result,
            },
            ActorOptions::named("sink").capacity(40),
        );
        let forwards: Vec<_> = (0..senders)
            .map(|number| {
                let forward = Forward {
                    number: number as u64,
                    next: sink.clone(),
                };
                system.spawn(
                    forward,
                    ActorOptions::named("forward")
                        .capacity(25)
                        .on_scheduler(number),
                )
            })
            .collect();
        for message in 0..messages {
            for forward in &forwards {
                forward.send(message).unwrap();
            }
        }
        let report = system.shutdown(Shutdown::Drain(SOON));
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        assert!(report.drained);
        assert_eq!(results.recv().unwrap(), vec![messages; senders]);
        assert_eq!(report.snapshot.messages(), 2 * messages * senders as u64);
        assert_eq!(report.snapshot.undelivered, 0);
    }
}

/// Ignores the numbers it receives.
struct Ignore;

impl Actor for Ignore {
    type Message = u64;

    fn handle(&mut self, _: u64, _: &mut Context<'_, u64>) {}
}

/// Sends a burst for each message.
struct Burst {
    count: u64,
    next: Address<(u64, u64)>,
}

impl Actor for Burst {
    type Message = ();

    fn handle(&mut self, (): (), context: &mut Context<'_, ()>) {
        for message in 0..self.count {
            context.send(&self.next, (0, message));
        }
    }
}

/// Ignores the messages it receives; tests read its statistics.
struct Count;

impl Actor for Count {
    type Message = (u64, u64);

    fn handle(&mut self, _: (u64, u64), _: &mut Context<'_, (u64, u64)>) {}
}

/// A handler that sends far more messages than an inbox holds has to wait, so the capacity is never
/// exceeded.
#[test]
fn capacity_is_never_exceeded() {
    for schedulers in [1, 3] {
        let mut system = Builder::default().schedulers(schedulers).budget(3).manual();
        let sink = system.spawn(
            Count,
            ActorOptions::named("sink").capacity(16).on_scheduler(0),
        );
        let bursts: Vec<_> = (0..5)
            .map(|index| {
                let burst = Burst {
                    count: 100,
                    next: sink.clone(),
                };
                system.spawn(burst, ActorOptions::named("burst").on_scheduler(index))
            })
            .collect();
        for burst in &bursts {
            burst.send(()).unwrap();
        }
        while system.step() {
            for actor in system.snapshot().actors {
                assert!(actor.queued <= actor.capacity, "{actor:?}");
            }
        }
        system.run();
        let snapshot = system.snapshot();
        let sink = snapshot
            .actors
            .iter()
            .find(|actor| actor.name == "sink")
            .unwrap();
        assert_eq!(sink.handled, 500);
        assert!(sink.queued_max <= 16, "{sink:?}");
        assert_eq!(snapshot.circles, 0);
        assert_eq!(snapshot.waiting, 0);
    }
}

/// A full inbox refuses `try_send` from outside and returns the message; accepted messages are
/// handled later.
#[test]
fn a_full_inbox_returns_the_refused_message() {
    let mut system = Builder::default().schedulers(1).manual();
    let slow = system.spawn(Ignore, ActorOptions::named("slow").capacity(8));
    system.run();
    let mut taken = 0;
    let refused = loop {
        match slow.try_send(taken) {
            Ok(()) => taken += 1,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, Refused::Full(_)));
    assert_eq!(refused.into_message(), taken);
    assert!((1..=8).contains(&taken), "{taken}");
    system.run();
    assert_eq!(system.snapshot().actors[0].handled, taken);
    assert!(slow.try_send(0).is_ok(), "there is room again");
}

/// Sends `copies` copies of each message to a peer that does the same.
struct Echo {
    peer: Option<Address<Ball>>,
    copies: u32,
}

enum Ball {
    Peer(Address<Ball>),
    Hops(u32),
}

impl Actor for Echo {
    type Message = Ball;

    fn handle(&mut self, message: Ball, context: &mut Context<'_, Ball>) {
        match message {
            Ball::Peer(peer) => self.peer = Some(peer),
            Ball::Hops(0) => {}
            Ball::Hops(hops) => {
                for _ in 0..self.copies {
                    context.send(self.peer.as_ref().unwrap(), Ball::Hops(hops - 1));
                }
            }
        }
    }
}

fn echoes(system: &brunt_actors::Manual, copies: u32) -> Address<Ball> {
    let echo = |name: &str, index| {
        let options = ActorOptions::named(name).capacity(12).on_scheduler(index);
        system.spawn(Echo { peer: None, copies }, options)
    };
    let (left, right) = (echo("left", 0), echo("right", 1));
    left.send(Ball::Peer(right.clone())).unwrap();
    right.send(Ball::Peer(left.clone())).unwrap();
    left
}

/// Two actors that fill each other's inboxes do not deadlock: the cycle is detected, broken by a
/// message beyond the capacity, and counted, and all messages arrive.
#[test]
fn a_cycle_of_full_inboxes_is_broken() {
    for schedulers in [1, 2] {
        let mut system = Builder::default().schedulers(schedulers).budget(2).manual();
        let left = echoes(&system, 2);
        system.run();
        // 1 + 2 + 4 + 8 + 16 + 32 = 63 messages: five hops, with two copies of each message.
        left.send(Ball::Hops(5)).unwrap();
        system.run();
        let snapshot = system.snapshot();
        assert_eq!(snapshot.messages(), 2 + 63);
        assert!(snapshot.circles > 0, "{snapshot:?}");
        assert_eq!((snapshot.failures, snapshot.waiting), (0, 0));
        for actor in snapshot.actors {
            assert!(actor.queued_max <= 2 * actor.capacity, "{actor:?}");
        }
    }
}

/// A cycle in which messages multiply ends in a failure that names its actors, rather than in a
/// hang or unbounded memory use.
#[test]
fn a_cycle_that_multiplies_fails_and_names_its_actors() {
    let mut system = Builder::default().schedulers(2).manual();
    let left = echoes(&system, 3);
    system.run();
    left.send(Ball::Hops(40)).unwrap();
    system.run();
    let failures = system.failures();
    assert!(!failures.is_empty());
    assert_eq!(failures[0].kind, ActorFailureKind::Circle);
    assert!(
        failures[0].what.contains("left -> right -> left")
            || failures[0].what.contains("right -> left -> right")
    );
    assert!(failures[0].to_string().contains("raise"), "{}", failures[0]);
}

/// Panics on message 3.
struct Fragile {
    next: Address<(u64, u64)>,
}

impl Actor for Fragile {
    type Message = u64;

    fn handle(&mut self, message: u64, context: &mut Context<'_, u64>) {
        assert_ne!(message, 3, "three is too many");
        context.send(&self.next, (0, message));
    }
}

/// A panic ends one actor, is reported with its message, and the actor's later messages count as
/// undelivered; the others keep running.
#[test]
fn a_panic_is_contained_and_reported() {
    let mut system = Builder::default().schedulers(1).manual();
    let sink = system.spawn(Count, ActorOptions::named("sink"));
    let fragile = system.spawn(
        Fragile { next: sink.clone() },
        ActorOptions::named("fragile"),
    );
    for message in 0..6 {
        fragile.send(message).unwrap();
    }
    system.run();
    let failures = system.failures();
    assert_eq!(failures.len(), 1);
    assert_eq!(
        (failures[0].actor.as_str(), failures[0].kind),
        ("fragile", ActorFailureKind::Panic)
    );
    assert!(failures[0].what.contains("three is too many"));
    assert!(fragile.is_closed());
    assert!(matches!(fragile.try_send(7), Err(Refused::Closed(7))));
    assert_eq!(
        system.snapshot().undelivered,
        2,
        "4 and 5 were in the inbox"
    );
    sink.send((0, 0)).unwrap();
    system.run();
    let snapshot = system.snapshot();
    assert_eq!(snapshot.actors.len(), 1);
    assert_eq!(snapshot.actors[0].handled, 4);
    assert_eq!(snapshot.actors[0].state, ActorState::Idle);
}

/// Holds back the last message until it is asked to finish.
struct Holding {
    held: Option<u64>,
    next: Option<Address<u64>>,
    result: Sender<(&'static str, u64)>,
    name: &'static str,
}

impl Actor for Holding {
    type Message = u64;

    fn handle(&mut self, message: u64, context: &mut Context<'_, u64>) {
        if let (Some(held), Some(next)) = (self.held.replace(message), &self.next) {
            context.send(next, held);
        }
    }

    fn finish(&mut self, context: &mut Context<'_, u64>) {
        if let (Some(held), Some(next)) = (self.held, &self.next) {
            context.send(next, held);
        }
        self.result.send((self.name, self.held.unwrap())).unwrap();
    }
}

/// Draining a pipeline lets each stage flush its pending message, source first.
#[test]
fn a_drain_finishes_a_pipeline_from_source_to_sink() {
    let (result, results) = channel();
    let system = Builder::default().schedulers(2).start();
    let mut next = None;
    for name in ["writer", "parser", "source"] {
        let stage = Holding {
            held: None,
            next,
            result: result.clone(),
            name,
        };
        next = Some(system.spawn(stage, ActorOptions::named(name)));
    }
    let source = next.unwrap();
    for message in 0..1000 {
        source.send(message).unwrap();
    }
    let report = system.shutdown(Shutdown::Drain(SOON));
    assert!(report.drained);
    let order: Vec<_> = results.try_iter().collect();
    assert_eq!(order, [("source", 999), ("parser", 999), ("writer", 999)]);
    assert_eq!(report.snapshot.messages(), 3000);
    assert!(matches!(source.send(0), Err(Refused::Closed(0))));
}

/// An abort ends the system at once, and every unhandled message is counted.
#[test]
fn an_abort_counts_unhandled_messages() {
    let mut system = Builder::default().schedulers(2).budget(1).manual();
    let sink = system.spawn(Count, ActorOptions::named("sink"));
    for message in 0..50 {
        sink.send((0, message)).unwrap();
    }
    // The first round starts the actor; each later one handles one message.
    for _ in 0..10 {
        system.step();
    }
    let report = system.shutdown(Shutdown::Abort);
    assert!(!report.drained);
    assert!(report.snapshot.undelivered > 0);
    assert_eq!(report.snapshot.messages() + report.snapshot.undelivered, 50);
}

#[test]
fn an_idle_scheduler_steals_from_a_busy_one() {
    struct Spin(Sender<std::thread::ThreadId>);
    impl Actor for Spin {
        type Message = u32;
        fn handle(&mut self, left: u32, context: &mut Context<'_, u32>) {
            std::thread::sleep(Duration::from_millis(1));
            self.0.send(std::thread::current().id()).unwrap();
            if left > 0 {
                let this = context.this();
                context.send(&this, left - 1);
            }
        }
    }
    // On a busy machine, the second scheduler may start only after the first is done; in that case, try again.
    for _ in 0..50 {
        let system = Builder::default().schedulers(2).start();
        let (ran, threads) = channel();
        for _ in 0..20 {
            system
                .spawn(Spin(ran.clone()), ActorOptions::default().on_scheduler(0))
                .send(20)
                .unwrap();
        }
        drop(ran);
        let report = system.shutdown(Shutdown::Drain(SOON));
        let threads: std::collections::HashSet<_> = threads.try_iter().collect();
        let schedulers = report.snapshot.schedulers;
        assert_eq!(schedulers[0].stolen, schedulers[1].steals);
        assert_eq!(
            threads.len() == 2,
            schedulers[1].steals > 0,
            "{schedulers:?}"
        );
        if threads.len() == 2 {
            return;
        }
    }
    panic!("nothing was ever stolen");
}

/// A slot is reused after its actor ended, and old addresses do not reach the new actor.
#[test]
fn old_addresses_do_not_reach_a_new_actor() {
    let mut system = Builder::default().schedulers(1).manual();
    let sink = system.spawn(Count, ActorOptions::named("sink").on_scheduler(0));
    let old = system.spawn(Fragile { next: sink.clone() }, ActorOptions::named("old"));
    old.send(3).unwrap();
    system.run();
    let new = system.spawn(Fragile { next: sink }, ActorOptions::named("new"));
    assert_eq!(old.id().slot, new.id().slot);
    assert_ne!(old.id(), new.id());
    assert!(matches!(old.try_send(0), Err(Refused::Closed(0))));
    new.send(1).unwrap();
    system.run();
    assert_eq!(
        system
            .snapshot()
            .actors
            .iter()
            .map(|actor| actor.handled)
            .sum::<u64>(),
        2
    );
}

#[test]
fn spawned_actors_share_their_parents_home() {
    struct Parent(Address<(u64, u64)>);
    impl Actor for Parent {
        type Message = u64;
        fn handle(&mut self, number: u64, context: &mut Context<'_, u64>) {
            let child = context.spawn(
                Forward {
                    number,
                    next: self.0.clone(),
                },
                ActorOptions::named("child"),
            );
            assert_eq!(child.id().home, context.this().id().home);
            context.send(&child, 0);
        }
    }
    let (result, results) = channel();
    let system = Builder::default().schedulers(2).start();
    let sink = system.spawn(
        InOrder {
            next: vec![0; 100],
            result,
        },
        ActorOptions::named("sink"),
    );
    let parent = system.spawn(Parent(sink), ActorOptions::named("parent").on_scheduler(1));
    for number in 0..100 {
        parent.send(number).unwrap();
    }
    assert!(system.shutdown(Shutdown::Drain(SOON)).drained);
    assert_eq!(results.recv().unwrap(), vec![1; 100]);
}

/// A blocking send inside an actor is refused instead of deadlocking.
#[test]
fn a_blocking_send_inside_an_actor_is_refused() {
    struct Wrong(Address<(u64, u64)>, Sender<bool>);
    impl Actor for Wrong {
        type Message = ();
        fn handle(&mut self, (): (), _: &mut Context<'_, ()>) {
            let refused = matches!(self.0.send((0, 0)), Err(Refused::InsideActor((0, 0))));
            self.1.send(refused).unwrap();
        }
    }
    let (result, results) = channel();
    let system = Builder::default().schedulers(1).start();
    let sink = system.spawn(Count, ActorOptions::default());
    system
        .spawn(Wrong(sink, result), ActorOptions::default())
        .send(())
        .unwrap();
    assert!(results.recv_timeout(SOON).unwrap());
}
