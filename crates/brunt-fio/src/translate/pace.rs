//! When a job sends its requests: rates, pauses, and the time before measuring starts.

use std::time::Duration;

use brunt_core::Span;
use brunt_load::Workload;
use brunt_load::block::processes::ArrivalProcess;
use brunt_load::block::workload::{Arrival, Burst, RampUp};

use super::{Draft, SECOND};
use crate::error::FioError;
use crate::units;

impl Draft<'_> {
    pub(super) fn arrival(&mut self, workload: &mut Workload) -> Result<(), FioError> {
        let block_mean = workload.blocks.mean();
        let kb_base = self.kb_base;
        let of_requests = |text: &str| text.parse::<f64>().ok();
        let of_bytes =
            |text: &str| units::size(text, kb_base).map(|bytes| bytes as f64 / block_mean);
        let requests = self.limit(
            "rate_iops",
            workload,
            &of_requests,
            "a rate such as 1000 requests per second",
        )?;
        let bytes = self.limit(
            "rate",
            workload,
            &of_bytes,
            "a rate such as 10m (bytes per second)",
        )?;
        if let Some((key, rate)) = requests
            .map(|rate| ("rate_iops", rate))
            .or(bytes.map(|rate| ("rate", rate)))
        {
            let process = match self.text("rate_process") {
                Some("poisson") => ArrivalProcess::Poisson,
                _ => ArrivalProcess::Constant,
            };
            let rate = rate * f64::from(workload.workers);
            workload.arrival = Arrival::Open {
                rate,
                process,
                skip_after: Span(Duration::from_secs(10)),
            };
            self.note(
                key,
                "latency is measured from when a request is due; fio measures it from when the request is sent",
            );
        }
        let pause = self.time("thinktime", Duration::from_micros(1))?;
        if let Some(pause) = pause.filter(|pause| !pause.is_zero()) {
            let requests = self.number("thinktime_blocks")?.unwrap_or(1).max(1);
            workload.burst = Some(Burst {
                requests,
                interval: Span(pause),
            });
        }
        if let Some(time) = self
            .time("ramp_time", SECOND)?
            .filter(|time| !time.is_zero())
        {
            workload.ramp_up = Some(RampUp {
                requests: 0,
                time: Span(time),
            });
        }
        Ok(())
    }

    /// The limit that `key` ("reads,writes,trims") sets on the requests per second of one worker.
    fn limit(
        &self,
        key: &str,
        workload: &Workload,
        parse: &dyn Fn(&str) -> Option<f64>,
        expected: &'static str,
    ) -> Result<Option<f64>, FioError> {
        let Some(text) = self.text(key).filter(|text| *text != "0") else {
            return Ok(None);
        };
        let mut sides: Vec<Option<f64>> = Vec::new();
        for side in text.split(',') {
            let stated = match side {
                "" => None,
                side => Some(parse(side).ok_or_else(|| self.wrong(key, expected))?),
            };
            sides.push(stated);
        }
        // A single limit applies to each direction. In a list, an omitted limit means unlimited.
        let of = |index: usize| {
            if sides.len() == 1 {
                sides[0]
            } else {
                sides.get(index).copied().flatten()
            }
        };
        let write = 1.0 - workload.read - workload.trim;
        let shares = [workload.read, write, workload.trim];
        // Each direction has its own limit; the limit that is reached first also limits the mix as a whole.
        let limits = (0..3).filter_map(|index| {
            let limit = of(index).filter(|limit| *limit > 0.0 && shares[index] > 0.0)?;
            Some(limit / shares[index])
        });
        Ok(limits.reduce(f64::min))
    }
}
