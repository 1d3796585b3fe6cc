//! Tests pages in a real browser: they load without errors or requests, draw every chart, fit phones and screens, and
//! print. If BRUNT_PAGES is set to a folder, pages and pictures are kept there.

use std::path::Path;

use crate::support;
use crate::support::browser::Browser;
use brunt_capture::{Analysis, Limits, run_file};
use brunt_report::capture::{self, Source};
use brunt_report::experiment::{ComparedResult, Details, comparison};
use brunt_report::html;

/// Counts visible charts, and lists those whose canvas is blank: no pixel inside the axes differs from the
/// background.
const BLANK: &str = "(() => {
    const blank = [];
    let count = 0;
    for (const figure of document.querySelectorAll('figure.chart')) {
        if (figure.closest('[hidden]')) continue;
        count++;
        const canvas = figure.querySelector('canvas'), over = figure.querySelector('.u-over');
        if (!canvas || !over) { blank.push(figure.innerText + ': not drawn'); continue; }
        const ratio = canvas.width / canvas.clientWidth, pixels = canvas.getContext('2d').getImageData(
            over.offsetLeft * ratio, over.offsetTop * ratio, over.clientWidth * ratio, over.clientHeight * ratio).data;
        // Grid lines are grey; data in a chart is coloured.
        let coloured = 0;
        for (let i = 0; i < pixels.length && coloured < 40; i += 4) {
            const r = pixels[i], g = pixels[i + 1], b = pixels[i + 2];
            if (pixels[i + 3] > 60 && Math.max(r, g, b) - Math.min(r, g, b) > 40) coloured++;
        }
        if (coloured < 40) blank.push(figure.querySelector('figcaption').innerText + ': ' + coloured);
    }
    return { count, blank };
})()";

/// Finds elements that make the page wider than its window.
const WIDE: &str = "(() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    return [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > width + 1)
        .map(e => e.tagName + '.' + e.className).slice(0, 9);
})()";

/// Makes all checks of a page; `charts` is the minimum number of charts that it must show.
fn check(browser: &mut Browser, folder: &Path, name: &str, page: &str, charts: u64) {
    let file = folder.join(format!("{name}.html"));
    std::fs::write(&file, page).unwrap();
    if let Some(pages) = std::env::var_os("BRUNT_PAGES") {
        std::fs::write(Path::new(&pages).join(format!("{name}.html")), page).unwrap();
    }
    for (width, dark) in [(1280, false), (1280, true), (360, false), (360, true)] {
        browser.open(&file, width, dark);
        let way = format!("{name} at {width}{}", if dark { " dark" } else { "" });
        let found = browser.evaluate(BLANK);
        assert_eq!(found["blank"], serde_json::json!([]), "{way}");
        assert!(
            found["count"].as_u64().unwrap() >= charts,
            "{way}: {}",
            found["count"]
        );
        assert_eq!(
            browser.evaluate(WIDE),
            serde_json::json!([]),
            "{way} is too wide"
        );
        let shade =
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0] < 100";
        assert_eq!(browser.evaluate(shade), dark, "{way}");
        let kind = if dark { "dark" } else { "light" };
        browser.picture(
            &format!("{name}-{width}-{kind}"),
            if width < 500 { 2400 } else { 1700 },
        );
    }
    // A4 minus its margins; wider content would make the printer shrink everything.
    browser.open(&file, 695, false);
    browser.call(
        "Emulation.setEmulatedMedia",
        serde_json::json!({ "media": "print" }),
    );
    browser.evaluate("dispatchEvent(new Event('beforeprint'))");
    assert_eq!(
        browser.evaluate(WIDE),
        serde_json::json!([]),
        "{name} is too wide for paper"
    );
    browser.open(&file, 1280, false);
    let paper = browser.print();
    assert!(
        paper.starts_with(b"%PDF-") && paper.len() > 10_000,
        "{name}: {} bytes of PDF",
        paper.len()
    );
    if let Some(pages) = std::env::var_os("BRUNT_PAGES") {
        std::fs::write(Path::new(&pages).join(format!("{name}.pdf")), &paper).unwrap();
    }
    assert_eq!(browser.complaints, Vec::<String>::new(), "{name}");
}

