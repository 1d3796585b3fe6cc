//! The null server: the device conformance suite passes on it, its names behave like those of a file system, tshark
//! decodes its replies correctly, and nothing that a client sends harms it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use brunt_block::sink::{SinkConfig, SinkServer};
use brunt_block::{Op, Ring, RingConfig, open_url_with};
use brunt_nfs::operations::{NfsAsk, NfsNames, NfsPlan};
use brunt_nfs::rpc::{begin_call, finish_record, parse_reply, sys_credentials};
use brunt_nfs::server::service::{CALL_BYTES_MAX, NfsArrived, NfsCallError, NfsService};
use brunt_nfs::server::{self, DISK_BYTES, TRANSFER_BYTES_MAX};
use brunt_nfs::{BACKENDS, NfsFolder};
use brunt_wire::nfs::v3::{
    Args, CreateHow, DirOp, FileType, NfsTime, NodeKind, Procedure, ResultBody, Results,
    SetAttributes, SetTime, StableHow, parse_results,
};
use brunt_wire::nfs::{FileHandle, mount};
use brunt_wire::rpc::{MARK_BYTES, PROGRAM_MOUNT, PROGRAM_NFS, ReplyStatus, Xid};
use brunt_wire::{Cursor, FileData};

use crate::ganesha::refusal;
use crate::server::{need, run};
use crate::suite::{Bench, Subject, conforms_by_each_engine};

pub fn start() -> SinkServer {
    server::start(SinkConfig::default()).unwrap()
}

#[test]
fn the_device_conforms_on_the_null_server() {
    let sink = start();
    let (address, port) = (sink.address(), sink.address().port());
    conforms_by_each_engine(Subject {
        url: &format!(
            "nfs://{address}/export/eight?mountport={port}&create=yes&size=8MiB&connections=2"
        ),
        more: BACKENDS,
        zeros: true,
        unmaps: false,
        remote: true,
    });
    assert_eq!(sink.shutdown().broken, 0);
}

/// The null server speaks only NFSv3.
#[test]
fn a_server_without_nfs41_is_named_with_the_remedy() {
    let sink = start();
    let address = sink.address();
    let text = refusal(&format!("nfs://{address}/export/disk?version=4.1"));
    let words = format!(
        "{address}: EXCHANGE_ID: the server returned PROG_MISMATCH; it doesn't speak NFSv4.1: use version=3"
    );
    assert!(text.contains(&words), "{text}");
}

/// GETATTR of one object.
#[derive(Clone, Debug)]
struct Getattr(Vec<u8>);

impl NfsPlan for Getattr {
    fn call<'a>(&'a self, _ask: NfsAsk, _names: &'a mut NfsNames) -> Args<'a> {
        getattr(&self.0)
    }
}

#[test]
fn calls_go_out_on_several_connections() {
    let sink = start();
    let (address, port) = (sink.address(), sink.address().port());
    let url = format!("nfs://{address}/export/?mountport={port}&connections=3");
    let read_only = format!("{url}&read_only=yes");
    let read_only = open_url_with(&read_only, BACKENDS, true).unwrap();
    assert!(read_only.info().read_only, "as the user says");
    let backend = open_url_with(&url, BACKENDS, true).unwrap();
    assert!(!backend.info().read_only, "only its blocks are not written");
    let folder = backend.concrete().and_then(|any| any.downcast_ref());
    let folder: &NfsFolder = folder.unwrap();
    let ring = Ring::new(RingConfig::default()).unwrap();
    let before = sink.stats().connections;
    let plan = Getattr(folder.place().handle.clone());
    let mut bench = Bench {
        device: folder.operations(plan, &ring, 12).unwrap(),
        ring,
    };
    let requests = (0..60).map(|tag| bench.request(tag, Op::Flush, 0, 0));
    let requests = requests.collect();
    let done = bench.run(requests);
    assert!(done.len() == 60 && done.iter().all(|one| one.result == Ok(())));
    drop(bench);
    assert_eq!(sink.stats().connections - before, 3);
    assert_eq!(sink.shutdown().broken, 0);
}

/// A client without a socket, and its conversation with the server.
struct Talk {
    service: NfsService,
    xid: u32,
    said: Vec<(bool, Vec<u8>)>,
}

