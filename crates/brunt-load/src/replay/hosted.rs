//! Replays a trace on other hosts, each of which reads the whole trace and sends its share of the requests; the hosts'
//! parts are judged as a single replay.

use brunt_block::OpenError;
use brunt_block::table::Permit;
use brunt_result::replay::{ReplayFidelity, ReplayVerdict};

use super::fidelity::{self, ReplayPlan};
use super::part::{PartError, ReplayPart};
use super::{KIND, ReplayLoad};
use crate::block::workload::Workload;
use crate::hosted::{FILE, HostedLoad, OrderedLoad};
use crate::load::{Load, LoadError, RunOrder, WorkloadError};

impl HostedLoad for ReplayLoad {
    fn named_hosts(&self) -> &[String] {
        &self.workload.hosts
    }

    fn for_host(&self, order: &RunOrder) -> OrderedLoad {
        let info = self.info();
        let mut here = Workload {
            hosts: Vec::new(),
            queue_depth: order.depth.unwrap_or(self.workload.queue_depth),
            engine: order.engine.or(self.workload.engine),
            ring: order.ring.unwrap_or(info.ring),
            ..self.workload.clone()
        };
        here.separate_journals(order.order);
        let journals = here.take_journals();
        OrderedLoad {
            text: here.written(),
            kinds: info.kinds,
            records: here.record_requests,
            journals,
            queue_depth: here.queue_depth,
            engine: here.engine,
            ring: Some(here.ring),
            ..OrderedLoad::default()
        }
    }

    /// Returns the digest of all replayed requests, in their original form from the trace.
    fn input_digest(&self) -> Result<Option<String>, WorkloadError> {
        Ok(Some(self.survey()?.digest.text()))
    }

    fn judge(
        &self,
        parts: &[String],
        lost: &[String],
    ) -> Result<Option<ReplayFidelity>, LoadError> {
        let own = |error: PartError| LoadError::Own {
            kind: KIND,
            source: Box::new(error),
        };
        self.judge_parts(parts, lost).map_err(own)
    }

    fn check_sent(&self) -> Result<(), WorkloadError> {
        self.workload.check_remote()
    }

    fn check_allowed(&self, permit: &dyn Permit) -> Result<(), OpenError> {
        permit.check(FILE, &self.settings.trace.display().to_string())
    }

    fn records_requests(&self) -> bool {
        self.workload.record_requests
    }
}

impl ReplayLoad {
    /// `None` if the trace has not been read, or if no host has a part.
    fn judge_parts(
        &self,
        parts: &[String],
        lost: &[String],
    ) -> Result<Option<ReplayFidelity>, PartError> {
        let Some(survey) = self.known() else {
            return Ok(None);
        };
        let read = |text: &String| ReplayPart::read(text, survey.listed.len());
        let parts: Vec<ReplayPart> = parts.iter().map(read).collect::<Result<_, _>>()?;
        let Some(mut all) = parts.into_iter().reduce(|mut all, part| {
            all.merge(&part);
            all
        }) else {
            return Ok(None);
        };
        all.meter.ended &= lost.is_empty();
        let failure = all
            .failure
            .clone()
            .map(|what| WorkloadError { key: "trace", what });
        let plan = ReplayPlan {
            settings: &self.settings,
            survey,
            routes: &self.routes,
        };
        let mut fidelity = fidelity::judge(&all.meter, &plan, &all.rows, failure.as_ref());
        if !lost.is_empty() {
            fidelity.verdict = fidelity.verdict.max(ReplayVerdict::Degraded);
            fidelity
                .reasons
                .push(format!("a host's part is missing: {}", lost.join("; ")));
        }
        Ok(Some(fidelity))
    }
}
