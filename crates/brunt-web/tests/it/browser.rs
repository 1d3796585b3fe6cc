//! The live page in Chromium: it draws its data on desktop and phone screens, in light and dark mode, is accessible to
//! screen readers, works without a mouse, and loads nothing from other sites.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::browser::{Browser, axe_script};
use crate::support::{at, fault, info, sample, second, serve, tell};
use brunt_core::Nanos;
use brunt_result::event::Event;
use brunt_web::live::LiveEnding;
use serde_json::{Value, json};

fn browser() -> Option<(tempfile::TempDir, Browser)> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    Browser::start(folder.path()).map(|browser| (folder, browser))
}

/// The number of pixels in each chart that have a colour of the page's style.
fn pixels(browser: &mut Browser, colour: &str) -> Vec<u64> {
    let count = format!(
        "(() => {{ const probe = document.createElement('canvas').getContext('2d'); \
           probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('{colour}').trim(); \
           probe.fillRect(0, 0, 1, 1); const [r, g, b] = probe.getImageData(0, 0, 1, 1).data; \
           return [...document.querySelectorAll('canvas')].map((canvas) => {{ \
             const {{ data }} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height); let count = 0; \
             for (let at = 0; at < data.length; at += 4) \
               if (data[at] === r && data[at + 1] === g && data[at + 2] === b && data[at + 3] === 255) count++; \
             return count; }}); }})()"
    );
    let counts = browser.evaluate(&count);
    counts
        .as_array()
        .expect("a list")
        .iter()
        .map(|count| count.as_u64().expect("a count"))
        .collect()
}

/// The events shown to the page: a 40-second run with a fault in the middle, and a host.
fn events() -> Vec<Event> {
    let mut events = vec![Event::RunBegins(info(0)), Event::RunStarts(Nanos(0))];
    for index in 0..40 {
        events.push(second(index));
        events.push(sample(index));
    }
    events.extend([fault(None), fault(Some(at(25_500)))]);
    events
}

