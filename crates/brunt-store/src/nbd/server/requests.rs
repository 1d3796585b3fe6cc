//! Decides what a client's request may do and how it is answered. No I/O: `connection` passes in headers and results,
//! and sends the output.
//!
//! The one rule: a request is answered exactly once, by a simple reply or by chunks as negotiated. A request that is
//! outside the export, isn't in whole blocks, or writes to a read-only export never reaches a device.

use brunt_block::device::Allocation;
use brunt_block::{Backend, Op};
use brunt_wire::nbd::transmission::{
    NbdExtents, NbdHeaderBytes, command_flag, encode_block_status, encode_error,
};
use brunt_wire::nbd::{NbdChunk, NbdCommand, NbdHeaders, NbdReply, NbdRequest, allocation, errno};

use super::offer::{ALLOCATION_CONTEXT, NbdAgreement, NbdOffered};

/// Maximum backend look-ups per block status reply, which also limits the reply's extents; a client continues after the
/// last extent. Each look-up may be a system call or a round trip to another server.
const LOOKUPS_MAX: usize = 256;

/// How to handle a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdVerdict {
    /// Submit it to the device.
    Run {
        /// The operation.
        op: Op,
        /// Whether the request completes only once its data is stable.
        force_unit_access: bool,
    },
    /// Nothing to do: the request covers no blocks, or is a hint that the server doesn't use.
    Nothing,
    /// Answer with extents.
    Status,
    /// Answer with this error.
    Refuse(u32, &'static str),
    /// The client disconnects.
    Leave,
}

/// Determines how a connection's requests are answered.
#[derive(Clone, Debug)]
pub struct NbdRequestHandler {
    headers: NbdHeaders,
    block_status: bool,
    size_bytes: u64,
    block_bytes: u64,
    payload_max: u64,
    read_only: bool,
    can_trim: bool,
    /// Whether trimming yields zeros immediately.
    fast_zero: bool,
}

impl NbdRequestHandler {
    /// Creates a handler for an export, as negotiated.
    pub fn new(agreement: NbdAgreement, export: &NbdOffered) -> NbdRequestHandler {
        use brunt_wire::nbd::export_flag;
        NbdRequestHandler {
            headers: agreement.headers,
            block_status: agreement.block_status,
            size_bytes: export.size_bytes,
            block_bytes: export.sizes.minimum.into(),
            payload_max: export.sizes.payload_max.into(),
            read_only: export.flags & export_flag::READ_ONLY != 0,
            can_trim: export.flags & export_flag::SEND_TRIM != 0,
            fast_zero: export.flags & export_flag::SEND_FAST_ZERO != 0,
        }
    }

    /// The headers of this connection.
    pub fn headers(&self) -> NbdHeaders {
        self.headers
    }

    /// Decides how to handle a request.
    #[inline]
    pub fn judge(&self, request: &NbdRequest) -> NbdVerdict {
        let zero_flags = match self.fast_zero {
            true => command_flag::NO_HOLE | command_flag::FAST_ZERO,
            false => command_flag::NO_HOLE,
        };
        let (op, flags) = match request.command {
            NbdCommand::Disconnect => return NbdVerdict::Leave,
            NbdCommand::Read => (Some(Op::Read), command_flag::DF),
            NbdCommand::Write => (Some(Op::Write), 0),
            NbdCommand::Flush => {
                let force_unit_access = false;
                return NbdVerdict::Run {
                    op: Op::Flush,
                    force_unit_access,
                };
            }
            NbdCommand::Trim if self.can_trim || self.read_only => (Some(Op::Unmap), 0),
            // Thin exports stay thin if the client allows holes.
            NbdCommand::WriteZeroes if self.makes_hole(request) => (Some(Op::Unmap), zero_flags),
            NbdCommand::WriteZeroes => (Some(Op::WriteZeroes), zero_flags),
            NbdCommand::Cache => (None, 0),
            NbdCommand::BlockStatus if self.block_status => (None, command_flag::REQ_ONE),
            NbdCommand::BlockStatus => {
                return NbdVerdict::Refuse(errno::INVAL, "no metadata context was negotiated");
            }
            NbdCommand::Trim | NbdCommand::Other(_) => {
                return NbdVerdict::Refuse(errno::INVAL, "this command was not offered");
            }
        };
        // Some clients set FUA on all requests.
        if request.flags & !(flags | command_flag::FUA) != 0 {
            return NbdVerdict::Refuse(errno::INVAL, "a flag that this command does not support");
        }
        let writes = matches!(op, Some(Op::Write | Op::Unmap | Op::WriteZeroes));
        if writes && self.read_only {
            return NbdVerdict::Refuse(errno::PERM, "the export is read-only");
        }
        let inside = request
            .offset
            .checked_add(request.len)
            .is_some_and(|end| end <= self.size_bytes);
        if !inside {
            let full = matches!(request.command, NbdCommand::Write | NbdCommand::WriteZeroes);
            return NbdVerdict::Refuse(
                if full { errno::NOSPC } else { errno::INVAL },
                "past the export's end",
            );
        }
        self.judge_inside(request, op)
    }

