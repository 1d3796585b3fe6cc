//! `brunt serve` as its page uses it: an experiment is checked, run, watched, stopped, kept and compared over HTTP;
//! unauthorized clients can't start or read anything; and no process outlives its server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::support::live_events::LiveEvents;
use crate::support::{TempDir, brunt, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(300);

/// A server, killed on drop.
struct Server {
    child: Child,
    address: String,
    token: String,
    folder: TempDir,
}

impl Server {
    fn start(options: &[&str]) -> Server {
        let folder = TempDir::new("serve");
        let mut child = brunt()
            .arg("serve")
            .arg("--results")
            .arg(folder.join("results"))
            .args(options)
            .current_dir(folder.join(""))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("brunt");
        let mut first = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut first)
            .expect("a line");
        let parts = first
            .trim()
            .strip_prefix("http://")
            .and_then(|rest| rest.split_once("/#token="));
        let (address, token) = parts.unwrap_or_else(|| panic!("no address: {first}"));
        Server {
            address: address.into(),
            token: token.into(),
            child,
            folder,
        }
    }

    /// Sends a request as the page does; returns status and body.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
        let body = body.map(Value::to_string);
        let mut headers = format!(
            "Authorization: Bearer {}\r\nOrigin: http://{}\r\n",
            self.token, self.address
        );
        if let Some(body) = &body {
            headers += &format!(
                "Content-Type: application/json\r\nContent-Length: {}\r\n",
                body.len()
            );
        }
        self.raw(
            &format!("{method} {path}"),
            &headers,
            &self.address,
            body.as_deref().unwrap_or(""),
        )
    }

    /// Sends any request.
    fn raw(&self, what: &str, headers: &str, host: &str, body: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(&self.address).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        write!(
            socket,
            "{what} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n{body}"
        )
        .expect("it reads");
        let mut answer = Vec::new();
        // If a request is rejected early, its connection may be reset.
        let _ = socket.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        (status.unwrap_or(0), body.to_string())
    }

    fn json(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let (status, text) = self.ask(method, path, body);
        (
            status,
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {status} {text}")),
        )
    }

    /// Starts an experiment; returns its id.
    fn begin(&self, text: &str) -> String {
        let (status, answer) = self.json("POST", "/api/runs", Some(&json!({ "text": text })));
        assert_eq!(status, 201, "{answer}");
        answer["id"].as_str().expect("an id").to_string()
    }

    fn running(&self) -> Value {
        self.json("GET", "/api/about", None).1["running"].clone()
    }

    fn wait_for_end(&self) {
        eventually("the run ends", 60, || self.running().is_null());
    }

    fn summary(&self, id: &str) -> Value {
        let file = self.folder.join("results").join(id).join("summary.json");
        serde_json::from_str(&std::fs::read_to_string(file).expect("a summary")).expect("JSON")
    }

    /// The live frames from now on.
    fn events(&self) -> LiveEvents {
        LiveEvents::of(&self.address)
    }

    fn signal(&self, signal: Signal) {
        kill_process(
            Pid::from_raw(self.child.id() as i32).expect("a process's number"),
            signal,
        )
        .expect("it is ours");
    }

    /// Processes that name this server's folder, except the server.
    fn processes(&self) -> Vec<String> {
        let folder = self.folder.join("results").display().to_string();
        let all = std::fs::read_dir("/proc").expect("/proc").flatten();
        let lines =
            all.filter(|entry| entry.file_name().to_string_lossy() != self.child.id().to_string());
        let lines = lines.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        lines.filter(|line| line.contains(&folder)).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The run notices that its server has ended, and ends.
        eventually("no process is left", 60, || self.processes().is_empty());
    }
}

fn is(frame: &Value, kind: &str) -> bool {
    frame["frame"] == kind
}

