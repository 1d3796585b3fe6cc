//! Makes NFS calls from several hosts. Each host has its own tree, in the folder that its target names, and its workers'
//! share of the calls.

use brunt_block::OpenError;
use brunt_block::table::Permit;

use super::load::NfsLoad;
use crate::block::BlockLoad;
use crate::hosted::{HostedLoad, OrderedLoad};
use crate::load::{Load, LoadInfo, RunOrder, WorkloadError};

impl HostedLoad for NfsLoad {
    fn named_hosts(&self) -> &[String] {
        &self.workload().hosts
    }

    fn for_host(&self, order: &RunOrder) -> OrderedLoad {
        OrderedLoad {
            // The kinds of all calls, including calls that may replace others.
            kinds: self.info().kinds,
            ..BlockLoad::new(self.workload().clone()).for_host(order)
        }
    }

    fn info_of_all(&self) -> LoadInfo {
        LoadInfo {
            writes: false,
            ..BlockLoad::new(self.workload().clone()).info_of_all()
        }
    }

    fn describe_all(&self) -> String {
        self.describe()
    }

    fn keeps_between_runs(&self) -> bool {
        true
    }

    fn check_sent(&self) -> Result<(), WorkloadError> {
        self.workload().check_remote()
    }

    /// The load uses nothing besides its device.
    fn check_allowed(&self, _permit: &dyn Permit) -> Result<(), OpenError> {
        Ok(())
    }

    fn records_requests(&self) -> bool {
        self.workload().record_requests
    }
}
