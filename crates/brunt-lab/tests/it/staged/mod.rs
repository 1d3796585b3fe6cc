//! Setup for tests that re-execute this program in new namespaces.
//!
//! The rule: without namespaces, the test is skipped with a message that says what it needs; in CI it fails.

use std::process::ExitCode;

use brunt_lab::{Entered, stage};

/// Enters the stage; in the outer process, returns the exit code.
pub fn enter() -> Option<ExitCode> {
    match stage::enter() {
        Ok(Entered::Inside) => None,
        Ok(Entered::Done(status)) => Some(ExitCode::from(status)),
        Ok(Entered::Killed(signal)) => panic!("killed by signal {signal}"),
        Err(error) => {
            assert!(
                std::env::var("BRUNT_REQUIRE_ALL").is_err(),
                "{error}: {}",
                error.advice()
            );
            println!(
                "skipped: needs user namespaces ({error}; {})",
                error.advice()
            );
            Some(ExitCode::SUCCESS)
        }
    }
}
