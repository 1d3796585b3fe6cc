//! A storage fault on the time line: armed at a layer, shown by the requests of the run that it hits, gone
//! when no more are hit. Requests of its own it makes none: they would be part of what is measured, and a
//! fault that hits nobody's request is not part of it.

use std::sync::Arc;

use brunt_block::layers::fault::Fault;
use brunt_core::{Clock, Nanos};
use brunt_lab::Proof;

use super::Trouble;
use crate::control::{Answer, Controls, LayerStatus, Order};

/// See the module.
pub(super) struct StorageFault {
    pub controls: Arc<dyn Controls>,
    pub lun: u16,
    pub layer: Option<String>,
    pub fault: Fault,
    pub armed: Option<Armed>,
}

#[derive(Clone, Copy)]
pub(super) struct Armed {
    id: u64,
    at: Nanos,
    seen: u64,
}

impl StorageFault {
    fn counts(&self, armed: Armed) -> Result<(u64, u64), String> {
        let order = Order::Look { lun: self.lun, layer: self.layer.clone(), id: armed.id };
        match self.controls.must(&order)? {
            Answer::Counts { seen, injected } => Ok((seen, injected)),
            other => Err(format!("an answer to another question: {other:?}")),
        }
    }
}

impl Trouble for StorageFault {
    fn describe(&self) -> String {
        self.fault.to_string()
    }

    fn put(&mut self) -> Result<Nanos, String> {
        let at = Clock::Monotonic.now();
        let fault = self.fault.to_string();
        match self.controls.must(&Order::Arm { lun: self.lun, layer: self.layer.clone(), fault })? {
            Answer::Armed { id } => self.armed = Some(Armed { id, at, seen: 0 }),
            other => return Err(format!("an answer to another question: {other:?}")),
        }
        Ok(at)
    }

    fn look(&mut self) -> Result<Option<Proof>, String> {
        let Some(armed) = self.armed else { return Ok(None) };
        let (seen, injected) = self.counts(armed)?;
        self.armed = Some(Armed { seen, ..armed });
        Ok((injected > 0).then(|| Proof {
            at: armed.at,
            seen: Clock::Monotonic.now(),
            what: format!("hit {injected} of the first {seen} requests it is about"),
            value: Some(injected as f64),
        }))
    }

    fn seen_instead(&self) -> String {
        let seen = self.armed.as_ref().map_or(0, |armed| armed.seen);
        format!("of {seen} requests that it is about it hit none")
    }

    fn take_away(&mut self) -> Result<Proof, String> {
        let Some(armed) = self.armed.take() else { return Err("it is not there".to_string()) };
        let at = Clock::Monotonic.now();
        let order = Order::Disarm { lun: self.lun, layer: self.layer.clone(), id: armed.id };
        let Answer::Counts { injected, .. } = self.controls.must(&order)? else {
            return Err("an answer to another question".to_string());
        };
        // Seen from outside: nothing like it is armed any more.
        let Answer::Status { layers } = self.controls.must(&Order::Status { lun: self.lun })? else {
            return Err("an answer to another question".to_string());
        };
        let words = self.fault.to_string();
        let still = layers.iter().find(|(name, layer)| {
            let here = self.layer.as_deref().is_none_or(|wanted| *name == wanted);
            here && matches!(layer, LayerStatus::Fault { armed, .. } if armed.contains(&words))
        });
        if let Some((name, _)) = still {
            return Err(format!("it is not gone: layer {name} has it still"));
        }
        let what = format!("{injected} requests hit; nothing of it is armed");
        Ok(Proof { at, seen: Clock::Monotonic.now(), what, value: Some(injected as f64) })
    }
}

impl Drop for StorageFault {
    fn drop(&mut self) {
        if let Some(armed) = self.armed {
            let order = Order::Disarm { lun: self.lun, layer: self.layer.clone(), id: armed.id };
            let _ = self.controls.ask(&order);
        }
    }
}
