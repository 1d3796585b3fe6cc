//! The kernel's own netem as a fault on another host: a virtual machine whose kernel has netem, an agent in it,
//! reached over TLS, and ping in the guest to verify the effect.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::support::agents::certificates;
use crate::support::guest::ready;
use crate::support::{TempDir, brunt, busy, need, root, skip};
use serde_json::Value;

/// Delay in one direction; a ping over loopback takes twice as long.
const DELAY_MS: f64 = 200.0;
/// Fraction of packets lost, in each direction.
const LOSS: f64 = 0.3;
/// With [`LOSS`] in both directions, this many consecutive pings arrive once in a million times.
const APART: u64 = 20;
/// Longer than an emulated guest takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(900);

/// Pings continuously; an agent is killed in the second period of slow pings. A period begins with three consecutive
/// pings, because a busy machine slows down single ones.
const SCRIPT: &str = r#"
export LD_LIBRARY_PATH=/:/lib/x86_64-linux-gnu
for module in /[0-9]*.ko*; do insmod "$module" || exit 1; done
/brunt agent --listen 0.0.0.0:PORT --identity /agent.pem --allow fault:netem=lo >/tmp/agent 2>&1 & agent=$!
for i in $(seq 600); do grep -q PORT /tmp/agent && break; sleep .2; done
echo listening
phase=0 slow=0 fast=0
while :; do
  time=$(ping -c 1 -W 1 127.0.0.1 | sed -n 's/.*time=\([0-9.]*\) ms.*/\1/p')
  [ -n "$time" ] || { echo lost; continue; }
  echo "ping $time"
  if [ "${time%.*}" -ge 300 ]; then
    slow=$((slow + 1)) fast=0
    [ $slow$phase = 30 ] && phase=1
    [ $slow$phase = 32 ] && { kill -9 $agent; echo killed; phase=3; }
  else
    fast=$((fast + 1)) slow=0
    [ $fast$phase = 31 ] && phase=2
  fi
  usleep 50000
done
"#;

/// The guest's output, line by line as it is printed.
struct GuestLines(Receiver<String>);

impl GuestLines {
    fn next(&self) -> String {
        self.0
            .recv_timeout(PATIENCE)
            .expect("the guest says something")
    }

    fn wait_for(&self, word: &str) {
        while self.next() != word {}
    }

    /// Counts the pings between the first and the last ping that a fault lost until a program ends, and how many of
    /// them were lost. The counts don't depend on when exactly the fault begins and ends.
    fn count_while(&self, program: &mut Child) -> (u64, u64) {
        let (mut count, mut lost) = (0, Vec::new());
        while program.try_wait().expect("a child").is_none() {
            let line = self.next();
            if line == "lost" {
                lost.push(count);
            }
            count += u64::from(line == "lost" || line.starts_with("ping "));
        }
        between_losses(&lost)
    }

    /// Waits for `count` consecutive pings whose times `is_so` accepts.
    fn wait_for_pings(&self, count: usize, is_so: impl Fn(f64) -> bool) {
        let mut row = 0;
        while row < count {
            let line = self.next();
            let ping = line
                .strip_prefix("ping ")
                .map(|time| time.parse::<f64>().expect("milliseconds"));
            row = if ping.is_some_and(&is_so) { row + 1 } else { 0 };
        }
    }
}

/// A virtual machine; killed on drop.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .args(["-TERM", &self.0.id().to_string()])
            .status();
        let _ = self.0.wait();
    }
}

