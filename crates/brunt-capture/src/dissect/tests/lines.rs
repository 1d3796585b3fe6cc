//! A toy protocol that exercises the dissector interface: clients send request lines, `get NAME` or `put NAME BYTES`,
//! and servers reply in order with `ok BYTES` or `no STATUS`. A segment may hold several lines, a line may span
//! segments, and both directions carry data. Compiled only for tests. After a gap, the rest of a line that may be
//! incomplete is skipped, and waiting requests are abandoned, because replies have no tag.

use std::collections::VecDeque;

use brunt_lake::{Column, Table};
use brunt_result::OpKind;

use super::{
    Claim, Counter, Dissector, DissectorId, Flow, FramingState, Gap, OperationInfo, Out, OwnPart,
    OwnTables, ProtocolInfo,
};
use crate::dissect::Detail;
use crate::limits::Limits;
use crate::operation::{
    FileKey, Message, MessagePlace, Operation, OperationKind, OperationSummary, Peers, Protocol,
    Sink, TransferDirection,
};
use crate::trace::common::{Common, RECORD};
use crate::trace::files::Files;
use crate::trace::rows::{Handle, Registry, Tabled};

/// The port that servers listen on.
pub const PORT: u16 = 7;
/// Maximum length of a line; longer ones are invalid.
const LINE_BYTES_MAX: usize = 256;
/// Maximum requests waiting on one connection.
const WAITING_MAX: usize = 1024;

const GET: OperationKind = OperationKind::of::<LinesId>(0);
const PUT: OperationKind = OperationKind::of::<LinesId>(1);
const LINES: Protocol = Protocol::of::<LinesId>(0);

/// The toy dissector.
#[derive(Debug)]
pub struct Lines;

/// Its id.
pub struct LinesId;

impl DissectorId for LinesId {
    type Detail<'a> = Asked<'a>;
}

/// The requested name: the protocol-specific part of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub name: &'a str,
}

impl OwnPart for Asked<'_> {
    fn each_name(
        &self,
        operation: &Operation<'_>,
        tell: &mut impl FnMut(FileKey, Option<FileKey>, &[u8]),
    ) {
        if let Some(file) = operation.summary.file {
            tell(file, None, self.name.as_bytes());
        }
    }
}

/// The toy protocol's table.
const NAMES_ASKED: Table = Table {
    name: "lines_names",
    doc: "One row for each request: the name.",
    columns: &[RECORD, Column::text("name", "What was asked for.")],
};

struct NamesAsked;

impl Tabled for NamesAsked {
    const TABLE: &'static Table = &NAMES_ASKED;
}

pub struct Names(Handle<NamesAsked>);

impl OwnTables<LinesId> for Names {
    fn register(registry: &mut Registry) -> Names {
        Names(registry.add())
    }

    fn record(
        &mut self,
        operation: &Operation<'_>,
        own: &Asked<'_>,
        _: &mut Files,
        common: &mut Common,
    ) {
        let id = common.number(operation.record_id);
        common.rows.row(self.0).int(id).text(own.name).end();
    }
}

#[derive(Debug)]
struct Request {
    record_id: u64,
    peers: Peers,
    kind: OperationKind,
    name: String,
    bytes: u32,
    message: Message,
    outstanding: u32,
}

/// The reading state of one direction.
#[derive(Debug, Default)]
struct Half {
    line: Vec<u8>,
    first_ns: u64,
    /// Whether a gap cut the next line.
    is_cut: bool,
    gave_up: bool,
}

/// Both directions, and the requests that have not been answered yet.
#[derive(Debug, Default)]
pub struct LinesConnection {
    halves: [Half; 2],
    waiting: VecDeque<Request>,
}

impl LinesConnection {
    fn give_up<S: Sink>(&mut self, out: &mut Out<'_, S>) {
        for request in self.waiting.drain(..) {
            out.ledger.calls_open -= 1;
            out.ledger.calls_evicted += 1;
            forward(&request, None, None, out);
        }
    }
}

