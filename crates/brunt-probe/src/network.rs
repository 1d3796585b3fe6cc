//! Packets, bytes, errors and drops in each direction, for each interface of a network
//! namespace. From `net/dev` (proc(5)).
//!
//! Drops here are the interface's; the `tcp` probe reports TCP's losses and retransmissions.

use std::time::Duration;

use super::figures::{INSTANCES_MAX, Malformed, Rows, Sink, Texts, numbers, pairs};
use super::{Metric, Probe, Scope, headline, metric_of};

pub struct Network;

/// Eight receive counters and eight transmit counters.
const FIELDS: usize = 16;
/// Header lines before the first interface.
const HEAD_LINES: usize = 2;

/// The index of a metric's counter.
const RATES: [(usize, &str); 8] = [
    (0, "received_bytes_per_s"),
    (1, "received_packets_per_s"),
    (2, "receive_errors_per_s"),
    (3, "receive_drops_per_s"),
    (8, "sent_bytes_per_s"),
    (9, "sent_packets_per_s"),
    (10, "send_errors_per_s"),
    (11, "send_drops_per_s"),
];

impl Probe for Network {
    const NAME: &'static str = "network";
    const HELP: &'static str = "packets and bytes of each interface, in both directions";
    const SCOPE: Scope = Scope::Namespace;
    const FILES: &'static [&'static str] = &["{net}/dev"];
    const METRICS: &'static [Metric] = &[
        headline("received_bytes_per_s", "bytes received"),
        headline("received_packets_per_s", "packets received"),
        metric_of("receive_errors_per_s", "damaged packets received"),
        headline("receive_drops_per_s", "packets received and dropped"),
        headline("sent_bytes_per_s", "bytes sent"),
        headline("sent_packets_per_s", "packets sent"),
        metric_of("send_errors_per_s", "packets that could not be sent"),
        headline("send_drops_per_s", "packets dropped before they were sent"),
    ];
    type Reading = Rows<FIELDS>;

    fn parse(texts: &Texts<'_>) -> Result<Rows<FIELDS>, Malformed> {
        let lines = texts
            .need(0)?
            .lines()
            .skip(HEAD_LINES)
            .filter(|line| !line.trim().is_empty());
        let rows = lines.take(INSTANCES_MAX).map(|line| {
            // There is no space in `eth0:123` if the number is long; a name may contain a colon (`eth0:1`).
            let split = line
                .rsplit_once(':')
                .ok_or_else(|| Malformed::new("no colon after the name", line));
            let (name, rest) = split?;
            Ok((
                name.trim().into(),
                numbers(rest.split_ascii_whitespace(), line)?,
            ))
        });
        rows.collect()
    }

    fn figures(before: &Rows<FIELDS>, now: &Rows<FIELDS>, elapsed: Duration, sink: &mut Sink<'_>) {
        for (name, before, now) in pairs(before, now) {
            for (field, metric) in RATES {
                sink.rate_of(name, metric, (before[field], now[field]), 1.0, elapsed);
            }
        }
    }
}
