//! Computes the profile for sizing tools from a stored trace, as a whole, by server and by window: `brunt trace fit
//! DIR`. The one rule: the analysis `profile` defines transfers, their order and the working set, so all commands
//! report the same figures.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::Path;

use brunt_core::SizerProfile;
use serde::Serialize;

use super::replay::{Known, OPERATIONS, ReplayError, Source, events, flows};
use crate::analysis::{Analyse, OperationEvent, Profile, ProfileFigures, ServerProfile};
use crate::windows::WindowSpan;

/// The profiles of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSizer {
    /// Of everything.
    pub whole: SizerProfile,
    /// The profile of each server, the busiest first.
    pub servers: Vec<ServerProfile>,
    /// The profile of each server in each window; empty unless windows were requested.
    pub windows: Vec<WindowProfile>,
}

/// The profile of a server in one window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WindowProfile {
    /// When the window began, in nanoseconds since 1970.
    pub window_from_ns: u64,
    /// The profile.
    #[serde(flatten)]
    pub server: ServerProfile,
}

/// The windows to which a pipeline's operations belong. As in a capture, each window starts from nothing.
struct Windows {
    width_ns: NonZeroU64,
    from_ns: u64,
    current: Profile,
}

impl Windows {
    /// Adds an operation to the window of its reply. Returns the previous window if it has ended.
    fn on_event(&mut self, event: &OperationEvent, place: usize) -> Option<(u64, Profile)> {
        let time_ns = event.time_ns.saturating_add(event.latency_ns.unwrap_or(0));
        let from_ns = WindowSpan::around(time_ns, self.width_ns.get()).from_ns;
        let ended = (from_ns > self.from_ns)
            .then(|| (self.from_ns, std::mem::take(&mut self.current)))
            .filter(|(before, _)| *before > 0);
        // An operation whose window has already ended counts in the current window.
        self.from_ns = self.from_ns.max(from_ns);
        self.current.on_event(event, place);
        ended
    }
}

/// Reads the profiles, including those of windows if a width is given; `None` if `stop` ended it early. Damaged parts
/// are left out, as in a report.
///
/// # Errors
/// The folder contains no trace, or the trace cannot be read.
pub fn sizer(
    folder: &Path,
    width_ns: Option<NonZeroU64>,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Option<TraceSizer>, ReplayError> {
    let mut source = Source::open(folder)?;
    let flows = flows(&mut source)?;
    let operations = source.runs(&OPERATIONS, "completion_id")?;
    let known = Known::all();
    let (mut all, mut of_windows) = (Profile::default(), BTreeMap::new());
    // As in a report, each pipeline is analysed on its own, and then the results are merged.
    for pipeline in source.pipelines()? {
        let (mut profile, mut reader) = (Profile::default(), operations.of_pipeline(pipeline));
        let mut windows = width_ns.map(|width_ns| Windows {
            width_ns,
            from_ns: 0,
            current: Profile::default(),
        });
        while let Some(batch) = reader.next_batch()? {
            for (place, (_, event)) in events(batch, &known, &flows).enumerate() {
                profile.on_event(&event, place);
                let ended = windows.as_mut().and_then(|all| all.on_event(&event, place));
                if let Some((from_ns, ended)) = ended {
                    add(&mut of_windows, from_ns, &ended);
                }
            }
            if stop() {
                return Ok(None);
            }
        }
        if let Some(last) = windows.filter(|windows| windows.from_ns > 0) {
            add(&mut of_windows, last.from_ns, &last.current);
        }
        all.merge(profile);
    }
    let figures = all.figures();
    let windows = of_windows.iter().flat_map(|(from_ns, figures)| {
        let profiles = figures.servers.profiles().into_iter();
        profiles.map(|server| WindowProfile {
            window_from_ns: *from_ns,
            server,
        })
    });
    Ok(Some(TraceSizer {
        whole: figures.total().counts().profile(),
        servers: figures.servers.profiles(),
        windows: windows.collect(),
    }))
}

fn add(windows: &mut BTreeMap<u64, ProfileFigures>, from_ns: u64, profile: &Profile) {
    let figures = profile.figures();
    windows.entry(from_ns).or_default().merge(&figures);
}
