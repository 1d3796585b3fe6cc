//! The client with NFSv4.1 against nfs-ganesha: the same tests and checks as with NFSv3.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use brunt_block::{Op, Request, Ring, RingConfig};
use brunt_nfs::NfsFolder;
use brunt_nfs::calls::write_args;
use brunt_nfs::conversation::NfsConversation;
use brunt_nfs::operations::{NfsAsk, NfsNames, NfsPlan};
use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v3::{Args, ResultBody, SetAttributes, StableHow, Status};

use crate::ganesha::{
    Capture, a_restart_is_survived, conforms, directories_change, list, open, refusal,
};
use crate::locker::{LOCK, Locker, TEST, UNLOCK};
use crate::server::{NFS_PORT, Server, need, run};
use crate::suite::Bench;

/// A conversation in the export, and the handle of its folder.
fn conversation(server: &Server) -> (NfsConversation, Vec<u8>) {
    let backend = open(&server.url41("", "uid=0&gid=0"));
    let folder: &NfsFolder = backend.concrete().unwrap().downcast_ref().unwrap();
    let nfs = folder.converse(Duration::from_secs(30)).unwrap();
    (nfs, folder.place().handle.clone())
}

#[test]
fn the_device_conforms_with_nfs41() {
    let Some(server) = Server::within("ganesha41::the_device_conforms_with_nfs41") else {
        return;
    };
    conforms(&server.url41("disk", "create=yes&size=8MiB"));
    conforms(&server.url41("disk", "block=4096&write_back=no&connections=3"));
    let disk = fs::metadata(server.export().join("disk")).unwrap();
    assert_eq!(disk.len(), 8 << 20);
}

#[test]
fn directories_change_with_nfs41() {
    let Some(server) = Server::within("ganesha41::directories_change_with_nfs41") else {
        return;
    };
    let (mut nfs, root) = conversation(&server);
    fs::write(server.export().join("file"), [7; 5000]).unwrap();
    let found = list(&mut nfs, &root);
    let handle = found["file"].clone().unwrap();
    let object = FileHandle(&handle);
    match nfs.nfs(&Args::Getattr { object }).unwrap().body {
        ResultBody::Getattr { attributes } => {
            assert_eq!((attributes.size.get(), attributes.uid.get()), (5000, 0));
        }
        other => panic!("{other:?}"),
    }
    for args in [
        Args::Fsstat { root: object },
        Args::Pathconf { object },
        Args::Fsinfo { root: object },
    ] {
        let results = nfs.nfs(&args).unwrap();
        assert_eq!(results.status, Status::OK, "{args:?}");
    }
    fs::remove_file(server.export().join("file")).unwrap();
    directories_change(&server, nfs, &root, 0);
}

