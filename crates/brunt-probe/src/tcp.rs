//! TCP counters of a network namespace, in particular retransmissions. From `net/snmp` (the counters of RFC 4022) and
//! `net/netstat` (Linux-specific counters, Documentation/networking/snmp_counter.rst).

use std::time::Duration;

use super::figures::{Malformed, Sink, Texts, advance};
use super::{Metric, Probe, Scope, headline, metric_of};

pub struct Tcp;

/// A counter's file index, group and name, and its metric.
const RATES: [(usize, &str, &str, &str); 14] = [
    (0, "Tcp", "InSegs", "received_segments_per_s"),
    (0, "Tcp", "OutSegs", "sent_segments_per_s"),
    (0, "Tcp", "RetransSegs", "retransmitted_segments_per_s"),
    (0, "Tcp", "InErrs", "receive_errors_per_s"),
    (0, "Tcp", "OutRsts", "sent_resets_per_s"),
    (0, "Tcp", "ActiveOpens", "connects_per_s"),
    (1, "TcpExt", "TCPFastRetrans", "fast_retransmits_per_s"),
    (1, "TcpExt", "TCPTimeouts", "timeouts_per_s"),
    (1, "TcpExt", "TCPLossProbes", "loss_probes_per_s"),
    (1, "TcpExt", "TCPLostRetransmit", "lost_retransmits_per_s"),
    (1, "TcpExt", "TCPDSACKRecv", "needless_retransmits_per_s"),
    (1, "TcpExt", "TCPOFOQueue", "out_of_order_segments_per_s"),
    (1, "TcpExt", "TCPToZeroWindowAdv", "zero_windows_per_s"),
    (1, "TcpExt", "ListenDrops", "listen_drops_per_s"),
];
const SENT: usize = 1;
const RETRANSMITTED: usize = 2;

impl Probe for Tcp {
    const NAME: &'static str = "tcp";
    const HELP: &'static str = "TCP segments, retransmissions and their causes";
    const SCOPE: Scope = Scope::Namespace;
    const FILES: &'static [&'static str] = &["{net}/snmp", "{net}/netstat"];
    const METRICS: &'static [Metric] = &[
        headline("received_segments_per_s", "segments received"),
        headline(
            "sent_segments_per_s",
            "segments sent, without retransmissions",
        ),
        headline("retransmitted_segments_per_s", "segments retransmitted"),
        headline(
            "retransmitted_share",
            "retransmissions as a share of all segments sent; none if nothing was sent",
        ),
        metric_of("receive_errors_per_s", "damaged segments received"),
        metric_of("sent_resets_per_s", "segments with RST sent"),
        metric_of("connects_per_s", "connections opened from here"),
        metric_of(
            "fast_retransmits_per_s",
            "retransmissions because acknowledgements showed the loss",
        ),
        headline("timeouts_per_s", "retransmission timers that expired"),
        metric_of("loss_probes_per_s", "tail loss probes (RFC 8985)"),
        metric_of(
            "lost_retransmits_per_s",
            "retransmissions that were lost again",
        ),
        metric_of(
            "needless_retransmits_per_s",
            "retransmissions of segments that had arrived (DSACK, RFC 2883)",
        ),
        metric_of(
            "out_of_order_segments_per_s",
            "segments that arrived before one sent earlier",
        ),
        metric_of(
            "zero_windows_per_s",
            "times the receive window closed because of a slow reader",
        ),
        metric_of(
            "listen_drops_per_s",
            "connections refused because the backlog was full",
        ),
    ];
    type Reading = [Option<u64>; RATES.len()];

    fn parse(texts: &Texts<'_>) -> Result<Self::Reading, Malformed> {
        texts.need(0)?;
        let mut reading = [None; RATES.len()];
        for (value, (file, group, name, _)) in reading.iter_mut().zip(RATES) {
            *value = match texts.get(file) {
                Some(text) => counter(text, group, name)?,
                None => None,
            };
        }
        match reading[SENT] {
            None => Err(Malformed::new("no counter OutSegs", "")),
            Some(_) => Ok(reading),
        }
    }

    fn figures(
        before: &Self::Reading,
        now: &Self::Reading,
        elapsed: Duration,
        sink: &mut Sink<'_>,
    ) {
        for ((before, now), (_, _, _, metric)) in before.iter().zip(now).zip(RATES) {
            if let Some(counters) = before.zip(*now) {
                sink.rate(metric, counters, 1.0, elapsed);
            }
        }
        let count = |index: usize| advance(before[index]?, now[index]?);
        if let Some((sent, again)) = count(SENT).zip(count(RETRANSMITTED))
            && sent + again > 0
        {
            sink.put("retransmitted_share", again as f64 / (sent + again) as f64);
        }
    }
}

/// Returns a counter of a group from a line of names and a line of numbers, both starting with the group's name.
/// Negative numbers (MaxConn) are not counters. `None` if this kernel lacks the counter.
fn counter(text: &str, group: &str, name: &str) -> Result<Option<u64>, Malformed> {
    let of_group = |line: &&str| {
        line.strip_prefix(group)
            .is_some_and(|rest| rest.starts_with(':'))
    };
    let mut lines = text.lines().filter(of_group);
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return Ok(None);
    };
    let Some(index) = names
        .split_ascii_whitespace()
        .position(|field| field == name)
    else {
        return Ok(None);
    };
    let value = values.split_ascii_whitespace().nth(index);
    let value = value.ok_or_else(|| Malformed::new("fewer numbers than names", values))?;
    value
        .parse()
        .map(Some)
        .map_err(|_| Malformed::new("not a counter", values))
}
