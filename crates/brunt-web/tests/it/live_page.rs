//! The live page over this test's own sockets: which requests are answered, what a viewer gets, and that a slow viewer
//! delays nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::support::{at, fault, info, sample, second, serve, tell};
use brunt_result::event::Event;
use brunt_web::live::LiveEnding;

/// Far longer than anything in this test takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends a request and returns the whole response.
fn ask(to: SocketAddr, request: &str) -> String {
    let mut socket = TcpStream::connect(to).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    write!(socket, "{request}\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    socket
        .read_to_string(&mut answer)
        .expect("an answer that ends");
    answer
}

/// A viewer: the lines of its events.
struct Lines(BufReader<TcpStream>);

impl Lines {
    fn of(to: SocketAddr) -> Lines {
        let mut socket = TcpStream::connect(to).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        write!(
            socket,
            "GET /events HTTP/1.1\r\nHost: {to}\r\nOrigin: http://{to}\r\n\r\n"
        )
        .expect("it reads");
        Lines(BufReader::new(socket))
    }

    /// Reads up to the first line that contains `what`; `None` if the response ends before that.
    fn until(&mut self, what: &str) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            match self.0.read_line(&mut line).expect("a line in time") {
                0 => return None,
                _ if line.contains(what) => return Some(line),
                _ => {}
            }
        }
    }
}

/// Viewers get the terminal's lines and the figures of the intervals in order, even if they join late.
#[test]
fn viewers_get_notes_and_figures_in_order() {
    let (page, to) = serve();
    let mut observer = page.observer();
    let mut early = Lines::of(to);
    assert!(
        early
            .until("\"frame\":\"plan\"")
            .expect("the plan")
            .contains("\"experiment\":\"watched\"")
    );
    early
        .until("\"frame\":\"now\"")
        .expect("the end of the past");
    tell(
        &mut *observer,
        [
            Event::RunBegins(info(0)),
            Event::RunStarts(at(0)),
            second(0),
            second(1),
        ],
    );
    page.listener()("a line of the terminal");
    tell(
        &mut *observer,
        [fault(None), sample(0), fault(Some(at(2500)))],
    );
    let check = |viewer: &mut Lines| {
        let stretch = viewer.until("\"frame\":\"stretch\"").expect("a stretch");
        for part in [
            "\"start_s\":0.0,\"end_s\":1.0",
            "\"requests_per_second\":3.0",
            "\"depth\":0.003",
            "\"max_us\":2000.0",
            "\"losses\":{\"timed-out\":1}",
        ] {
            assert!(stretch.contains(part), "{part} in {stretch}");
        }
        let sample = viewer.until("\"frame\":\"sample\"").expect("a sample");
        assert!(
            sample.contains("[\"cpu\",\"\",\"busy_share\",0.5]"),
            "{sample}"
        );
    };
    check(&mut early);
    assert!(
        early
            .until("\"frame\":\"fault\"")
            .expect("its end")
            .contains("\"end_s\":2.5")
    );
    let mut late = Lines::of(to);
    late.until("a line of the terminal").expect("the log");
    assert!(
        late.until("\"frame\":\"run-begins\"")
            .expect("a run")
            .contains("disk w")
    );
    assert!(
        late.until("\"frame\":\"fault\"")
            .expect("a fault")
            .contains("\"end_s\":2.5")
    );
    check(&mut late);
    let ending = LiveEnding {
        trouble: None,
        report: Some("/x/results/report.html".into()),
    };
    let losses = page.close(ending);
    for viewer in [&mut early, &mut late] {
        let end = viewer.until("\"frame\":\"ends\"").expect("the end");
        assert!(
            end.contains("/x/results/report.html") && end.contains("\"frames_lost\":0"),
            "{end}"
        );
        assert_eq!(viewer.until("\0"), None, "the answer ends");
    }
    assert_eq!((losses.viewers, losses.frames, losses.events), (2, 0, 0));
    // An observer that reports after the end doesn't cause a failure.
    tell(&mut *observer, [second(9)]);
}