/// An experiment of two short runs.
fn short(name: &str) -> String {
    format!(
        "# a comment\nname = \"{name}\"\nrepetitions = 2\n[targets.disk]\nurl = \"memory:1MiB\"\n[workloads.w]\n\
         arrival = {{ kind = \"open\", rate = 1000 }}\ninterval = \"250ms\"\nstop = {{ time = \"500ms\" }}\n"
    )
}

/// An experiment that takes too long to wait for.
const LONG: &str = "name = \"long\"\nrepetitions = 1\n[targets.disk]\nurl = \"memory:1MiB\"\n[workloads.w]\n\
                    arrival = { kind = \"open\", rate = 100 }\ninterval = \"250ms\"\nstop = { time = \"3600s\" }\n";

/// From the text to two compared results, as the page does it; the figures in the frames are those in the summary.
#[test]
fn experiments_are_composed_run_watched_and_compared() {
    let server = Server::start(&[]);
    let (_, about) = server.json("GET", "/api/about", None);
    assert_eq!(
        (&about["mode"], &about["running"], &about["can_start"]),
        (&json!("serve"), &Value::Null, &json!(true))
    );
    assert!(server.json("GET", "/api/schema", None).1["properties"]["targets"].is_object());
    let (_, examples) = server.json("GET", "/api/examples", None);
    assert!(
        examples.as_array().is_some_and(|all| all.len() >= 8),
        "{examples}"
    );
    for example in examples.as_array().expect("a list") {
        let (status, found) = server.json(
            "POST",
            "/api/check",
            Some(&json!({ "text": example["text"] })),
        );
        assert_eq!(
            (status, &found["errors"]),
            (200, &json!([])),
            "{}",
            example["name"]
        );
        assert!(
            found["plan"]["seconds"]["least"]
                .as_f64()
                .is_some_and(|least| least > 0.0),
            "{found}"
        );
    }
    let (_, found) = server.json(
        "POST",
        "/api/check",
        Some(&json!({ "text": short("first") })),
    );
    assert_eq!(
        (&found["plan"]["runs"], &found["plan"]["seconds"]["least"]),
        (&json!(2), &json!(1.0))
    );

    let events = server.events();
    let first = server.begin(&short("first"));
    assert_eq!(first, "first");
    let mut frames: Vec<Value> = Vec::new();
    for frame in events {
        frames.push(frame);
        if is(&frames[frames.len() - 1], "ends") {
            break;
        }
    }
    assert!(
        frames.iter().position(|frame| is(frame, "plan"))
            > frames.iter().position(|frame| is(frame, "now"))
    );
    let end = frames.last().expect("some");
    assert_eq!(
        (&end["trouble"], &end["frames_lost"]),
        (&Value::Null, &json!(0)),
        "{end}"
    );
    server.wait_for_end();
    let summary = server.summary(&first);
    let runs = summary["points"][0]["runs"].as_array().expect("runs");
    let ends: Vec<&Value> = frames
        .iter()
        .filter(|frame| is(frame, "run-ends"))
        .collect();
    assert_eq!((runs.len(), ends.len()), (2, 2));
    for (frame, run) in ends.iter().zip(runs) {
        for key in [
            "requests_per_second",
            "bytes_per_second",
            "response",
            "measured_s",
            "losses",
        ] {
            assert_eq!(frame[key], run[key], "{key}");
        }
    }

    let second = server.begin(&short("first"));
    assert_eq!(second, "first-2");
    server.wait_for_end();
    let (_, list) = server.json("GET", "/api/results?search=FIRST+memory", None);
    let ids: Vec<&str> = list
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["id"].as_str())
        .collect();
    assert_eq!(ids, ["first-2", "first"], "newest first: {list}");
    assert_eq!(
        (&list[1]["runs"], &list[1]["complete"]),
        (&json!(2), &json!(true))
    );
    let rate = list[1]["words"]["requests_per_second"]["least"]
        .as_f64()
        .expect("a rate");
    assert!(
        (rate
            - summary["points"][0]["requests_per_second"]["mean"]
                .as_f64()
                .expect("a rate"))
        .abs()
            < 1e-9
    );
    assert_eq!(
        server
            .json("GET", "/api/results?search=first%20nothing", None)
            .1,
        json!([])
    );
    // The text as written, and the report from the end of the run.
    assert_eq!(
        server.ask("GET", "/api/results/first/experiment", None).1,
        short("first")
    );
    let report = server.ask("GET", "/api/results/first/report", None);
    let kept =
        std::fs::read_to_string(server.folder.join("results/first/report.html")).expect("a report");
    assert_eq!(report, (200, kept.clone()));
    // Only page links work without the header.
    for (path, body, what) in [
        ("/api/view", json!({ "report": "first" }), kept.as_str()),
        (
            "/api/compare",
            json!({ "results": ["first", "first-2", "first"] }),
            "first-2",
        ),
        (
            "/api/history",
            json!({ "search": "FIRST memory" }),
            "first-2",
        ),
    ] {
        let (status, answer) = server.json("POST", path, Some(&body));
        assert_eq!(status, 201, "{answer}");
        let page = answer["page"].as_str().expect("a path");
        let (status, text) = server.raw(&format!("GET {page}"), "", &server.address, "");
        assert!(status == 200 && text.contains(what), "{path}: {status}");
        assert_eq!(
            server
                .raw(&format!("GET {page}x"), "", &server.address, "")
                .0,
            404
        );
    }
    let first = |count: usize| json!({ "results": vec!["first"; count] });
    for (path, body, expected) in [
        ("/api/compare", json!({ "results": ["first", "no"] }), 404),
        ("/api/compare", first(1), 422),
        ("/api/compare", first(21), 422),
        ("/api/history", json!({ "search": "first nothing" }), 404),
    ] {
        let (status, answer) = server.ask("POST", path, Some(&body));
        assert_eq!(status, expected, "{path} {body}: {answer}");
    }
}

