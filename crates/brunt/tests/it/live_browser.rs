//! The page of `brunt serve` in Chromium, against the program itself: an experiment is composed, started and watched
//! through a fault, and its result is compared with another, with a mouse and with the keyboard alone.

#[allow(dead_code)]
#[path = "../../../brunt-report/tests/it/support/browser.rs"]
mod browser;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::TempDir;
use browser::{Browser, axe_script};
use serde_json::{Value, json};

/// Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(120);
/// Four runs of two seconds each on a memory device, slower during a fault. The fault lasts for most of each run: the
/// page must show it while it is in effect, and may be late on a busy machine.
const TEXT: &str = "# why it is made\nname = \"composed\"\nrepetitions = 4\n\n[targets.disk]\nurl = \"memory:8MiB\"\n\n\
    [workloads.mixed]\nread = 0.5\nqueue_depth = 4 # as many as the array takes\ninterval = \"100ms\"\n\
    stop = { time = \"2s\" }\n\n[[fault]]\nname = \"slow disk\"\ntarget = \"disk\"\nstorage = \"slow:5ms\"\nat = \"300ms\"\nfor = \"1400ms\"\n";

/// A running server; killed on drop.
struct Server {
    child: Child,
    /// `http://127.0.0.1:PORT`
    origin: String,
    /// The part after the address: `/#token=…`
    token: String,
    results: PathBuf,
    _folder: TempDir,
}

impl Server {
    fn start() -> Server {
        let folder = TempDir::new("live-browser");
        let results = folder.join("results");
        let mut child = Command::new(env!("CARGO_BIN_EXE_brunt"))
            .args(["serve", "127.0.0.1:0", "--results"])
            .arg(&results)
            .current_dir(folder.join("."))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("brunt");
        let mut said = BufReader::new(child.stdout.take().expect("piped"));
        let mut first = String::new();
        said.read_line(&mut first).expect("a line");
        let address = first
            .trim()
            .split("http://")
            .nth(1)
            .unwrap_or_else(|| panic!("an address: {first}"));
        let (host, token) = address.split_once('/').expect("a path");
        let (origin, token) = (format!("http://{host}"), format!("/{token}"));
        Server {
            child,
            origin,
            token,
            results,
            _folder: folder,
        }
    }

    /// Adds a result that is a copy of the first one.
    fn copy_first_result(&self) {
        let (from, to) = (self.results.join("composed"), self.results.join("a copy"));
        std::fs::create_dir(&to).expect("a folder");
        std::fs::copy(from.join("summary.json"), to.join("summary.json")).expect("a summary");
    }

    /// The summaries of the server's results, oldest first.
    fn summaries(&self) -> Vec<Value> {
        let found = std::fs::read_dir(&self.results).expect("a folder");
        let mut files: Vec<PathBuf> = found
            .map(|entry| entry.expect("an entry").path().join("summary.json"))
            .collect();
        files.retain(|file| file.exists());
        files.sort_by_key(|file| {
            file.metadata()
                .and_then(|data| data.modified())
                .expect("a time")
        });
        let read = |file: &PathBuf| std::fs::read_to_string(file).expect("a summary");
        files
            .iter()
            .map(|file| serde_json::from_str(&read(file)).expect("JSON"))
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid =
            rustix::process::Pid::from_raw(self.child.id() as i32).expect("a process's number");
        // SIGINT, so that a run in progress also ends.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let _ = self.child.wait();
    }
}

fn browser() -> Option<(tempfile::TempDir, Browser)> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    Browser::start(folder.path()).map(|browser| (folder, browser))
}

/// The link, button or field with this name.
fn named(name: &str) -> String {
    format!(
        "[...document.querySelectorAll('a, button, label, input, select')].find((one) => \
           (one.ariaLabel ?? one.textContent).trim() === {} && one.checkVisibility())",
        json!(name)
    )
}

/// The form control with this label.
fn labelled(label: &str) -> String {
    let of = json!(label);
    format!(
        "[...document.querySelectorAll('.field input')].find((one) => one.labels[0]?.textContent === {of})"
    )
}

/// Replaces the text of a form control.
fn fill(browser: &mut Browser, label: &str, text: &str) {
    let control = labelled(label);
    browser.click(&control);
    browser.evaluate(&format!("{control}.select()"));
    browser.call("Input.insertText", json!({ "text": text }));
    browser.key("Tab", false);
}

