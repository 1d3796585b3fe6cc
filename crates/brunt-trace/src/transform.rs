//! Transforms a trace: selects by time, device and share, merges devices, scales times and
//! addresses, anonymizes. Called by `brunt trace convert`.
//!
//! The rule: count what is left out, by reason; memory does not grow with the trace.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::num::NonZeroU64;
use std::time::Duration;

use serde::Serialize;

use crate::locality::mixed;
use crate::record::{BlockRequest, ContentHash, Devices};

/// Addresses are sampled in extents of this size, so either all accesses to a block are kept or none.
pub const SHARE_BYTES: u64 = 1 << 20;
/// Alignment of devices when they are merged.
const MERGED_BYTES: u64 = 1 << 20;

/// The transformations of a trace.
#[derive(Clone, Debug)]
pub struct TransformOptions {
    /// Leave out requests that come before this time after the first one.
    pub from: Duration,
    /// Length of the time slice that starts at `from`; later requests are left out.
    pub length: Option<Duration>,
    /// Names of the devices to keep; all if empty.
    pub devices: Vec<String>,
    /// Share of the addresses to keep, in extents of [`SHARE_BYTES`] chosen by a hash of their number.
    pub share: f64,
    /// Where each device starts on the single merged device; see [`DeviceExtents`].
    pub merged: Option<Vec<u64>>,
    /// Divide times by this; response times don't change.
    pub speed: f64,
    /// Multiply addresses by this; multiples of 4096 or 512 stay multiples.
    pub scale: f64,
    /// Number the devices, start times at 0, and replace content hashes by meaningless
    /// numbers; addresses don't change.
    pub anonymize: bool,
}

impl Default for TransformOptions {
    fn default() -> TransformOptions {
        TransformOptions {
            from: Duration::ZERO,
            length: None,
            devices: Vec::new(),
            share: 1.0,
            merged: None,
            speed: 1.0,
            scale: 1.0,
            anonymize: false,
        }
    }
}

/// Requests that were left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TransformLedger {
    /// Before or after the time slice.
    pub outside_time: u64,
    /// On devices that weren't selected.
    pub other_devices: u64,
    /// Outside the share of addresses.
    pub not_in_share: u64,
    /// The new address or time exceeds 64 bits.
    pub too_far: u64,
}

/// The highest address used on each device, for merging.
#[derive(Clone, Debug, Default)]
pub struct DeviceExtents {
    ends: Vec<u64>,
}

impl DeviceExtents {
    /// Adds requests.
    pub fn add(&mut self, requests: &[BlockRequest]) {
        for request in requests {
            let device = request.device as usize;
            if self.ends.len() <= device {
                self.ends.resize(device + 1, 0);
            }
            let end = request
                .offset_bytes
                .saturating_add(request.len_bytes.into());
            self.ends[device] = self.ends[device].max(end);
        }
    }

    /// The start of each device when they are placed one after another at multiples of 1 MiB.
    pub fn begins(&self) -> Vec<u64> {
        let mut next = 0u64;
        self.ends
            .iter()
            .map(|end| {
                let begin = next;
                next = next.saturating_add(
                    end.checked_next_multiple_of(MERGED_BYTES)
                        .unwrap_or(u64::MAX),
                );
                begin
            })
            .collect()
    }
}

/// Transforms a trace.
pub struct Transform {
    options: TransformOptions,
    first_ns: Option<u64>,
    /// The time of the first request that was kept.
    kept_ns: Option<u64>,
    devices: Devices,
    /// New device indexes by old index; none for devices that are left out.
    numbers: Vec<Option<u32>>,
    /// Keep extents with a hash up to this.
    share: u64,
    key: RandomState,
    requests: Vec<BlockRequest>,
    ledger: TransformLedger,
}

impl Transform {
    /// Starts transforming a trace.
    ///
    /// # Panics
    /// Panics if speed or scale is not above 0.
    pub fn new(options: TransformOptions) -> Transform {
        assert!(
            options.speed > 0.0 && options.scale > 0.0,
            "speed and size factors are above zero"
        );
        Transform {
            first_ns: None,
            kept_ns: None,
            devices: Devices::default(),
            numbers: Vec::new(),
            // The cast saturates.
            share: (options.share * u64::MAX as f64) as u64,
            key: RandomState::new(),
            requests: Vec::new(),
            ledger: TransformLedger::default(),
            options,
        }
    }