/// The page itself has access; rebound names and pages from other origins are rejected with a reason.
#[test]
fn foreign_hosts_and_origins_are_refused() {
    let (_page, to) = serve();
    let check = |path: &str, headers: &str, status: &str, reason: &str| {
        let answer = ask(to, &format!("GET {path} HTTP/1.1\r\n{headers}"));
        let begin = format!("HTTP/1.1 {status}");
        assert!(
            answer.starts_with(&begin) && answer.contains(reason),
            "{headers}: {answer}"
        );
        assert!(!answer.contains("watched"), "{answer}");
    };
    for path in ["/", "/events", "/app.js"] {
        check(
            path,
            "Host: evil.example",
            "421",
            "'evil.example' is not this machine's",
        );
        check(path, "X: y", "400", "no Host");
        check(
            path,
            &format!("Host: {to}\r\nOrigin: http://evil.example"),
            "403",
            "http://evil.example may not",
        );
        check(
            path,
            &format!("Host: {to}\r\nOrigin: null"),
            "403",
            "null may not",
        );
        check(
            path,
            &format!("Host: {to}\r\nSec-Fetch-Site: cross-site"),
            "403",
            "another site",
        );
    }
    check("/nothing", &format!("Host: {to}"), "404", "/events");
    assert!(ask(to, &format!("POST /events HTTP/1.1\r\nHost: {to}")).starts_with("HTTP/1.1 405"));
}

/// The page needs no token, loads nothing from elsewhere, and cannot be framed.
#[test]
fn the_page_is_served_without_a_token() {
    let (_page, to) = serve();
    let html = ask(to, &format!("GET / HTTP/1.1\r\nHost: {to}"));
    assert!(
        html.starts_with("HTTP/1.1 200 OK") && html.contains("<div id=\"app\">"),
        "{html}"
    );
    assert!(
        html.contains("default-src 'none'") && html.contains("X-Frame-Options: DENY"),
        "{html}"
    );
    assert!(!html.contains("Access-Control-Allow"), "{html}");
    let asked = html
        .split(['"', '\''])
        .filter(|word| word.starts_with("/app."));
    let mut files = 0;
    for path in asked {
        files += 1;
        let answer = ask(
            to,
            &format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nSec-Fetch-Site: same-origin"),
        );
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{path}");
    }
    assert_eq!(files, 2);
    let head = ask(to, &format!("HEAD / HTTP/1.1\r\nHost: {to}"));
    assert!(
        head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
}

/// A viewer that doesn't read delays neither the run nor the other viewer; it loses frames, and is told how many.
#[test]
fn a_slow_viewer_loses_frames_and_gets_their_number() {
    let (page, to) = serve();
    let mut observer = page.observer();
    let (mut slow, mut quick) = (Lines::of(to), Lines::of(to));
    for viewer in [&mut slow, &mut quick] {
        viewer.until("\"frame\":\"now\"").expect("the past");
    }
    tell(&mut *observer, [Event::RunBegins(info(0))]);
    // A long line is needed to fill the socket buffers. The test waits for the viewer that reads, so that viewer
    // keeps up.
    let say = page.listener();
    let long = "x".repeat(256 << 10);
    let mut said = 0;
    while page.losses().frames == 0 {
        say(&format!("line {said}! {long}"));
        quick
            .until(&format!("line {said}!"))
            .expect("the quick one sees it");
        said += 1;
        assert!(said < 5000, "the slow one never lost anything");
    }
    tell(&mut *observer, [Event::RunStarts(at(5))]);
    let lost = page.losses().frames;
    let told = slow.until("\"frame\":\"lost\"").expect("it is told");
    assert!(told.contains(&format!("\"frames\":{lost}")), "{told}");
    slow.until("\"frame\":\"run-starts\"")
        .expect("what matters has room");
    page.close(LiveEnding::default());
    let end = quick.until("\"frame\":\"ends\"").expect("the end");
    assert!(end.contains(&format!("\"frames_lost\":{lost}")), "{end}");
}

/// The end doesn't wait for a viewer that doesn't read.
#[test]
fn the_end_does_not_wait_for_a_stalled_viewer() {
    let (page, to) = serve();
    let mut deaf = Lines::of(to);
    deaf.until("\"frame\":\"now\"").expect("the past");
    let say = page.listener();
    let long = "x".repeat(1 << 20);
    // This is more than socket buffers hold; lines that don't fit are counted.
    for _ in 0..64 {
        say(&long);
    }
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        page.close(LiveEnding::default());
        done.send(()).expect("the test waits");
    });
    wait.recv_timeout(PATIENCE).expect("it ends");
}