fn forward<S: Sink>(
    request: &Request,
    reply: Option<Message>,
    answer: Option<Result<u32, u32>>,
    out: &mut Out<'_, S>,
) {
    let file = FileKey(twox_hash::XxHash3_64::oneshot(request.name.as_bytes()));
    let is_put = request.kind == PUT;
    out.sink.on_operation(&Operation {
        record_id: request.record_id,
        summary: OperationSummary {
            kind: request.kind,
            protocol: LINES,
            status: answer.map(|answer| answer.err().unwrap_or(0)),
            file: Some(file),
            direction: Some(if is_put {
                TransferDirection::Write
            } else {
                TransferDirection::Read
            }),
            offset: Some(0),
            asked_bytes: is_put.then_some(request.bytes),
            moved_bytes: answer.and_then(Result::ok).unwrap_or(0),
        },
        peers: request.peers,
        tag: 0,
        request: request.message,
        reply,
        outstanding: request.outstanding,
        data_missing: 0,
        clock_was_set: false,
        detail: &Detail::Lines(Asked {
            name: &request.name,
        }),
    });
}

enum LineMessage<'a> {
    Request(OperationKind, &'a str, u32),
    Answer(Result<u32, u32>),
}

fn read(line: &[u8]) -> Option<LineMessage<'_>> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let said = match (words.next()?, words.next()?) {
        ("get", name) => LineMessage::Request(GET, name, 0),
        ("put", name) => LineMessage::Request(PUT, name, words.next()?.parse().ok()?),
        ("ok", bytes) => LineMessage::Answer(Ok(bytes.parse().ok()?)),
        ("no", status) => LineMessage::Answer(Err(status.parse().ok()?)),
        _ => return None,
    };
    words.next().is_none().then_some(said)
}

impl Lines {
    fn on_line<S: Sink>(
        &mut self,
        connection: &mut LinesConnection,
        flow: &Flow,
        message: Message,
        line: &[u8],
        out: &mut Out<'_, S>,
    ) {
        match read(line) {
            Some(LineMessage::Request(kind, name, bytes)) => {
                out.ledger.calls += 1;
                if connection.waiting.len() >= WAITING_MAX {
                    connection.give_up(out);
                }
                out.ledger.calls_open += 1;
                connection.waiting.push_back(Request {
                    record_id: out.ids.take(),
                    peers: flow.forward,
                    kind,
                    name: name.to_string(),
                    bytes,
                    message,
                    outstanding: connection.waiting.len() as u32 + 1,
                });
            }
            Some(LineMessage::Answer(answer)) => {
                out.ledger.replies += 1;
                let Some(request) = connection.waiting.pop_front() else {
                    out.ledger.replies_unmatched += 1;
                    return;
                };
                out.ledger.calls_open -= 1;
                out.ledger.calls_answered += 1;
                forward(&request, Some(message), Some(answer), out);
            }
            None => {
                out.ledger.records_lost += 1;
                connection.halves[usize::from(flow.direction)].gave_up = true;
            }
        }
    }
}

