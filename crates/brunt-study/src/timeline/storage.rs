//! A storage fault on the time line: armed at a layer's switch, shown by the requests of the run that
//! it hits, gone when no more are hit. Requests of its own it makes none: they would be part of what is
//! measured, and a fault that hits nobody's request is not part of it.

use std::sync::Arc;
use std::time::Duration;

use brunt_block::layers::fault::{Armed, Fault, FaultSwitch};
use brunt_core::{Clock, Nanos};
use brunt_lab::Proof;

use super::Trouble;

/// How long no request may be hit before the fault counts as gone.
const QUIET: Duration = Duration::from_millis(20);
/// How long it may take until that is so.
const GONE_MAX: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct StorageFault {
    switch: Arc<FaultSwitch>,
    fault: Fault,
    armed: Option<(Arc<Armed>, Nanos)>,
}

impl StorageFault {
    pub(super) fn new(switch: Arc<FaultSwitch>, fault: Fault) -> StorageFault {
        StorageFault { switch, fault, armed: None }
    }
}

impl Trouble for StorageFault {
    fn describe(&self) -> String {
        self.fault.to_string()
    }

    fn put(&mut self) -> Result<Nanos, String> {
        let now = Clock::Monotonic.now();
        let armed = self.switch.arm(self.fault.clone()).ok_or("too many faults are armed at this layer")?;
        self.armed = Some((armed, now));
        Ok(now)
    }

    fn look(&mut self) -> Result<Option<Proof>, String> {
        let Some((armed, at)) = &self.armed else { return Ok(None) };
        let (seen, injected) = (armed.seen(), armed.injected());
        Ok((injected > 0).then(|| Proof {
            at: *at,
            seen: Clock::Monotonic.now(),
            what: format!("hit {injected} of the first {seen} requests it is about"),
            value: Some(injected as f64),
        }))
    }

    fn seen_instead(&self) -> String {
        let seen = self.armed.as_ref().map_or(0, |(armed, _)| armed.seen());
        format!("of {seen} requests that it is about it hit none")
    }

    fn take_away(&mut self) -> Result<Proof, String> {
        let Some((armed, _)) = self.armed.take() else { return Err("it is not there".to_string()) };
        let at = Clock::Monotonic.now();
        self.switch.disarm(armed.id);
        // A device sees it at its next look; a request under way may still be hit.
        let mut hit = armed.injected();
        loop {
            std::thread::sleep(QUIET);
            let now = armed.injected();
            if now == hit {
                break;
            }
            if Clock::Monotonic.now().since(at) > GONE_MAX {
                return Err(format!("it is not gone: {} more requests were hit", now - hit));
            }
            hit = now;
        }
        let (seen, what) = (Clock::Monotonic.now(), format!("{hit} requests hit, then none for {QUIET:?}"));
        Ok(Proof { at, seen, what, value: Some(hit as f64) })
    }
}

impl Drop for StorageFault {
    fn drop(&mut self) {
        if let Some((armed, _)) = &self.armed {
            self.switch.disarm(armed.id);
        }
    }
}