/// The netem modules and everything else that the guest needs; `None` if something is missing.
fn files(folder: &TempDir, identity: &Path) -> Option<Vec<PathBuf>> {
    need("strip", "binutils")?;
    let listed = Command::new(root().join("tools/kernel-initiator.sh"))
        .arg("--netem")
        .output()
        .expect("bash");
    if !listed.status.success() {
        skip("a guest prepared with netem (run tools/kernel-initiator.sh --prepare)");
        return None;
    }
    let mut files: Vec<PathBuf> = String::from_utf8_lossy(&listed.stdout)
        .lines()
        .map(PathBuf::from)
        .collect();
    let program = folder.join("brunt");
    let own = env!("CARGO_BIN_EXE_brunt");
    let stripped = Command::new("strip")
        .args(["--strip-all", "-o"])
        .arg(&program)
        .arg(own)
        .status();
    assert!(stripped.expect("strip").success());
    // Libraries that the program needs in addition to those of the guest.
    let needed = Command::new("ldd").arg(own).output().expect("ldd");
    let needed = String::from_utf8_lossy(&needed.stdout).into_owned();
    files.extend(
        needed
            .split_whitespace()
            .filter(|word| word.starts_with("/lib/"))
            .map(PathBuf::from),
    );
    std::fs::copy(identity, folder.join("agent.pem")).expect("an identity");
    files.extend([program, folder.join("agent.pem")]);
    Some(files)
}

/// A port on which nothing is listening.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|socket| socket.local_addr())
        .expect("a port")
        .port()
}

