//! `brunt target` from a file: several targets in one process, each with its LUNs and CHAP; discovery; what is wrong
//! with a file. Judged by libiscsi's tools.

mod support;

use std::process::Command;

use support::controlled::ControlledTarget;
use support::{TempDir, brunt, need, run_within, succeed};

const RED: &str = "iqn.2026-11.io.brunt:red";
const BLUE: &str = "iqn.2026-11.io.brunt:blue";

/// Each target has its own LUNs and secret; discovery lists all, at the addresses that are advertised, to whom it
/// knows.
#[test]
fn several_targets_from_a_file() {
    if need("iscsi-ls", "libiscsi-bin").is_none() {
        return;
    }
    let folder = TempDir::new("targets");
    let secret = folder.join("secret.txt");
    std::fs::write(&secret, "alice:alicesecret12\n").unwrap();
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
    assert!(!run_within(ls.arg(format!("iscsi://{at}")), 30).status.success(), "discovery asks for CHAP");
    let listed = succeed(Command::new("iscsi-ls").arg(format!("iscsi://alice%alicesecret12@{at}")), 30);
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
        let size = said.lines().find_map(|line| line.strip_prefix("Total size:"));
        size.unwrap_or_else(|| panic!("{said}")).to_string()
    };
    assert_eq!(size(format!("iscsi://alice%alicesecret12@{at}/{RED}/0")), "1048576");
    assert_eq!(size(format!("iscsi://alice%alicesecret12@{at}/{RED}/5")), "3145728");
    assert_eq!(size(format!("iscsi://{at}/{BLUE}/0")), "2097152");
    assert!(!capacity(format!("iscsi://{at}/{RED}/0")).status.success(), "red asks for CHAP");
    assert!(!capacity(format!("iscsi://{at}/{BLUE}/5")).status.success(), "LUN 5 is red's");

    let answer = target.ask(&format!(r#"{{"do":"status","lun":5,"target":"{RED}"}}"#));
    assert_eq!(answer, r#"{"answer":"status","layers":{}}"#);
    assert!(target.ask(r#"{"do":"status","lun":0}"#).contains("there are several targets"));
}

/// The same from flags, where there is one target.
#[test]
fn discovery_and_advertising_by_flags() {
    if need("iscsi-ls", "libiscsi-bin").is_none() {
        return;
    }
    let flags = ["--name", RED, "--lun", "memory:1MiB", "--chap", "alice:alicesecret12"];
    let portals =
        ["--portal", "127.0.0.1:0", "--portal", "127.0.0.1:0,group=2", "--advertise", "203.0.113.5:3260"];
    let target = ControlledTarget::start(&[&flags[..], &portals, &["--discovery-chap", "none"]].concat(), 2);
    let at = target.portals[1];
    let listed = succeed(Command::new("iscsi-ls").arg(format!("iscsi://{at}")), 30);
    assert!(listed.contains(&format!("Target:{RED} Portal:203.0.113.5:3260,1")), "{listed}");
    assert!(listed.contains(&format!("Target:{RED} Portal:{at},2")), "{listed}");
}

/// What is wrong with a file or a flag is said with its line or its name, before anything is served.
#[test]
fn mistakes_have_a_place() {
    let folder = TempDir::new("targets");
    let file = folder.join("t.toml");
    let check = |text: &str, line: usize, said: &str| {
        std::fs::write(&file, text).unwrap();
        let output = run_within(brunt().arg("target").arg("--config").arg(&file), 30);
        let shown = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}\n{shown}");
        assert!(shown.contains(&format!("t.toml:{line}: ")) && shown.contains(said), "{text}\n{shown}");
    };
    let target = format!("[[target]]\nname = \"{RED}\"\n");
    check(&format!("{target}luns = {{ 0 = \"memory:1MiB,fast\" }}\n"), 3, "unknown option 'fast'");
    check(&format!("{target}[target.luns]\n0 = \"null:1M\"\n1 = \"/nonexistent/x\"\n"), 5, "/nonexistent/x");
    check(
        &format!("{target}[target.luns]\n0 = \"null:1M,serial=a\"\n1 = \"null:1M,serial=a\"\n"),
        5,
        "the same serial",
    );
    check(&format!("{target}[target.luns]\none = \"null:1M\"\n"), 4, "write a number");
    check(&format!("{target}chap = \"@/nonexistent\"\n"), 3, "cannot read the CHAP secret");
    check(&format!("{target}{target}"), 4, "two targets have this name");
    check(&format!("{target}[[portal]]\nlisten = \"nowhere\"\n"), 4, "write ADDRESS:PORT");
    check(&format!("{target}[[portal]]\nlisten = \"[::1]:0\"\nadvertise = \"san\"\n"), 5, "write HOST:PORT");
    check(&format!("{target}lun = {{}}\n"), 3, "did you mean luns?");
    let flags = |args: &[&str], said: &str| {
        let output = run_within(brunt().arg("target").args(args), 30);
        let shown = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}\n{shown}");
        assert!(shown.contains(said), "{args:?}\n{shown}");
    };
    flags(&["--lun", "null:1M,fast"], "brunt target: --lun null:1M,fast: unknown option 'fast'");
    flags(&["--lun", "null:1M", "--name", "t0"], "--name t0 is not an iSCSI name");
    flags(&["--lun", "null:1M", "--portal", "nowhere"], "--portal nowhere");
    flags(&["--lun", "null:1M", "--advertise", "a"], "--advertise a is not an address");
    flags(&["--lun", "null:1M", "--advertise", "a:1", "--advertise", "b:1"], "2 --advertise for 1 --portal");
    flags(&["--config", "x", "--lun", "null:1M"], "cannot be used with");
    flags(&[], "--lun");
}