/// The experiment text in the editor.
const COMPOSED: &str = "[...document.querySelector('.editor')?.shadowRoot?.querySelectorAll('.cm-line') ?? []]\
    .map((one) => one.textContent).join('\\n')";

fn composed(browser: &mut Browser) -> String {
    browser
        .evaluate(COMPOSED)
        .as_str()
        .expect("text")
        .to_string()
}

/// Waits until an expression is true.
fn until(browser: &mut Browser, what: &str) {
    let look = format!(
        "new Promise((done) => {{ let left = 1200; const look = () => {{ \
           if ({what}) done(true); else if (--left === 0) done(false); else setTimeout(look, 50); }}; look(); }})"
    );
    assert_eq!(
        browser.evaluate(&look),
        true,
        "{what}; the page says: {}",
        browser.evaluate("document.body.innerText")
    );
}

/// Selects the entry with this text from a list.
fn choose(browser: &mut Browser, list: &str, what: &str) {
    let found = browser.evaluate(&format!(
        "((list) => {{ const found = [...list.options].find((one) => one.textContent === {what}); \
           if (!found) return false; list.value = found.value; \
           list.dispatchEvent(new Event('change', {{ bubbles: true }})); return true; }})({list})",
        what = json!(what)
    ));
    assert_eq!(found, true, "{what} in {list}");
}

/// Starts from an example.
fn take_example(browser: &mut Browser, title: &str) {
    let list = "document.querySelector('main .row select')";
    until(browser, &format!("{list}?.options.length > 5"));
    choose(browser, list, title);
    browser.click(&named("Start from it"));
}

/// Watches the running experiment through its fault until it ends.
fn watch(browser: &mut Browser) {
    until(browser, "location.hash === '#/watch'");
    browser.text_with(" of 4: disk mixed");
    browser.text_with("slow disk at");
    browser.text_with("in effect");
    // The figures of the whole run, the end of its fault, and the end of the experiment.
    browser.text_with("The figures of the whole run, as in its report");
    browser.text_with("The experiment is over.");
    browser.text_with("Run 4 of 4");
}

/// The figures of each run on the page are those of its result, to the last digit.
fn figures_agree(browser: &mut Browser, summary: &Value) {
    let shown = browser.evaluate(
        "[...document.querySelectorAll('tr[data-order]')].map((row) => [Number(row.dataset.order), Object.fromEntries( \
           [...row.querySelectorAll('data')].map((one) => [one.dataset.figure, Number(one.value)]))])",
    );
    let runs = summary["points"][0]["runs"].as_array().expect("runs");
    assert_eq!(shown.as_array().expect("rows").len(), runs.len());
    for row in shown.as_array().expect("rows") {
        let run = runs
            .iter()
            .find(|run| run["order"] == row[0])
            .expect("this run");
        let figures = row[1].as_object().expect("figures");
        assert_eq!(figures.len(), 8, "{figures:?}");
        for (name, value) in figures {
            let kept = run.get(name).unwrap_or(&run["response"][name]);
            assert_eq!(value.as_f64(), kept.as_f64(), "{name} of run {}", row[0]);
        }
    }
    // The large figures above the charts are those of the last run.
    let large = browser.evaluate(
        "Object.fromEntries([...document.querySelectorAll('dl[data-whole] data')].map((one) => \
           [one.dataset.figure, Number(one.value)]))",
    );
    let last = runs
        .iter()
        .find(|run| run["order"] == 3)
        .expect("the last run");
    assert_eq!(
        large["p99_us"].as_f64(),
        last["response"]["p99_us"].as_f64()
    );
    assert_eq!(large["measured_s"].as_f64(), last["measured_s"].as_f64());
}

/// The page in the `iframe`, as served.
fn framed(browser: &mut Browser) -> String {
    until(browser, "document.querySelector('iframe') !== null");
    let page = browser
        .evaluate("fetch(document.querySelector('iframe').src).then((answer) => answer.text())");
    page.as_str().expect("text").to_string()
}

/// Waits until this many results are listed.
fn listed(browser: &mut Browser, count: usize) {
    until(
        browser,
        &format!("document.querySelectorAll('tbody input[type=checkbox]').length === {count}"),
    );
}

