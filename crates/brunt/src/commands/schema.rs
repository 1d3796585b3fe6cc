//! `brunt schema`: the JSON Schema of experiment files, from the types that read them.

use brunt_study::experiment::Experiment;

use crate::cli::{Done, Failure, Output};

/// Print the JSON Schema of experiment files, for editors
///
/// An editor that knows it completes keys, shows their help and marks mistakes while you write.
#[derive(clap::Args)]
pub struct Schema {}

impl super::Subcommand for Schema {
    const NAME: &'static str = "schema";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[(
        "brunt schema > experiment.schema.json",
        "then, as the first line of an experiment: #:schema ./experiment.schema.json",
    )];

    fn run(self, output: &Output) -> Done {
        let mut schema = serde_json::to_vec_pretty(&Experiment::schema()).map_err(Failure::failed)?;
        schema.push(b'\n');
        output.bytes(&schema);
        Ok(())
    }
}
