//! The output of `brunt run` on a real terminal: a pseudo-terminal created by `script` (util-linux), whose output
//! goes to an emulated terminal.

use crate::support;
use std::process::{Command, Stdio};

const COLUMNS: usize = 48;

/// Runs an experiment with two runs of `time` each on a terminal of `COLUMNS` columns; `meanwhile` is shell code
/// appended to its command. Returns everything that the terminal received.
fn on_a_terminal(
    name: &str,
    environment: &[(&str, &str)],
    time: &str,
    meanwhile: &str,
) -> Option<Vec<u8>> {
    let script = support::need("script", "bsdutils")?;
    let folder = support::TempDir::new(name);
    let file = folder.join("x.toml");
    let text = format!(
        "name = \"a name that is somewhat longer than the terminal is wide\"\nrepetitions = 2\n\
         [targets.t]\nurl = \"memory:16MiB?delay=const:1ms\"\n[workloads.w]\ninterval = \"100ms\"\n\
         stop = {{ time = \"{time}\" }}\n[probes]\ninterval = \"100ms\"\n"
    );
    std::fs::write(&file, text).expect("a file");
    let brunt = env!("CARGO_BIN_EXE_brunt");
    let inner = format!(
        "stty cols {COLUMNS} rows 24; {brunt} run {} --out {}{meanwhile}",
        file.display(),
        folder.join("results").display()
    );
    let typescript = folder.join("typescript");
    let mut command = Command::new(script);
    command
        .args(["-qefc", &inner])
        .arg(&typescript)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .env("LC_ALL", "C.UTF-8");
    command.env("TYPESCRIPT", &typescript);
    for (key, value) in environment {
        command.env(key, value);
    }
    let status = command.status().expect("script runs");
    let bytes = std::fs::read(&typescript).expect("what the terminal got");
    assert!(status.success(), "{}", String::from_utf8_lossy(&bytes));
    // script itself prints the first and last lines.
    let begin = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .expect("a first line")
        + 1;
    let end = bytes
        .windows(12)
        .rposition(|window| window == b"Script done ")
        .unwrap_or(bytes.len());
    Some(bytes[begin..end].to_vec())
}

/// The lines of a terminal, starting with those that scrolled off the top.
fn with_what_scrolled_off(terminal: &mut vt100::Parser) -> String {
    let screen = terminal.screen_mut();
    screen.set_scrollback(usize::MAX);
    let mut lines = String::new();
    for above in (1..=screen.scrollback()).rev() {
        screen.set_scrollback(above);
        lines += screen.contents().lines().next().unwrap_or_default();
        lines.push('\n');
    }
    screen.set_scrollback(0);
    lines + &screen.contents()
}

/// During the run, a view that fits the terminal is shown. Afterwards it is gone: only the line for each run, once,
/// and the table remain. The terminal's modes are never changed.
#[test]
fn the_progress_view_fits_and_leaves_nothing() {
    let Some(bytes) = on_a_terminal("plain", &[], "1500ms", "") else {
        return;
    };
    let text = String::from_utf8_lossy(&bytes);
    for mode in ["\x1b[?1049h", "\x1b[?25l", "\x1b[?1000h"] {
        assert!(
            !text.contains(mode),
            "the terminal was left changed: {mode:?}"
        );
    }
    let mut terminal = vt100::Parser::new(24, COLUMNS as u16, 200);
    let mut views = 0;
    // The last words of a view.
    for piece in text.split_inclusive("keeps what was measured") {
        terminal.process(piece.as_bytes());
        let shown = terminal.screen().contents();
        if piece.ends_with("measured") {
            views += 1;
            assert!(shown.contains("a name that is somewhat longer"), "{shown}");
            // One view at a time: none is drawn over another.
            assert_eq!(shown.matches("Ctrl-C ends it").count(), 1, "{shown}");
        }
    }
    assert!(views > 3, "{text}");
    let shown = with_what_scrolled_off(&mut terminal);
    assert!(
        !shown.contains("Ctrl-C") && !shown.contains("of 2"),
        "{shown}"
    );
    for line in ["[1/2] t w", "[2/2] t w", "results in"] {
        assert_eq!(shown.matches(line).count(), 1, "{line}: {shown}");
    }
    assert!(text.contains("CPU ") && text.contains("\x1b[1m"));
}

