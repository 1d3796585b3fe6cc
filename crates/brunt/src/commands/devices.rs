//! `brunt devices` and `brunt help devices`: lists the devices that URLs can name, with their options and layers, from
//! the tables used to open them.

use brunt_block::open::{BackendEntry, LayerEntry};
use brunt_block::table::{BACKENDS, LAYERS, help};
use serde_json::{Value, json};

use crate::cli::{Done, Output};
use crate::devices::BACKENDS as MORE;

/// The last line of `--help` for commands whose arguments name devices.
pub const POINTER: &str = "'brunt help devices' lists the devices, their options and layers.";

/// List the devices that URLs name, with their options and layers
#[derive(clap::Args)]
pub struct Devices {}

impl super::Subcommand for Devices {
    const NAME: &'static str = "devices";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[(
        "brunt devices",
        "the list; 'brunt help devices' ends with it as well",
    )];

    fn more_help() -> Option<String> {
        Some(help(&MORE))
    }

    fn run(self, output: &Output) -> Done {
        output.line(help(&MORE));
        let devices: Vec<Value> = BACKENDS.iter().chain(MORE.iter()).map(device).collect();
        let layers: Vec<Value> = LAYERS.iter().map(layer).collect();
        output.object(&json!({ "devices": devices, "layers": layers }));
        Ok(())
    }
}

fn device(entry: &BackendEntry) -> Value {
    let option = |(key, help): &(&str, &str)| json!({ "name": key, "help": help });
    let options: Vec<Value> = entry.options.iter().map(option).collect();
    json!({ "name": entry.name, "help": entry.help, "example": entry.example, "options": options })
}

fn layer(entry: &LayerEntry) -> Value {
    json!({ "name": entry.name, "help": entry.help, "example": format!("?{}={}", entry.name, entry.example) })
}
