//! Runs a described workload on other hosts, each of which sends its share of the requests.

use brunt_block::OpenError;
use brunt_block::table::Permit;

use super::BlockLoad;
use super::workload::Workload;
use crate::hosted::{HostedLoad, OrderedLoad};
use crate::load::{Load, LoadInfo, RunOrder, WorkloadError};

impl HostedLoad for BlockLoad {
    fn named_hosts(&self) -> &[String] {
        &self.workload.hosts
    }

    fn for_host(&self, order: &RunOrder) -> OrderedLoad {
        let mut workload = self.ordered(order);
        workload.hosts.clear();
        let journals = workload.take_journals();
        OrderedLoad {
            text: workload.written(),
            member: String::new(),
            kinds: workload.kinds(),
            records: workload.record_requests,
            journals,
            queue_depth: workload.queue_depth,
            engine: workload.engine,
            ring: Some(workload.ring),
            commands: workload.command_limits(),
        }
    }

    fn info_of_all(&self) -> LoadInfo {
        // Rates and totals apply to all hosts together.
        BlockLoad::new(Workload {
            hosts: Vec::new(),
            workers: self.workload.workers_of_all(),
            ..self.workload.clone()
        })
        .info()
    }

    fn describe_all(&self) -> String {
        self.describe()
    }

    fn is_opened(&self) -> bool {
        false
    }

    fn measures_rings(&self) -> bool {
        true
    }

    fn check_sent(&self) -> Result<(), WorkloadError> {
        self.workload.check_remote()
    }

    /// The load uses nothing besides its device.
    fn check_allowed(&self, _permit: &dyn Permit) -> Result<(), OpenError> {
        Ok(())
    }

    fn records_requests(&self) -> bool {
        self.workload.record_requests
    }
}