impl Talk {
    fn new() -> Talk {
        Talk {
            service: NfsService::new(0x1234_5678_9abc_def0),
            xid: 0,
            said: Vec::new(),
        }
    }

    /// Sends a call; returns the results in the reply, with their length.
    fn call(&mut self, numbers: [u32; 3], encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        self.xid += 1;
        let (mut call, mut reply) = (Vec::new(), Vec::new());
        begin_call(&mut call, Xid(self.xid), numbers, &sys_credentials(5, 6));
        encode(&mut call);
        finish_record(&mut call, 0);
        let len = call.len() - MARK_BYTES;
        assert_eq!(NfsService::examine(&call), Ok(NfsArrived::Call { len }));
        let with = (2049, NfsTime::default());
        let record = &call[MARK_BYTES..];
        let served = self.service.answer(record, len, with, &mut reply).unwrap();
        reply.resize(reply.len() + served.read_bytes.next_multiple_of(4), 0);
        let header = parse_reply(&reply[MARK_BYTES..], "a call").unwrap();
        assert_eq!(
            (header.xid, header.status),
            (Xid(self.xid), ReplyStatus::Success)
        );
        let results = reply[MARK_BYTES + header.body_at..].to_vec();
        self.said.extend([(true, call), (false, reply)]);
        results
    }

    fn nfs<T>(&mut self, args: &Args<'_>, look: impl FnOnce(&Results<'_>) -> T) -> T {
        let procedure = args.procedure();
        let results = self.call([PROGRAM_NFS, 3, procedure as u32], |out| args.encode(out));
        let mut cur = Cursor::new(&results);
        let parsed = parse_results(procedure, &mut cur).unwrap();
        assert!(cur.rest().is_empty(), "{parsed:?}");
        look(&parsed)
    }

    fn status(&mut self, args: &Args<'_>) -> u32 {
        self.nfs(args, |results| results.status.0)
    }

    fn handle(&mut self, args: &Args<'_>) -> Vec<u8> {
        self.nfs(args, |results| match results.body {
            ResultBody::Lookup { object, .. } => object.0.to_vec(),
            ResultBody::Created { object, .. } => object.unwrap().0.to_vec(),
            other => panic!("{args:?}: {:?} {other:?}", results.status),
        })
    }

    fn mount(&mut self) -> Vec<u8> {
        let results = self.call([PROGRAM_MOUNT, 3, 1], |out| {
            mount::Args::Mount(b"/export").encode(out);
        });
        match mount::parse_results(1, &mut Cursor::new(&results)) {
            Ok(mount::Results::Mounted(FileHandle(root))) => root.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    /// Lists names, ids and cookies in as many calls as necessary.
    fn list(&mut self, dir: &[u8], max_count: u32) -> Vec<(String, u64)> {
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let args = Args::Readdirplus {
                dir: FileHandle(dir),
                cookie,
                cookie_verifier: 0,
                dir_count: max_count,
                max_count,
            };
            let eof = self.nfs(&args, |results| match results.body {
                ResultBody::Readdir { entries, eof, .. } => {
                    for entry in entries.iter() {
                        let name = String::from_utf8(entry.name.to_vec()).unwrap();
                        all.push((name, entry.cookie));
                    }
                    eof
                }
                other => panic!("{other:?}"),
            });
            if eof {
                return all;
            }
            cookie = all.last().expect("entries").1;
        }
    }
}

fn place<'a>(dir: &'a [u8], name: &'a str) -> DirOp<'a> {
    DirOp {
        dir: FileHandle(dir),
        name: name.as_bytes(),
    }
}

fn guarded<'a>(dir: &'a [u8], name: &'a str) -> Args<'a> {
    Args::Create {
        place: place(dir, name),
        how: CreateHow::Guarded(SetAttributes::default()),
    }
}

fn lookup<'a>(dir: &'a [u8], name: &'a str) -> Args<'a> {
    Args::Lookup {
        what: place(dir, name),
    }
}

fn getattr(handle: &[u8]) -> Args<'_> {
    Args::Getattr {
        object: FileHandle(handle),
    }
}