/// Stopping works like Ctrl-C: the run ends with its report, and the next run can begin.
#[test]
fn a_run_is_stopped_with_its_report() {
    let server = Server::start(&[]);
    let mut events = server.events();
    let id = server.begin(LONG);
    let (status, busy) = server.json(
        "POST",
        "/api/runs",
        Some(&json!({ "text": short("other") })),
    );
    assert!(
        status == 409
            && busy["error"]
                .as_str()
                .is_some_and(|why| why.contains("'long'")),
        "{busy}"
    );
    events
        .find(|frame| is(frame, "stretch"))
        .expect("a stretch");
    assert_eq!(server.ask("POST", "/api/runs/other/stop", None).0, 404);
    assert_eq!(
        server.ask("POST", &format!("/api/runs/{id}/stop"), None).0,
        202
    );
    let end = events.find(|frame| is(frame, "ends")).expect("the end");
    assert_eq!(end["trouble"], "interrupted");
    assert!(
        end["report"]
            .as_str()
            .is_some_and(|page| Path::new(page).exists()),
        "{end}"
    );
    server.wait_for_end();
    assert_eq!(server.summary(&id)["complete"], false);
    assert_eq!(
        server.ask("POST", &format!("/api/runs/{id}/stop"), None).0,
        404
    );
    server.begin(&short("next"));
    // A connected viewer sees the next run without a new request.
    assert_eq!(
        events.find(|frame| is(frame, "plan")).expect("a plan")["experiment"],
        "next"
    );
    server.wait_for_end();
}

