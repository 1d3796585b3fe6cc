//! What `brunt run` does to a real terminal: a pseudo-terminal of `script` (util-linux), whose
//! output an emulated terminal takes in.

mod support;

use std::process::{Command, Stdio};

const COLUMNS: usize = 48;

/// Runs an experiment of two runs of `time` on a terminal of so many columns, `meanwhile` (a shell's words behind
/// its command) does something else; all that the terminal got.
fn on_a_terminal(name: &str, environment: &[(&str, &str)], time: &str, meanwhile: &str) -> Option<Vec<u8>> {
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
    command.args(["-qefc", &inner]).arg(&typescript).stdin(Stdio::null()).stdout(Stdio::null());
    command.env_remove("NO_COLOR").env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
    command.env("TYPESCRIPT", &typescript);
    for (key, value) in environment {
        command.env(key, value);
    }
    let status = command.status().expect("script runs");
    let bytes = std::fs::read(&typescript).expect("what the terminal got");
    assert!(status.success(), "{}", String::from_utf8_lossy(&bytes));
    // The first and last lines are script's own.
    let begin = bytes.iter().position(|byte| *byte == b'\n').expect("a first line") + 1;
    let end = bytes.windows(12).rposition(|window| window == b"Script done ").unwrap_or(bytes.len());
    Some(bytes[begin..end].to_vec())
}

/// While it runs there is a view that fits, and afterwards nothing of it is left: only the
/// line of each run, once, and the table. The terminal's modes were never touched.
#[test]
fn a_view_that_goes_away() {
    let Some(bytes) = on_a_terminal("plain", &[], "1500ms", "") else { return };
    let text = String::from_utf8_lossy(&bytes);
    for mode in ["\x1b[?1049h", "\x1b[?25l", "\x1b[?1000h"] {
        assert!(!text.contains(mode), "the terminal was left changed: {mode:?}");
    }
    let mut terminal = vt100::Parser::new(24, COLUMNS as u16, 0);
    let mut views = 0;
    // The last words of a view.
    for piece in text.split_inclusive("keeps what was measured") {
        terminal.process(piece.as_bytes());
        let shown = terminal.screen().contents();
        if piece.ends_with("measured") {
            views += 1;
            assert!(shown.contains("a name that is somewhat longer"), "{shown}");
            // One view at a time: none smeared over another.
            assert_eq!(shown.matches("Ctrl-C ends it").count(), 1, "{shown}");
        }
    }
    assert!(views > 3, "{text}");
    let shown = terminal.screen().contents();
    assert!(!shown.contains("Ctrl-C") && !shown.contains("of 2"), "{shown}");
    for line in ["[1/2] t w", "[2/2] t w", "results in"] {
        assert_eq!(shown.matches(line).count(), 1, "{line}: {shown}");
    }
    assert!(text.contains("CPU ") && text.contains("\x1b[1m"));
}

/// Who wants no colours gets none, and who has no UTF-8 gets ASCII.
#[test]
fn no_colours_and_ascii() {
    let environment = [("NO_COLOR", "1"), ("LC_ALL", "C")];
    let Some(bytes) = on_a_terminal("bare", &environment, "700ms", "") else { return };
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("requests/s") && text.contains("left"));
    assert!(!text.contains('m') || !text.contains("\x1b[1m") && !text.contains("\x1b[32m"));
    let view: String = text.split("Ctrl-C ends it").next().expect("a view").into();
    assert!(view.is_ascii(), "{view}");
}

/// A terminal that cannot move its cursor gets plain lines.
#[test]
fn a_dumb_terminal() {
    let Some(bytes) = on_a_terminal("dumb", &[("TERM", "dumb")], "700ms", "") else { return };
    let text = String::from_utf8_lossy(&bytes);
    assert!(!text.contains('\x1b') && !text.contains("Ctrl-C"), "{text}");
    assert!(text.contains("[2/2] t w"), "{text}");
}

/// A window that becomes narrow meanwhile is drawn to its new width.
#[test]
fn a_window_is_resized() {
    // As soon as a view was drawn, and long before the end.
    let narrow = " & for i in $(seq 1200); do grep -aq 'Ctrl-C end[s]' \"$TYPESCRIPT\" && break; sleep .05; done; \
                  stty cols 24; wait $!";
    let Some(bytes) = on_a_terminal("resized", &[("NO_COLOR", "1")], "2s", narrow) else { return };
    let text = String::from_utf8_lossy(&bytes);
    let name = "a name that is somewhat longer than the terminal is wide";
    // Both ways of cutting the name were drawn.
    assert!(text.contains(&format!("{} ", &name[..COLUMNS - 1])), "{text}");
    assert!(text.contains(&format!("{} ", &name[..23])) && text.contains("[2/2] t w"), "{text}");
}