/// Pages of experiments, with and without data, in light and dark, on screens, phones and paper.
#[test]
fn experiments_in_a_browser() {
    // Long because it is one list of cases, easiest to read in one place.
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let Some(mut browser) = Browser::start(folder) else {
        return;
    };

    let sizes = support::run(
        "block sizes",
        "block_size = [\"512\", \"4k\", \"16k\", \"64k\"]",
        4,
    );
    let sizes = support::with_lab(support::with_phases(sizes));
    let page = brunt_report::experiment::page(&sizes, &support::details(&sizes));
    let titles: Vec<&str> = page
        .sections
        .iter()
        .map(|section| section.title.as_str())
        .collect();
    assert!(
        titles.contains(&"Queue depth found") && titles.contains(&"Links"),
        "{titles:?}"
    );
    let doubts = page
        .glance
        .notices
        .iter()
        .filter(|notice| notice.text.starts_with("Doubtful in 32 runs: link"));
    assert_eq!(doubts.count(), 1);
    check(&mut browser, folder, "sizes", &html::render(&page), 10);

    // Cursors move together; arrow keys announce values; a table is created on demand.
    browser.open(&folder.join("sizes.html"), 1280, false);
    let seen = browser.evaluate(
        "(() => {
            const figure = [...document.querySelectorAll('figure.chart')].find(f => f.querySelector('.fault') && !f.closest('[hidden]'));
            const plot = figure.querySelector('.plot');
            for (let i = 0; i < 3; i++) plot.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
            figure.querySelector('details').open = true;
            return new Promise(done => setTimeout(() => done({
                spoken: figure.querySelector('[aria-live]').textContent,
                tips: [...document.querySelectorAll('.tip')].filter(tip => !tip.hidden).length,
                rows: figure.querySelectorAll('details tbody tr').length,
            }), 200));
        })()",
    );
    assert!(
        seen["spoken"]
            .as_str()
            .unwrap()
            .starts_with("time: 2.50 s. run 1 "),
        "{seen}"
    );
    assert!(
        seen["tips"].as_u64().unwrap() >= 5 && seen["rows"] == 120,
        "{seen}"
    );

    // Dragging over one chart zooms all charts that share its axis; a button resets the zoom.
    let place = browser.evaluate(
        "(() => {
            const figure = [...document.querySelectorAll('figure.chart')].find(f => f.querySelector('.fault') && !f.closest('[hidden]'));
            figure.scrollIntoView({ block: 'center' });
            const box = figure.querySelector('.u-over').getBoundingClientRect();
            return [box.left, box.top + box.height / 2, box.width];
        })()",
    );
    let [x, y, width] = [0, 1, 2].map(|index| place[index].as_f64().unwrap());
    for (kind, share) in [
        ("mousePressed", 0.2),
        ("mouseMoved", 0.4),
        ("mouseMoved", 0.6),
        ("mouseReleased", 0.6),
    ] {
        let at = serde_json::json!({ "type": kind, "x": x + width * share, "y": y, "button": "left", "buttons": 1, "clickCount": 1 });
        browser.call("Input.dispatchMouseEvent", at);
    }
    let closer = "[...document.querySelectorAll('.zoom')].filter(button => !button.hidden).length";
    let zoomed = browser.evaluate(closer).as_u64().unwrap();
    assert!(zoomed >= 5, "{zoomed} charts look closer");
    browser
        .evaluate("[...document.querySelectorAll('.zoom')].find(button => !button.hidden).click()");
    assert_eq!(browser.evaluate(closer), 0);
    // An entry in a legend hides its line; the button switches a light page to dark, whatever the system prefers.
    let pressed = browser.evaluate("(() => { const key = document.querySelector('button.key'); key.click(); return key.ariaPressed; })()");
    assert_eq!(pressed, "false");
    assert_eq!(
        browser.evaluate(
            "document.getElementById('theme').click(), document.documentElement.hasAttribute('data-dark')"
        ),
        true
    );
    assert_eq!(browser.complaints, Vec::<String>::new());

    let other = support::run(
        "block sizes again",
        "block_size = [\"512\", \"4k\", \"16k\", \"64k\"]",
        4,
    );
    let known = [&sizes, &other].map(support::details);
    let compared = |name, summary, details| ComparedResult {
        name,
        summary,
        details,
    };
    let page = comparison(&[
        compared("before", &sizes, &known[0]),
        compared("after", &other, &known[1]),
        compared("a third result with a long name", &sizes, &known[0]),
    ]);
    check(&mut browser, folder, "comparison", &html::render(&page), 7);

    // With one repetition, no axis and no tables, sentences replace figures.
    let bare = support::run("bare", "", 1);
    let details = Details {
        missing: Some("The result has no tables.".into()),
        ..Details::default()
    };
    let page = html::render(&brunt_report::experiment::page(&bare, &details));
    assert!(page.contains("The result has no tables."));
    check(&mut browser, folder, "bare", &page, 0);
}

/// A page of a real capture passes the checks for all pages.
#[test]
fn captures_in_a_browser() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../testdata/nfs3-small.pcap.zst"
    );
    let outcome = run_file(Path::new(file), Analysis::new(), Limits::default(), || {
        false
    })
    .unwrap();
    let report = outcome.sink.report(&outcome.ledger);
    let source = Source {
        name: "nfs3-small.pcap.zst".into(),
        version: "0.0.0-test".into(),
        trouble: Vec::new(),
    };
    let page = html::render(&capture::page(&report, &source));
    for text in [
        "1 client, 308 files",
        "GETATTR",
        "NFS3ERR_NOENT",
        "Misaligned transfers",
        "Loss ledger",
        "replies without call",
    ] {
        assert!(page.contains(text), "{text}");
    }
    let Some(mut browser) = Browser::start(folder) else {
        return;
    };
    check(&mut browser, folder, "capture", &page, 3);
}

/// Checks any page on disk: BRUNT_LOOK names the file, and BRUNT_PAGES the folder for pictures.
#[test]
fn look_at_a_page() {
    let Some(page) = std::env::var_os("BRUNT_LOOK") else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let Some(mut browser) = Browser::start(folder) else {
        return;
    };
    for (width, dark) in [(1280, false), (1280, true), (360, false)] {
        browser.open(Path::new(&page), width, dark);
        browser.picture(
            &format!("look-{width}-{dark}"),
            if width < 500 { 2400 } else { 1700 },
        );
    }
}

/// Pages of histories: with changes, gaps and long names, and with few results.
#[test]
fn histories_in_a_browser() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let Some(mut browser) = Browser::start(folder) else {
        return;
    };
    let (names, series) = support::history(60);
    let page = brunt_report::history::history(&names, &series, &["gone: no summary".into()]);
    check(&mut browser, folder, "history", &html::render(&page), 4);
    let (names, series) = support::history(2);
    let page = brunt_report::history::history(&names, &series, &[]);
    check(&mut browser, folder, "history-few", &html::render(&page), 4);
}
