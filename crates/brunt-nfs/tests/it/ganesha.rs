//! The client against nfs-ganesha. Data and names are checked in the server's folder, not through NFS; what goes over
//! the wire is checked by tshark.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use brunt_block::turn::turn;
use brunt_block::{Backend, Op, Request, Ring, RingConfig, open_url_with};
use brunt_nfs::BACKENDS;
use brunt_nfs::connect::random_xid;
use brunt_nfs::conversation::{NfsCallee, NfsConversation, RpcProcedure};
use brunt_nfs::device_errors::{NfsRefusal, from_error};
use brunt_nfs::rpc::sys_credentials;
use brunt_wire::FileData;
use brunt_wire::nfs::v3::{
    Args, CreateHow, DirOp, ResultBody, Results, SetAttributes, StableHow, Status,
};
use brunt_wire::nfs::{FileHandle, mount};
use brunt_wire::rpc::PROGRAM_MOUNT;
use rustix::process::Signal;

use crate::server::{MOUNT_PORT, NFS_PORT, Server, need, run};
use crate::suite::{Bench, Subject, conforms_by_each_engine};

pub fn open(url: &str) -> Arc<dyn Backend> {
    open_url_with(url, BACKENDS, false).unwrap_or_else(|error| panic!("{url}: {error}"))
}