    /// Decides about a request that is inside the export and has valid flags.
    fn judge_inside(&self, request: &NbdRequest, op: Option<Op>) -> NbdVerdict {
        if request.command == NbdCommand::BlockStatus {
            return match request.len {
                0 => NbdVerdict::Refuse(errno::INVAL, "block status of length 0"),
                _ => NbdVerdict::Status,
            };
        }
        let Some(op) = op else {
            return NbdVerdict::Nothing;
        };
        if !(request.offset | request.len).is_multiple_of(self.block_bytes) {
            return NbdVerdict::Refuse(errno::INVAL, "not a multiple of the block size");
        }
        if matches!(op, Op::Read | Op::Write) && request.len > self.payload_max {
            return NbdVerdict::Refuse(errno::INVAL, "exceeds the maximum payload");
        }
        if request.len == 0 {
            return NbdVerdict::Nothing;
        }
        if op == Op::WriteZeroes && request.flags & command_flag::FAST_ZERO != 0 {
            return NbdVerdict::Refuse(
                errno::NOTSUP,
                "writing zeros without a hole may take as long as a normal write",
            );
        }
        NbdVerdict::Run {
            op,
            force_unit_access: request.flags & command_flag::FUA != 0,
        }
    }

    /// Whether the zeros may be a hole and holes read as zeros.
    fn makes_hole(&self, request: &NbdRequest) -> bool {
        self.fast_zero && request.flags & command_flag::NO_HOLE == 0
    }

    /// The header of a reply to a read; the data follows.
    #[inline]
    pub fn data(&self, cookie: u64, offset: u64, len: u32) -> NbdHeaderBytes {
        let reply = match self.headers {
            NbdHeaders::Simple => NbdReply::Simple { error: 0, cookie },
            _ => NbdReply::Chunk {
                done: true,
                cookie,
                offset: Some(offset),
                chunk: NbdChunk::Data { offset, len },
            },
        };
        reply.encode(self.headers)
    }

    /// The reply to a successful request without data, such as a read of length 0.
    #[inline]
    pub fn done(&self, cookie: u64, offset: u64) -> NbdHeaderBytes {
        let reply = match self.headers {
            NbdHeaders::Simple => NbdReply::Simple { error: 0, cookie },
            _ => NbdReply::Chunk {
                done: true,
                cookie,
                offset: Some(offset),
                chunk: NbdChunk::None,
            },
        };
        reply.encode(self.headers)
    }

    /// An error reply, with a text if the headers allow one.
    pub fn error(&self, cookie: u64, offset: u64, error: u32, words: &str) -> Vec<u8> {
        let (reply, payload) = match self.headers {
            NbdHeaders::Simple => (NbdReply::Simple { error, cookie }, Vec::new()),
            _ => {
                let words: String = words.chars().take(256).collect();
                let payload = encode_error(error, &words);
                let chunk = NbdChunk::Error {
                    offset: Some(false),
                    len: payload.len() as u32,
                };
                (
                    NbdReply::Chunk {
                        done: true,
                        cookie,
                        offset: Some(offset),
                        chunk,
                    },
                    payload,
                )
            }
        };
        [&reply.encode(self.headers)[..], &payload].concat()
    }

