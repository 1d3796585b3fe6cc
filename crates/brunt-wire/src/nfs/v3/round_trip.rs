//! `parse(encode(x)) == x` for random messages of every procedure.

use zerocopy::IntoBytes;

use super::*;
use crate::nfs::FileHandle;
use crate::{Cursor, FileData};

/// Generates random messages; the data in them lives as long as the pool.
struct Random<'a> {
    state: u64,
    pool: &'a [u8],
    attributes: &'a [Attributes],
    before: &'a [PreOpAttributes],
}

impl<'a> Random<'a> {
    fn next(&mut self) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        self.state >> 11
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn word(&mut self) -> u32 {
        self.next() as u32
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    fn bytes(&mut self, max: usize) -> &'a [u8] {
        let len = self.below(max + 1);
        let at = self.below(self.pool.len() - len);
        &self.pool[at..at + len]
    }

    fn handle(&mut self) -> FileHandle<'a> {
        FileHandle(self.bytes(64))
    }

    fn place(&mut self) -> DirOp<'a> {
        DirOp {
            dir: self.handle(),
            name: self.bytes(300),
        }
    }

    fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.coin().then(|| value(self))
    }

    fn attributes(&mut self) -> &'a Attributes {
        &self.attributes[self.below(self.attributes.len())]
    }

    fn post_op(&mut self) -> Option<&'a Attributes> {
        self.maybe(Self::attributes)
    }

    fn wcc(&mut self) -> Wcc<'a> {
        let before = self.maybe(|random| &random.before[random.below(random.before.len())]);
        Wcc {
            before,
            after: self.post_op(),
        }
    }

    fn time(&mut self) -> SetTime<'a> {
        match self.below(3) {
            0 => SetTime::DontChange,
            1 => SetTime::ServerTime,
            _ => SetTime::ClientTime(&self.attributes().mtime),
        }
    }

    fn set(&mut self) -> SetAttributes<'a> {
        SetAttributes {
            mode: self.maybe(Self::word),
            uid: self.maybe(Self::word),
            gid: self.maybe(Self::word),
            size: self.maybe(Self::next),
            atime: self.time(),
            mtime: self.time(),
        }
    }

    fn stable(&mut self) -> StableHow {
        [
            StableHow::Unstable,
            StableHow::DataSync,
            StableHow::FileSync,
        ][self.below(3)]
    }

    /// File data; its position is 0, because only the parser determines it.
    fn data(&mut self) -> FileData<'a> {
        let bytes = self.bytes(900);
        FileData {
            at: 0,
            len: bytes.len() as u32,
            bytes,
        }
    }

    fn node(&mut self) -> NodeKind<'a> {
        match self.below(4) {
            0 => NodeKind::Device(
                FileType::BlockDevice,
                self.set(),
                [self.word(), self.word()],
            ),
            1 => NodeKind::Device(
                FileType::CharacterDevice,
                self.set(),
                [self.word(), self.word()],
            ),
            2 => NodeKind::Pipe(FileType::Fifo, self.set()),
            _ => NodeKind::Other(FileType::from_number(self.word())),
        }
    }

    // Long because it has a case per procedure.
    fn args(&mut self, procedure: Procedure) -> Args<'a> {
        match procedure {
            Procedure::Null => Args::Null,
            Procedure::Getattr => Args::Getattr {
                object: self.handle(),
            },
            Procedure::Setattr => Args::Setattr {
                object: self.handle(),
                attributes: self.set(),
                guard: self.maybe(|random| &random.attributes().ctime),
            },
            Procedure::Lookup => Args::Lookup { what: self.place() },
            Procedure::Access => Args::Access {
                object: self.handle(),
                access: self.word(),
            },
            Procedure::Readlink => Args::Readlink {
                symlink: self.handle(),
            },
            Procedure::Read => Args::Read {
                file: self.handle(),
                offset: self.next(),
                count: self.word(),
            },
            Procedure::Write => Args::Write {
                file: self.handle(),
                offset: self.next(),
                count: self.word(),
                stable: self.stable(),
                data: self.data(),
            },
            Procedure::Create => {
                let how = match self.below(3) {
                    0 => CreateHow::Unchecked(self.set()),
                    1 => CreateHow::Guarded(self.set()),
                    _ => CreateHow::Exclusive(self.next()),
                };
                Args::Create {
                    place: self.place(),
                    how,
                }
            }
            Procedure::Mkdir => Args::Mkdir {
                place: self.place(),
                attributes: self.set(),
            },
            Procedure::Symlink => Args::Symlink {
                place: self.place(),
                attributes: self.set(),
                target: self.bytes(600),
            },
            Procedure::Mknod => Args::Mknod {
                place: self.place(),
                what: self.node(),
            },
            Procedure::Remove => Args::Remove {
                object: self.place(),
            },
            Procedure::Rmdir => Args::Rmdir {
                object: self.place(),
            },
            Procedure::Rename => Args::Rename {
                from: self.place(),
                to: self.place(),
            },
            Procedure::Link => Args::Link {
                file: self.handle(),
                link: self.place(),
            },
            Procedure::Readdir => Args::Readdir {
                dir: self.handle(),
                cookie: self.next(),
                cookie_verifier: self.next(),
                count: self.word(),
            },
            Procedure::Readdirplus => Args::Readdirplus {
                dir: self.handle(),
                cookie: self.next(),
                cookie_verifier: self.next(),
                dir_count: self.word(),
                max_count: self.word(),
            },
            Procedure::Fsstat => Args::Fsstat {
                root: self.handle(),
            },
            Procedure::Fsinfo => Args::Fsinfo {
                root: self.handle(),
            },
            Procedure::Pathconf => Args::Pathconf {
                object: self.handle(),
            },
            Procedure::Commit => Args::Commit {
                file: self.handle(),
                offset: self.next(),
                count: self.word(),
            },
        }
    }

    fn failure(&mut self, procedure: Procedure) -> ResultBody<'a> {
        let (mut attributes, mut wcc) = (None, [Wcc::default(); 2]);
        match procedure {
            Procedure::Null | Procedure::Getattr => return ResultBody::Empty,
            Procedure::Link => (attributes, wcc[0]) = (self.post_op(), self.wcc()),
            Procedure::Rename => wcc = [self.wcc(), self.wcc()],
            Procedure::Setattr
            | Procedure::Write
            | Procedure::Create
            | Procedure::Mkdir
            | Procedure::Symlink
            | Procedure::Mknod
            | Procedure::Remove
            | Procedure::Rmdir
            | Procedure::Commit => wcc[0] = self.wcc(),
            _ => attributes = self.post_op(),
        }
        ResultBody::Failed { attributes, wcc }
    }

    fn entries(&mut self, plus: bool) -> Vec<Entry<'a>> {
        (0..self.below(9))
            .map(|_| Entry {
                fileid: self.next(),
                name: self.bytes(100),
                cookie: self.next(),
                attributes: if plus { self.post_op() } else { None },
                handle: if plus { self.maybe(Self::handle) } else { None },
            })
            .collect()
    }

    // Long because it has a case per procedure.
    fn body(&mut self, procedure: Procedure, entries: Entries<'a>) -> ResultBody<'a> {
        match procedure {
            Procedure::Null => ResultBody::Empty,
            Procedure::Getattr => ResultBody::Getattr {
                attributes: self.attributes(),
            },
            Procedure::Setattr | Procedure::Remove | Procedure::Rmdir => {
                ResultBody::Changed { wcc: self.wcc() }
            }
            Procedure::Lookup => ResultBody::Lookup {
                object: self.handle(),
                attributes: self.post_op(),
                dir: self.post_op(),
            },
            Procedure::Access => ResultBody::Access {
                attributes: self.post_op(),
                access: self.word(),
            },
            Procedure::Readlink => ResultBody::Readlink {
                attributes: self.post_op(),
                target: self.bytes(600),
            },
            Procedure::Read => ResultBody::Read {
                attributes: self.post_op(),
                count: self.word(),
                eof: self.coin(),
                data: self.data(),
            },
            Procedure::Write => ResultBody::Write {
                wcc: self.wcc(),
                count: self.word(),
                committed: self.stable(),
                verifier: self.next(),
            },
            Procedure::Create | Procedure::Mkdir | Procedure::Symlink | Procedure::Mknod => {
                ResultBody::Created {
                    object: self.maybe(Self::handle),
                    attributes: self.post_op(),
                    dir: self.wcc(),
                }
            }
            Procedure::Rename => ResultBody::Rename {
                from: self.wcc(),
                to: self.wcc(),
            },
            Procedure::Link => ResultBody::Link {
                attributes: self.post_op(),
                dir: self.wcc(),
            },
            Procedure::Readdir | Procedure::Readdirplus => ResultBody::Readdir {
                dir: self.post_op(),
                cookie_verifier: self.next(),
                entries,
                eof: self.coin(),
            },
            Procedure::Fsstat => ResultBody::Fsstat {
                attributes: self.post_op(),
                total_bytes: self.next(),
                free_bytes: self.next(),
                available_bytes: self.next(),
                total_files: self.next(),
                free_files: self.next(),
                available_files: self.next(),
                invariant_sec: self.word(),
            },
            Procedure::Fsinfo => ResultBody::Fsinfo {
                attributes: self.post_op(),
                read_max: self.word(),
                read_preferred: self.word(),
                read_multiple: self.word(),
                write_max: self.word(),
                write_preferred: self.word(),
                write_multiple: self.word(),
                dir_preferred: self.word(),
                file_size_max: self.next(),
                time_delta: self.attributes().atime,
                properties: self.word(),
            },
            Procedure::Pathconf => ResultBody::Pathconf {
                attributes: self.post_op(),
                link_max: self.word(),
                name_max: self.word(),
                no_trunc: self.coin(),
                chown_restricted: self.coin(),
                case_insensitive: self.coin(),
                case_preserving: self.coin(),
            },
            Procedure::Commit => ResultBody::Commit {
                wcc: self.wcc(),
                verifier: self.next(),
            },
        }
    }
}