#[test]
fn compose_run_watch_and_compare_with_a_mouse() {
    let Some((_folder, mut browser)) = browser() else {
        return;
    };
    let server = Server::start();
    browser.visit(&server.origin, &server.token, 1280, false);
    browser.click(&named("Compose"));
    browser.click("document.querySelector('.editor')");
    browser.call("Input.insertText", json!({ "text": TEXT }));
    browser.text_with("4 runs of 1 point");
    browser.text_with("It writes to memory:8MiB.");
    browser.text_with("fault 1");
    // A mistake is marked in the form and in the text; correcting it in the form keeps the comments.
    fill(&mut browser, "interval", "5 parsecs");
    browser.text_with("1 problem");
    until(
        &mut browser,
        &format!("{}.ariaInvalid === 'true'", labelled("interval")),
    );
    until(
        &mut browser,
        "document.querySelector('.editor').shadowRoot.querySelector('.cm-lint-marker-error') !== null",
    );
    assert_eq!(
        browser.evaluate(&format!("{}.disabled", named("Start"))),
        true
    );
    fill(&mut browser, "interval", "100ms");
    fill(&mut browser, "queue depth", "8");
    browser.text_with("4 runs of 1 point");
    let wanted = TEXT.replace("queue_depth = 4", "queue_depth = 8");
    until(
        &mut browser,
        &format!("({COMPOSED}).trim() === {}", json!(wanted.trim())),
    );
    until(
        &mut browser,
        "document.querySelectorAll('rect.fault').length === 1",
    );
    browser.picture("compose", 3000);
    browser.click(&named("Start"));
    watch(&mut browser);
    figures_agree(&mut browser, &server.summaries()[0]);
    // Go back to the composed text, and start it again.
    browser.evaluate("history.back()");
    browser.text_with("4 runs of 1 point");
    let kept = json!("queue_depth = 8 # as many as the array takes");
    until(&mut browser, &format!("({COMPOSED}).includes({kept})"));
    browser.click(&named("Start"));
    watch(&mut browser);
    figures_agree(&mut browser, &server.summaries()[1]);
    server.copy_first_result();
    browser.click(&named("Results"));
    listed(&mut browser, 3);
    for row in [1, 0, 2] {
        browser.click(&format!(
            "document.querySelectorAll('tbody input[type=checkbox]')[{row}]"
        ));
    }
    browser.click(&named("Compare"));
    until(&mut browser, "location.hash.startsWith('#/compare/')");
    let page = framed(&mut browser);
    for name in ["composed", "composed-2", "a copy"] {
        assert!(page.contains(name), "{}", &page[..page.len().min(400)]);
    }
    browser.picture("compare", 3000);
    // Search the keys, without and with matches; the address contains the search text.
    browser.evaluate("location.hash = '#/results?search=nothing-has-this'");
    browser.text_with("No result has these words.");
    browser.evaluate("location.hash = '#/results?search=composed'");
    listed(&mut browser, 3);
    browser.click(&named("History of these results"));
    browser.text_with("Results that contain composed");
    assert!(framed(&mut browser).contains("3 results, oldest first."));
    browser.picture("history", 3000);
    assert_eq!(browser.complaints, Vec::<String>::new());
}

/// Presses Tab or Shift-Tab until an expression is true for the focused element, which may be disabled at first.
fn tab_to(browser: &mut Browser, shift: bool, wanted: &str) {
    let (begun, mut seen) = (Instant::now(), Vec::new());
    while seen.len() < 200 || begun.elapsed() < PATIENCE {
        browser.key("Tab", shift);
        let is = browser.evaluate(&format!(
            "((one) => Boolean({wanted}))(document.activeElement)"
        ));
        if is == true {
            return;
        }
        seen.push(browser.evaluate("document.activeElement.outerHTML.slice(0, 60)"));
    }
    panic!("{wanted} is not reached: {:?}", &seen[..200]);
}

