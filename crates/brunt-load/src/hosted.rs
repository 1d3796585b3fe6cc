//! What other hosts need to know of a load to run it. The side that runs the experiment asks a load what each host gets;
//! an agent asks the load that it read what it may open for it. Loads that cannot run on other hosts don't implement this.
//!
//! The rule: a host gets text that its own line of [`crate::LOADS`] reads. What is sent is the same for all kinds of
//! loads, so that a new kind needs no new message.

use std::path::PathBuf;

use brunt_block::OpenError;
use brunt_block::table::Permit;
use brunt_result::OpKind;
use brunt_result::choice::{EngineSetting, RingMode};
use brunt_result::replay::ReplayFidelity;

use crate::commands::CommandLimits;
use crate::load::{Load, LoadError, LoadInfo, RunOrder, WorkloadError};

/// What a permit calls files and folders.
pub(crate) const FILE: &str = "file";

/// A load that other hosts can run: all of them share it, or each has one for itself.
pub trait HostedLoad: Load {
    /// The hosts that its description names; none in what an agent read.
    fn named_hosts(&self) -> &[String];

    /// What each host gets for a run, and what such a run promises.
    fn for_host(&self, order: &RunOrder) -> OrderedLoad;

    /// Workers of each host that report.
    fn reporters(&self) -> u32 {
        self.info().workers
    }

    /// What is known of all hosts together.
    fn info_of_all(&self) -> LoadInfo {
        let info = self.info();
        LoadInfo {
            workers: info.workers * self.named_hosts().len() as u32,
            ..info
        }
    }

    /// [`Load::describe`] of all hosts together.
    fn describe_all(&self) -> String {
        format!("{}, on {}", self.describe(), self.named_hosts().join(" + "))
    }

    /// The seed of the host whose first worker has this number. Workers that share a sequence have the same seed.
    fn host_seed(&self, seed: u64, _first_worker: u32) -> u64 {
        seed
    }

    /// Whether hosts call [`Load::open`] before the first run and before each run, and may take long for it. If not, all
    /// is done by [`Load::prepare`].
    fn is_opened(&self) -> bool {
        true
    }

    /// Whether all runs of a host share what [`Load::open`] made there, until [`Load::close`].
    fn keeps_between_runs(&self) -> bool {
        false
    }

    /// Whether engine and mode of its rings, where they are [`EngineSetting::Auto`] and [`RingMode::Auto`], are found by
    /// trial runs on its hosts.
    fn measures_rings(&self) -> bool {
        false
    }

    /// A digest of what it reads before it runs; all hosts must have the same. `None`: it reads nothing.
    ///
    /// # Errors
    /// It cannot be read.
    fn input_digest(&self) -> Result<Option<String>, WorkloadError> {
        Ok(None)
    }

    /// The verdict on the parts of all hosts ([`crate::load::Finished::replay_part`]). `lost` says for each host without
    /// a part why it has none. `None`: loads of this kind give no verdict.
    ///
    /// # Errors
    /// A part cannot be used.
    fn judge(
        &self,
        _parts: &[String],
        _lost: &[String],
    ) -> Result<Option<ReplayFidelity>, LoadError> {
        Ok(None)
    }

    /// Asked by an agent: whether nothing in it is meant for the machine that runs the experiment.
    ///
    /// # Errors
    /// The first key that is.
    fn check_sent(&self) -> Result<(), WorkloadError> {
        Ok(())
    }

    /// Asked by an agent: whether it runs on the device that it was sent with.
    fn drives_device(&self) -> bool {
        true
    }

    /// Asked by an agent: whether its owner allows all that it uses beside that device.
    ///
    /// # Errors
    /// Something is not allowed.
    fn check_allowed(&self, permit: &dyn Permit) -> Result<(), OpenError>;

    /// Asked by an agent: whether its workers report each request.
    fn records_requests(&self) -> bool {
        false
    }
}

/// A load as each host gets it for one run.
#[derive(Clone, Debug, Default)]
pub struct OrderedLoad {
    /// For the table of loads.
    pub text: String,
    /// Its name among those that this describes.
    pub member: String,
    /// Its kinds of operations.
    pub kinds: Vec<OpKind>,
    /// Whether it keeps a record of requests.
    pub records: bool,
    /// The folder of this machine for the journals of acknowledged writes of all hosts, if it keeps some.
    pub journals: Option<PathBuf>,
    /// Of each worker.
    pub queue_depth: u32,
    /// As stated; the hosts know what that means there.
    pub engine: Option<EngineSetting>,
    /// `None`: a load without rings.
    pub ring: Option<RingMode>,
    /// What its workers can be told while they run.
    pub commands: CommandLimits,
}
