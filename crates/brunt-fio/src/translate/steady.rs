//! Translates `steadystate` (end once the figures are steady) and `latency_target` (find the queue depth that meets a
//! latency goal).

use std::time::Duration;

use brunt_core::Span;
use brunt_load::Workload;
use brunt_load::block::workload::{DepthSearch, Steady};
use brunt_result::steady::SteadyFigure;

use super::{Draft, SECOND};
use crate::error::FioError;

impl Draft<'_> {
    /// Translates `steadystate`, which fio evaluates every second over a window of several seconds.
    pub(super) fn steady(&mut self, workload: &mut Workload) -> Result<(), FioError> {
        let Some(text) = self.text("steadystate") else {
            return Ok(());
        };
        let Some(window) = self
            .time("steadystate_duration", SECOND)?
            .filter(|time| !time.is_zero())
        else {
            self.note(
                "steadystate",
                "without steadystate_duration, fio does not check for a steady state either",
            );
            return Ok(());
        };
        let Some((figure, is_slope, limit)) = self.steady_criterion(text)? else {
            return Ok(());
        };
        if workload.workers > 1 && !self.job.by_key().contains_key("group_reporting") {
            self.lose(
                "steadystate",
                "evaluated over all workers, as in fio with group_reporting",
            );
        }
        let round = self
            .time("steadystate_check_interval", SECOND)?
            .unwrap_or(SECOND);
        let rounds = |time: Duration| time.as_nanos() / round.as_nanos().max(1);
        if round.is_zero() || rounds(window) < 2 {
            return Err(self.wrong(
                "steadystate_duration",
                "a time of at least two check intervals",
            ));
        }
        let after = self
            .time("steadystate_ramp_time", SECOND)?
            .unwrap_or(Duration::ZERO);
        let runtime = self.time("runtime", SECOND)?.filter(|time| !time.is_zero());
        let window = u32::try_from(rounds(window)).unwrap_or(u32::MAX);
        let rounds_max = runtime.map(|time| rounds(time.saturating_sub(after)));
        let rounds_max = rounds_max
            .and_then(|rounds| u32::try_from(rounds).ok())
            .unwrap_or(u32::MAX);
        let limit = Some(limit);
        let (deviation, slope) = if is_slope {
            (None, limit)
        } else {
            (limit, None)
        };
        workload.interval = Span(if after.as_nanos().is_multiple_of(round.as_nanos()) {
            round
        } else {
            SECOND
        });
        workload.stop.steady = Some(Steady {
            round: Span(round),
            rounds_max: rounds_max.max(window),
            window,
            figure,
            deviation,
            slope,
            after: Span(after),
        });
        Ok(())
    }

    /// Parses a `steadystate` criterion: the figure, whether the limit applies to its slope instead of its deviation,
    /// and the limit as a fraction of the mean. `None` if the limit is not a percentage.
    fn steady_criterion(
        &mut self,
        text: &str,
    ) -> Result<Option<(SteadyFigure, bool, f64)>, FioError> {
        let expected =
            "iops, bw or lat, or one of these with the suffix _slope, and a percentage: iops:10%";
        let (what, limit) = text
            .split_once(':')
            .ok_or_else(|| self.wrong("steadystate", expected))?;
        let Some(limit) = limit.trim().strip_suffix('%') else {
            self.lose(
                "steadystate",
                "the limit is relative to the mean: write a percentage such as 5%",
            );
            return Ok(None);
        };
        let limit: f64 = limit
            .trim()
            .parse()
            .map_err(|_| self.wrong("steadystate", expected))?;
        let (figure, is_slope) = what
            .strip_suffix("_slope")
            .map_or((what, false), |figure| (figure, true));
        let figure = match figure {
            "iops" => SteadyFigure::Requests,
            "bw" => SteadyFigure::Bytes,
            "lat" => SteadyFigure::ServiceTime,
            _ => return Err(self.wrong("steadystate", expected)),
        };
        Ok(Some((figure, is_slope, limit / 100.0)))
    }

    /// Translates `latency_target`: the maximum queue depth, up to `iodepth`, at which the given percentage of
    /// requests meets the limit.
    pub(super) fn promise(&mut self, workload: &mut Workload) -> Result<(), FioError> {
        const MICROSECOND: Duration = Duration::from_micros(1);
        let Some(limit) = self
            .time("latency_target", MICROSECOND)?
            .filter(|limit| !limit.is_zero())
        else {
            return Ok(());
        };
        let window = self
            .time("latency_window", MICROSECOND)?
            .filter(|window| !window.is_zero());
        let Some(window) = window else {
            self.lose(
                "latency_target",
                "a depth search needs the length of a trial: write latency_window=5s",
            );
            return Ok(());
        };
        let percentile = match self.text("latency_percentile") {
            Some(text) => text
                .parse()
                .map_err(|_| self.wrong("latency_percentile", "a number such as 99.9"))?,
            None => 100.0,
        };
        if percentile >= 100.0 {
            self.lose(
                "latency_target",
                "the result would depend on the slowest request alone: write latency_percentile=99.99",
            );
            return Ok(());
        }
        let max = std::mem::replace(&mut workload.queue_depth, 1);
        let (percentile, limit) = (Some(percentile), Some(Span(limit)));
        workload.depth_search = Some(DepthSearch {
            max,
            time: Span(window),
            percentile,
            limit,
        });
        self.note(
            "latency_target",
            "the queue depth is determined before the first run and used in all runs; each run lasts one window",
        );
        Ok(())
    }
}
