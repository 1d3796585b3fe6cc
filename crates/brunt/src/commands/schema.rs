//! `brunt schema`: the JSON Schema of experiment files, generated from the types that parse them.

use brunt_study::experiment::Experiment;

use crate::cli::{Done, Failure, Output};

/// Print the JSON Schema of experiment files, for editors
///
/// With the schema, an editor completes keys, shows their descriptions and marks mistakes as you type.
#[derive(clap::Args)]
pub struct Schema {}

impl super::Subcommand for Schema {
    const NAME: &'static str = "schema";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[(
        "brunt schema > experiment.schema.json",
        "save it, and start an experiment file with: #:schema ./experiment.schema.json",
    )];

    fn run(self, output: &Output) -> Done {
        let mut schema =
            serde_json::to_vec_pretty(&Experiment::schema()).map_err(Failure::failed)?;
        schema.push(b'\n');
        output.bytes(&schema);
        Ok(())
    }
}