#[test]
fn mistakes_are_reported_with_nfs41() {
    let Some(server) = Server::within("ganesha41::mistakes_are_reported_with_nfs41") else {
        return;
    };
    let check = |url: &str, words: &str| {
        let text = refusal(url);
        assert!(text.contains(words), "{url}: {text}");
    };
    let words = format!(
        "127.0.0.1:{NFS_PORT}: LOOKUP /export/missing: the server returned NFS4ERR_NOENT (2)"
    );
    check(&server.url41("missing", ""), &words);
    let nowhere = format!("nfs://127.0.0.1:{NFS_PORT}/nowhere/disk?version=4.1");
    check(
        &nowhere,
        "LOOKUP /nowhere: the server returned NFS4ERR_NOENT (2)",
    );
    fs::write(server.export().join("mine"), [1; 4096]).unwrap();
    fs::set_permissions(
        server.export().join("mine"),
        fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    check(
        &server.url41("mine", "uid=1000&gid=1000"),
        "does not allow uid 1000, gid 1000 to write to it",
    );
    let facts = open(&server.url41("mine", "read_only=yes&uid=1000"))
        .info()
        .facts
        .clone();
    assert!(facts[0].starts_with("NFSv4.1: reads up to 1"), "{facts:?}");
}

/// The client gets a new session from the restarted server, and resends the calls in it.
#[test]
fn a_restart_is_survived_with_nfs41() {
    let Some(server) = Server::within("ganesha41::a_restart_is_survived_with_nfs41") else {
        return;
    };
    let url = server.url41("disk", "create=yes&size=8MiB&timeout=3s&reconnect=120s");
    a_restart_is_survived(server, &url);
}

/// After a restart, a server lets clients reclaim what they had open before it opens anything else.
#[test]
fn open_files_are_reclaimed_after_a_restart() {
    if !need(&[("tshark", "tshark")]) {
        return;
    }
    let Some(mut server) = Server::within("ganesha41::open_files_are_reclaimed_after_a_restart")
    else {
        return;
    };
    server.restart_with_grace();
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let file = folder.path().join("capture.pcapng");
    {
        let url = server.url41(
            "disk",
            "create=yes&size=8MiB&timeout=60s&reconnect=60s&write_back=no",
        );
        let backend = open(&url);
        let mut bench = Bench::new(&*backend, 4);
        assert_eq!(bench.one(Op::Write, 0, 4096, 1).result, Ok(()));
        let capture = Capture::start(&file);
        server.restart();
        assert_eq!(bench.one(Op::Write, 4096, 4096, 2).result, Ok(()));
        assert_eq!(bench.one(Op::Read, 0, 4096, 0).result, Ok(()));
        capture.stop();
    }
    let reclaims = ask(
        &file,
        "nfs.open.claim_type == 1 && rpc.msgtyp == 0",
        "rpc.xid",
    );
    let opens = ask(&file, "nfs.opcode == 18 && rpc.msgtyp == 1", "rpc.xid");
    let replies = ask(&file, "nfs.opcode == 18 && rpc.msgtyp == 1", "nfs.nfsstat4");
    assert!(!reclaims.is_empty(), "the client tried to reclaim its file");
    let of_reclaims = opens.iter().zip(&replies);
    let of_reclaims = of_reclaims.filter(|(xid, _)| reclaims.contains(xid));
    let statuses: Vec<&String> = of_reclaims.map(|(_, statuses)| statuses).collect();
    println!("reclaims: {reclaims:?}, answered {statuses:?}");
    assert!(
        statuses
            .iter()
            .any(|list| list.split(',').all(|one| one == "0")),
        "{statuses:?}"
    );
}

/// A lock excludes another owner until it is released. A lock that is still held at the end doesn't keep the file
/// open.
#[test]
fn locks_exclude_other_owners() {
    if !need(&[("tshark", "tshark")]) {
        return;
    }
    let Some(server) = Server::within("ganesha41::locks_exclude_other_owners") else {
        return;
    };
    fs::write(server.export().join("file"), [7; 5000]).unwrap();
    let (mut nfs, root) = conversation(&server);
    let handle = list(&mut nfs, &root)["file"].clone().unwrap();
    drop(nfs);
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let file = folder.path().join("capture.pcapng");
    let capture = Capture::start(&file);
    {
        let backend = open(&server.url41("", "uid=0&gid=0"));
        let mut locker = Locker::new(&*backend, &handle);
        const DENIED: u32 = 10010;
        for (op, kind, owner, status) in [
            (LOCK, 2, 0, 0),
            (LOCK, 2, 1, DENIED),
            (TEST, 1, 1, DENIED),
            (TEST, 2, 0, 0),
            (UNLOCK, 2, 0, 0),
            (LOCK, 1, 1, 0),
            (LOCK, 3, 0, 0),
            (LOCK, 2, 0, DENIED),
            (UNLOCK, 1, 1, 0),
            (LOCK, 4, 0, 0),
            // An unlock fails for an owner without locks.
            (UNLOCK, 1, 2, 10025),
        ] {
            let found = locker.ask(op, kind, owner);
            assert_eq!(found, status, "{op} {kind} {owner}");
        }
    }
    capture.stop();
    assert_given_back(&file);
    let malformed = ask(&file, "_ws.malformed || rpc.fragment.error", "frame.number");
    assert_eq!(malformed, [""; 0]);
    let calls = |number: u32| {
        let filter = format!("nfs.opcode == {number} && rpc.msgtyp == 0");
        ask(&file, &filter, "nfs.locktype4").join(" ")
    };
    assert_eq!([calls(12), calls(13)], ["2 2 1 3 2 4", "1 2"]);
    // The last LOCKU releases the lock that is still held at the end.
    assert_eq!(calls(14), "2 1 1 2");
}

/// The values of a field in all matching packets of a capture.
fn ask(file: &Path, filter: &str, field: &str) -> Vec<String> {
    let file = file.to_str().unwrap();
    let nfs = format!("tcp.port=={NFS_PORT},rpc");
    // Two processors send, so packets may be captured out of order.
    let mut arguments = vec!["-o", "tcp.reassemble_out_of_order:TRUE"];
    arguments.extend([
        "-r", file, "-d", &nfs, "-Y", filter, "-T", "fields", "-e", field,
    ]);
    let text = run("tshark", &arguments);
    text.lines().map(str::to_string).collect()
}

/// Checks that the server destroyed all sessions and client ids, which it refuses for clients that still have files
/// open.
fn assert_given_back(file: &Path) {
    for number in [44, 57] {
        let filter = format!("nfs.opcode == {number} && rpc.msgtyp == 1");
        let answers = ask(file, &filter, "nfs.nfsstat4");
        let is_ok = |answer: &String| answer.split(',').all(|status| status == "0");
        assert!(
            !answers.is_empty() && answers.iter().all(is_ok),
            "{answers:?}"
        );
    }
}

/// WRITE and READ of the file with the index that is the request's offset; a flush sets its length to 100.
#[derive(Clone, Debug)]
struct Files(Vec<Vec<u8>>);

impl NfsPlan for Files {
    fn call<'a>(&'a self, ask: NfsAsk, _names: &'a mut NfsNames) -> Args<'a> {
        let file = FileHandle(&self.0[ask.offset as usize]);
        match ask.op {
            Op::Write => write_args(file, 0, ask.len, StableHow::FileSync),
            Op::Read => Args::Read {
                file,
                offset: 0,
                count: ask.len,
            },
            _ => Args::Setattr {
                object: file,
                attributes: SetAttributes {
                    size: Some(100),
                    ..SetAttributes::default()
                },
                guard: None,
            },
        }
    }
}

/// A file's length is set with the stateid of its open. At the end, more files are closed than fit into one compound,
/// all of them before the session ends.
#[test]
fn many_files_are_closed_before_the_session_ends() {
    const FILES: u64 = 150;
    if !need(&[("tshark", "tshark")]) {
        return;
    }
    let test = "ganesha41::many_files_are_closed_before_the_session_ends";
    let Some(server) = Server::within(test) else {
        return;
    };
    for index in 0..FILES {
        fs::write(server.export().join(format!("file {index}")), [7; 10]).unwrap();
    }
    let (mut nfs, root) = conversation(&server);
    let handles = list(&mut nfs, &root).into_values();
    let handles: Vec<Vec<u8>> = handles.map(Option::unwrap).collect();
    assert_eq!(handles.len() as u64, FILES);
    drop(nfs);
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let file = folder.path().join("capture.pcapng");
    let capture = Capture::start(&file);
    {
        let backend = open(&server.url41("", "uid=0&gid=0"));
        let export: &NfsFolder = backend.concrete().unwrap().downcast_ref().unwrap();
        let ring = Ring::new(RingConfig::default()).unwrap();
        let device = export.operations(Files(handles), &ring, 1).unwrap();
        let mut bench = Bench { device, ring };
        for index in 0..FILES {
            assert_eq!(bench.one(Op::Write, index, 10, 3).result, Ok(()));
        }
        assert_eq!(bench.one(Op::Flush, 5, 0, 0).result, Ok(()));
        assert_eq!(bench.one(Op::Read, 5, 100, 0).result, Ok(()));
    }
    capture.stop();
    assert_given_back(&file);
    let numbers = |filter: &str| -> Vec<u64> {
        let numbers = ask(&file, filter, "frame.number");
        numbers
            .iter()
            .map(|number| number.parse().unwrap())
            .collect()
    };
    let closes = numbers("nfs.opcode == 4 && rpc.msgtyp == 1");
    let ends = numbers("nfs.opcode == 44 && rpc.msgtyp == 0");
    assert!(
        closes.len() > 1 && closes.last() < ends.last(),
        "{closes:?} {ends:?}"
    );
    let closed = ask(&file, "nfs.opcode == 4 && rpc.msgtyp == 1", "nfs.opcode");
    let closed = closed.iter().flat_map(|list| list.split(','));
    assert_eq!(closed.filter(|number| *number == "4").count() as u64, FILES);
    let set = ask(
        &file,
        "nfs.opcode == 34 && rpc.msgtyp == 0",
        "nfs.stateid.other",
    );
    let anonymous = "0".repeat(24);
    assert!(
        set.len() == 1 && set[0].replace(':', "") != anonymous,
        "{set:?}"
    );
}

/// tshark decodes our compounds as intended.
#[test]
fn tshark_finds_nothing_malformed_in_compounds() {
    if !need(&[("tshark", "tshark")]) {
        return;
    }
    let Some(server) = Server::within("ganesha41::tshark_finds_nothing_malformed_in_compounds")
    else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let file = folder.path().join("capture.pcapng");
    let capture = Capture::start(&file);
    {
        let backend = open(&server.url41("disk", "create=yes&size=8MiB&uid=0&gid=77"));
        let mut bench = Bench::new(&*backend, 8);
        let mut requests: Vec<Request> = (0..40)
            .map(|tag| bench.request(tag, Op::Write, tag * 4096, 4096))
            .collect();
        requests.extend((40..80).map(|tag| bench.request(tag, Op::Read, (tag - 40) * 4096, 4096)));
        assert!(bench.run(requests).iter().all(|one| one.result.is_ok()));
        assert_eq!(bench.one(Op::Flush, 0, 0, 0).result, Ok(()));
    }
    let (nfs, root) = conversation(&server);
    directories_change(&server, nfs, &root, 0);
    capture.stop();

    let ask = |filter: &str, field: &str| ask(&file, filter, field);
    let malformed = ask("_ws.malformed || rpc.fragment.error", "frame.number");
    assert_eq!(malformed, [""; 0]);
    let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
    for line in ask("nfs && rpc.msgtyp == 0", "nfs.opcode") {
        for number in line.split(',').filter(|word| !word.is_empty()) {
            *seen.entry(number.parse().unwrap()).or_default() += 1;
        }
    }
    println!("operations by number: {seen:?}");
    let of = |number: u32| seen.get(&number).copied().unwrap_or(0);
    assert_eq!([of(38), of(25)], [41, 41], "WRITE and READ");
    assert_eq!(of(42), of(43), "as many sessions as clients");
    assert_eq!(
        [of(42), of(43)],
        [of(57), of(44)],
        "all of them are given back"
    );
    assert_given_back(&file);
    let others = [3, 4, 5, 6, 9, 10, 15, 18, 26, 28, 29, 32, 34, 53, 58];
    assert!(others.iter().all(|number| of(*number) > 0), "{seen:?}");
    // Every call except those that set up or end a client is on a slot.
    let statuses = ask(
        "nfs.nfsstat4 == 10063 || nfs.nfsstat4 == 10076",
        "frame.number",
    );
    assert_eq!(statuses, [""; 0], "no slot is used wrongly");
    // No stateid is used wrongly, either.
    let statuses = ask(
        "nfs.nfsstat4 == 10025 || nfs.nfsstat4 == 10024",
        "frame.number",
    );
    assert_eq!(statuses, [""; 0], "files are opened and closed");
    assert!(of(18) < 30 && of(4) > 0, "files stay open: {seen:?}");
}