#[test]
fn the_page_draws_what_it_is_sent() {
    let Some((_folder, mut browser)) = browser() else {
        return;
    };
    let (page, to) = serve();
    let mut observer = page.observer();
    tell(&mut *observer, events());
    page.listener()("a line of the terminal");
    browser.visit(&format!("http://{to}"), "/", 1280, false);
    for part in [
        "a line of the terminal",
        "watched",
        "Run 1 of 2: disk w",
        "2 ms",
        "far at wire: 5 ms more delay; from 1.5 s to 25.5 s",
        "a round trip of 10 ms",
        "40 timed-out",
        "in progress",
        "pending",
    ] {
        browser.text_with(part);
    }
    browser.text_with("local 0.5");
    assert_eq!(browser.complaints, Vec::<String>::new());
    // Each chart shows the start of the fault; the heat map has cells in a single row, because all values fall into
    // it.
    let drawn = |faults: &[u64], cells: &[u64]| {
        (faults.len(), cells.len()) == (6, 6)
            && faults.iter().all(|count| *count > 50)
            && cells[2] > 1000
    };
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let (faults, cells) = (
            pixels(&mut browser, "--fault-ink"),
            pixels(&mut browser, "--h4"),
        );
        if drawn(&faults, &cells) {
            break;
        }
        assert!(Instant::now() < until, "{faults:?} {cells:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    // Reading pixels back makes the browser complain; only this test does that.
    browser.complaints.clear();
    browser.picture("live", 2000);
    // Later events are drawn and announced, too.
    tell(
        &mut *observer,
        [
            Event::RunBegins(info(1)),
            Event::RunStarts(at(41_000)),
            second(41),
        ],
    );
    browser.text_with("Run 2 of 2: disk w");
    browser.text_with("run 2 of 2 begins");
    page.close(LiveEnding {
        trouble: Some("interrupted".into()),
        report: None,
    });
    browser.text_with("The experiment ended early: interrupted. Results are in /x/results");
    assert_eq!(
        browser.evaluate("document.querySelector('.state').textContent"),
        "over"
    );
    assert_eq!(browser.complaints, Vec::<String>::new());
}

/// The Tab key alone reaches every control, starting with the skip link.
#[test]
fn the_page_needs_no_mouse() {
    let Some((_folder, mut browser)) = browser() else {
        return;
    };
    let (page, to) = serve();
    tell(&mut *page.observer(), events());
    browser.visit(&format!("http://{to}"), "/", 1280, false);
    browser.text_with("local 0.5");
    let can = "[...document.querySelectorAll('a[href], button, select, summary, [tabindex=\"0\"]')]\
               .filter((one) => one.checkVisibility())";
    let all = browser
        .evaluate(&format!("{can}.length"))
        .as_u64()
        .expect("a count");
    assert!(all >= 6, "{all}");
    let mut seen = Vec::new();
    for _ in 0..all {
        browser.key("Tab", false);
        seen.push(
            browser
                .evaluate(&format!("{can}.indexOf(document.activeElement)"))
                .as_i64()
                .expect("a place"),
        );
    }
    assert_eq!(
        seen,
        (0..all as i64).collect::<Vec<_>>(),
        "each in its order"
    );
}

/// A URL identifies a run, and the back button returns to the previous one.
#[test]
fn a_url_identifies_a_run() {
    let Some((_folder, mut browser)) = browser() else {
        return;
    };
    let (page, to) = serve();
    let mut observer = page.observer();
    tell(&mut *observer, events());
    browser.visit(&format!("http://{to}"), "/#/watch", 1280, false);
    browser.text_with("Run 1 of 2: disk w");
    tell(
        &mut *observer,
        [
            Event::RunBegins(info(1)),
            Event::RunStarts(at(41_000)),
            second(41),
        ],
    );
    browser.text_with("Run 2 of 2: disk w");
    browser.evaluate("document.querySelector('a[href=\"#/watch?run=1\"]').click()");
    browser.text_with("Run 1 of 2: disk w");
    assert_eq!(browser.evaluate("location.hash"), "#/watch?run=1");
    browser.evaluate("history.back()");
    browser.text_with("Run 2 of 2: disk w");
    assert_eq!(browser.evaluate("location.hash"), "#/watch");
    // The URL also identifies the selected host figure, even for another run.
    browser.evaluate("location.hash = '#/watch?probe=disk%20sda%20reads'");
    browser.text_with("Hosts: disk sda reads");
    browser.text_with("no sample has it");
    browser.evaluate("document.querySelector('a[href*=\"run=1\"]').click()");
    browser.text_with("Run 1 of 2: disk w");
    browser.text_with("Hosts: disk sda reads");
    // An unknown run is not an error: the latest one is shown.
    browser.evaluate("location.hash = '#/watch?run=77'");
    browser.text_with("Run 2 of 2: disk w");
    assert_eq!(browser.complaints, Vec::<String>::new());
}

/// The size of a browser's first load, as CI counts it: without the editor.
#[test]
fn the_first_load_is_small() {
    let Some((_folder, mut browser)) = browser() else {
        return;
    };
    let (page, to) = serve();
    tell(&mut *page.observer(), events());
    browser.visit(&format!("http://{to}"), "/", 1280, false);
    browser.text_with("local 0.5");
    let loaded = browser.evaluate(
        "performance.getEntriesByType('resource').map((one) => new URL(one.name).pathname)\
         .filter((path) => path !== '/events' && !path.startsWith('/api/')).sort()",
    );
    assert_eq!(loaded, json!(["/app.css", "/app.js"]));
    let bytes = |path: &str| brunt_web::page::find(path).expect("it is there").bytes;
    let mut compressed = Command::new("gzip")
        .args(["-9", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(gzip) = &mut compressed else {
        return println!("skipped: needs gzip");
    };
    let mut into = gzip.stdin.take().expect("piped");
    let all = ["/", "/app.css", "/app.js"].map(bytes).concat();
    let writer = std::thread::spawn(move || into.write_all(&all));
    let output = compressed
        .expect("started")
        .wait_with_output()
        .expect("it ends");
    writer.join().expect("no panic").expect("it reads");
    assert!(
        (10_000..=150_000).contains(&output.stdout.len()),
        "{}",
        output.stdout.len()
    );
    assert!(
        bytes(brunt_web::page::COMPOSE).len() > 100_000,
        "the editor is not in the first load"
    );
}

/// On a phone, nothing exceeds the screen's width; dark mode is dark.
#[test]
fn the_page_fits_a_phone() {
    let Some((_folder, mut browser)) = browser() else {
        return;
    };
    let (page, to) = serve();
    tell(&mut *page.observer(), events());
    for dark in [false, true] {
        browser.visit(&format!("http://{to}"), "/", 360, dark);
        browser.text_with("local 0.5");
        let width = browser
            .evaluate("document.documentElement.scrollWidth")
            .as_u64()
            .expect("a width");
        assert!(width <= 360, "{width}");
        let background = browser.evaluate("getComputedStyle(document.body).backgroundColor");
        assert_eq!(
            background,
            if dark {
                "rgb(18, 20, 23)"
            } else {
                "rgb(246, 246, 243)"
            }
        );
        browser.picture(&format!("live-phone-{dark}"), 3000);
    }
}

/// axe checks names, roles and contrast, in light and dark mode.
#[test]
fn axe_finds_no_accessibility_violations() {
    let Some(script) = axe_script() else { return };
    let Some((_folder, mut browser)) = browser() else {
        return;
    };
    let (page, to) = serve();
    tell(&mut *page.observer(), events());
    page.listener()("a line of the terminal");
    for dark in [false, true] {
        browser.visit(&format!("http://{to}"), "/", 1280, dark);
        browser.text_with("local 0.5");
        assert_eq!(
            browser.axe(&script),
            Value::Array(Vec::new()),
            "dark: {dark}"
        );
    }
}