/// For every procedure, 300 random calls, 300 results and 100 failures are parsed to the end, compare equal, and
/// encode to the same bytes.
#[test]
fn random_messages_are_parsed_back() {
    let mut state = 17u64;
    let pool: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        (state >> 40) as u8
    })
    .take(4096)
    .collect();
    let filled = |at: usize| {
        let mut value = Attributes::default();
        value
            .as_mut_bytes()
            .copy_from_slice(&pool[at..at + size_of::<Attributes>()]);
        value
    };
    let attributes: Vec<Attributes> = (0..20).map(|index| filled(index * 50)).collect();
    let of = |from: &Attributes| PreOpAttributes {
        size: from.size,
        mtime: from.mtime,
        ctime: from.ctime,
    };
    let before: Vec<PreOpAttributes> = attributes.iter().map(of).collect();
    for seed in 0..400 {
        let mut random = Random {
            state: seed * 7919,
            pool: &pool,
            attributes: &attributes,
            before: &before,
        };
        for procedure in Procedure::ALL {
            if seed < 300 {
                call(random.args(procedure));
            }
            let plus = procedure == Procedure::Readdirplus;
            let (wanted, mut memory) = (random.entries(plus), Vec::new());
            let entries = Entries::of(&wanted, plus, &mut memory).unwrap();
            assert_eq!(entries.iter().collect::<Vec<_>>(), wanted, "seed {seed}");
            let mut random = Random {
                state: random.next(),
                ..random
            };
            let results = match seed < 300 || procedure == Procedure::Null {
                true => Results {
                    status: Status::OK,
                    body: random.body(procedure, entries),
                },
                false => Results {
                    status: Status(1 + random.word() % 70),
                    body: random.failure(procedure),
                },
            };
            reply(procedure, results);
        }
    }
}

