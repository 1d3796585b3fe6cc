//! The status of a device's layers, as a reply contains it.

use std::collections::BTreeMap;

use brunt_block::backends::array::{ArrayControl, ArrayState, ArrayStatus, MemberState};
use brunt_block::control::{Controllable, Fields, Value};
use brunt_block::layers::fault::FaultSwitch;
use brunt_block::layers::retry::RetrySwitch;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The status of a layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum LayerStatus {
    /// A fault layer.
    Fault {
        /// Armed faults, as text.
        armed: Vec<String>,
        /// Requests affected so far.
        injected: u64,
        /// Bad blocks repaired by writes so far.
        #[serde(default)]
        cured: u64,
    },
    /// A retry layer.
    Retry {
        /// Whether retries are on.
        on: bool,
        /// Retries, counting each attempt.
        retries: u64,
        /// Requests that succeeded after a retry.
        overcome: u64,
        /// Failures reported to the caller.
        told: u64,
    },
    /// An array.
    Array {
        /// The state of the array.
        state: ArrayState,
        /// The members, by slot.
        members: Vec<MemberState>,
        /// Spares left.
        spares: usize,
        /// Bytes of a member rebuilt so far, and in total.
        rebuilt_bytes: Option<(u64, u64)>,
        /// Maximum rebuild rate in bytes per second; 0: unlimited.
        rebuild_bytes_per_second: u64,
        /// Completed rebuilds.
        rebuilds: u64,
        /// Bytes of a member that the last rebuild restored, and its duration in seconds.
        last_rebuild: Option<(u64, f64)>,
        /// Requests served without one of their members (degraded).
        degraded_requests: u64,
        /// Read errors that were repaired.
        read_errors: u64,
        /// The last problem.
        trouble: Option<String>,
    },
    /// Any other layer that takes commands.
    Other {
        /// Its kind.
        layer: String,
        /// Its status fields, by name.
        fields: BTreeMap<String, Json>,
    },
}

impl LayerStatus {
    pub(super) fn of(part: &dyn Controllable) -> LayerStatus {
        if let Some(switch) = part.downcast_ref::<FaultSwitch>() {
            let armed = switch
                .armed()
                .iter()
                .map(|armed| armed.fault.to_string())
                .collect();
            LayerStatus::Fault {
                armed,
                injected: switch.injected(),
                cured: switch.cured(),
            }
        } else if let Some(switch) = part.downcast_ref::<RetrySwitch>() {
            LayerStatus::Retry {
                on: switch.is_on(),
                retries: switch.retries(),
                overcome: switch.overcome(),
                told: switch.failures(),
            }
        } else if let Some(control) = part.downcast_ref::<ArrayControl>() {
            LayerStatus::of_array(control.status(), control.rate())
        } else {
            LayerStatus::Other {
                layer: part.kind().to_string(),
                fields: to_json(part.status()),
            }
        }
    }

    fn of_array(status: ArrayStatus, rate: u64) -> LayerStatus {
        LayerStatus::Array {
            state: status.state,
            members: status.slots.iter().map(|(_, state)| *state).collect(),
            spares: status.spares.len(),
            rebuilt_bytes: status.rebuilt_bytes,
            rebuild_bytes_per_second: rate,
            rebuilds: status.rebuilds,
            last_rebuild: status
                .last_rebuild
                .map(|(bytes, took)| (bytes, took.as_secs_f64())),
            degraded_requests: status.degraded_requests,
            read_errors: status.read_errors,
            trouble: status.trouble,
        }
    }
}

/// A layer's fields as JSON.
pub(super) fn to_json(fields: Fields) -> BTreeMap<String, Json> {
    fn value(one: Value) -> Json {
        match one {
            Value::Flag(flag) => flag.into(),
            Value::Count(count) => count.into(),
            Value::Number(number) => number.into(),
            Value::Text(text) => text.into(),
            Value::List(values) => values.into_iter().map(value).collect(),
        }
    }
    fields
        .into_iter()
        .map(|(name, one)| (name.to_string(), value(one)))
        .collect()
}