/// Ctrl-C ends the run with its report, then the server; after SIGKILL of the server, the run ends by itself.
#[test]
fn no_run_outlives_its_server() {
    for signal in [Signal::INT, Signal::KILL] {
        let mut server = Server::start(&[]);
        let mut events = server.events();
        let id = server.begin(LONG);
        events
            .find(|frame| is(frame, "stretch"))
            .expect("a stretch");
        assert!(!server.processes().is_empty());
        server.signal(signal);
        let status = server.child.wait().expect("it ends");
        let report = server.folder.join("results").join(&id).join("report.html");
        if signal == Signal::INT {
            assert!(status.success(), "{status}");
            assert!(report.exists() && server.processes().is_empty());
        }
        eventually("no process is left", 60, || server.processes().is_empty());
        assert!(report.exists(), "{signal:?}");
        assert_eq!(server.summary(&id)["trouble"], "interrupted");
    }
}

/// A mistake is reported with its location, and a target that can't be opened with the reason; neither leaves a
/// result behind.
#[test]
fn an_experiment_that_cannot_run_gives_the_reason() {
    let server = Server::start(&[]);
    let (status, answer) = server.json(
        "POST",
        "/api/runs",
        Some(&json!({ "text": short("x").replace("repetitions = 2", "repetitions = 0") })),
    );
    assert_eq!((status, &answer["plan"]), (422, &Value::Null), "{answer}");
    assert!(
        answer["errors"][0]["line"].is_number() && answer["errors"][0]["message"].is_string(),
        "{answer}"
    );
    assert!(
        answer["error"]
            .as_str()
            .is_some_and(|error| error.starts_with("line 3: ")),
        "{answer}"
    );
    let mut events = server.events();
    let text = short("broken").replace(
        "memory:1MiB",
        "iscsi://me%geheimnis-sehr@127.0.0.1:1/iqn.x:y/0",
    );
    let id = server.begin(&text);
    let end = events.find(|frame| is(frame, "ends")).expect("the end");
    assert!(
        end["trouble"]
            .as_str()
            .is_some_and(|why| why.contains("127.0.0.1:1")),
        "{end}"
    );
    server.wait_for_end();
    // Secrets in an experiment's text aren't kept, not even in the file used to pass it on.
    let results = server.folder.join("results");
    let files = |folder: &Path| {
        std::fs::read_dir(folder)
            .expect("a folder")
            .flatten()
            .map(|entry| entry.path())
    };
    for file in files(&results)
        .chain(files(&results.join(&id)))
        .filter(|file| file.is_file())
    {
        let text = String::from_utf8_lossy(&std::fs::read(&file).expect("readable")).into_owned();
        assert!(!text.contains("geheimnis"), "{}", file.display());
    }
    assert!(
        files(&results).all(|file| file.is_dir()),
        "the file that hands it over is gone"
    );
    let found = server
        .json("POST", "/api/check", Some(&json!({ "text": text })))
        .1;
    assert!(!found.to_string().contains("geheimnis"), "{found}");
}