#[test]
fn names_behave_like_those_of_a_file_system() {
    let mut talk = Talk::new();
    let root = talk.mount();
    let mkdir = |name| Args::Mkdir {
        place: place(&root, name),
        attributes: SetAttributes::default(),
    };
    let (a, b) = (talk.handle(&mkdir("a")), talk.handle(&mkdir("b")));
    assert_eq!(talk.status(&mkdir("a")), 17, "NFS3ERR_EXIST");
    let file = talk.handle(&guarded(&a, "file"));
    assert_eq!(talk.status(&guarded(&a, "file")), 17);
    let rename = |from, to| Args::Rename { from, to };
    let moved = rename(place(&a, "file"), place(&b, "moved"));
    assert_eq!(talk.status(&moved), 0);
    assert_eq!(talk.status(&lookup(&a, "file")), 2, "NFS3ERR_NOENT");
    assert_eq!(talk.handle(&lookup(&b, "moved")), file);
    assert_eq!(talk.status(&rename(place(&root, "a"), place(&a, "x"))), 22);
    assert_eq!(
        talk.status(&rename(place(&root, "a"), place(&root, "b"))),
        66
    );
    let link = Args::Link {
        file: FileHandle(&file),
        link: place(&a, "second"),
    };
    assert_eq!(talk.status(&link), 0);
    let links = |talk: &mut Talk, handle: &[u8]| {
        talk.nfs(&getattr(handle), |results| match results.body {
            ResultBody::Getattr { attributes } => attributes.nlink.get(),
            _ => 0,
        })
    };
    assert_eq!((links(&mut talk, &file), links(&mut talk, &root)), (2, 4));
    let remove = |dir, name| Args::Remove {
        object: place(dir, name),
    };
    assert_eq!(talk.status(&remove(&root, "a")), 21, "NFS3ERR_ISDIR");
    let rmdir = |name| Args::Rmdir {
        object: place(&root, name),
    };
    assert_eq!(talk.status(&rmdir("a")), 66, "NFS3ERR_NOTEMPTY");
    assert_eq!(talk.status(&remove(&a, "second")), 0);
    assert_eq!(talk.status(&rmdir("a")), 0);
    assert_eq!(talk.status(&getattr(&a)), 70, "NFS3ERR_STALE");
    assert_eq!(talk.status(&getattr(&file)), 0);
    assert_eq!(talk.status(&remove(&b, "moved")), 0);
    assert_eq!(talk.status(&getattr(&file)), 70);
    // A new node in the same place has a different handle.
    let new = talk.handle(&guarded(&b, "new"));
    assert_ne!(new, file);
    assert_eq!(talk.status(&getattr(&file)), 70);
    assert_eq!(talk.status(&getattr(b"neither 16 bytes nor known")), 70);
    assert_eq!(talk.status(&lookup(&new, "x")), 20, "NFS3ERR_NOTDIR");
    let long = "n".repeat(256);
    assert_eq!(talk.status(&guarded(&b, &long)), 63);
    assert_eq!(talk.status(&guarded(&b, "a/b")), 22);
}

/// A directory is listed in pieces, while others change it.
#[test]
fn listings_continue_after_their_cookies() {
    let mut talk = Talk::new();
    let root = talk.mount();
    for number in 0..100 {
        talk.handle(&guarded(&root, &format!("f{number}")));
    }
    let whole = talk.list(&root, 64 << 10);
    assert_eq!(whole.len(), 103, "with '.', '..' and the disk");
    assert_eq!(talk.list(&root, 600), whole);
    for number in (0..100).step_by(2) {
        let name = format!("f{number}");
        let object = place(&root, &name);
        assert_eq!(talk.status(&Args::Remove { object }), 0);
    }
    let mut left = whole.clone();
    left.retain(|(name, _)| {
        let number = name
            .strip_prefix('f')
            .and_then(|number| number.parse().ok());
        number.is_none_or(|number: u32| number % 2 == 1)
    });
    assert_eq!(talk.list(&root, 600), left, "cookies are still valid");
    let small = Args::Readdir {
        dir: FileHandle(&root),
        cookie: 0,
        cookie_verifier: 0,
        count: 20,
    };
    assert_eq!(talk.status(&small), 10005, "NFS3ERR_TOOSMALL");
}

