//! Chooses the I/O engine of a load: as set in its workload, the process's default, or the result
//! of trials.
//!
//! The rule: impossible settings are rejected with an error that names the key, and every choice states its reason.

use brunt_block::ring::engine::{self, EngineOrigin};
use brunt_core::IoEngine;
use brunt_result::choice::{EngineChoice, EngineSetting, RingMode};

use crate::load::WorkloadError;

/// The reason given if the workload names the engine.
const STATED: &str = "as set in the workload";

/// What is known about the engine before any measurement.
#[derive(Clone, Debug, PartialEq)]
pub enum EnginePreview {
    /// The choice is final.
    Settled(EngineChoice),
    /// The setting is `auto`, and both engines work: trials decide.
    Measured,
}

/// Returns true if only io_uring has this mode.
fn needs_io_uring(ring: RingMode) -> bool {
    matches!(ring, RingMode::Sqpoll | RingMode::Poll)
}

/// Determines the engine of a workload with these keys, on this machine.
///
/// # Errors
/// The engine doesn't work here, or doesn't have this ring mode.
pub fn preview(
    setting: Option<EngineSetting>,
    ring: RingMode,
) -> Result<EnginePreview, WorkloadError> {
    let wrong = |key: &'static str, what: String| Err(WorkloadError { key, what });
    let settled = |engine, why: String| {
        Ok(EnginePreview::Settled(EngineChoice::unmeasured(
            engine, why,
        )))
    };
    let mode = ring.name();
    let only = || format!("{mode} needs engine io_uring");
    match setting {
        Some(EngineSetting::IoUring) => match engine::io_uring() {
            Ok(()) => settled(IoEngine::IoUring, STATED.into()),
            Err(why) => wrong("engine", why.to_string()),
        },
        Some(EngineSetting::Threads) if needs_io_uring(ring) => wrong(
            "ring",
            format!("{}, but the workload has engine = \"threads\"", only()),
        ),
        Some(EngineSetting::Threads) => settled(IoEngine::Threads, STATED.into()),
        Some(EngineSetting::Auto) => match engine::io_uring() {
            Ok(()) if needs_io_uring(ring) => settled(IoEngine::IoUring, only()),
            Ok(()) => Ok(EnginePreview::Measured),
            Err(why) if needs_io_uring(ring) => wrong("ring", format!("{}: {why}", only())),
            Err(why) => settled(IoEngine::Threads, why.to_string()),
        },
        None => match engine::usual() {
            Err(error) => wrong("engine", error.to_string()),
            Ok((IoEngine::Threads, origin)) if needs_io_uring(ring) => match origin {
                EngineOrigin::Fallback(why) => wrong("ring", format!("{}: {why}", only())),
                stated => wrong(
                    "ring",
                    format!("{}, and the engine is threads, {stated}", only()),
                ),
            },
            Ok((engine, origin)) => settled(engine, origin.to_string()),
        },
    }
}

/// Determines a workload's engine without trials: for `auto`, that is io_uring where it works.
///
/// # Errors
/// The engine doesn't work here, or doesn't have this ring mode.
pub fn settle(
    setting: Option<EngineSetting>,
    ring: RingMode,
) -> Result<EngineChoice, WorkloadError> {
    Ok(match preview(setting, ring)? {
        EnginePreview::Settled(choice) => choice,
        EnginePreview::Measured => EngineChoice::unmeasured(
            IoEngine::IoUring,
            "the default where the kernel allows it; replays have no trials",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(setting: Option<EngineSetting>, ring: RingMode) -> Option<IoEngine> {
        match preview(setting, ring).unwrap() {
            EnginePreview::Settled(choice) => {
                assert!(!choice.why.is_empty() && choice.trials.is_empty());
                Some(choice.engine)
            }
            EnginePreview::Measured => None,
        }
    }

    #[test]
    fn polling_modes_are_refused_for_threads() {
        let threads = Some(EngineSetting::Threads);
        assert_eq!(
            settled(threads, RingMode::Interrupt),
            Some(IoEngine::Threads)
        );
        // Accepted, because trials would just find that the other modes don't work.
        assert_eq!(settled(threads, RingMode::Auto), Some(IoEngine::Threads));
        for ring in [RingMode::Sqpoll, RingMode::Poll] {
            let error = preview(threads, ring).unwrap_err();
            assert_eq!(error.key, "ring");
            assert!(error.what.contains(ring.name()), "{error}");
        }
    }

    #[test]
    fn auto_is_measured_where_both_engines_work() {
        let auto = Some(EngineSetting::Auto);
        match engine::io_uring() {
            Ok(()) => {
                assert_eq!(settled(auto, RingMode::Interrupt), None);
                assert_eq!(settled(auto, RingMode::Sqpoll), Some(IoEngine::IoUring));
                assert_eq!(
                    settle(auto, RingMode::Interrupt).unwrap().engine,
                    IoEngine::IoUring
                );
            }
            Err(_) => {
                assert_eq!(settled(auto, RingMode::Interrupt), Some(IoEngine::Threads));
                assert_eq!(preview(auto, RingMode::Sqpoll).unwrap_err().key, "ring");
                assert_eq!(
                    preview(Some(EngineSetting::IoUring), RingMode::Interrupt)
                        .unwrap_err()
                        .key,
                    "engine"
                );
            }
        }
    }
}
