//! The integration tests of brunt-lab. This binary re-executes itself as helper processes and in new namespaces,
//! which it must do before it has several threads, so it has a `main` in place of the usual harness. As with that
//! harness, arguments select the tests to run.

mod lab;
mod link_faults;
mod memory;
mod mounts;
mod staged;
mod two_hosts;

use std::process::{Command, ExitCode};
use std::time::Instant;

/// A test's name and its function.
type Test = (&'static str, fn());

fn main() -> ExitCode {
    if let Some(status) = brunt_lab::helper::serve_if_asked() {
        return ExitCode::from(status);
    }
    if std::env::args().any(|word| word == OUTSIDE) {
        run(&memory::TESTS);
        return ExitCode::SUCCESS;
    }
    if !brunt_lab::stage::is_inner() && !outside() {
        return ExitCode::FAILURE;
    }
    match staged::enter() {
        Some(end) => return end,
        None => {
            if two_hosts::is_possible() {
                run(&link_faults::TESTS);
                run(&lab::TESTS);
            }
            run(&mounts::TESTS);
        }
    }
    ExitCode::SUCCESS
}

/// Makes this process run only the tests that need no namespaces.
const OUTSIDE: &str = "--outside";

/// Runs the tests that need no namespaces in another process, because this one will be in namespaces, where other
/// limits on locked memory may apply. Returns whether they passed.
fn outside() -> bool {
    let own = std::env::current_exe().expect("this program");
    let status = Command::new(own)
        .arg(OUTSIDE)
        .args(std::env::args_os().skip(1))
        .status();
    status.expect("this program starts").success()
}

fn run(tests: &[Test]) {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    for (name, test) in tests {
        if wanted.is_empty() || wanted.iter().any(|word| name.contains(word)) {
            let start = Instant::now();
            test();
            println!(
                "test {name} ... ok ({:.2} s)",
                start.elapsed().as_secs_f64()
            );
        }
    }
}