    /// Transforms requests; empty if all of them are left out.
    pub fn apply(&mut self, requests: &[BlockRequest], devices: &Devices) -> &[BlockRequest] {
        self.requests.clear();
        for request in requests {
            if let Some(request) = self.one(request, devices) {
                self.requests.push(request);
            }
        }
        &self.requests
    }

    /// The result of the last [`Transform::apply`].
    pub fn requests(&self) -> &[BlockRequest] {
        &self.requests
    }

    /// The devices so far, after the transformation.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Requests left out so far, by reason.
    pub fn ledger(&self) -> TransformLedger {
        self.ledger
    }

    fn one(&mut self, request: &BlockRequest, devices: &Devices) -> Option<BlockRequest> {
        let first_ns = *self.first_ns.get_or_insert(request.time_ns);
        let since = Duration::from_nanos(request.time_ns.saturating_sub(first_ns));
        let in_time = match self.options.length {
            // Time since the first request of the trace.
            Some(length) => {
                since >= self.options.from && since < self.options.from.saturating_add(length)
            }
            None => since >= self.options.from,
        };
        if !in_time {
            self.ledger.outside_time += 1;
            return None;
        }
        let Some(device) = self.device(request.device, devices) else {
            self.ledger.other_devices += 1;
            return None;
        };
        if self.options.share < 1.0 {
            let extent = request.offset_bytes / SHARE_BYTES;
            if mixed(extent ^ u64::from(request.device) << 44) > self.share {
                self.ledger.not_in_share += 1;
                return None;
            }
        }
        let Some((time_ns, offset_bytes)) = self.place(request) else {
            self.ledger.too_far += 1;
            return None;
        };
        let content = match (request.content, self.options.anonymize) {
            (Some(content), true) => {
                let hidden = NonZeroU64::new(self.key.hash_one(content)).unwrap_or(NonZeroU64::MAX);
                Some(ContentHash(hidden))
            }
            (content, _) => content,
        };
        Some(BlockRequest {
            time_ns,
            device,
            offset_bytes,
            content,
            ..*request
        })
    }

    fn device(&mut self, device: u32, devices: &Devices) -> Option<u32> {
        let index = device as usize;
        while self.numbers.len() <= index {
            let name = &devices.names()[self.numbers.len()];
            let asked = self.options.devices.is_empty() || self.options.devices.contains(name);
            // Only a device with kept requests gets an index, in order of appearance.
            self.numbers.push(asked.then_some(u32::MAX));
        }
        let number = self.numbers[index]?;
        if number != u32::MAX {
            return Some(number);
        }
        let number = if self.options.merged.is_some() {
            self.devices.index_of(b"merged")
        } else if self.options.anonymize {
            self.devices
                .index_of(format!("device-{}", self.devices.names().len()).as_bytes())
        } else {
            self.devices.index_of(devices.names()[index].as_bytes())
        };
        self.numbers[index] = number;
        number
    }

