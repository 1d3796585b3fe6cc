//! The null server's connections: moves bytes between a stream and the service.
//!
//! The rule: this module contains no protocol rules.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use brunt_block::sink::{SinkConfig, SinkCounts, SinkServer, SinkSession, is_full};
use brunt_block::{PayloadPlace, Stream};
use brunt_wire::cursor::padding;
use brunt_wire::nfs::v3::NfsTime;
use brunt_wire::rpc::MARK_BYTES;

use super::service::{CALL_BYTES_MAX, NfsArrived, NfsCallError, NfsServed, NfsService};
use crate::record::NfsRecord;

/// Starts a null server.
///
/// # Errors
/// The address is in use or not local.
pub fn start(config: SinkConfig) -> io::Result<SinkServer> {
    let service = Arc::new(NfsService::new(RandomState::new().build_hasher().finish()));
    SinkServer::start("nfs sink", config, move |socket| {
        let address = socket.as_tcp().and_then(|tcp| tcp.local_addr().ok());
        Connection {
            service: Arc::clone(&service),
            port: address.map_or(0, |address| address.port()),
            record: NfsRecord::default(),
            reply: Vec::new(),
            swallowing: None,
            greeted: false,
        }
    })
}

struct Connection {
    service: Arc<NfsService>,
    port: u16,
    /// A record in several fragments.
    record: NfsRecord,
    reply: Vec<u8>,
    /// The reply is sent once the data of its call has been discarded.
    swallowing: Option<NfsServed>,
    greeted: bool,
}

fn now() -> NfsTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    NfsTime {
        seconds: (since.as_secs() as u32).into(),
        nseconds: since.subsec_nanos().into(),
    }
}

impl SinkSession for Connection {
    type Error = NfsCallError;

    fn is_greeted(&self) -> bool {
        self.greeted
    }

    fn serve(&mut self, stream: &mut Stream, counts: &mut SinkCounts) -> Result<(), NfsCallError> {
        let with = (self.port, now());
        loop {
            if let Some(served) = self.swallowing {
                if stream.take_placed().is_none() {
                    return Ok(());
                }
                self.swallowing = None;
                self.send(served, stream, counts);
            }
            if is_full(stream) {
                return Ok(());
            }
            let bytes = stream.bytes();
            let arrived = match self.record.is_begun() {
                true => NfsArrived::Fragments,
                false => NfsService::examine(bytes)?,
            };
            match arrived {
                NfsArrived::More => return Ok(()),
                NfsArrived::Call { len } => {
                    let record = &bytes[MARK_BYTES..MARK_BYTES + len];
                    let served = self.service.answer(record, len, with, &mut self.reply)?;
                    stream.consume(MARK_BYTES + len);
                    self.send(served, stream, counts);
                }
                NfsArrived::Write { head_len, data_len } => {
                    let (head, len) = (MARK_BYTES + head_len, head_len + data_len);
                    if !stream.wants_place(MARK_BYTES + len - bytes.len(), MARK_BYTES + len) {
                        return Ok(());
                    }
                    let record = &bytes[MARK_BYTES..head];
                    let served = self.service.answer(record, len, with, &mut self.reply)?;
                    stream.consume(head);
                    stream.place(PayloadPlace::Discard, 0, data_len);
                    self.swallowing = Some(served);
                }
                NfsArrived::Fragments => {
                    let consumed = self.record.feed(bytes, CALL_BYTES_MAX);
                    let consumed = consumed.map_err(NfsCallError::of_record)?;
                    stream.consume(consumed);
                    if !self.record.is_complete() {
                        return Ok(());
                    }
                    let record = self.record.take();
                    let service = &self.service;
                    let served = service.answer(&record, record.len(), with, &mut self.reply)?;
                    self.send(served, stream, counts);
                }
            }
        }
    }
}

impl Connection {
    fn send(&mut self, served: NfsServed, stream: &mut Stream, counts: &mut SinkCounts) {
        let NfsServed {
            read_bytes,
            written_bytes,
        } = served;
        self.greeted = true;
        stream.push_bytes(&self.reply);
        if read_bytes > 0 {
            stream.push_zeros(read_bytes + padding(read_bytes));
        }
        counts.requests += 1;
        counts.sent_bytes += read_bytes as u64;
        counts.received_bytes += written_bytes as u64;
    }
}