pub fn refusal(url: &str) -> String {
    let error = open_url_with(url, BACKENDS, false)
        .err()
        .unwrap_or_else(|| panic!("{url} was opened"));
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

/// Checks the device at this URL. NFSv3 and NFSv4.1 servers can neither write zeros nor unmap.
pub fn conforms(url: &str) {
    conforms_by_each_engine(Subject {
        url,
        more: BACKENDS,
        zeros: false,
        unmaps: false,
        remote: true,
    });
}

#[test]
fn the_device_conforms_on_ganesha() {
    let Some(server) = Server::within("ganesha::the_device_conforms_on_ganesha") else {
        return;
    };
    conforms(&server.url("disk", "create=yes&size=8MiB"));
    conforms(&server.url(
        "disk",
        "block=4096&write_back=no&connections=3&send_buffer=64k&receive_buffer=64k",
    ));
    // Without ports in the URL: the port mapper supplies them.
    conforms(&format!(
        "nfs://127.0.0.1{}/disk",
        server.export().display()
    ));
    assert_eq!(
        fs::metadata(server.export().join("disk")).unwrap().len(),
        8 << 20
    );
}

#[test]
fn files_are_made_and_found_on_ganesha() {
    let Some(server) = Server::within("ganesha::files_are_made_and_found_on_ganesha") else {
        return;
    };
    let export = server.export();
    fs::create_dir(export.join("deep")).unwrap();
    let backend = open(&server.url("deep/new%20disk", "create=yes&size=1MiB&uid=0&gid=42"));
    let path = export.join("deep/new disk");
    let made = fs::metadata(&path).unwrap();
    assert_eq!(
        (made.len(), made.gid(), made.mode() & 0o777),
        (1 << 20, 42, 0o644)
    );
    assert!(
        backend.info().facts[0].starts_with("NFSv3: export "),
        "{:?}",
        backend.info().facts
    );
    let mut bench = Bench::new(&*backend, 4);
    assert_eq!(bench.one(Op::Write, 512, 1024, 7).result, Ok(()));
    assert_eq!(bench.one(Op::Flush, 0, 0, 0).result, Ok(()));
    let data = fs::read(&path).unwrap();
    assert!(
        data[..512].iter().all(|byte| *byte == 0) && data[512..1536].iter().all(|byte| *byte == 7)
    );
    drop(open(&server.url("deep/new%20disk", "create=yes&size=64k")));
    assert_eq!(
        fs::read(&path).unwrap(),
        data,
        "an existing file is never truncated"
    );
    let longer = open(&server.url("deep/new%20disk", "create=yes&size=2MiB"));
    assert_eq!(
        (longer.info().size_bytes, fs::metadata(&path).unwrap().len()),
        (2 << 20, 2 << 20)
    );
    assert_eq!(fs::read(&path).unwrap()[..data.len()], data);

    let check = |url: &str, words: &str| {
        let text = refusal(url);
        assert!(text.contains(words), "{url}: {text}");
    };
    let place = format!(
        "127.0.0.1:{NFS_PORT}: LOOKUP {}/missing: the server returned NFS3ERR_NOENT (2)",
        export.display()
    );
    check(&server.url("missing", ""), &place);
    check(
        &server.url("missing/x", "create=yes&size=1MiB"),
        "NFS3ERR_NOENT (2)",
    );
    check(
        &server.url("deep", ""),
        "it is a directory, not a regular file",
    );
    check(
        "nfs://127.0.0.1/nowhere/disk",
        "MNT /nowhere: the server returned MNT3ERR_",
    );
    fs::write(export.join("short"), [1; 100]).unwrap();
    check(
        &server.url("short", ""),
        "a file of 100 bytes is smaller than one block of 512 bytes",
    );
    fs::write(export.join("mine"), [1; 4096]).unwrap();
    fs::set_permissions(export.join("mine"), fs::Permissions::from_mode(0o644)).unwrap();
    check(
        &server.url("mine", "uid=1000&gid=1000"),
        "does not allow uid 1000, gid 1000 to write to it",
    );
    let readable = open(&server.url("mine", "uid=1000&gid=1000&read_only=yes"));
    assert!(readable.info().read_only);
    fs::write(export.join("secret"), [1; 4096]).unwrap();
    fs::set_permissions(export.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    check(
        &server.url("secret", "uid=1000&gid=1000&read_only=yes"),
        "does not allow uid 1000, gid 1000 to read it",
    );
    check(
        "nfs://127.0.0.1:12050/x/y?mountport=12051",
        "127.0.0.1:12051: cannot connect",
    );

    let words = "AUTH_TOOWEAK; if it requires ports below 1024, add reserved_port=yes";
    check(&server.reserved_url("disk", "create=yes&size=1MiB"), words);
    drop(open(&server.reserved_url(
        "disk",
        "create=yes&size=1MiB&reserved_port=yes",
    )));

    fs::write(export.join("shrinks"), [1; 8192]).unwrap();
    let shrinks = open(&server.url("shrinks", ""));
    let mut bench = Bench::new(&*shrinks, 4);
    fs::File::options()
        .write(true)
        .open(export.join("shrinks"))
        .unwrap()
        .set_len(4096)
        .unwrap();
    assert_eq!(bench.one(Op::Read, 0, 4096, 0).result, Ok(()));
    let error = bench.one(Op::Read, 4096, 4096, 0).result.unwrap_err();
    assert_eq!(from_error(&error), Some(NfsRefusal::EndOfFile));
}

/// Sends a call that must succeed, and checks its results.
fn call<T>(
    nfs: &mut NfsConversation,
    args: &Args<'_>,
    look: impl FnOnce(ResultBody<'_>) -> T,
) -> T {
    let Results { status, body } = nfs.nfs(args).unwrap();
    assert_eq!(status, Status::OK, "{}", args.procedure().name());
    look(body)
}

fn created(body: ResultBody<'_>) -> Vec<u8> {
    match body {
        ResultBody::Created {
            object: Some(object),
            ..
        } => object.0.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Mounts the export; returns a connection to the server, and the root's handle.
fn mounted(server: &Server) -> (NfsConversation, Vec<u8>) {
    let deadline = Instant::now() + Duration::from_secs(120);
    let credentials = sys_credentials(0, 0);
    let callee = NfsCallee {
        host: "127.0.0.1",
        reserved_port: false,
        credentials: &credentials,
    };
    let dial = |port| NfsConversation::connect(callee, port, deadline, random_xid()).unwrap();
    let mnt = RpcProcedure {
        program: PROGRAM_MOUNT,
        version: 3,
        number: 1,
        name: "MNT",
    };
    let path = server.export().display().to_string();
    let mut service = dial(MOUNT_PORT);
    let mut body = service
        .call(
            mnt,
            |out| mount::Args::Mount(path.as_bytes()).encode(out),
            0,
        )
        .unwrap();
    let mount::Results::Mounted(FileHandle(root)) = mount::parse_results(1, &mut body).unwrap()
    else {
        panic!("not mounted")
    };
    (dial(NFS_PORT), root.to_vec())
}

#[test]
fn directories_change_on_ganesha() {
    let Some(server) = Server::within("ganesha::directories_change_on_ganesha") else {
        return;
    };
    let (nfs, root) = mounted(&server);
    // READDIRPLUS lists '.' and '..'.
    directories_change(&server, nfs, &root, 2);
}

/// Every procedure that a device does not use, and its effect on the folder.
pub fn directories_change(server: &Server, mut nfs: NfsConversation, root: &[u8], dots: usize) {
    let export = server.export();
    let place = |dir, name: &'static str| DirOp {
        dir: FileHandle(dir),
        name: name.as_bytes(),
    };
    let mode = |mode| SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    };
    assert_eq!(nfs.nfs(&Args::Null).unwrap(), Results::default());
    let mkdir = Args::Mkdir {
        place: place(root, "dir"),
        attributes: mode(0o750),
    };
    let dir = call(&mut nfs, &mkdir, created);
    assert_eq!(
        fs::metadata(export.join("dir")).unwrap().mode() & 0o777,
        0o750
    );
    let create = Args::Create {
        place: place(&dir, "file"),
        how: CreateHow::Guarded(mode(0o640)),
    };
    let file = call(&mut nfs, &create, created);
    assert_eq!(
        nfs.nfs(&create).unwrap().status,
        Status(17),
        "GUARDED: the file exists"
    );
    let exclusive = Args::Create {
        place: place(&dir, "once"),
        how: CreateHow::Exclusive(77),
    };
    let once = call(&mut nfs, &exclusive, created);
    assert_eq!(
        call(&mut nfs, &exclusive, created),
        once,
        "the same verifier"
    );
    let data = FileData {
        at: 0,
        len: 5,
        bytes: b"bytes",
    };
    let write = Args::Write {
        file: FileHandle(&file),
        offset: 3,
        count: 5,
        stable: StableHow::FileSync,
        data,
    };
    call(&mut nfs, &write, |body| {
        assert!(matches!(body, ResultBody::Write { count: 5, .. }))
    });
    assert_eq!(fs::read(export.join("dir/file")).unwrap(), b"\0\0\0bytes");
    let read = Args::Read {
        file: FileHandle(&file),
        offset: 2,
        count: 100,
    };
    call(&mut nfs, &read, |body| {
        let ResultBody::Read {
            count: 6,
            eof: true,
            data,
            ..
        } = body
        else {
            panic!("{body:?}")
        };
        assert_eq!(data.bytes, b"\0bytes");
    });
    call(
        &mut nfs,
        &Args::Commit {
            file: FileHandle(&file),
            offset: 0,
            count: 0,
        },
        |_| (),
    );
    let size = SetAttributes {
        size: Some(4),
        uid: Some(3),
        ..SetAttributes::default()
    };
    call(
        &mut nfs,
        &Args::Setattr {
            object: FileHandle(&file),
            attributes: size,
            guard: None,
        },
        |_| (),
    );
    let metadata = fs::metadata(export.join("dir/file")).unwrap();
    assert_eq!((metadata.len(), metadata.uid()), (4, 3));
    let rename = Args::Rename {
        from: place(&dir, "file"),
        to: place(root, "moved"),
    };
    call(&mut nfs, &rename, |_| ());
    assert!(export.join("moved").is_file() && !export.join("dir/file").exists());
    for index in 0..300 {
        fs::write(export.join(format!("dir/entry {index}")), "").unwrap();
    }
    let names = list(&mut nfs, &dir);
    assert_eq!(names.len(), 301 + dots, "with 'once'");
    assert_eq!(names["once"], Some(once));
    let remove = Args::Remove {
        object: place(root, "moved"),
    };
    call(&mut nfs, &remove, |_| ());
    assert_eq!(nfs.nfs(&remove).unwrap().status, Status::NOENT);
    let rmdir = Args::Rmdir {
        object: place(root, "dir"),
    };
    assert_eq!(nfs.nfs(&rmdir).unwrap().status, Status(66), "not empty");
    fs::remove_dir_all(export.join("dir")).unwrap();
    fs::create_dir(export.join("other")).unwrap();
    call(
        &mut nfs,
        &Args::Rmdir {
            object: place(root, "other"),
        },
        |_| (),
    );
    assert!(!export.join("other").exists());
    let stale = Args::Getattr {
        object: FileHandle(&file),
    };
    assert_eq!(nfs.nfs(&stale).unwrap().status, Status::STALE);
}

/// Names and handles of a directory, by READDIRPLUS in small parts.
pub fn list(nfs: &mut NfsConversation, dir: &[u8]) -> BTreeMap<String, Option<Vec<u8>>> {
    let (mut names, mut cookie, mut cookie_verifier) = (BTreeMap::new(), 0, 0);
    loop {
        let args = Args::Readdirplus {
            dir: FileHandle(dir),
            cookie,
            cookie_verifier,
            dir_count: 1024,
            max_count: 4096,
        };
        let is_last = call(nfs, &args, |body| {
            let ResultBody::Readdir {
                cookie_verifier: verifier,
                entries,
                eof,
                ..
            } = body
            else {
                panic!("{body:?}")
            };
            cookie_verifier = verifier;
            for entry in entries.iter() {
                let name = String::from_utf8_lossy(entry.name).to_string();
                let handle = entry.handle.map(|handle| handle.0.to_vec());
                assert!(names.insert(name, handle).is_none(), "an entry comes once");
                cookie = entry.cookie;
            }
            eof
        });
        if is_last {
            return names;
        }
    }
}

/// If a server is killed with calls in flight, they are sent again. Unstable writes that it acknowledged before may
/// be lost, which the next flush reports. A frozen server causes a timeout.
#[test]
fn a_restart_of_ganesha_is_survived_and_reported() {
    let Some(server) = Server::within("ganesha::a_restart_of_ganesha_is_survived_and_reported")
    else {
        return;
    };
    let url = server.url("disk", "create=yes&size=8MiB&timeout=3s&reconnect=120s");
    a_restart_is_survived(server, &url);
}

pub fn a_restart_is_survived(mut server: Server, url: &str) {
    let backend = open(url);
    let mut bench = Bench::new(&*backend, 16);
    assert_eq!(bench.one(Op::Write, 0, 65536, 1).result, Ok(()));
    let mut flying: VecDeque<Request> = (0..16)
        .map(|tag| bench.request(tag, Op::Write, tag * 65536, 65536))
        .collect();
    flying.iter_mut().for_each(|request| request.buf.fill(2));
    server.signal(Signal::STOP);
    bench.device.submit(&mut flying);
    let mut done = Vec::new();
    bench.ring.enter(brunt_core::Nanos(0)).unwrap();
    bench.device.poll(&mut done);
    server.kill();
    // A new epoch: ganesha derives its write verifier from the second in which it started.
    sleep(Duration::from_millis(1100));
    server.restart();
    while bench.device.outstanding() > 0 {
        turn(
            &bench.ring,
            &mut *bench.device,
            &mut VecDeque::new(),
            &mut done,
        )
        .unwrap();
    }
    assert_eq!(done.len(), 16);
    assert!(done.iter().all(|one| one.result.is_ok()), "{done:?}");
    let health = bench.device.health();
    assert!(health.reconnects >= 1 && health.retries >= 16, "{health:?}");
    let lost = bench.one(Op::Flush, 0, 0, 0).result.unwrap_err();
    assert_eq!(from_error(&lost), Some(NfsRefusal::LostWrites));
    assert_eq!(
        bench.one(Op::Flush, 0, 0, 0).result,
        Ok(()),
        "reported once"
    );
    assert!(
        fs::read(server.export().join("disk")).unwrap()[..16 * 65536]
            .iter()
            .all(|byte| *byte == 2)
    );

    server.signal(Signal::STOP);
    let mut read: VecDeque<Request> = [bench.request(1, Op::Read, 0, 4096)].into();
    bench.device.submit(&mut read);
    let begin = Instant::now();
    while bench.device.health().timeouts == 0 {
        let deadline = bench.device.deadline();
        bench.ring.enter(deadline).unwrap();
        bench.device.poll(&mut done);
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "a frozen server isn't noticed"
        );
    }
    server.signal(Signal::CONT);
    done.clear();
    while bench.device.outstanding() > 0 {
        turn(
            &bench.ring,
            &mut *bench.device,
            &mut VecDeque::new(),
            &mut done,
        )
        .unwrap();
    }
    assert_eq!(done[0].result, Ok(()));
}

/// A capture of everything on the loopback interface.
pub struct Capture {
    tshark: Child,
    file: PathBuf,
}

impl Capture {
    pub fn start(file: &Path) -> Capture {
        let mut tshark = Command::new("tshark");
        tshark.args(["-q", "-i", "lo", "-B", "64", "-w"]).arg(file);
        let tshark = tshark
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let capture = Capture {
            tshark,
            file: file.to_path_buf(),
        };
        capture.wait_for(b"the capture has begun");
        capture
    }

    /// Sends a mark until it appears in the file, which then contains everything before it as well.
    fn wait_for(&self, mark: &[u8]) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let is_there = || {
            let bytes = fs::read(&self.file).unwrap_or_default();
            bytes.windows(mark.len()).any(|window| window == mark)
        };
        let begin = Instant::now();
        while !is_there() {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "tshark doesn't capture"
            );
            socket.send_to(mark, "127.0.0.1:9").unwrap();
            sleep(Duration::from_millis(100));
        }
    }

    pub fn stop(mut self) {
        self.wait_for(b"the capture may end");
        let pid = rustix::process::Pid::from_child(&self.tshark);
        rustix::process::kill_process(pid, Signal::INT).unwrap();
        self.tshark.wait().unwrap();
    }
}