/// A client that asks for more gets a reply no longer than a READ's, and the rest of the names afterwards.
#[test]
fn listings_have_a_maximum_length() {
    let mut talk = Talk::new();
    let root = talk.mount();
    for number in 0..3000 {
        talk.handle(&guarded(&root, &format!("{number:0250}")));
    }
    assert_eq!(talk.list(&root, u32::MAX).len(), 3003);
    let longest = talk.said.iter().map(|(_, bytes)| bytes.len()).max();
    let longest = longest.expect("replies");
    let limit = TRANSFER_BYTES_MAX as usize;
    assert!((limit / 2..limit + 1024).contains(&longest), "{longest}");
}

/// The length of a file follows its writes, though its data is gone.
#[test]
fn files_have_a_length_but_no_data() {
    let mut talk = Talk::new();
    let root = talk.mount();
    let file = talk.handle(&guarded(&root, "file"));
    let write = |offset, count| Args::Write {
        file: FileHandle(&file),
        offset,
        count,
        stable: StableHow::Unstable,
        data: FileData {
            at: 0,
            len: 5,
            bytes: b"hello",
        },
    };
    assert_eq!(talk.status(&write(1000, 5)), 0);
    let empty = Args::Write {
        file: FileHandle(&file),
        offset: 5000,
        count: 0,
        stable: StableHow::Unstable,
        data: FileData {
            at: 0,
            len: 0,
            bytes: &[],
        },
    };
    assert_eq!(talk.status(&empty), 0);
    assert_eq!(talk.status(&write(0, 4)), 22, "count differs from the data");
    assert_eq!(talk.status(&write(u64::MAX, 5)), 27, "NFS3ERR_FBIG");
    let read = |offset, count| Args::Read {
        file: FileHandle(&file),
        offset,
        count,
    };
    let mut check = |offset, count, expected| {
        let got = talk.nfs(&read(offset, count), |results| match results.body {
            ResultBody::Read {
                count, eof, data, ..
            } => {
                assert!(data.bytes.iter().all(|byte| *byte == 0));
                (count, eof)
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(got, expected);
    };
    check(0, 2000, (1005, true));
    check(0, 1005, (1005, true));
    check(1, 1003, (1003, false));
    check(1006, 10, (0, true));
    let disk = talk.handle(&lookup(&root, "disk"));
    let size = talk.nfs(&getattr(&disk), |results| match results.body {
        ResultBody::Getattr { attributes } => attributes.size.get(),
        _ => 0,
    });
    assert_eq!(size, DISK_BYTES);
}

const PLAIN: SetAttributes<'static> = SetAttributes {
    mode: Some(0o600),
    uid: None,
    gid: None,
    size: None,
    atime: SetTime::DontChange,
    mtime: SetTime::ServerTime,
};

/// One call per procedure, and several failures.
fn say_everything(talk: &mut Talk) {
    let root = talk.mount();
    for procedure in [0, 2, 3, 4, 5] {
        talk.call([PROGRAM_MOUNT, 3, procedure], |out| {
            if procedure == 3 {
                mount::Args::Unmount(b"/export").encode(out);
            }
        });
    }
    let disk = talk.handle(&lookup(&root, "disk"));
    let (object, file) = (FileHandle(&root), FileHandle(&disk));
    say_names(talk, &root, file);
    let (attributes, guard) = (PLAIN, None);
    let (offset, count, stable) = (5, 3, StableHow::FileSync);
    let bytes = b"abc";
    let data = FileData {
        at: 0,
        len: 3,
        bytes,
    };
    #[rustfmt::skip]
    let calls = [
        (Args::Null, 0),
        (Args::Getattr { object }, 0),
        (Args::Setattr { object, attributes, guard }, 0),
        (lookup(&root, "missing"), 2),
        (Args::Access { object, access: 0x1f }, 0),
        (Args::Readlink { symlink: file }, 22),
        (Args::Read { file, offset, count: 1001 }, 0),
        (Args::Read { file: object, offset, count }, 21),
        (Args::Write { file, offset, count, stable, data }, 0),
        (Args::Readdir { dir: object, cookie: 0, cookie_verifier: 0, count: 4096 }, 0),
        (Args::Fsstat { root: object }, 0),
        (Args::Fsinfo { root: object }, 0),
        (Args::Pathconf { object }, 0),
        (Args::Commit { file, offset: 0, count: 0 }, 0),
    ];
    for (args, status) in calls {
        assert_eq!(talk.status(&args), status, "{args:?}");
    }
    talk.list(&root, 8192);
}

fn say_names(talk: &mut Talk, root: &[u8], file: FileHandle<'_>) {
    let at = |name| place(root, name);
    let attributes = PLAIN;
    let symlink = Args::Symlink {
        place: at("symlink"),
        attributes,
        target: b"../target",
    };
    let symlink = talk.handle(&symlink);
    let once = |verifier| Args::Create {
        place: at("once"),
        how: CreateHow::Exclusive(verifier),
    };
    let device = NodeKind::Device(FileType::CharacterDevice, PLAIN, [1, 3]);
    let link = Args::Link {
        file,
        link: at("link"),
    };
    let rename = Args::Rename {
        from: at("link"),
        to: at("renamed"),
    };
    #[rustfmt::skip]
    let calls = [
        (Args::Readlink { symlink: FileHandle(&symlink) }, 0),
        (once(77), 0),
        (once(77), 0),
        (once(78), 17),
        (Args::Mkdir { place: at("dir"), attributes }, 0),
        (Args::Mknod { place: at("device"), what: device }, 0),
        (Args::Mknod { place: at("x"), what: NodeKind::Other(FileType::Regular) }, 10007),
        (link, 0),
        (link, 17),
        (rename, 0),
        (rename, 2),
        (Args::Remove { object: at("renamed") }, 0),
        (Args::Rmdir { object: at("dir") }, 0),
    ];
    for (args, status) in calls {
        assert_eq!(talk.status(&args), status, "{args:?}");
    }
}

/// A pcap file of a TCP connection between ports 1000 and 2049, with raw IPv4 packets.
fn pcap(said: &[(bool, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65_535, 101] {
        out.extend(word.to_be_bytes());
    }
    let mut at = [1_u32, 1];
    for (number, (from_client, bytes)) in said.iter().enumerate() {
        let (ports, sides, hosts) = match from_client {
            true => ([1000_u16, 2049], [0, 1], [1_u8, 2]),
            false => ([2049, 1000], [1, 0], [2, 1]),
        };
        let len = 40 + bytes.len();
        for word in [number as u32, 0, len as u32, len as u32] {
            out.extend(word.to_be_bytes());
        }
        let [high, low] = (len as u16).to_be_bytes();
        out.extend([0x45, 0, high, low, 0, 0, 0x40, 0, 64, 6, 0, 0]);
        out.extend([10, 0, 0, hosts[0], 10, 0, 0, hosts[1]]);
        ports.iter().for_each(|port| out.extend(port.to_be_bytes()));
        out.extend(at[sides[0]].to_be_bytes());
        out.extend(at[sides[1]].to_be_bytes());
        out.extend([0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
        out.extend(bytes);
        at[sides[0]] += bytes.len() as u32;
    }
    out
}

#[test]
fn tshark_finds_nothing_malformed_in_replies() {
    let mut talk = Talk::new();
    say_everything(&mut talk);
    if !need(&[("tshark", "tshark")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talk.pcap");
    fs::write(&file, pcap(&talk.said)).unwrap();
    let ask = |filter: &str, field: &str| {
        let file = file.to_str().unwrap();
        let text = run(
            "tshark",
            &["-r", file, "-Y", filter, "-T", "fields", "-e", field],
        );
        text.lines().map(str::to_string).collect::<Vec<_>>()
    };
    let malformed = "_ws.malformed || _ws.expert.severity >= 6291456 || rpc.fragment.error";
    assert_eq!(ask(malformed, "frame.number"), [""; 0]);
    let replies = ask("rpc.msgtyp == 1", "rpc.xid").len();
    assert_eq!(replies * 2, talk.said.len());
    let mut procedures = ask("nfs && rpc.msgtyp == 1", "nfs.procedure_v3");
    procedures.sort();
    procedures.dedup();
    assert_eq!(procedures.len(), Procedure::ALL.len(), "{procedures:?}");
}

/// Calls in arbitrary pieces, and data that is not a call.
#[test]
fn clients_break_only_their_own_connections() {
    let sink = start();
    let talk = |bytes: &[u8], wanted: usize| {
        let mut socket = TcpStream::connect(sink.address()).unwrap();
        let limit = Some(Duration::from_secs(20));
        socket.set_read_timeout(limit).unwrap();
        let _ = socket.write_all(bytes);
        let (mut got, mut at) = (vec![0; wanted], 0);
        while at < wanted {
            match socket.read(&mut got[at..]) {
                Ok(0) | Err(_) => break,
                Ok(count) => at += count,
            }
        }
        at
    };
    let mut null = Vec::new();
    begin_call(&mut null, Xid(1), [PROGRAM_NFS, 3, 0], &[]);
    finish_record(&mut null, 0);
    assert_eq!(talk(&null, 28), 28);
    // The same call in two fragments.
    let (first, second) = null[MARK_BYTES..].split_at(10);
    let fragments = [
        &[0, 0, 0, 10][..],
        first,
        &[0x80, 0, 0, second.len() as u8],
        second,
    ];
    assert_eq!(talk(&fragments.concat(), 28), 28);
    // A different version of RPC.
    let mut newer = null.clone();
    newer[15] = 3;
    assert_eq!(talk(&newer, 28), 28);
    let mut reply = null.clone();
    reply[11] = 1;
    let mut long = null.clone();
    long[..4].copy_from_slice(&(0x8000_0000 | CALL_BYTES_MAX).to_be_bytes());
    long.resize(20_000, 0);
    let error = NfsCallError::Long {
        bytes: CALL_BYTES_MAX.into(),
        limit: CALL_BYTES_MAX - TRANSFER_BYTES_MAX,
    };
    assert_eq!(NfsService::examine(&long), Err(error));
    let broken: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 16],
        &[0x80, 0, 0, 0],
        &reply,
        &long,
    ];
    for bytes in broken {
        assert_eq!(talk(bytes, 1), 0, "{:?}", &bytes[..4]);
    }
    assert_eq!(talk(&null, 28), 28);
    assert_eq!(sink.shutdown().broken, broken.len() as u64);
}

/// A WRITE is recognized as soon as its data begins, and a damaged one is rejected.
#[test]
fn a_write_is_recognized_by_its_beginning() {
    let mut call = Vec::new();
    let args = Args::Write {
        file: FileHandle(b"x"),
        offset: 0,
        count: TRANSFER_BYTES_MAX,
        stable: StableHow::FileSync,
        data: FileData {
            at: 0,
            len: TRANSFER_BYTES_MAX,
            bytes: &[],
        },
    };
    begin_call(&mut call, Xid(1), [PROGRAM_NFS, 3, 7], &[]);
    args.encode(&mut call);
    finish_record(&mut call, TRANSFER_BYTES_MAX as usize);
    let expected = NfsArrived::Write {
        head_len: call.len() - MARK_BYTES,
        data_len: TRANSFER_BYTES_MAX as usize,
    };
    assert_eq!(NfsService::examine(&call), Ok(expected));
    for end in 0..call.len() {
        assert_eq!(NfsService::examine(&call[..end]), Ok(NfsArrived::More));
    }
    // Its record mark announces less data than its arguments.
    let (service, mut reply) = (NfsService::new(1), Vec::new());
    let (record, with) = (&call[MARK_BYTES..], (0, NfsTime::default()));
    let answer = service.answer(record, record.len() + 4, with, &mut reply);
    assert!(answer.is_ok());
    let header = parse_reply(&reply[MARK_BYTES..], "WRITE").unwrap();
    assert_eq!(header.status, ReplyStatus::GarbageArgs);
    let limit = CALL_BYTES_MAX;
    let error = NfsCallError::Long {
        bytes: 0x7fff_ffff,
        limit,
    };
    assert_eq!(NfsService::examine(&[0xff; 4]), Err(error));
}