#[test]
fn compose_run_watch_and_compare_with_the_keyboard() {
    let Some((_folder, mut browser)) = browser() else {
        return;
    };
    let server = Server::start();
    browser.visit(&server.origin, &server.token, 1280, false);
    browser.text_with("Compose");
    for time in 0..2 {
        tab_to(&mut browser, time > 0, "one.textContent === 'Compose'");
        browser.key("Enter", false);
        until(
            &mut browser,
            "document.querySelector('.editor')?.shadowRoot != null",
        );
        if time == 0 {
            tab_to(&mut browser, false, "one.classList.contains('editor')");
            browser.call("Input.insertText", json!({ "text": TEXT }));
        } else {
            tab_to(
                &mut browser,
                false,
                "one.textContent === 'Start' && !one.disabled",
            );
        }
        browser.text_with("4 runs of 1 point");
        if time == 0 {
            tab_to(
                &mut browser,
                true,
                "one.textContent === 'Start' && !one.disabled",
            );
        }
        browser.key("Enter", false);
        watch(&mut browser);
        figures_agree(&mut browser, &server.summaries()[time]);
    }
    tab_to(&mut browser, false, "one.textContent === 'Open the result'");
    browser.key("Enter", false);
    let report = framed(&mut browser);
    assert!(
        report.contains("composed"),
        "{}",
        &report[..report.len().min(400)]
    );
    tab_to(&mut browser, true, "one.textContent === 'Results'");
    browser.key("Enter", false);
    listed(&mut browser, 2);
    for _ in 0..2 {
        tab_to(
            &mut browser,
            false,
            "one.type === 'checkbox' && !one.checked",
        );
        browser.key(" ", false);
    }
    tab_to(
        &mut browser,
        true,
        "one.textContent === 'Compare' && !one.disabled",
    );
    browser.key("Enter", false);
    until(&mut browser, "location.hash.startsWith('#/compare/')");
    assert!(framed(&mut browser).contains("composed"));
    tab_to(&mut browser, true, "one.textContent === 'Results'");
    browser.key("Enter", false);
    listed(&mut browser, 2);
    tab_to(
        &mut browser,
        false,
        "one.textContent === 'History of these results'",
    );
    browser.key("Enter", false);
    browser.text_with("All results, oldest first.");
    assert!(framed(&mut browser).contains("2 results, oldest first."));
    assert_eq!(browser.complaints, Vec::<String>::new());
}

/// The form's additions appear in the text at once; removing them restores the text.
#[test]
fn the_form_adds_renames_and_removes() {
    let Some((_folder, mut browser)) = browser() else {
        return;
    };
    let server = Server::start();
    browser.visit(&server.origin, &server.token, 1280, false);
    browser.click(&named("Compose"));
    let has = |browser: &mut Browser, what: &str| {
        let look = format!("({COMPOSED}).includes({})", json!(what));
        until(browser, &look);
    };
    let add_target = |browser: &mut Browser, name: &str| {
        let field = "document.querySelector('input[placeholder=\"name of a new target\"]')";
        until(browser, &format!("{field} !== null"));
        browser.click(field);
        browser.call("Input.insertText", json!({ "text": name }));
        browser.key("Enter", false);
        has(browser, &format!("[targets.{name}]"));
    };
    // A new experiment is written for the current defaults.
    add_target(&mut browser, "first");
    assert!(composed(&mut browser).starts_with("written_for = \"0.2\"\n"));
    take_example(&mut browser, "an emulated array under a growing queue");
    browser.text_with("12 runs of 3 points");
    let before = composed(&mut browser);
    add_target(&mut browser, "second");
    let name =
        "[...document.querySelectorAll('legend .name')].find((one) => one.value === 'second')";
    browser.click(name);
    browser.evaluate(&format!("{name}.select()"));
    browser.call("Input.insertText", json!({ "text": "third" }));
    browser.key("Tab", false);
    has(&mut browser, "[targets.third]");
    let add = "[...document.querySelectorAll('.add select')].find((one) => one.labels[0].textContent === 'Add to third')";
    until(&mut browser, &format!("{add} !== undefined"));
    choose(&mut browser, add, "url");
    has(&mut browser, "[targets.third]\nurl = ");
    browser.click("document.querySelector('button[aria-label=\"remove target third\"]')");
    until(&mut browser, &format!("!({COMPOSED}).includes('third')"));
    assert_eq!(composed(&mut browser), before);
    assert_eq!(browser.complaints, Vec::<String>::new());
}