fn call(args: Args<'_>) {
    let mut bytes = Vec::new();
    args.encode(&mut bytes);
    let mut cur = Cursor::new(&bytes);
    let mut parsed = parse_args(args.procedure(), &mut cur).unwrap();
    assert_eq!(cur.rest(), [], "{args:?}");
    let mut again = Vec::new();
    parsed.encode(&mut again);
    assert_eq!(bytes, again, "{args:?}");
    if let Args::Write { data, .. } = &mut parsed {
        data.at = 0;
    }
    assert_eq!(parsed, args);
}

fn reply(procedure: Procedure, results: Results<'_>) {
    let mut bytes = Vec::new();
    results.encode(procedure, &mut bytes);
    let mut cur = Cursor::new(&bytes);
    let mut parsed = parse_results(procedure, &mut cur).unwrap();
    assert_eq!(cur.rest(), [], "{results:?}");
    let mut again = Vec::new();
    parsed.encode(procedure, &mut again);
    assert_eq!(bytes, again, "{results:?}");
    if let ResultBody::Read { data, .. } = &mut parsed.body {
        data.at = 0;
    }
    assert_eq!(parsed, results);
}

/// Omitting the data bytes, which the caller sends itself, doesn't change the rest of the call.
#[test]
fn a_write_without_its_data_is_a_prefix() {
    let whole = Args::Write {
        file: FileHandle(b"handle"),
        offset: 8192,
        count: 5,
        stable: StableHow::Unstable,
        data: FileData {
            at: 0,
            len: 5,
            bytes: b"bytes",
        },
    };
    let Args::Write {
        file,
        offset,
        count,
        stable,
        data,
    } = whole
    else {
        unreachable!()
    };
    let head = Args::Write {
        file,
        offset,
        count,
        stable,
        data: FileData { bytes: &[], ..data },
    };
    let (mut bytes, mut prefix) = (Vec::new(), Vec::new());
    whole.encode(&mut bytes);
    head.encode(&mut prefix);
    prefix.extend_from_slice(b"bytes\0\0\0");
    assert_eq!(bytes, prefix);
}
