//! The first lines of a test that starts itself again in namespaces of its own.
//!
//! The rule: where there are none, a newcomer's test is skipped and says what it needs; CI's fails.

use std::process::ExitCode;

use brunt_lab::{Entered, stage};

/// Enters the stage, and gives what the process ends with where it is not the one inside.
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
