//! Serializes the record of single requests that a host keeps during a run, for transfer to the controller afterwards.
//!
//! A request is encoded as a short list rather than an object with names, with times relative to the intended time:
//! some 60 bytes instead of 190. The rule: decoding returns exactly the encoded numbers, whatever they are.

use brunt_core::Nanos;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use brunt_result::op::OpKind;
use brunt_result::record::{RequestRecord, RequestStatus};

/// Numbers of requests that a host has recorded and lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordEnd {
    /// Requests that were kept, to be sent when asked for.
    pub kept: u64,
    /// Requests that could not be kept.
    pub lost: u64,
    /// The reason for the loss; empty if none were lost.
    pub why: String,
}

/// Worker, index, operation, offset, length, intended time, times of sending and completion relative to it, retries,
/// status.
type Row = (
    u32,
    u64,
    OpKind,
    u64,
    u64,
    u64,
    Option<i64>,
    Option<i64>,
    u32,
    RequestStatus,
);

pub(super) fn serialize<S: Serializer>(
    requests: &[RequestRecord],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(requests.iter().map(row))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<RequestRecord>, D::Error> {
    Ok(Vec::<Row>::deserialize(deserializer)?
        .into_iter()
        .map(request)
        .collect())
}

fn row(request: &RequestRecord) -> Row {
    let RequestRecord {
        worker,
        index,
        op,
        offset,
        len,
        intended,
        sent,
        completed,
        retries,
        status,
    } = *request;
    let after = |at: Option<Nanos>| Some(at?.0.wrapping_sub(intended.0) as i64);
    (
        worker,
        index,
        op,
        offset,
        len,
        intended.0,
        after(sent),
        after(completed),
        retries,
        status,
    )
}

fn request(row: Row) -> RequestRecord {
    let (worker, index, op, offset, len, intended, sent, completed, retries, status) = row;
    let at = |after: Option<i64>| Some(Nanos(intended.wrapping_add(after? as u64)));
    let (sent, completed) = (at(sent), at(completed));
    RequestRecord {
        worker,
        index,
        op,
        offset,
        len,
        intended: Nanos(intended),
        sent,
        completed,
        retries,
        status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_round_trip_in_their_short_form() {
        let check = |intended, sent, completed| {
            let one = RequestRecord {
                worker: u32::MAX,
                index: u64::MAX,
                op: OpKind::WriteZeroes,
                offset: u64::MAX,
                len: 7,
                intended,
                sent,
                completed,
                retries: 3,
                status: RequestStatus::TimedOut,
            };
            assert_eq!(request(row(&one)), one);
        };
        check(Nanos(5), Some(Nanos(6)), Some(Nanos(u64::MAX)));
        check(Nanos(u64::MAX), Some(Nanos(0)), None);
        check(Nanos(0), None, Some(Nanos(1 << 63)));
    }
}