/// Without its token, the page asks for it. With the token, a run is started, and is stopped early with partial
/// results.
#[test]
fn the_token_is_asked_for_and_a_run_is_stopped() {
    let Some((_folder, mut browser)) = browser() else {
        return;
    };
    let server = Server::start();
    browser.visit(&server.origin, "/#/compose", 1280, false);
    browser.text_with("Text");
    let text = "name = \"long\"\n[targets.a]\nurl = \"memory:1MiB\"\n[workloads.w]\n\
                arrival = { kind = \"open\", rate = 100 }\ninterval = \"100ms\"\nstop = { time = \"600s\" }\n";
    browser.click("document.querySelector('.editor')");
    browser.call("Input.insertText", json!({ "text": text }));
    browser.click("document.querySelector('[role=alert] input')");
    browser.call(
        "Input.insertText",
        json!({ "text": format!("{}{}", server.origin, server.token) }),
    );
    browser.click(&named("Use it"));
    browser.text_with("5 runs of 1 point");
    browser.click(&named("Start"));
    browser.text_with("Run 1 of 5");
    until(
        &mut browser,
        "document.querySelectorAll('details tbody tr').length > 2",
    );
    browser.click(&named("Stop the run"));
    browser.text_with("The experiment ended early");
    assert_eq!(server.summaries()[0]["complete"], false);
}

/// axe-core finds no problems in any view, and nothing extends beyond the edge of a phone, in light and dark mode.
#[test]
fn every_view_is_accessible_and_fits_a_phone() {
    let Some(script) = axe_script() else { return };
    let Some((_folder, mut browser)) = browser() else {
        return;
    };
    let server = Server::start();
    browser.visit(&server.origin, &server.token, 1280, false);
    // Nothing is running, so there is nothing to watch.
    until(&mut browser, "location.hash === '#/results'");
    for (width, dark) in [(360, true), (1280, false)] {
        for (view, text) in [
            ("#/watch", "No run in progress"),
            ("#/compose", "Ctrl-Space"),
            (
                "#/results",
                "No results yet: compose an experiment and run it.",
            ),
            ("#/compare/a/b/c", "after: b, c"),
            ("#/history?search=a", "Results that contain"),
        ] {
            browser.visit(&server.origin, "/", width, dark);
            browser.text_with("Compose");
            browser.evaluate(&format!("location.hash = {}", json!(view)));
            browser.text_with(text);
            match view {
                "#/compose" => {
                    take_example(&mut browser, "two seconds far away");
                    browser.text_with("Description");
                }
                // These results don't exist; the page says so.
                "#/compare/a/b/c" | "#/history?search=a" => until(
                    &mut browser,
                    "document.querySelector('[role=alert]') !== null",
                ),
                _ => {}
            }
            inspect(&mut browser, &script, view, width);
        }
    }
}

/// axe-core finds no problems in the list of results, a comparison and a history, which fit a phone.
#[test]
fn results_are_accessible_and_fit_a_phone() {
    let Some(script) = axe_script() else { return };
    let Some((_folder, mut browser)) = browser() else {
        return;
    };
    let server = Server::start();
    let summary = crate::support::root().join("crates/brunt/tests/it/reference/summary.json");
    let ids = ["before-the-update", "after", "after-a-while"];
    for id in ids {
        let folder = server.results.join(id);
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::copy(&summary, folder.join("summary.json")).expect("a summary");
    }
    browser.visit(&server.origin, &server.token, 1280, false);
    for (width, dark) in [(360, true), (1280, false)] {
        browser.visit(&server.origin, "/", width, dark);
        browser.text_with("Compose");
        browser.evaluate("location.hash = '#/results'");
        listed(&mut browser, 3);
        browser.evaluate(
            "document.querySelectorAll('tbody input[type=checkbox]').forEach((one) => one.click())",
        );
        // The experiments have the same name, so the line that names the selected results also shows their ids and
        // times.
        for id in ids {
            browser.text_with(&format!("({id}, "));
        }
        inspect(&mut browser, &script, "results", width);
        browser.click(&named("Compare"));
        let address = "location.hash.startsWith('#/compare/')";
        until(&mut browser, address);
        framed(&mut browser);
        inspect(&mut browser, &script, "compare", width);
        browser.evaluate("location.hash = '#/history'");
        browser.text_with("All results, oldest first.");
        framed(&mut browser);
        inspect(&mut browser, &script, "history", width);
    }
}

/// axe-core finds no problems, and nothing extends beyond the edge.
fn inspect(browser: &mut Browser, script: &str, view: &str, width: u32) {
    assert_eq!(
        browser.axe(script),
        Value::Array(Vec::new()),
        "{view} at {width}"
    );
    let widest = browser
        .evaluate("document.documentElement.scrollWidth")
        .as_u64()
        .expect("a width");
    assert!(widest <= u64::from(width), "{view}: {widest}");
    browser.picture(
        &format!("{view}-{width}").replace(['#', '/', '?'], ""),
        3000,
    );
}
