//! A pipeline like that of a capture: a source fills buffers from a fixed pool, a parser distributes batches by
//! connection, each worker handles a share of the connections, and a writer collects the results. A batch owns its
//! buffer, so nothing is copied along the way.
//!
//! `cargo run --release -p brunt-actors --example pipeline`

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use brunt_actors::{Actor, ActorOptions, Address, Builder, Context, Shutdown};

const POOL_BUFFERS: usize = 256;
const BUFFER_BYTES: usize = 64 * 1024;
const PACKET_BYTES: usize = 1024;
const BATCHES: u64 = 20_000;
const WORKERS: usize = 4;

/// A buffer of packets, and the pool that it returns to when dropped: at the end of the pipeline,
/// or earlier if something fails.
struct Batch {
    bytes: Vec<u8>,
    pool: SyncSender<Vec<u8>>,
}

impl Drop for Batch {
    fn drop(&mut self) {
        // The pool has room for all buffers; it is dropped only when the program ends.
        match self.pool.try_send(std::mem::take(&mut self.bytes)) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => unreachable!("more buffers returned than were created"),
        }
    }
}

/// Sends each batch to the worker of its connection.
struct Parser {
    workers: Vec<Address<Batch>>,
}

impl Actor for Parser {
    type Message = Batch;

    fn handle(&mut self, batch: Batch, context: &mut Context<'_, Batch>) {
        let connection = usize::from(batch.bytes[0]);
        // If the worker is behind, the batch waits here, and eventually so does the source.
        context.send(&self.workers[connection % WORKERS], batch);
    }
}

/// Sums up packets, as a stand-in for parsing.
struct Worker {
    writer: Address<u64>,
}

impl Actor for Worker {
    type Message = Batch;

    fn handle(&mut self, batch: Batch, context: &mut Context<'_, Batch>) {
        let sum = batch
            .bytes
            .chunks_exact(PACKET_BYTES)
            .map(|packet| packet.iter().map(|&byte| u64::from(byte)).sum::<u64>())
            .sum();
        context.send(&self.writer, sum);
    }
}

#[derive(Default)]
struct Writer {
    batches: u64,
    sum: u64,
}

impl Actor for Writer {
    type Message = u64;

    fn handle(&mut self, sum: u64, _: &mut Context<'_, u64>) {
        self.batches += 1;
        self.sum += sum;
    }

    fn finish(&mut self, _: &mut Context<'_, u64>) {
        println!("written: {} batches, sum {}", self.batches, self.sum);
    }
}

fn main() {
    let system = Builder::default().start();
    // Spawn sinks before sources, so that a drain follows the pipeline's direction.
    let writer = system.spawn(Writer::default(), ActorOptions::named("writer"));
    let workers = (0..WORKERS)
        .map(|index| {
            let worker = Worker {
                writer: writer.clone(),
            };
            system.spawn(
                worker,
                ActorOptions::named(format!("worker-{index}"))
                    .on_scheduler(index)
                    .capacity(64),
            )
        })
        .collect();
    let parser = system.spawn(
        Parser { workers },
        ActorOptions::named("parser").capacity(64),
    );

    let (pool, buffers): (_, Receiver<Vec<u8>>) = sync_channel(POOL_BUFFERS);
    for _ in 0..POOL_BUFFERS {
        pool.send(vec![0; BUFFER_BYTES])
            .expect("the pool has room for all buffers");
    }
    let started = Instant::now();
    for number in 0..BATCHES {
        let mut bytes = buffers.recv().expect("buffers come back");
        bytes[0] = (number % 251) as u8;
        let batch = Batch {
            bytes,
            pool: pool.clone(),
        };
        parser.send(batch).expect("the parser lives");
    }
    let report = system.shutdown(Shutdown::Drain(Duration::from_secs(60)));
    let elapsed = started.elapsed();
    let gigabits = BATCHES as f64 * BUFFER_BYTES as f64 * 8.0 / elapsed.as_secs_f64() / 1e9;
    println!(
        "{BATCHES} batches in {elapsed:.2?}: {gigabits:.1} Gb/s; drained: {}",
        report.drained
    );
    for (index, scheduler) in report.snapshot.schedulers.iter().enumerate() {
        println!(
            "scheduler {index}: {} messages, {} steals, {} waits for room",
            scheduler.messages, scheduler.steals, scheduler.parks
        );
    }
    for failure in report.failures {
        eprintln!("{failure}");
    }
    assert_eq!(
        buffers.try_iter().count(),
        POOL_BUFFERS,
        "every buffer came back"
    );
}