/// `--dashboard` shows the contents of the live page, in as many lines as the terminal has, and removes them all at
/// the end. The terminal's modes are never changed, so there is nothing to restore, however the program ends or is
/// stopped.
#[test]
fn a_dashboard_fills_the_terminal_and_is_removed() {
    let Some(bytes) = on_a_terminal("high", &[], "1500ms", " --dashboard") else {
        return;
    };
    let text = String::from_utf8_lossy(&bytes);
    for mode in ["\x1b[?1049h", "\x1b[?25l", "\x1b[?1000h"] {
        assert!(
            !text.contains(mode),
            "the terminal was left changed: {mode:?}"
        );
    }
    let mut terminal = vt100::Parser::new(24, COLUMNS as u16, 0);
    let (mut views, mut whole) = (0, 0);
    for piece in text.split_inclusive("keeps what was measured") {
        terminal.process(piece.as_bytes());
        let shown = terminal.screen().contents();
        if piece.ends_with("measured") {
            views += 1;
            assert_eq!(shown.matches("Ctrl-C ends it").count(), 1, "{shown}");
            let parts = [
                "requests/s",
                "in flight",
                "  mean ",
                "p99",
                "time ",
                " s",
                "cpu ",
                "no errors",
            ];
            whole += u32::from(parts.iter().all(|part| shown.contains(part)));
        }
    }
    assert!(
        views > 3 && whole > 0,
        "{views} views, {whole} of them whole: {text}"
    );
    let shown = terminal.screen().contents();
    assert!(
        !shown.contains("Ctrl-C") && !shown.contains("in flight"),
        "{shown}"
    );
    assert_eq!(shown.matches("results in").count(), 1, "{shown}");
    // Finished runs are printed above the view, and scroll up like other lines.
    assert!(
        ["[1/2] t w", "[2/2] t w"]
            .iter()
            .all(|part| text.contains(part)),
        "{text}"
    );
    // If a view can't be drawn, progress is printed as lines, with or without `--dashboard`.
    let Some(bytes) = on_a_terminal("high-dumb", &[("TERM", "dumb")], "300ms", " --dashboard")
    else {
        return;
    };
    let text = String::from_utf8_lossy(&bytes);
    assert!(
        text.contains("[2/2] t w") && !text.contains('\x1b') && !text.contains("in flight"),
        "{text}"
    );
}

/// If the output is a pipe, nothing is drawn, so no frames are made unless a page is also served.
#[test]
fn a_dashboard_on_a_pipe_makes_no_frames() {
    let text = "name = \"x\"\nrepetitions = 1\n[targets.t]\nurl = \"memory:1MiB\"\n[workloads.w]\n\
                arrival = { kind = \"open\", rate = 100 }\nstop = { time = \"600s\" }\n";
    for (options, makes_frames) in [
        (["--dashboard"].as_slice(), false),
        (&["--dashboard", "--serve"], true),
    ] {
        let folder = support::TempDir::new("piped");
        let mut command = support::experiment(&folder, text);
        let mut run = command
            .args(options)
            .env("TERM", "xterm")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        run = run.stderr(Stdio::piped());
        let run = support::Running(run.spawn().expect("brunt"));
        support::eventually("the run is on its way", 60, || {
            folder.join("results/summary.json").exists()
        });
        let has_thread = |wanted: &str| {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", run.0.id()))
                .expect("it runs")
                .flatten();
            let mut names =
                tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
            names.any(|name| name.trim() == wanted)
        };
        // A new thread gets its name a moment later.
        support::eventually("a worker runs", 60, || has_thread("worker-0"));
        if makes_frames {
            support::eventually("frames are made", 60, || has_thread("live feed"));
        } else {
            assert!(!has_thread("live feed"), "{options:?}");
        }
    }
}

/// `NO_COLOR` disables colours, and without UTF-8 the output is ASCII.
#[test]
fn no_color_and_a_plain_locale_are_respected() {
    let environment = [("NO_COLOR", "1"), ("LC_ALL", "C")];
    let Some(bytes) = on_a_terminal("bare", &environment, "1500ms", "") else {
        return;
    };
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("requests/s") && text.contains("left"));
    assert!(!text.contains('m') || !text.contains("\x1b[1m") && !text.contains("\x1b[32m"));
    let view: String = text.split("Ctrl-C ends it").next().expect("a view").into();
    assert!(view.is_ascii(), "{view}");
}

/// A terminal that cannot move its cursor gets plain lines.
#[test]
fn a_dumb_terminal_gets_plain_lines() {
    let Some(bytes) = on_a_terminal("dumb", &[("TERM", "dumb")], "700ms", "") else {
        return;
    };
    let text = String::from_utf8_lossy(&bytes);
    assert!(!text.contains('\x1b') && !text.contains("Ctrl-C"), "{text}");
    assert!(text.contains("[2/2] t w"), "{text}");
}

/// If the window becomes narrower, the view is drawn at the new width.
#[test]
fn the_view_adapts_to_a_resized_window() {
    // Resize once a view has been drawn, and long before the end.
    let narrow = " & for i in $(seq 1200); do grep -aq 'Ctrl-C end[s]' \"$TYPESCRIPT\" && break; sleep .05; done; \
                  stty cols 24; wait $!";
    let Some(bytes) = on_a_terminal("resized", &[("NO_COLOR", "1")], "4s", narrow) else {
        return;
    };
    let text = String::from_utf8_lossy(&bytes);
    let name = "a name that is somewhat longer than the terminal is wide";
    // The name was drawn truncated at both widths.
    assert!(
        text.contains(&format!("{} ", &name[..COLUMNS - 1])),
        "{text}"
    );
    assert!(
        text.contains(&format!("{} ", &name[..23])) && text.contains("[2/2] t w"),
        "{text}"
    );
}