/// Without the token, with another host name, from another page, or with another site's form, nothing is started and
/// nothing is read.
#[test]
fn unauthorized_clients_start_nothing_and_read_nothing() {
    let server = Server::start(&[]);
    server.begin(&short("mine"));
    server.wait_for_end();
    let own = server.address.clone();
    let bearer = format!("Authorization: Bearer {}\r\n", server.token);
    let body = json!({ "text": short("theirs") }).to_string();
    let kind = "Content-Type: application/json\r\n";
    let length = format!("Content-Length: {}\r\n", body.len());
    let check = |what: &str, headers: &str, host: &str, body: &str, status: u16| {
        let (found, text) = server.raw(what, headers, host, body);
        assert_eq!(found, status, "{what} {headers} {text}");
        assert!(
            !text.contains("mine") && !text.contains("disk"),
            "{what}: {text}"
        );
    };
    // Each request that needs the token, without it and with wrong tokens.
    for what in [
        "POST /api/check",
        "POST /api/runs",
        "POST /api/runs/mine/stop",
        "GET /api/results",
        "GET /api/results/mine/report",
        "GET /api/results/mine/experiment",
        "POST /api/compare",
        "POST /api/history",
        "POST /api/view",
    ] {
        let wrong = format!("Authorization: Bearer {}x\r\n", &server.token[1..]);
        for headers in [
            "",
            &wrong,
            "Authorization: Basic Og==\r\n",
            "Cookie: token=1\r\n",
        ] {
            check(what, &format!("{headers}{kind}{length}"), &own, &body, 401);
        }
        // With the token, but with another host name that points at this machine, from another page, or from a frame
        // in another page.
        check(
            what,
            &format!("{bearer}{kind}{length}"),
            "evil.example",
            &body,
            421,
        );
        let from = format!("{bearer}{kind}{length}Origin: http://evil.example\r\n");
        check(what, &from, &own, &body, 403);
        check(
            what,
            &format!("{bearer}{kind}{length}Sec-Fetch-Site: cross-site\r\n"),
            &own,
            &body,
            403,
        );
    }
    // Another site's form, which the browser submits without asking; and a form from a site that has the token.
    for form in [
        "application/x-www-form-urlencoded",
        "text/plain",
        "multipart/form-data; boundary=x",
    ] {
        let headers = format!("Content-Type: {form}\r\n{length}");
        check("POST /api/runs", &headers, &own, &body, 401);
        check(
            "POST /api/runs",
            &format!("{bearer}{headers}"),
            &own,
            &body,
            415,
        );
    }
    // Paths that leave the results folder.
    std::fs::create_dir(server.folder.join("outside")).expect("a folder");
    std::fs::copy(
        server.folder.join("results/mine/summary.json"),
        server.folder.join("outside/summary.json"),
    )
    .expect("a summary");
    for id in [
        "..%2Foutside",
        "%2e%2e%2foutside",
        "..",
        "mine%2F..%2Fmine",
        "%2Fetc",
        ".mine.toml",
        "mine%00",
    ] {
        for rest in ["report", "experiment"] {
            let (status, text) = server.ask("GET", &format!("/api/results/{id}/{rest}"), None);
            assert!(status == 404 || status == 400, "{id}: {status} {text}");
        }
        let name = id
            .replace("%2F", "/")
            .replace("%2f", "/")
            .replace("%2e", ".");
        assert_eq!(
            server
                .ask("POST", "/api/view", Some(&json!({ "report": name })))
                .0,
            404,
            "{name}"
        );
    }
    // An overlong body is rejected before it arrives, without waiting for the announced length.
    let long = format!("{bearer}{kind}Content-Length: {}\r\n", 8 << 20);
    check("POST /api/runs", &long, &own, "{", 413);
    check(
        "POST /api/runs",
        &format!("{kind}Content-Length: {}\r\n", 8 << 20),
        &own,
        "",
        401,
    );
    check(
        "POST /api/runs",
        &format!("{bearer}{kind}Content-Length: 9\r\n"),
        &own,
        "{\"text\":1",
        400,
    );
    // Many clients that never finish their requests don't lock the owner out.
    let slow: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut socket = TcpStream::connect(&own).expect("it listens");
            socket
                .write_all(b"POST /api/runs HTTP/1.1\r\nHost: x\r\nX-Slow: ")
                .expect("room");
            socket
        })
        .collect();
    assert!(server.running().is_null(), "nothing was started");
    drop(slow);
    let results = std::fs::read_dir(server.folder.join("results"))
        .expect("a folder")
        .count();
    assert_eq!(results, 1, "nothing was started");
}

/// A view-only server starts nothing, with or without the token.
#[test]
fn a_view_only_server_starts_nothing() {
    let server = Server::start(&["--no-start"]);
    assert_eq!(server.json("GET", "/api/about", None).1["can_start"], false);
    let (status, answer) = server.json("POST", "/api/runs", Some(&json!({ "text": short("x") })));
    assert!(
        status == 403
            && answer["advice"]
                .as_str()
                .is_some_and(|advice| advice.contains("--no-start")),
        "{answer}"
    );
    assert_eq!(server.json("GET", "/api/results", None).1, json!([]));
}