impl Dissector for Lines {
    type Connection = LinesConnection;
    type Id = LinesId;
    type Tables = Names;
    const NAME: &'static str = "lines";
    const HELP: &'static str = "A toy protocol of lines, for tests";
    const KINDS: &'static [OperationInfo] = &[
        OperationInfo::of("get", OpKind::Read),
        OperationInfo::of("put", OpKind::Write),
    ];
    const PROTOCOLS: &'static [ProtocolInfo] = &[ProtocolInfo {
        name: "LINES",
        status_name: |status| (status == 2).then_some("not there"),
    }];
    const COUNTERS: &'static [Counter] = &[Counter {
        name: "lines_cut",
        label: "lines cut in two by a gap",
        doc: "Lines of which a gap took a part.",
    }];

    fn new(_: &Limits) -> Lines {
        Lines
    }

    fn claim(&self, flow: &Flow, bytes: &[u8]) -> Claim {
        let first = bytes
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        match (
            read(first).is_some() && first.len() < bytes.len(),
            flow.has_port(PORT),
        ) {
            (true, _) => Claim::Bytes,
            (false, true) => Claim::Port,
            (false, false) => Claim::No,
        }
    }

    fn on_bytes<S: Sink>(
        &mut self,
        connection: &mut LinesConnection,
        flow: &Flow,
        bytes: &[u8],
        time_ns: u64,
        out: &mut Out<'_, S>,
    ) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let at = (piece.as_ptr() as usize - bytes.as_ptr() as usize) as u32;
            let half = &mut connection.halves[usize::from(flow.direction)];
            if half.line.is_empty() {
                half.first_ns = time_ns;
            }
            half.line.extend_from_slice(piece);
            if half.line.len() > LINE_BYTES_MAX {
                half.line.clear();
                half.gave_up = true;
            }
            if !piece.ends_with(b"\n") || half.line.is_empty() {
                continue;
            }
            let line = std::mem::take(&mut half.line);
            if std::mem::take(&mut half.is_cut) {
                out.ledger.slow_mode_bytes += line.len() as u64;
                *out.ledger.own::<LinesId>(0) += 1;
                continue;
            }
            let place = MessagePlace {
                at,
                len: line.len() as u32,
            };
            let message = Message {
                first_ns: half.first_ns,
                last_ns: Some(time_ns),
                whole: true,
                place,
            };
            self.on_line(connection, flow, message, &line[..line.len() - 1], out);
        }
    }

    fn on_gap<S: Sink>(
        &mut self,
        connection: &mut LinesConnection,
        flow: &Flow,
        _: Gap,
        out: &mut Out<'_, S>,
    ) {
        let half = &mut connection.halves[usize::from(flow.direction)];
        out.ledger.slow_mode_entries += 1;
        out.ledger.records_damaged += u64::from(!half.line.is_empty());
        half.line.clear();
        half.is_cut = true;
        connection.give_up(out);
    }

    fn framing_state(connection: &LinesConnection, direction: u8) -> FramingState {
        let half = &connection.halves[usize::from(direction)];
        match (half.gave_up, half.is_cut) {
            (true, _) => FramingState::GaveUp,
            (false, true) => FramingState::Searching,
            (false, false) => FramingState::Framed,
        }
    }

    fn on_end<S: Sink>(
        &mut self,
        connection: &mut LinesConnection,
        _: &Flow,
        out: &mut Out<'_, S>,
    ) {
        connection.give_up(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::report::text;
    use crate::operation::{ChecksumRun, Packet};
    use crate::trace::{TraceOptions, TraceRecorder, replay, tables};
    use crate::{Ledger, Pipeline};
    use brunt_core::random::Random;
    use brunt_lake::read_table;
    use brunt_wire::pcap::{CapturedPacket, LinkType};

    /// Describes operations as lines of text, which are easy to compare.
    #[derive(Default)]
    struct Collect {
        operations: Vec<String>,
        framed: usize,
    }

    impl Sink for Collect {
        fn on_operation(&mut self, operation: &Operation<'_>) {
            let Detail::Lines(asked) = operation.detail else {
                panic!("{operation:?}")
            };
            let times =
                |message: &Message| (message.first_ns / 1000, message.last_ns.map(|ns| ns / 1000));
            self.operations.push(format!(
                "{} {} {:?} {:?} {:?} {}",
                operation.summary.kind.name(),
                asked.name,
                times(&operation.request),
                operation.reply.as_ref().map(times),
                operation.summary.status,
                operation.summary.moved_bytes,
            ));
        }
        fn on_checksums(&mut self, _: &ChecksumRun<'_>) {}
        const PACKETS: bool = true;
        fn on_packet_parsed(&mut self, packet: &Packet) {
            self.framed += usize::from(packet.in_message);
        }
    }

    /// A segment between `10.0.0.1:port` and `10.0.0.2:PORT`.
    fn segment(port: u16, server: u16, back: bool, seq: u32, data: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0];
        packet.extend(((40 + data.len()) as u16).to_be_bytes());
        packet.extend([
            0,
            0,
            0x40,
            0,
            64,
            6,
            0,
            0,
            10,
            0,
            0,
            1 + u8::from(back),
            10,
            0,
            0,
            2 - u8::from(back),
        ]);
        let (from, to) = if back { (server, port) } else { (port, server) };
        packet.extend(from.to_be_bytes());
        packet.extend(to.to_be_bytes());
        packet.extend(seq.to_be_bytes());
        packet.extend([0, 0, 0, 0, 0x50, 0, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend(data);
        packet
    }

    /// Feeds segments one microsecond apart; `None` is a segment lost by the tap.
    fn run(segments: &[Option<Vec<u8>>]) -> (Collect, Ledger) {
        let mut pipeline = Pipeline::new(Collect::default(), Limits::default());
        for (index, bytes) in segments.iter().enumerate() {
            let Some(bytes) = bytes else { continue };
            let (time_ns, wire_len) = (index as u64 * 1000, bytes.len() as u32);
            let packet = CapturedPacket {
                time_ns,
                wire_len,
                interface: 0,
                link: LinkType::Raw,
                bytes,
            };
            pipeline.on_packet(&packet);
        }
        let (collect, ledger) = pipeline.finish();
        ledger.check().unwrap();
        (collect, ledger)
    }

    #[test]
    fn a_second_protocol_has_times_kinds_and_both_directions() {
        let segments = [
            segment(999, PORT, false, 1, b"get a\nput b 7\nge"),
            segment(999, PORT, false, 17, b"t c\n"),
            segment(999, PORT, true, 1, b"ok 5\nok "),
            segment(999, PORT, true, 9, b"7\nno 2\n"),
        ];
        let (found, ledger) = run(&segments.map(Some));
        assert_eq!(
            found.operations,
            [
                "get a (0, Some(0)) Some((2, Some(2))) Some(0) 5",
                "put b (0, Some(0)) Some((2, Some(3))) Some(0) 7",
                "get c (0, Some(1)) Some((3, Some(3))) Some(2) 0",
            ]
        );
        assert_eq!(
            (found.framed, ledger.calls, ledger.calls_answered),
            (4, 3, 3)
        );
        assert_eq!(
            (LINES.name(), LINES.status_name(2), LINES.status_name(3)),
            ("LINES", "not there".to_string(), "3".to_string())
        );
    }

    /// The toy protocol's operations are listed with all others, its specific part is in a separate table, and a
    /// reader finds both.
    #[test]
    fn a_second_protocol_has_its_own_tables() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = TraceRecorder::create(folder.path(), &TraceOptions::default()).unwrap();
        let mut pipeline = Pipeline::new(recorder, Limits::default());
        for (back, line) in [(false, "put name 9\n"), (true, "no 2\n")] {
            let bytes = segment(999, PORT, back, 1, line.as_bytes());
            let (time_ns, wire_len) = (5_000_000_000, bytes.len() as u32);
            let link = LinkType::Raw;
            pipeline.on_packet(&CapturedPacket {
                time_ns,
                wire_len,
                interface: 0,
                link,
                bytes: &bytes,
            });
        }
        let (recorder, mut ledger) = pipeline.finish();
        let (_, error) = recorder.finish(&mut ledger);
        assert!(error.is_none(), "{error:?}");
        let mut seen = Vec::new();
        read_table(folder.path(), &tables::OPERATIONS, |batch| {
            seen.extend(
                batch
                    .texts("protocol")
                    .chain(batch.texts("operation"))
                    .map(str::to_string),
            );
        })
        .unwrap();
        read_table(folder.path(), &NAMES_ASKED, |batch| {
            seen.extend(batch.texts("name").map(str::to_string));
        })
        .unwrap();
        assert_eq!(seen, ["LINES", "put", "name"]);
        let replayed = replay(folder.path()).unwrap();
        let report = replayed.analysis.report(&replayed.ledger);
        assert_eq!(
            (&*report.by_operation[0].name, report.by_operation[0].errors),
            ("put", 1)
        );
    }

    /// The toy protocol is recognised by its bytes on another port, and doesn't claim RPC traffic.
    #[test]
    fn the_strongest_claim_wins() {
        let (found, ledger) = run(&[Some(segment(999, 2049, false, 1, b"get a\n"))]);
        assert_eq!((found.operations.len(), ledger.bytes_unclaimed), (1, 0));
        let mut pipeline = Pipeline::new(crate::Analysis::new(), Limits::default());
        let nonsense = segment(999, 2049, false, 1, &[0xff; 64]);
        let wire_len = nonsense.len() as u32;
        let link = LinkType::Raw;
        pipeline.on_packet(&CapturedPacket {
            time_ns: 0,
            wire_len,
            interface: 0,
            link,
            bytes: &nonsense,
        });
        let (_, ledger) = pipeline.finish();
        assert_eq!((ledger.slow_mode_entries, ledger.calls), (1, 0));
    }

    /// A connection that its first dissector abandoned goes to the protocol that recognises the next bytes.
    #[test]
    fn a_connection_given_up_by_one_dissector_goes_to_another() {
        let mut noise = Random::new(3);
        let mut at = 1u32;
        let mut segments = Vec::new();
        for _ in 0..300 {
            let mut bytes = vec![0; 1000];
            noise.fill(&mut bytes);
            segments.push(Some(segment(999, 8000, false, at, &bytes)));
            at += 1000;
        }
        for name in ["a", "b", "c"] {
            let line = format!("get {name}\n");
            segments.push(Some(segment(999, 8000, false, at, line.as_bytes())));
            at += line.len() as u32;
        }
        let (found, ledger) = run(&segments);
        // The first line identified the protocol; the lines after it are parsed.
        assert_eq!(found.operations.len(), 2, "{:?}", found.operations);
        assert!(ledger.bytes_unclaimed >= 256 << 10);
    }

    /// Losses create no operations, and after a gap, operations are recognised again from the second line on.
    #[test]
    fn losses_add_no_operations() {
        let mut whole = Vec::new();
        let (mut asked, mut answered) = (1u32, 1u32);
        for number in 0..400 {
            let (request, answer) = (
                format!("put name{number} {number}\n"),
                format!("ok {number}\n"),
            );
            for (cut, byte) in [0, 5, request.len()].windows(2).map(|cut| (cut[0], cut[1])) {
                whole.push(segment(
                    999,
                    PORT,
                    false,
                    asked + cut as u32,
                    &request.as_bytes()[cut..byte],
                ));
            }
            whole.push(segment(999, PORT, true, answered, answer.as_bytes()));
            asked += request.len() as u32;
            answered += answer.len() as u32;
        }
        let (truth, _) = run(&whole.iter().cloned().map(Some).collect::<Vec<_>>());
        assert_eq!(truth.operations.len(), 400);
        for seed in 0..20 {
            let mut random = Random::new(seed);
            // Loses two segments in a hundred, but never the last: acknowledgements reveal what is missing.
            let some: Vec<_> = whole
                .iter()
                .map(|bytes| (!random.chance(0.02)).then(|| bytes.clone()))
                .collect();
            let (found, ledger) = run(&some);
            assert!(
                ledger.holes > 0 && ledger.slow_mode_entries > 0,
                "seed {seed}: {ledger:?}"
            );
            // The toy protocol's counter appears as a line of the report and as a column of the trace.
            let (_, cut) = ledger
                .named()
                .find(|(name, _)| *name == "lines_cut")
                .unwrap();
            let report = text(&crate::Analysis::new().report(&ledger));
            let line = format!("lines   {cut} lines cut in two by a gap");
            assert!(cut > 0 && report.contains(&line), "seed {seed}: {report}");
            assert!(
                tables::STATISTICS
                    .columns
                    .iter()
                    .any(|column| column.name == "lines_cut")
            );
            assert_eq!(Ledger::from_counters(ledger.counters()), ledger);
            for operation in &found.operations {
                let name = operation.split(' ').nth(1).unwrap();
                assert!(
                    truth
                        .operations
                        .iter()
                        .any(|line| line.split(' ').nth(1) == Some(name)),
                    "{name}"
                );
            }
            assert!(
                found.operations.len() > 100,
                "seed {seed}: {} found",
                found.operations.len()
            );
        }
    }
}
