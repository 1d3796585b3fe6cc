//! Where CPU time goes during a run: samples of running functions on all processors, and the CPU time of the machine
//! and of the experiment's processes. A hook of the study starts a [`Profiler`] with each run and asks the
//! [`Recording`] for the profile of each phase afterwards, once phases are known.
//!
//! The rule: profiling never invalidates a run. Where the kernel forbids samples, the profile says why and contains
//! only CPU times; samples that were lost or dropped are counted.

#![forbid(unsafe_code)]

mod error;
mod parts;
mod processes;
mod profiler;
mod recording;
mod samples;
mod settings;
mod symbols;
mod times;

pub use error::{ProfileError, Unavailable};
pub use parts::part_of;
pub use profiler::{ProfiledProcess, Profiler, availability};
pub use recording::{PhaseSpan, Recording};
pub use settings::{HZ_MAX, ProfileSettings};
