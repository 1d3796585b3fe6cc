//! `budget=N`, for tests only: serves N requests, plus those added by commands; all others fail as busy. It shows what
//! a controllable layer requires: this file and one line in the table.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brunt_core::Nanos;

use crate::control::{Arguments, CommandEntry, CommandError, Controllable, Fields, Handles, Value};
use crate::open::{LayerEntry, bad_value};
use crate::{
    Backend, Completion, Device, DeviceError, DeviceInfo, MediumState, OpenError, RefusalKind,
    Request, Ring,
};

/// The table entry.
pub const ENTRY: LayerEntry = LayerEntry {
    name: "budget",
    help: "completes a given number of requests and fails the rest with busy until more are \
        allowed",
    example: "5",
    wrap: |inner, value| {
        let left = value
            .parse()
            .map_err(|_| bad_value("budget", value, "a whole number of requests"))?;
        let budget = Arc::new(Budget {
            left: AtomicU64::new(left),
            refused: AtomicU64::new(0),
        });
        Ok(Arc::new(BudgetBackend { inner, budget }))
    },
    preview: None,
    file: None,
};

#[derive(Debug)]
struct Budget {
    left: AtomicU64,
    refused: AtomicU64,
}

impl Controllable for Budget {
    fn kind(&self) -> &'static str {
        "budget"
    }

    fn commands(&self) -> &'static [CommandEntry] {
        &[CommandEntry {
            name: "grant",
            help: "allows more requests",
            arguments: &[("requests", "number of requests to add")],
        }]
    }

    fn command(&self, _name: &str, arguments: &Arguments) -> Result<Fields, CommandError> {
        let granted = arguments.count("requests")?;
        let left = self.left.fetch_add(granted, Ordering::Relaxed) + granted;
        Ok(vec![("left", Value::Count(left))])
    }

    fn status(&self) -> Fields {
        let count = |of: &AtomicU64| Value::Count(of.load(Ordering::Relaxed));
        vec![
            ("left", count(&self.left)),
            ("refused", count(&self.refused)),
        ]
    }
}

struct BudgetBackend {
    inner: Arc<dyn Backend>,
    budget: Arc<Budget>,
}

impl Backend for BudgetBackend {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        let (inner, budget) = (self.inner.open(ring, depth)?, Arc::clone(&self.budget));
        Ok(Box::new(BudgetDevice {
            inner,
            budget,
            depth,
            below: VecDeque::new(),
            refused: Vec::new(),
        }))
    }

    fn may_wait(&self) -> bool {
        self.inner.may_wait()
    }

    fn medium_state(&self) -> MediumState {
        self.inner.medium_state()
    }

    fn resize(&self, size_bytes: u64) -> std::io::Result<()> {
        self.inner.resize(size_bytes)
    }

    fn unmap_reads_zeros(&self) -> bool {
        self.inner.unmap_reads_zeros()
    }

    fn storage(&self) -> Vec<crate::StorageId> {
        self.inner.storage()
    }

    fn handles(&self) -> Handles {
        let own: Arc<dyn Controllable> = Arc::<Budget>::clone(&self.budget);
        std::iter::once(("budget".to_string(), own))
            .chain(self.inner.handles())
            .collect()
    }
}

struct BudgetDevice {
    inner: Box<dyn Device>,
    budget: Arc<Budget>,
    depth: u32,
    below: VecDeque<Request>,
    refused: Vec<Completion>,
}

impl Device for BudgetDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        while self.outstanding() + (self.below.len() as u32) < self.depth {
            let Some(request) = batch.pop_front() else {
                break;
            };
            let one_less = |left: u64| left.checked_sub(1);
            if self
                .budget
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
                .is_ok()
            {
                self.below.push_back(request);
                continue;
            }
            self.budget.refused.fetch_add(1, Ordering::Relaxed);
            let result = Err(DeviceError::refused(RefusalKind::Busy));
            self.refused.push(Completion {
                tag: request.tag,
                buf: request.buf,
                result,
            });
        }
        self.inner.submit(&mut self.below);
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.refused);
        self.inner.poll(done);
    }

    fn outstanding(&self) -> u32 {
        self.inner.outstanding() + self.refused.len() as u32
    }

    fn deadline(&self) -> Nanos {
        if self.refused.is_empty() {
            self.inner.deadline()
        } else {
            Nanos(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buf, Op, RingConfig, control, open_url};

    /// A layer that no other file mentions is opened by its name and controlled while requests run.
    #[test]
    fn a_new_layer_is_controlled_while_requests_run() {
        let backend = open_url("memory:1MiB?budget=2&retry=1,off").unwrap();
        let handles = backend.handles();
        let budget = control::find(&handles, "budget").unwrap();
        let ring = Ring::new(RingConfig::default()).unwrap();
        let mut device = backend.open(&ring, 8).unwrap();
        let mut served = |count: u64| {
            let (op, offset, len, buf) = (Op::Flush, 0, 0, Buf::empty);
            let request = |tag| Request {
                tag,
                op,
                offset,
                len,
                buf: buf(),
                force_unit_access: false,
            };
            let mut done = Vec::new();
            device.submit(&mut (0..count).map(request).collect());
            device.poll(&mut done);
            assert_eq!(done.len() as u64, count);
            done.iter().filter(|one| one.result.is_ok()).count()
        };
        assert_eq!(served(3), 2);
        let grant = Arguments(vec![("requests".to_string(), Value::Count(4))]);
        assert_eq!(
            budget.carry_out("grant", &grant).unwrap(),
            [("left", Value::Count(4))]
        );
        assert_eq!(served(3), 3);
        assert_eq!(
            budget.status(),
            [("left", Value::Count(1)), ("refused", Value::Count(1))]
        );
    }
}
