//! Private namespaces for subjects that emulate hosts and links.

use brunt_bench::{BenchError, BenchResult};
use brunt_lab::Entered;

use super::output::Terminal;

/// Starts this program again in new namespaces. Returns only in the inner process; the outer one exits here with the
/// inner one's status.
pub fn enter(output: &Terminal) -> BenchResult {
    match brunt_lab::stage::enter_with(Vec::new()) {
        Ok((Entered::Inside, _)) => {
            output.end_if_interrupted();
            Ok(())
        }
        Ok((Entered::Done(status), _)) => std::process::exit(i32::from(status)),
        Ok((Entered::Killed(signal), _)) => Err(BenchError::failed(format!(
            "the process in the lab's namespaces was killed by signal {signal}"
        ))),
        Err(error) => Err(BenchError::failed(&error).advise(error.advice())),
    }
}