    fn place(&mut self, request: &BlockRequest) -> Option<(u64, u64)> {
        let kept_ns = *self.kept_ns.get_or_insert(request.time_ns);
        let origin = if self.options.anonymize {
            0
        } else {
            i128::from(kept_ns)
        };
        let since = i128::from(request.time_ns) - i128::from(kept_ns);
        let since = if self.options.speed == 1.0 {
            since
        } else {
            (since as f64 / self.options.speed) as i128
        };
        let time_ns = u64::try_from((origin + since).max(0)).ok()?;
        let offset = match &self.options.merged {
            Some(begins) => request
                .offset_bytes
                .checked_add(*begins.get(request.device as usize)?)?,
            None => request.offset_bytes,
        };
        let scaled = if self.options.scale == 1.0 {
            offset
        } else {
            let step = [4096, 512]
                .into_iter()
                .find(|step| offset.is_multiple_of(*step))
                .unwrap_or(1);
            let scaled = offset as f64 * self.options.scale;
            if scaled >= u64::MAX as f64 {
                return None;
            }
            scaled as u64 / step * step
        };
        scaled.checked_add(request.len_bytes.into())?;
        Some((time_ns, scaled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TraceOp;

    fn trace() -> (Vec<BlockRequest>, Devices) {
        let mut devices = Devices::default();
        let numbers = ["a", "b"].map(|name| devices.index_of(name.as_bytes()).unwrap());
        let requests = (0..100u64)
            .map(|index| {
                let device = numbers[index as usize % 2];
                BlockRequest {
                    content: NonZeroU64::new(7).map(ContentHash),
                    ..BlockRequest::new(
                        5000 + index * 1_000_000,
                        device,
                        TraceOp::Read,
                        index << 20,
                        4096,
                    )
                }
            })
            .collect();
        (requests, devices)
    }

    fn apply(options: TransformOptions) -> (Vec<BlockRequest>, Transform) {
        let (requests, devices) = trace();
        let mut transform = Transform::new(options);
        let made = transform.apply(&requests, &devices).to_vec();
        (made, transform)
    }

    #[test]
    fn default_options_change_nothing() {
        let (made, transform) = apply(TransformOptions::default());
        assert_eq!(
            (made, transform.ledger()),
            (trace().0, TransformLedger::default())
        );
        assert_eq!(transform.devices().names(), trace().1.names());
    }

    #[test]
    fn requests_are_selected_by_time_device_and_share() {
        let (from, length) = (Duration::from_millis(10), Some(Duration::from_millis(20)));
        let (made, transform) = apply(TransformOptions {
            from,
            length,
            ..TransformOptions::default()
        });
        assert_eq!(
            (
                made.len(),
                made[0].offset_bytes,
                transform.ledger().outside_time
            ),
            (20, 10 << 20, 80)
        );
        let (made, transform) = apply(TransformOptions {
            devices: vec!["b".into()],
            ..TransformOptions::default()
        });
        assert!(made.len() == 50 && made.iter().all(|request| request.device == 0));
        assert_eq!(
            (
                transform.devices().names(),
                transform.ledger().other_devices
            ),
            (&["b".to_string()][..], 50)
        );
        let (made, transform) = apply(TransformOptions {
            share: 0.3,
            ..TransformOptions::default()
        });
        assert!((10..50).contains(&made.len()), "{}", made.len());
        assert_eq!(made.len() as u64 + transform.ledger().not_in_share, 100);
        assert_eq!(
            apply(TransformOptions {
                share: 0.3,
                ..TransformOptions::default()
            })
            .0,
            made
        );
    }

    #[test]
    fn merged_devices_are_placed_one_after_another() {
        let mut extents = DeviceExtents::default();
        extents.add(&trace().0);
        assert_eq!(extents.begins(), [0, 99 << 20]);
        let options = TransformOptions {
            merged: Some(extents.begins()),
            ..TransformOptions::default()
        };
        let (made, transform) = apply(options);
        assert_eq!(
            (made[1].offset_bytes, made[2].offset_bytes, made[1].device),
            (100 << 20, 2 << 20, 0)
        );
        assert_eq!(transform.devices().names(), ["merged"]);
    }

    #[test]
    fn times_and_addresses_scale_and_names_are_removed() {
        let options = TransformOptions {
            speed: 2.0,
            scale: 0.5,
            anonymize: true,
            ..TransformOptions::default()
        };
        let (made, transform) = apply(options);
        assert_eq!(
            (made[0].time_ns, made[3].time_ns, made[3].offset_bytes),
            (0, 1_500_000, 3 << 19)
        );
        assert_eq!(transform.devices().names(), ["device-0", "device-1"]);
        assert!(made[0].content == made[1].content && made[0].content != trace().0[0].content);
        let far = TransformOptions {
            scale: 1e15,
            ..TransformOptions::default()
        };
        assert_eq!(apply(far).1.ledger().too_far, 99);
    }
}
