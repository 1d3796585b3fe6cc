//! The interface of loads that can run on other hosts. The side that runs the experiment asks a load what to send to
//! each host; an agent asks the received load what has to be opened. Only loads that can run on other hosts implement
//! it.
//!
//! The rule: a host receives text that the load's own entry in [`crate::LOADS`] parses. The messages are the same for
//! all kinds of loads, so a new kind doesn't need a new message.

use std::path::PathBuf;

use brunt_block::OpenError;
use brunt_block::table::Permit;
use brunt_result::OpKind;
use brunt_result::choice::{EngineSetting, RingMode};
use brunt_result::replay::ReplayFidelity;

use crate::commands::CommandLimits;
use crate::load::{Load, LoadError, LoadInfo, RunOrder, WorkloadError};

/// The name for files and folders in a permit.
pub(crate) const FILE: &str = "file";

/// A load that other hosts can run, either shared among them or separately on each.
pub trait HostedLoad: Load {
    /// Returns the hosts named in the load's description; empty for a load that an agent received.
    fn named_hosts(&self) -> &[String];

    /// Returns what to send to each host for a run, and the properties of such a run.
    fn for_host(&self, order: &RunOrder) -> OrderedLoad;

    /// Returns the number of reporting workers per host.
    fn reporters(&self) -> u32 {
        self.info().workers
    }

    /// Returns the information about all hosts combined.
    fn info_of_all(&self) -> LoadInfo {
        let info = self.info();
        LoadInfo {
            workers: info.workers * self.named_hosts().len() as u32,
            ..info
        }
    }

    /// Like [`Load::describe`], for all hosts combined.
    fn describe_all(&self) -> String {
        format!("{}, on {}", self.describe(), self.named_hosts().join(" + "))
    }

    /// Returns the seed for the host whose first worker has this number. Workers that share a sequence share a seed.
    fn host_seed(&self, seed: u64, _first_worker: u32) -> u64 {
        seed
    }

    /// Returns true if hosts call [`Load::open`] before the first run and before each run, which may take long.
    /// Otherwise, [`Load::prepare`] does everything.
    fn is_opened(&self) -> bool {
        true
    }

    /// Returns true if all runs on a host share what [`Load::open`] created there, until [`Load::close`].
    fn keeps_between_runs(&self) -> bool {
        false
    }

    /// Returns true if the engine and mode of the load's rings are chosen by trial runs on its hosts, where they are
    /// set to [`EngineSetting::Auto`] and [`RingMode::Auto`].
    fn measures_rings(&self) -> bool {
        false
    }

    /// Returns a digest of the input that the load reads before it runs, which must be the same on all hosts; `None`
    /// if it has no input.
    ///
    /// # Errors
    /// The input can't be read.
    fn input_digest(&self) -> Result<Option<String>, WorkloadError> {
        Ok(None)
    }

    /// Judges how faithful a replay was from the parts that its hosts measured
    /// ([`crate::load::Finished::replay_part`]). `lost` contains the reason for each host without a part. Returns
    /// `None` for loads that aren't replays.
    ///
    /// # Errors
    /// A part is unusable.
    fn judge(
        &self,
        _parts: &[String],
        _lost: &[String],
    ) -> Result<Option<ReplayFidelity>, LoadError> {
        Ok(None)
    }

    /// For agents: checks that none of the load's settings apply only to the machine that runs the experiment.
    ///
    /// # Errors
    /// The error names the first key that does.
    fn check_sent(&self) -> Result<(), WorkloadError> {
        Ok(())
    }

    /// For agents: returns true if the load runs on the device that was sent with it.
    fn drives_device(&self) -> bool {
        true
    }

    /// For agents: checks that the agent's owner allows everything that the load uses besides that device.
    ///
    /// # Errors
    /// Something is not allowed.
    fn check_allowed(&self, permit: &dyn Permit) -> Result<(), OpenError>;

    /// For agents: returns true if the load's workers report each request.
    fn records_requests(&self) -> bool {
        false
    }
}

/// A load in the form sent to each host for a run.
#[derive(Clone, Debug, Default)]
pub struct OrderedLoad {
    /// The load's description, for the table of loads.
    pub text: String,
    /// The load's name among the loads of this description.
    pub member: String,
    /// The load's kinds of operations.
    pub kinds: Vec<OpKind>,
    /// Whether the load records requests.
    pub records: bool,
    /// The folder on this machine for the journals of acknowledged writes from all hosts, if the load keeps any.
    pub journals: Option<PathBuf>,
    /// Queue depth of each worker.
    pub queue_depth: u32,
    /// The engine as specified, which each host resolves.
    pub engine: Option<EngineSetting>,
    /// The ring mode; `None` for a load without rings.
    pub ring: Option<RingMode>,
    /// The commands that the load's workers accept while they run.
    pub commands: CommandLimits,
}
