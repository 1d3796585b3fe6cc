//! The responses of `brunt serve` while a run is being set up or fails to begin. The runs are stand-in programs.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use brunt_study::experiment::Experiment;
use brunt_web::api::{CheckedExperiment, CheckedText, ExperimentActions, ServedSite, TextMistake};
use serde_json::{Value, json};

/// Far longer than anything in this test takes.
const PATIENCE: Duration = Duration::from_secs(300);
const TEXT: &str =
    "name = \"x\"\n[targets.a]\nurl = \"null:1MiB\"\n[workloads.w]\nstop = { time = \"1s\" }\n";

/// Accepts only the text above as an experiment; `run` returns the command that runs it.
struct Program<F>(F);

impl<F: Fn() -> io::Result<Command> + Send + Sync + 'static> ExperimentActions for Program<F> {
    fn check(&self, text: &str) -> CheckedText {
        if text != TEXT {
            let first = TextMistake {
                line: Some(3),
                message: "no such key".into(),
                advice: Some("write 'url'".into()),
                ..TextMistake::default()
            };
            return CheckedText {
                errors: vec![first],
                ..CheckedText::default()
            };
        }
        let experiment =
            Experiment::parse("x.toml", text).unwrap_or_else(|error| panic!("{error}"));
        let plan = experiment.plan();
        let found = Some(CheckedExperiment {
            experiment,
            plan,
            text: text.into(),
        });
        CheckedText {
            found,
            ..CheckedText::default()
        }
    }

    fn command(&self, _experiment: &Path, _folder: &Path) -> io::Result<Command> {
        (self.0)()
    }
}

struct Served {
    site: ServedSite,
    at: SocketAddr,
    _folder: tempfile::TempDir,
}

fn serve(run: impl Fn() -> io::Result<Command> + Send + Sync + 'static) -> Served {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    let site = ServedSite::start(
        listener,
        &folder.path().join("results"),
        None,
        true,
        Program(run),
    );
    Served {
        site: site.expect("a server"),
        at,
        _folder: folder,
    }
}

/// Sends a request as the page does; returns status and body.
fn ask(at: SocketAddr, token: &str, what: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let mut socket = TcpStream::connect(at).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let length = body.len();
    write!(
        socket,
        "{what} HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .expect("it reads");
    let mut answer = String::new();
    socket
        .read_to_string(&mut answer)
        .expect("an answer in time");
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    (
        status,
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}")),
    )
}

impl Served {
    fn ask(&self, what: &str, body: &Value) -> (u16, Value) {
        ask(self.at, self.site.token().text(), what, body)
    }

    /// The frames that are sent from now on.
    fn events(&self) -> impl Iterator<Item = Value> + use<> {
        let mut socket = TcpStream::connect(self.at).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        write!(socket, "GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", self.at).expect("it reads");
        let lines = BufReader::new(socket)
            .lines()
            .map(|line| line.expect("a line in time"));
        lines.filter_map(|line| {
            Some(serde_json::from_str(line.strip_prefix("data: ")?).expect("JSON"))
        })
    }
}

/// However long the setup of a run takes, for example on an unreachable network folder, viewers and requests for the
/// current run are not delayed.
#[test]
fn a_hanging_start_delays_no_other_request() {
    let (entered, begins): (Sender<()>, Receiver<()>) = channel();
    let (resume, waits) = channel::<()>();
    let waits = Mutex::new(waits);
    let served = serve(move || {
        entered.send(()).expect("the test waits");
        waits
            .lock()
            .expect("whole")
            .recv()
            .expect("the test goes on");
        Err(io::Error::other("it was not to be"))
    });
    let (at, token) = (served.at, served.site.token().text().to_string());
    let start = json!({ "text": TEXT });
    let first = {
        let (start, token) = (start.clone(), token.clone());
        std::thread::spawn(move || ask(at, &token, "POST /api/runs", &start))
    };
    begins.recv_timeout(PATIENCE).expect("it starts");
    assert!(
        served.events().any(|frame| frame["frame"] == "now"),
        "who comes now watches"
    );
    assert_eq!(
        served.ask("GET /api/about", &Value::Null).1["running"],
        Value::Null
    );
    assert_eq!(served.ask("POST /api/runs/x/stop", &Value::Null).0, 404);
    let (status, busy) = served.ask("POST /api/runs", &start);
    assert!(
        status == 409 && busy["error"] == "run 'x' is in progress",
        "{status} {busy}"
    );
    resume.send(()).expect("it waits");
    let (status, answer) = first.join().expect("no panic");
    assert!(
        status == 500
            && answer["error"]
                .as_str()
                .is_some_and(|why| why.contains("not to be")),
        "{answer}"
    );
    // The run has ended, and the next one may begin.
    resume.send(()).expect("it waits");
    assert_eq!(served.ask("POST /api/runs", &start).0, 500);
    served.site.close();
}

/// A text that can't be started gets an ordinary error response, with all of its mistakes.
#[test]
fn a_mistake_gets_an_error_response_with_its_place() {
    let served = serve(|| Err(io::Error::other("nothing runs here")));
    let (status, answer) = served.ask("POST /api/runs", &json!({ "text": "nonsense" }));
    assert_eq!(status, 422);
    assert_eq!(
        (&answer["error"], &answer["advice"]),
        (&json!("line 3: no such key"), &json!("write 'url'"))
    );
    assert_eq!(answer["errors"][0]["line"], 3);
    served.site.close();
}

/// If a run fails before it has a page, the response contains its messages, whatever they are, or otherwise its exit
/// status.
#[test]
fn a_run_that_cannot_begin_returns_its_own_messages() {
    let check = |script: &'static str, expected: &[&str]| {
        let served = serve(move || {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            Ok(command)
        });
        let mut events = served.events();
        assert_eq!(
            served.ask("POST /api/runs", &json!({ "text": TEXT })).0,
            201
        );
        let end = events
            .find(|frame| frame["frame"] == "ends")
            .expect("the end");
        let trouble = end["trouble"].as_str().expect("why");
        assert!(
            expected.iter().all(|part| trouble.contains(part)),
            "{trouble}"
        );
        assert_eq!(end["report"], Value::Null);
        served.site.close();
    };
    check(
        "echo 'all at sea' >&2; echo '  help: land' >&2; exit 1",
        &["all at sea\n  help: land"],
    );
    check(
        "kill -KILL $$",
        &[
            "before its results were complete (signal: 9",
            "progress.txt",
        ],
    );
    check(
        "exit 0",
        &["before its results were complete (exit status: 0"],
    );
}