fn boot(folder: &TempDir, files: &[PathBuf], port: u16) -> (Machine, GuestLines) {
    let script = folder.join("script");
    std::fs::write(&script, SCRIPT.replace("PORT", &port.to_string())).expect("a script");
    let mut child = Command::new(root().join("tools/kernel-initiator.sh"))
        .arg(&script)
        .args(files)
        .env("BRUNT_GUEST_SECONDS", "1500")
        .env("BRUNT_GUEST_PORTS", port.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bash");
    let lines = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let (sender, said) = channel();
    std::thread::spawn(move || {
        for line in std::io::BufRead::lines(lines).map_while(Result::ok) {
            if sender.send(line.trim_end().to_string()).is_err() {
                return;
            }
        }
    });
    (Machine(child), GuestLines(said))
}

fn experiment(
    folder: &TempDir,
    identity: &Path,
    port: u16,
    time: &str,
    faults: &str,
) -> (PathBuf, PathBuf) {
    let file = folder.join("x.toml");
    let text = format!(
        "name = \"x\"\nrepetitions = 1\nhost_silence = \"120s\"\n[hosts.guest]\nagent = \"127.0.0.1:{port}\"\n\
         identity = \"{}\"\n[targets.disk]\nurl = \"memory:1MiB\"\n[workloads.w]\n\
         arrival = {{ kind = \"open\", rate = 50 }}\nstop = {{ time = \"{time}\" }}\n[probes]\ninterval = \"0s\"\n{faults}",
        identity.display()
    );
    std::fs::write(&file, text).expect("a file");
    (file, folder.join("x.results"))
}

fn start(file: &Path, out: &Path) -> Child {
    let mut run = brunt();
    run.arg("run")
        .arg(file)
        .arg("--out")
        .arg(out)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    run.spawn().expect("it starts")
}

/// The number of pings between the first and the last loss of a fault, and how many of them were lost; `lost` has the
/// places of all lost pings. A busy machine loses single pings, at other times as well: a loss that is more than
/// [`APART`] pings away from the others isn't the fault's.
fn between_losses(lost: &[u64]) -> (u64, u64) {
    let groups = lost.chunk_by(|one, next| next - one <= APART);
    let Some([first, inner @ .., last]) = groups.max_by_key(|group| group.len()) else {
        return (0, 0);
    };
    (last - first - 1, inner.len() as u64)
}

/// Whether `some` of `all` fits this probability: it lies within four standard deviations, which chance exceeds once
/// in 16 000 times.
fn is_share(some: u64, all: u64, probability: f64) -> bool {
    let mean = all as f64 * probability;
    (some as f64 - mean).abs() <= 4.0 * (mean * (1.0 - probability)).sqrt()
}

/// The number that precedes these words.
fn number_before(text: &str, words: &str) -> u64 {
    let before = text.split(words).next().expect("a text has a beginning");
    let digits = before
        .trim_end()
        .rsplit(|one: char| !one.is_ascii_digit())
        .next();
    digits
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_else(|| panic!("no number before {words}: {text}"))
}

/// The number that follows these words.
fn number_after(text: &str, words: &str) -> u64 {
    let digits = text
        .split(words)
        .nth(1)
        .and_then(|rest| rest.split(|one: char| !one.is_ascii_digit()).next());
    digits
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_else(|| panic!("no number behind {words}: {text}"))
}

fn output_text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The configured fraction of packets is lost, both of ping requests and of their replies, which also leave by the
/// loopback interface.
fn netem_loses(guest: &GuestLines, folder: &TempDir, controller: &Path, port: u16) {
    let fault = format!(
        "[[fault]]\nhost = \"guest\"\nnetem = {{ loss = {LOSS} }}\ninterface = \"lo\"\nat = \"500ms\"\nfor = \"40s\"\n"
    );
    let (file, out) = experiment(folder, controller, port, "42s", &fault);
    let mut run = start(&file, &out);
    let (pings, lost) = guest.count_while(&mut run);
    let output = run.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", output_text(&output));
    let either = 1.0 - (1.0 - LOSS) * (1.0 - LOSS);
    assert!(
        pings >= 20 && is_share(lost, pings, either),
        "{lost} of {pings} pings"
    );
    let summary = std::fs::read(out.join("summary.json")).expect("a summary");
    let summary: Value = serde_json::from_slice(&summary).expect("JSON");
    let shown = summary["points"][0]["runs"][0]["faults"][0].to_string();
    let through = number_before(&shown, "packets left lo through netem");
    let dropped = number_after(&shown, "which dropped ");
    assert!(
        is_share(dropped, through + dropped, LOSS),
        "{dropped} dropped, {through} not: {shown}"
    );
    // By chance, this many consecutive pings are affected less than once in a million times.
    guest.wait_for_pings(20, |_| true);
    std::fs::remove_dir_all(&out).expect("results");
}

/// Pings in the guest are lost, and later delayed, only while the fault is active; the kernel's counters prove the
/// fault, and it ends when the agent is killed.
#[test]
fn netem_loses_and_delays_what_leaves_a_guest() {
    let _busy = busy(); // An emulated guest keeps a core busy; its times are compared with much longer ones.
    if !ready() {
        return;
    }
    let (folder, certificates) = (TempDir::new("netem"), certificates());
    let Some(files) = files(&folder, &certificates.path().join("agent-127.0.0.1.pem")) else {
        return;
    };
    let port = free_port();
    let (_machine, guest) = boot(&folder, &files, port);
    guest.wait_for("listening");
    guest.wait_for_pings(3, |time| time < DELAY_MS);
    let controller = certificates.path().join("controller.pem");
    netem_loses(&guest, &folder, &controller, port);
    let fault = format!(
        "[[fault]]\nhost = \"guest\"\nnetem = {{ delay = \"{DELAY_MS}ms\" }}\ninterface = \"lo\"\nat = \"500ms\"\n"
    );
    let (file, out) = experiment(
        &folder,
        &controller,
        port,
        "13s",
        &format!("{fault}for = \"10s\"\n"),
    );
    let run = start(&file, &out);
    guest.wait_for_pings(3, |time| time >= 2.0 * DELAY_MS);
    let output = run.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", output_text(&output));
    let summary = std::fs::read(out.join("summary.json")).expect("a summary");
    let summary: Value = serde_json::from_slice(&summary).expect("JSON");
    let shown = &summary["points"][0]["runs"][0]["faults"][0];
    let text = shown.to_string();
    assert!(text.contains("shows netem at the root of lo"), "{shown:#}");
    assert!(text.contains("packets left lo through netem"), "{shown:#}");
    guest.wait_for_pings(5, |time| time < DELAY_MS);
    // Inject the fault again, for the whole of a run whose agent is killed.
    std::fs::remove_dir_all(&out).expect("results");
    let (file, out) = experiment(
        &folder,
        &controller,
        port,
        "1h",
        &fault.replace("at = \"500ms\"\n", ""),
    );
    let run = start(&file, &out);
    guest.wait_for("killed");
    guest.wait_for_pings(5, |time| time < DELAY_MS);
    let _ = Command::new("kill")
        .args(["-INT", &run.id().to_string()])
        .status();
    let output = run.wait_with_output().expect("it ends");
    assert!(
        !output.status.success(),
        "a fault that is lost makes its run void: {}",
        output_text(&output)
    );
}
