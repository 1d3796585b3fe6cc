//! The integration tests of brunt-lab. The program starts itself again as helpers and in namespaces, before it has any
//! thread, so it has a `main` instead of the usual harness. As with that, an argument names the tests to run.

mod lab;
mod memory;
mod mounts;
mod staged;

use std::process::ExitCode;
use std::time::Instant;

/// A test's name and its function.
type Test = (&'static str, fn());

fn main() -> ExitCode {
    if let Some(status) = brunt_lab::helper::serve_if_asked() {
        return ExitCode::from(status);
    }
    match staged::enter() {
        // Outside, when all is done inside: locked memory has other limits there.
        Some(ExitCode::SUCCESS) => run(&memory::TESTS),
        Some(end) => return end,
        None => {
            if lab::is_possible() {
                run(&lab::TESTS);
            }
            run(&mounts::TESTS);
        }
    }
    ExitCode::SUCCESS
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
