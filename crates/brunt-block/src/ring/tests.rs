//! The events that end a ring's wait, and the CPU time it reports.

use super::*;

/// Another thread ends a wait that would otherwise be infinite.
#[test]
fn waker_ends_a_wait() {
    let ring = Ring::new(RingConfig::default()).unwrap();
    let waker = ring.waker();
    let thread = std::thread::spawn(move || waker.wake());
    while !ring.take_woken() {
        ring.enter(Nanos::MAX).unwrap();
    }
    thread.join().unwrap();
    assert!(!ring.take_woken());
}

/// A deadline ends a wait, but not early.
#[test]
fn deadline_ends_a_wait() {
    let ring = Ring::new(RingConfig::default()).unwrap();
    for wait in [Duration::from_micros(20), Duration::from_millis(3)] {
        let until = Clock::Monotonic.now().after(wait);
        ring.enter(until).unwrap();
        assert!(Clock::Monotonic.now() >= until);
    }
}

/// Work that other threads do for a ring is counted: the kernel's polling thread, and helpers.
#[test]
fn time_of_other_threads_is_counted() {
    let polling = RingConfig {
        engine: Some(IoEngine::IoUring),
        sqpoll_idle_ms: Some(1000),
        ..RingConfig::default()
    };
    let ring = Ring::new(polling).unwrap();
    let workers = |ring: &Ring| ring.cpu().workers_nanos.expect("threads are listed");
    let before = workers(&ring);
    let until = Clock::Monotonic.now().after(Duration::from_secs(20));
    // The kernel thread polls continuously after its first request.
    ring.enter(Nanos(0)).unwrap();
    while workers(&ring) < before + 2_000_000 {
        assert!(
            Clock::Monotonic.now() < until,
            "the polling thread is not seen"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    let cpu = ring.cpu();
    assert_eq!(Some(cpu.polling_nanos), cpu.workers_nanos, "it only polls");
    let plain = RingConfig {
        engine: Some(IoEngine::IoUring),
        ..RingConfig::default()
    };
    let other = Ring::new(plain).unwrap();
    let thread = std::thread::spawn(move || {
        Ring::new(RingConfig::default())
            .unwrap()
            .cpu()
            .workers_nanos
    });
    assert_eq!(
        thread.join().unwrap(),
        Some(0),
        "that of another thread is not its own"
    );
    drop(other);
}

fn uring() -> Option<Ring> {
    let config = RingConfig {
        engine: Some(IoEngine::IoUring),
        ..RingConfig::default()
    };
    let ring = Ring::new(config).ok();
    if ring.is_none() {
        eprintln!("skipped: needs io_uring");
    }
    ring
}

/// Only a ring that has waited for its device starts requests early, and it stops when they complete at once.
#[test]
fn early_starts_are_for_requests_that_wait() {
    let Some(ring) = uring() else { return };
    let wait = |ring: &Ring| {
        for _ in 0..polling::EARLY_PAUSE_WAITS {
            let until = Clock::Monotonic.now().after(Duration::from_micros(1));
            ring.enter(until).unwrap();
        }
    };
    assert!(!ring.starts_early(), "it never waited");
    wait(&ring);
    assert!(ring.starts_early());
    ring.inner.in_flight.set(1);
    ring.start().unwrap();
    assert!(ring.starts_early(), "a device works on a request");
    ring.inner.in_flight.set(0);
    ring.start().unwrap();
    assert!(!ring.starts_early(), "nothing is left for a device");
    ring.add_socket();
    wait(&ring);
    assert!(!ring.starts_early(), "messages to a peer go in batches");
}

/// Connections that share a ring are named when their ports have completions and when their wakers were used, and no
/// others are.
#[test]
fn only_owners_with_something_to_process_are_named() {
    let ring = Ring::new(RingConfig::default()).unwrap();
    let bell_of = |owner| {
        ring.work_for(Some(RingOwner(owner)));
        crate::Bell::new(&ring).unwrap()
    };
    let (mut first, mut second) = (bell_of(1), bell_of(2));
    ring.work_for(Some(RingOwner(3)));
    let (third, own) = (ring.waker(), {
        ring.work_for(None);
        ring.waker()
    });
    let named = || {
        let mut owners = Vec::new();
        ring.enter(Nanos::MAX).unwrap();
        ring.take_ready(&mut owners);
        owners.iter().map(|owner| owner.0).collect::<Vec<u32>>()
    };
    second.waker().wake();
    assert_eq!(named(), [2]);
    // An owner is named until it takes its completion.
    assert_eq!(named(), [2]);
    assert!(second.take() && !first.take());
    third.wake();
    third.wake();
    assert_eq!(named(), [3]);
    assert!(ring.take_woken());
    own.wake();
    assert_eq!(named(), [0; 0], "the thread as a whole was woken");
    assert!(ring.take_woken());
    first.waker().wake();
    assert_eq!(named(), [1]);
    assert!(first.take());
}
