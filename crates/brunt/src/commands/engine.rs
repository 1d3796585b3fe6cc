//! `--engine`: selects the system calls that a command uses for its requests.

use brunt_block::ring::engine::{self, IoEngineError};
use brunt_core::IoEngine;
use brunt_study::experiment::Workloads;
use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser;

use crate::cli::Failure;

/// The flag, for every command that makes or serves requests.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct EngineFlag {
    /// How requests are sent: with io_uring, or with ordinary system calls in threads where io_uring is forbidden or
    /// unsuitable. The environment variable BRUNT_ENGINE does the same, also for agents [default: io_uring where the
    /// kernel allows it]
    #[arg(long, value_name = "ENGINE", value_parser = parser())]
    engine: Option<IoEngine>,
}

fn parser() -> impl TypedValueParser<Value = IoEngine> {
    PossibleValuesParser::new(IoEngine::ALL.map(IoEngine::name))
        .map(|name| IoEngine::of_name(&name).expect("one of the possible values"))
}

impl EngineFlag {
    /// Sets the engine for this process and its children. Call it before creating the first ring.
    ///
    /// # Errors
    /// This engine, or the one named in the environment, doesn't work here.
    pub fn state(self) -> Result<(), IoEngineError> {
        match self.engine {
            Some(engine) => engine::state_engine(engine),
            None => engine::stated_engine().map(drop),
        }
    }

    /// Sets the engine as [`EngineFlag::state`] does, unless a workload's own key names another engine.
    ///
    /// # Errors
    /// As for [`EngineFlag::state`], or a workload names another engine or `auto`.
    pub fn state_for(self, workloads: &Workloads) -> Result<(), Failure> {
        self.state()?;
        let Some(stated) = self.engine else {
            return Ok(());
        };
        for (name, workload) in workloads.on_targets() {
            if let Some(setting) = workload.engine.filter(|setting| *setting != stated.into()) {
                let (said, wanted) = (setting.name(), stated.name());
                let what = format!("--engine {wanted}: workload {name} has engine = \"{said}\"");
                let advice = format!("replace the key with --set workloads.{name}.engine={wanted}");
                return Err(Failure::usage(what).advise(advice));
            }
        }
        Ok(())
    }
}
