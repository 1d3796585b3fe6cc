//! `--engine`: which system calls a command's requests are made with.

use brunt_block::ring::engine::{self, EngineError};
use brunt_core::Engine;
use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser;

use crate::cli::Failure;

/// The flag, for every command that makes or serves requests.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct EngineFlag {
    /// System calls that requests are made with: io_uring, or threads with ordinary calls, where io_uring is forbidden
    /// or in the way. BRUNT_ENGINE does the same, for agents too [default: io_uring where the kernel allows it]
    #[arg(long, value_name = "ENGINE", value_parser = parser())]
    engine: Option<Engine>,
}

fn parser() -> impl TypedValueParser<Value = Engine> {
    PossibleValuesParser::new(Engine::ALL.map(Engine::name))
        .map(|name| Engine::of_name(&name).expect("one of the possible values"))
}

impl EngineFlag {
    /// Has this process use the engine, and those that it starts. Before the first ring.
    ///
    /// # Errors
    /// It, or the one of the environment, doesn't work here.
    pub fn state(self) -> Result<(), Failure> {
        let stated = match self.engine {
            Some(engine) => engine::state_engine(engine),
            None => engine::stated_engine().map(drop),
        };
        stated.map_err(|error| match error {
            EngineError::NoIoUring(_) => {
                Failure::failed(error).advise("use --engine threads, which needs no io_uring")
            }
            EngineError::Unknown(_) => Failure::usage(error),
        })
    }
}