/// tshark decodes our calls as intended.
#[test]
fn tshark_finds_nothing_malformed() {
    if !need(&[("tshark", "tshark")]) {
        return;
    }
    let Some(server) = Server::within("ganesha::tshark_finds_nothing_malformed") else {
        return;
    };
    fs::create_dir(server.export().join("dir")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let file = folder.path().join("capture.pcapng");
    let capture = Capture::start(&file);
    let url = format!(
        "nfs://127.0.0.1{}/disk?create=yes&size=8MiB&uid=0&gid=77",
        server.export().display()
    );
    let backend = open(&url);
    let mut bench = Bench::on(Ring::new(RingConfig::default()).unwrap(), &*backend, 8);
    let mut requests: Vec<Request> = (0..40)
        .map(|tag| bench.request(tag, Op::Write, tag * 4096, 4096))
        .collect();
    requests.extend((40..80).map(|tag| bench.request(tag, Op::Read, (tag - 40) * 4096, 4096)));
    requests[39].force_unit_access = true;
    assert!(bench.run(requests).iter().all(|one| one.result.is_ok()));
    assert_eq!(bench.one(Op::Write, 0, 2 << 20, 3).result, Ok(()));
    assert_eq!(bench.one(Op::Flush, 0, 0, 0).result, Ok(()));
    assert_eq!(bench.one(Op::Read, 0, 2 << 20, 0).result, Ok(()));
    drop(bench);
    let (mut nfs, root) = mounted(&server);
    let names = list(&mut nfs, &root);
    assert!(names.contains_key("disk") && names.contains_key("dir"));
    drop(nfs);
    capture.stop();

    let file = file.to_str().unwrap();
    let [nfs, mount] = [NFS_PORT, MOUNT_PORT].map(|port| format!("tcp.port=={port},rpc"));
    let ask = |filter: &str, fields: &[&str]| {
        // Two processors send, so packets may be captured out of order.
        let mut arguments = vec!["-o", "tcp.reassemble_out_of_order:TRUE"];
        arguments.extend([
            "-r", file, "-d", &nfs, "-d", &mount, "-Y", filter, "-T", "fields",
        ]);
        fields
            .iter()
            .for_each(|field| arguments.extend(["-e", field]));
        let text = run("tshark", &arguments);
        text.lines().map(str::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        ask("_ws.malformed || rpc.fragment.error", &["frame.number"]),
        [""; 0]
    );
    // One line may have several calls.
    let count = |filter: &str, field: &str| {
        let lines = ask(filter, &[field]);
        lines
            .iter()
            .flat_map(|line| line.split(','))
            .filter(|word| !word.is_empty())
            .count()
    };
    assert_eq!(
        count("portmap.procedure_v2 == 3 && rpc.msgtyp == 0", "rpc.xid"),
        2,
        "MOUNT and NFS"
    );
    assert!(
        ask(
            "mount.procedure_v3 == 1 && rpc.msgtyp == 0",
            &["mount.path"]
        )[0]
        .ends_with("/export")
    );
    let procedures = ask(
        "nfs && rpc.msgtyp == 0",
        &["nfs.procedure_v3", "rpc.auth.uid", "rpc.auth.gid"],
    );
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for line in &procedures {
        let fields: Vec<&str> = line.split('\t').collect();
        for procedure in fields[0].split(',') {
            *seen.entry(procedure.to_string()).or_default() += 1;
        }
        assert!(fields[1].split(',').all(|uid| uid == "0"), "{line}");
        assert!(
            fields[2].split(',').all(|gid| gid == "77" || gid == "0"),
            "{line}"
        );
    }
    println!("calls by procedure: {seen:?}");
    let of = |procedure: &str| seen.get(procedure).copied().unwrap_or(0);
    assert_eq!(
        [of("8"), of("4"), of("19"), of("21")],
        [1, 1, 1, 1],
        "CREATE, ACCESS, FSINFO, COMMIT"
    );
    assert_eq!(
        [of("7"), of("6")],
        [42, 42],
        "WRITE and READ, those of 2 MiB in two parts"
    );
    assert!(of("17") >= 1, "READDIRPLUS");
    let stable = ask(
        "nfs.procedure_v3 == 7 && rpc.msgtyp == 0",
        &["nfs.write.stable"],
    );
    let stable: Vec<&str> = stable.iter().flat_map(|line| line.split(',')).collect();
    let of = |value: &str| stable.iter().filter(|stable| **stable == value).count();
    assert_eq!(
        [of("0"), of("2")],
        [41, 1],
        "UNSTABLE, and FILE_SYNC for FUA: {stable:?}"
    );
}
