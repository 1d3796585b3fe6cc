//! `brunt target` from a file: several targets in one process, each with its LUNs and CHAP; discovery; mistakes in a
//! file. Checked with libiscsi's tools.

use crate::support;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use crate::support::controlled::ControlledTarget;
use crate::support::{TempDir, brunt, need, run_within, succeed, write_secret};

const RED: &str = "iqn.2026-11.io.brunt:red";
const BLUE: &str = "iqn.2026-11.io.brunt:blue";

/// Each target has its own LUNs and secret; discovery lists all of them, at their advertised addresses, to known
/// initiators.
#[test]
fn a_file_defines_targets_with_their_own_luns_and_secrets() {
    if need("iscsi-ls", "libiscsi-bin").is_none() {
        return;
    }
    let folder = TempDir::new("targets");
    let secret = folder.join("secret.txt");
    write_secret(&secret, "alice:alicesecret12\n");
    let file = folder.join("targets.toml");
    let text = format!(
        "[[portal]]\nlisten = \"127.0.0.1:0\"\n\
         [[portal]]\nlisten = \"127.0.0.1:0\"\nadvertise = \"san.example:4260\"\ngroup = 9\n\
         [[target]]\nname = \"{RED}\"\nchap = \"@{}\"\nluns = {{ 0 = \"memory:1MiB\", 5 = \"memory:3MiB,ro\" }}\n\
         [[target]]\nname = \"{BLUE}\"\n[target.luns]\n0 = \"null:2MiB\"\n",
        secret.display()
    );
    std::fs::write(&file, text).unwrap();
    let mut target = ControlledTarget::start(&["--config", file.to_str().unwrap()], 2);
    let at = target.portals[0];

    let mut ls = Command::new("iscsi-ls");
    assert!(
        !run_within(ls.arg(format!("iscsi://{at}")), 30)
            .status
            .success(),
        "discovery asks for CHAP"
    );
    let listed = succeed(
        Command::new("iscsi-ls").arg(format!("iscsi://alice%alicesecret12@{at}")),
        30,
    );
    let mut lines: Vec<&str> = listed.lines().collect();
    lines.sort_unstable();
    let expected = [
        format!("Target:{BLUE} Portal:{at},1"),
        format!("Target:{BLUE} Portal:san.example:4260,9"),
        format!("Target:{RED} Portal:{at},1"),
        format!("Target:{RED} Portal:san.example:4260,9"),
    ];
    assert_eq!(lines, expected);

    let capacity = |url: String| run_within(Command::new("iscsi-readcapacity16").arg(url), 30);
    let size = |url: String| {
        let said = String::from_utf8_lossy(&capacity(url).stdout).into_owned();
        let size = said
            .lines()
            .find_map(|line| line.strip_prefix("Total size:"));
        size.unwrap_or_else(|| panic!("{said}")).to_string()
    };
    assert_eq!(
        size(format!("iscsi://alice%alicesecret12@{at}/{RED}/0")),
        "1048576"
    );
    assert_eq!(
        size(format!("iscsi://alice%alicesecret12@{at}/{RED}/5")),
        "3145728"
    );
    assert_eq!(size(format!("iscsi://{at}/{BLUE}/0")), "2097152");
    assert!(
        !capacity(format!("iscsi://{at}/{RED}/0")).status.success(),
        "red asks for CHAP"
    );
    assert!(
        !capacity(format!("iscsi://{at}/{BLUE}/5")).status.success(),
        "LUN 5 is red's"
    );

    let answer = target.ask(&format!(r#"{{"do":"status","lun":5,"target":"{RED}"}}"#));
    assert_eq!(answer, r#"{"answer":"status","layers":{}}"#);
    assert!(
        target
            .ask(r#"{"do":"status","lun":0}"#)
            .contains("there are several targets")
    );
}

/// Flags configure discovery and advertised addresses in the same way, for one target.
#[test]
fn flags_configure_discovery_and_advertised_addresses() {
    if need("iscsi-ls", "libiscsi-bin").is_none() {
        return;
    }
    let flags = [
        "--name",
        RED,
        "--lun",
        "memory:1MiB",
        "--chap",
        "alice:alicesecret12",
    ];
    let portals = [
        "--portal",
        "127.0.0.1:0",
        "--portal",
        "127.0.0.1:0,group=2",
        "--advertise",
        "203.0.113.5:3260",
    ];
    let target = ControlledTarget::start(
        &[&flags[..], &portals, &["--discovery-chap", "none"]].concat(),
        2,
    );
    let at = target.portals[1];
    let listed = succeed(Command::new("iscsi-ls").arg(format!("iscsi://{at}")), 30);
    assert!(
        listed.contains(&format!("Target:{RED} Portal:203.0.113.5:3260,1")),
        "{listed}"
    );
    assert!(
        listed.contains(&format!("Target:{RED} Portal:{at},2")),
        "{listed}"
    );
}

/// A mistake in a file or a flag is reported with its line or its name, before anything is served.
#[test]
fn a_mistake_is_reported_with_its_line_or_flag() {
    let folder = TempDir::new("targets");
    let file = folder.join("t.toml");
    let check = |text: &str, line: usize, said: &str| {
        std::fs::write(&file, text).unwrap();
        let output = run_within(brunt().arg("target").arg("--config").arg(&file), 30);
        let shown = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}\n{shown}");
        assert!(
            shown.contains(&format!("t.toml:{line}: ")) && shown.contains(said),
            "{text}\n{shown}"
        );
    };
    let target = format!("[[target]]\nname = \"{RED}\"\n");
    check(
        &format!("{target}luns = {{ 0 = \"memory:1MiB,fast\" }}\n"),
        3,
        "unknown option 'fast'",
    );
    check(
        &format!("{target}[target.luns]\n0 = \"null:1M\"\n1 = \"/nonexistent/x\"\n"),
        5,
        "/nonexistent/x",
    );
    check(
        &format!("{target}[target.luns]\n0 = \"null:1M,serial=a\"\n1 = \"null:1M,serial=a\"\n"),
        5,
        "the same serial",
    );
    check(
        &format!("{target}[target.luns]\none = \"null:1M\"\n"),
        4,
        "write a number",
    );
    check(
        &format!("{target}chap = \"@/nonexistent\"\n"),
        3,
        "cannot read the CHAP secret",
    );
    check(
        &format!("{target}{target}"),
        4,
        "two targets have this name",
    );
    check(
        &format!("{target}[[portal]]\nlisten = \"nowhere\"\n"),
        4,
        "write ADDRESS:PORT",
    );
    check(
        &format!("{target}[[portal]]\nlisten = \"[::1]:0\"\nadvertise = \"san\"\n"),
        5,
        "write HOST:PORT",
    );
    check(&format!("{target}lun = {{}}\n"), 3, "did you mean luns?");
    let flags = |args: &[&str], said: &str| {
        let output = run_within(brunt().arg("target").args(args), 30);
        let shown = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}\n{shown}");
        assert!(shown.contains(said), "{args:?}\n{shown}");
    };
    flags(
        &["--lun", "null:1M,fast"],
        "brunt target: --lun null:1M,fast: unknown option 'fast'",
    );
    flags(
        &["--lun", "null:1M", "--name", "t0"],
        "--name t0 is not an iSCSI name",
    );
    flags(
        &["--lun", "null:1M", "--portal", "nowhere"],
        "--portal nowhere",
    );
    flags(
        &["--lun", "null:1M", "--advertise", "a"],
        "--advertise a is not an address",
    );
    flags(
        &[
            "--lun",
            "null:1M",
            "--advertise",
            "a:1",
            "--advertise",
            "b:1",
        ],
        "2 --advertise for 1 --portal",
    );
    flags(
        &["--config", "x", "--lun", "null:1M"],
        "cannot be used with",
    );
    flags(&[], "--lun");
}

fn capacity(url: &str) -> Option<String> {
    let output = run_within(Command::new("iscsi-readcapacity16").arg(url), 30);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.lines()
        .find_map(|line| line.strip_prefix("Total size:"))
        .map(str::to_string)
}

/// LUNs are added, grown, and removed by commands; an invalid command changes nothing.
#[test]
fn commands_add_grow_and_remove_luns() {
    if need("iscsi-readcapacity16", "libiscsi-bin").is_none() {
        return;
    }
    let folder = TempDir::new("targets");
    let disk = folder.join("disk.img");
    std::fs::File::create(&disk)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let disk = disk.display().to_string();
    let mut target = ControlledTarget::start(
        &[
            "--name",
            RED,
            "--lun",
            "memory:1MiB",
            "--portal",
            "127.0.0.1:0",
        ],
        1,
    );
    let at = target.portals[0];
    let size = |lun: u16| capacity(&format!("iscsi://{at}/{RED}/{lun}"));
    let mut check = |command: String, answer: &str| {
        let said = target.ask(&command);
        assert!(said.contains(answer), "{command}: {said}");
    };
    const DONE: &str = r#"{"answer":"done"}"#;
    assert_eq!((size(0), size(3)), (Some("1048576".into()), None));
    check(
        format!(r#"{{"do":"add","lun":3,"device":"{disk}?direct=no,wb"}}"#),
        DONE,
    );
    assert_eq!(size(3), Some("1048576".into()));
    check(
        r#"{"do":"add","lun":3,"device":"null:1MiB"}"#.into(),
        "remove it first",
    );
    check(
        format!(r#"{{"do":"add","lun":4,"device":"{disk}"}}"#),
        "the same file",
    );
    check(
        r#"{"do":"add","lun":4,"device":"null:1MiB,fast"}"#.into(),
        "unknown option",
    );
    check(
        r#"{"do":"add","lun":16384,"device":"null:1MiB"}"#.into(),
        "is not a LUN",
    );
    check(r#"{"do":"resize","lun":3,"size":"3MiB"}"#.into(), DONE);
    check(r#"{"do":"resize","lun":0,"size":"2MiB"}"#.into(), DONE);
    check(
        r#"{"do":"resize","lun":0,"size":"64TiB"}"#.into(),
        "cannot grow beyond",
    );
    assert_eq!(
        (size(0), size(3)),
        (Some("2097152".into()), Some("3145728".into()))
    );
    assert_eq!(
        std::fs::metadata(folder.join("disk.img")).unwrap().len(),
        3 << 20
    );
    check(r#"{"do":"remove","lun":3}"#.into(), DONE);
    check(r#"{"do":"remove","lun":3}"#.into(), "the LUNs are 0");
    check(
        r#"{"do":"reload"}"#.into(),
        "start the target with --config FILE",
    );
    assert_eq!(size(3), None);
}

/// SIGHUP reloads the file: targets and LUNs are added, removed and resized, and sessions to the remaining ones
/// continue; a file with a mistake changes nothing.
#[test]
fn a_reload_changes_targets_and_keeps_sessions() {
    if need("iscsi-readcapacity16", "libiscsi-bin").is_none() {
        return;
    }
    let folder = TempDir::new("targets");
    let file = folder.join("t.toml");
    let write = |text: String| {
        std::fs::write(
            &file,
            format!("portal = [{{ listen = \"127.0.0.1:0\" }}]\n{text}"),
        )
        .unwrap()
    };
    write(format!(
        "[[target]]\nname = \"{RED}\"\nluns = {{ 0 = \"memory:1MiB\", 1 = \"null:1MiB\", 2 = \"null:1MiB\" }}\n"
    ));
    let mut target = ControlledTarget::start(&["--config", file.to_str().unwrap()], 1);
    let at = target.portals[0];
    let size = |name: &str, lun: u16| capacity(&format!("iscsi://{at}/{name}/{lun}"));
    let hang_up = |target: &ControlledTarget| {
        let process = rustix::process::Pid::from_raw(target.id() as i32).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::HUP).unwrap();
    };
    write(format!(
        "[[target]]\nname = \"{RED}\"\nluns = {{ 0 = \"memory:4MiB\", 2 = \"null:3MiB,ro\", 9 = \"null:2MiB\" }}\n\
         [[target]]\nname = \"{BLUE}\"\nluns = {{ 0 = \"null:5MiB\" }}\n"
    ));
    hang_up(&target);
    let note = target.wait_for_note("t.toml:");
    for part in [
        "LUN 0 of iqn.2026-11.io.brunt:red resized to 4MiB",
        "LUN 1 of iqn.2026-11.io.brunt:red removed",
        "LUN 2 of iqn.2026-11.io.brunt:red replaced",
        "LUN 9 of iqn.2026-11.io.brunt:red added",
        "blue added",
    ] {
        assert!(note.contains(part), "{part}: {note}");
    }
    let sizes = [
        size(RED, 0),
        size(RED, 1),
        size(RED, 2),
        size(RED, 9),
        size(BLUE, 0),
    ];
    let expected = [
        Some("4194304"),
        None,
        Some("3145728"),
        Some("2097152"),
        Some("5242880"),
    ];
    assert_eq!(sizes, expected.map(|size| size.map(str::to_string)));

    write(format!(
        "[[target]]\nname = \"{RED}\"\nluns = {{ 0 = \"nulll:4MiB\" }}\n"
    ));
    hang_up(&target);
    assert!(
        target
            .wait_for_note("nothing changed")
            .contains("t.toml:4: ")
    );
    assert_eq!(size(BLUE, 0), Some("5242880".into()));

    write(format!(
        "max_sessions = 1\n[[target]]\nname = \"{RED}\"\nluns = {{ 0 = \"memory:4MiB\" }}\nchap = \"a:secret\"\n"
    ));
    assert_eq!(target.ask(r#"{"do":"reload"}"#), r#"{"answer":"done"}"#);
    let note = target.wait_for_note("t.toml:");
    assert!(
        note.contains("blue removed") && note.contains("max_sessions changed for new connections"),
        "{note}"
    );
    assert_eq!((size(BLUE, 0), size(RED, 0)), (None, None));
    assert_eq!(
        capacity(&format!("iscsi://a%secret@{at}/{RED}/0")),
        Some("4194304".into())
    );
}

/// SIGHUP and `reload` open and close portals and change what is advertised; a file with an impossible change is
/// rejected as a whole, and the message names the key.
#[test]
fn portals_are_reloaded() {
    if need("iscsi-ls", "libiscsi-bin").is_none() {
        return;
    }
    let folder = TempDir::new("targets");
    let file = folder.join("t.toml");
    let write = |head: &str, portals: &[&str]| {
        let portals: String = portals
            .iter()
            .map(|portal| format!("[[portal]]\n{portal}\n"))
            .collect();
        let target = format!("[[target]]\nname = \"{RED}\"\nluns = {{ 0 = \"memory:1MiB\" }}\n");
        std::fs::write(&file, format!("{head}\n{portals}{target}")).unwrap();
    };
    let any = "listen = \"127.0.0.1:0\"";
    let second = format!("{any}\ngroup = 2\nstate = \"standby\"\nadvertise = \"san.example:4260\"");
    write("", &[any]);
    let mut target = ControlledTarget::start(&["--config", file.to_str().unwrap()], 1);
    let at = target.portals[0];
    let listed = |at: SocketAddr| {
        let listed = succeed(Command::new("iscsi-ls").arg(format!("iscsi://{at}")), 30);
        let mut portals: Vec<String> = listed
            .lines()
            .filter_map(|line| line.split("Portal:").nth(1))
            .map(str::to_string)
            .collect();
        portals.sort();
        portals
    };
    const DONE: &str = r#"{"answer":"done"}"#;
    const RELOAD: &str = r#"{"do":"reload"}"#;

    write("", &[any, &second]);
    assert_eq!(target.ask(RELOAD), DONE);
    let note = target.wait_for_note("t.toml:");
    let added = note
        .split("portal ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .expect("an address");
    assert!(note.contains(" of group 2 added"), "{note}");
    let added: SocketAddr = added.parse().expect("an address");
    let both = [format!("{at},1"), "san.example:4260,2".to_string()];
    assert_eq!((listed(at), listed(added)), (both.to_vec(), both.to_vec()));
    let access = target.ask(r#"{"do":"access"}"#);
    assert!(
        access.contains(r#""groups":{"1":"optimized","2":"standby"}"#),
        "{access}"
    );

    // A change made by command is kept, unless the file changes that setting.
    target.ask(r#"{"do":"access","group":1,"state":"non-optimized"}"#);
    write(
        "congestion = \"reno\"\nheader_digest = \"prefer\"",
        &[
            &format!("{any}\nadvertise = \"other.example:1\""),
            &second.replace("standby", "optimized\"\npreferred = true\n#"),
        ],
    );
    assert_eq!(target.ask(RELOAD), DONE);
    let note = target.wait_for_note("t.toml:");
    for part in [
        &format!("portal {at} changed"),
        "group 2 is optimized and preferred",
        "header_digest and congestion changed for new connections",
    ] {
        assert!(note.contains(part), "{part}: {note}");
    }
    let access = target.ask(r#"{"do":"access"}"#);
    assert!(
        access.contains(r#""groups":{"1":"non-optimized","2":"optimized"},"preferred":[2]"#),
        "{access}"
    );
    assert_eq!(listed(at)[0], "other.example:1,1");

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    for (head, portal, line, said) in [
        (
            "alua = \"both\"",
            any.to_string(),
            1,
            "alua cannot be changed while the target is running",
        ),
        (
            "",
            format!("listen = \"{}\"", taken.local_addr().unwrap()),
            3,
            "cannot listen on",
        ),
    ] {
        write(head, &[&portal]);
        let answer = target.ask(RELOAD);
        assert!(
            answer.contains(&format!("t.toml:{line}: ")) && answer.contains(said),
            "{answer}"
        );
        assert_eq!(listed(added)[0], "other.example:1,1", "nothing changed");
    }

    write("", &[any]);
    assert_eq!(target.ask(RELOAD), DONE);
    let note = target.wait_for_note("t.toml:");
    assert!(
        note.contains(&format!("portal {added} removed")) && note.contains("group 2 removed"),
        "{note}"
    );
    assert_eq!(listed(at), [format!("{at},1")]);
    assert!(TcpStream::connect(added).is_err());
}

/// The file shown in docs/target.md is valid.
#[test]
fn the_documented_file_is_read() {
    let page = std::fs::read_to_string(support::root().join("docs/target.md")).unwrap();
    let text = page
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("an example");
    let folder = TempDir::new("targets");
    std::fs::write(
        folder.join("targets.toml"),
        text.replace("0.0.0.0:3260", "127.0.0.1:0")
            .replace("0.0.0.0:3261", "127.0.0.1:0"),
    )
    .unwrap();
    write_secret(&folder.join("red.txt"), "red:redsecret12345\n");
    std::fs::File::create(folder.join("disk.img"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let mut child = brunt()
        .args(["target", "--config", "targets.toml"])
        .current_dir(folder.join(""))
        .env("RED_OWN", "target:anothersecret1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let stdout = child.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut first).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(first.starts_with("127.0.0.1:"), "{first}");
}