    /// The reply to a block status request, according to the backend.
    pub fn status(&self, request: &NbdRequest, backend: &dyn Backend) -> Vec<u8> {
        let one = request.flags & command_flag::REQ_ONE != 0;
        let end = request.offset + request.len;
        let most = if self.headers == NbdHeaders::Extended {
            u64::MAX
        } else {
            u32::MAX.into()
        };
        let mut extents: Vec<(u64, u64)> = Vec::new();
        let mut at = request.offset;
        for _ in 0..LOOKUPS_MAX {
            if at >= end {
                break;
            }
            let (state, len) = backend
                .allocation(at)
                .unwrap_or((Allocation::Mapped, end - at));
            let len = len.clamp(1, end - at);
            let flags = match state {
                Allocation::Mapped => 0,
                Allocation::Deallocated => u64::from(allocation::HOLE | allocation::ZERO),
            };
            let is_second = one && extents.len() == 1;
            match extents.last_mut() {
                // Extends the last extent if the state is the same, even if only one extent was requested.
                Some((before, known)) if *known == flags && *before + len <= most => *before += len,
                _ if is_second => break,
                _ => extents.push((len.min(most), flags)),
            }
            at += len.min(most);
        }
        let wide = self.headers == NbdHeaders::Extended;
        let payload = encode_block_status(
            &NbdExtents {
                context: ALLOCATION_CONTEXT,
                extents,
            },
            wide,
        );
        let chunk = NbdChunk::BlockStatus {
            wide,
            len: payload.len() as u32,
        };
        let reply = NbdReply::Chunk {
            done: true,
            cookie: request.cookie,
            offset: Some(request.offset),
            chunk,
        };
        [&reply.encode(self.headers)[..], &payload].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_block::open_url;
    use brunt_wire::nbd::transmission::parse_block_status;
    use brunt_wire::nbd::{NbdBlockSizes, export_flag};

    fn requests(flags: u16, headers: NbdHeaders) -> NbdRequestHandler {
        let export = NbdOffered {
            name: String::new(),
            description: String::new(),
            size_bytes: 1 << 20,
            flags,
            sizes: NbdBlockSizes {
                minimum: 512,
                preferred: 4096,
                payload_max: 65536,
            },
        };
        NbdRequestHandler::new(
            NbdAgreement {
                export: 0,
                headers,
                block_status: true,
            },
            &export,
        )
    }

    fn request(command: NbdCommand, flags: u16, offset: u64, len: u64) -> NbdRequest {
        NbdRequest {
            flags,
            command,
            cookie: 5,
            offset,
            len,
        }
    }

    #[test]
    fn each_request_gets_its_verdict() {
        let all = export_flag::HAS_FLAGS | export_flag::SEND_TRIM;
        let judge = |flags, command, command_flags, offset, len| {
            requests(flags, NbdHeaders::Structured).judge(&request(
                command,
                command_flags,
                offset,
                len,
            ))
        };
        let refused = |verdict| match verdict {
            NbdVerdict::Refuse(error, _) => error,
            other => panic!("{other:?}"),
        };
        let run = |op, force_unit_access| NbdVerdict::Run {
            op,
            force_unit_access,
        };
        use NbdCommand::{
            BlockStatus, Cache, Disconnect, Flush, Other, Read, Trim, Write, WriteZeroes,
        };
        assert_eq!(judge(all, Read, 0, 0, 65536), run(Op::Read, false));
        assert_eq!(
            judge(all, Read, command_flag::DF, 0, 512),
            run(Op::Read, false)
        );
        assert_eq!(
            judge(all, Write, command_flag::FUA, 512, 512),
            run(Op::Write, true)
        );
        assert_eq!(judge(all, Flush, 0, 0, 0), run(Op::Flush, false));
        assert_eq!(judge(all, Trim, 0, 0, 1 << 20), run(Op::Unmap, false));
        assert_eq!(
            judge(all, WriteZeroes, command_flag::NO_HOLE, 0, 1 << 20),
            run(Op::WriteZeroes, false)
        );
        assert_eq!(judge(all, Cache, 0, 0, 512), NbdVerdict::Nothing);
        assert_eq!(judge(all, Read, 0, 0, 0), NbdVerdict::Nothing);
        assert_eq!(
            judge(all, BlockStatus, command_flag::REQ_ONE, 1, 7),
            NbdVerdict::Status
        );
        assert_eq!(judge(all, Disconnect, 0, 0, 0), NbdVerdict::Leave);
        for (command, flags, offset, len, error) in [
            (Read, 0, 1 << 20, 512, errno::INVAL),
            (Write, 0, 1 << 20, 512, errno::NOSPC),
            (Read, 0, u64::MAX - 100, 512, errno::INVAL),
            (Read, 0, 1, 512, errno::INVAL),
            (Read, 0, 0, 65536 + 512, errno::INVAL),
            (WriteZeroes, command_flag::FAST_ZERO, 0, 512, errno::INVAL),
            (Read, command_flag::NO_HOLE, 0, 512, errno::INVAL),
            (BlockStatus, 0, 0, 0, errno::INVAL),
            (Other(77), 0, 0, 0, errno::INVAL),
        ] {
            assert_eq!(
                refused(judge(all, command, flags, offset, len)),
                error,
                "{command:?}"
            );
        }
        assert_eq!(
            refused(judge(export_flag::HAS_FLAGS, Trim, 0, 0, 512)),
            errno::INVAL
        );
        let thin = all | export_flag::SEND_FAST_ZERO;
        let fast = command_flag::FAST_ZERO;
        assert_eq!(judge(thin, WriteZeroes, 0, 0, 512), run(Op::Unmap, false));
        assert_eq!(
            judge(thin, WriteZeroes, fast, 0, 512),
            run(Op::Unmap, false)
        );
        assert_eq!(
            judge(thin, WriteZeroes, command_flag::NO_HOLE, 0, 512),
            run(Op::WriteZeroes, false)
        );
        assert_eq!(
            refused(judge(
                thin,
                WriteZeroes,
                fast | command_flag::NO_HOLE,
                0,
                512
            )),
            errno::NOTSUP
        );
        assert_eq!(
            refused(judge(thin, WriteZeroes, 0, 1 << 20, 512)),
            errno::NOSPC
        );
        for command in [Write, Trim, WriteZeroes] {
            assert_eq!(
                refused(judge(all | export_flag::READ_ONLY, command, 0, 0, 512)),
                errno::PERM
            );
        }
    }

    /// Extents of a memory disk: a hole, data, a hole; only the first if one extent is requested.
    #[test]
    fn extents_of_a_memory_disk_show_its_holes() {
        let backend = open_url("memory:1MiB").unwrap();
        let brunt_block::Inline::Memory(memory) = backend.inline() else {
            panic!("it is memory")
        };
        memory.write(256 << 10, &[1; 64 << 10]);
        for headers in [NbdHeaders::Structured, NbdHeaders::Extended] {
            let status = |flags| {
                let asked = request(NbdCommand::BlockStatus, flags, 0, 1 << 20);
                let bytes = requests(export_flag::HAS_FLAGS, headers).status(&asked, &*backend);
                let (reply, at) = NbdReply::parse(&bytes, headers).unwrap();
                let wide = headers == NbdHeaders::Extended;
                assert!(matches!(
                    reply,
                    NbdReply::Chunk { done: true, cookie: 5, chunk: NbdChunk::BlockStatus { wide: w, .. }, .. }
                        if w == wide
                ));
                parse_block_status(&bytes[at..], wide).unwrap().extents
            };
            assert_eq!(status(0), [(256 << 10, 3), (64 << 10, 0), (704 << 10, 3)]);
            assert_eq!(status(command_flag::REQ_ONE), [(256 << 10, 3)]);
        }
    }

    /// A medium whose blocks are all separate data extents; counts its look-ups.
    struct Crumbs {
        inner: std::sync::Arc<dyn Backend>,
        asked: std::sync::atomic::AtomicUsize,
    }

    impl Backend for Crumbs {
        fn info(&self) -> &brunt_block::DeviceInfo {
            self.inner.info()
        }

        fn open(
            &self,
            ring: &brunt_block::Ring,
            depth: u32,
        ) -> Result<Box<dyn brunt_block::Device>, brunt_block::OpenError> {
            self.inner.open(ring, depth)
        }

        fn allocation(&self, _offset: u64) -> Option<(Allocation, u64)> {
            self.asked
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Some((Allocation::Mapped, 512))
        }
    }

    /// A query takes a bounded number of look-ups, however long its range; the reply says how far it reaches.
    #[test]
    fn an_answer_is_bounded_by_look_ups() {
        let backend = Crumbs {
            inner: open_url("memory:1MiB").unwrap(),
            asked: 0.into(),
        };
        for flags in [0, command_flag::REQ_ONE] {
            let asked = request(NbdCommand::BlockStatus, flags, 0, 1 << 20);
            let bytes =
                requests(export_flag::HAS_FLAGS, NbdHeaders::Extended).status(&asked, &backend);
            let (_, at) = NbdReply::parse(&bytes, NbdHeaders::Extended).unwrap();
            let extents = parse_block_status(&bytes[at..], true).unwrap().extents;
            assert_eq!(extents, [(LOOKUPS_MAX as u64 * 512, 0)]);
            assert_eq!(
                backend.asked.swap(0, std::sync::atomic::Ordering::Relaxed),
                LOOKUPS_MAX
            );
        }
    }
}
