//! Measures how much many lightly loaded agents cost their controller: CPU time, memory and bytes, for each number of
//! agents.
//!
//! The hosts are not sampled: all samplers would sample this one machine, which is more work than the load itself.
//!
//! The rule: the controller is `brunt run` in a separate process, measured by the kernel from start to end.

use std::path::Path;
use std::process::{Command, Stdio};

use brunt_core::{ChildUsage, Clock};
use brunt_host::Authority;
use brunt_lab::Lab;
use serde_json::{Value, json};

use super::testbed::serve_agent;
use crate::cleanup::Start;
use crate::program;
use crate::scratch::Scratch;
use crate::{BenchError, Console};

/// Requests per second for each agent.
const RATE: u32 = 10;

/// Measures one number of agents after another.
pub(super) fn measure(
    numbers: &[u16],
    seconds: u64,
    output: &dyn Console,
) -> Result<Value, BenchError> {
    let scratch = Scratch::new(None, "agents")?;
    let authority = Authority::in_folder(scratch.path()).map_err(BenchError::failed)?;
    let controller = authority.controller().map_err(BenchError::failed)?;
    // A single host runs all agents and the controller, so their cost is measured without a network.
    let lab = Lab::new(["here"], Clock::Monotonic).map_err(BenchError::failed)?;
    let here = lab.host("here").map_err(BenchError::failed)?;
    let address = here.address();
    let identity = authority
        .agent(&address.to_string())
        .map_err(BenchError::failed)?;
    let most = numbers.iter().copied().max().unwrap_or(0);
    let mut agents = Vec::new();
    for _ in 0..most {
        agents.push(serve_agent(here, &format!("{address}:0"), &identity, 0)?);
    }
    output.line(format_args!(
        "agents ({RATE} requests/s each, {seconds} s)   controller's cpu ms   MiB   sent B/s per \
         agent   received B/s per agent"
    ));
    let mut rows = Vec::new();
    for &number in numbers {
        if output.is_interrupted() {
            return Err(BenchError::interrupted("interrupted"));
        }
        let ports: Vec<u16> = agents
            .iter()
            .take(usize::from(number))
            .map(|(_, port)| *port)
            .collect();
        let text = experiment(&address.to_string(), &ports, &controller, seconds);
        let (file, results) = (
            scratch.join("agents.toml"),
            scratch.join(&format!("results-{number}")),
        );
        std::fs::write(&file, text).map_err(BenchError::failed)?;
        let mut run = Command::new(program::brunt()?);
        run.arg("run").arg(&file).arg("--out").arg(&results);
        here.place(&mut run).map_err(BenchError::failed)?;
        let child = run
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .start();
        let spent =
            ChildUsage::wait(child.map_err(BenchError::failed)?).map_err(BenchError::failed)?;
        if !spent.status.success() {
            return Err(BenchError::failed(format!(
                "brunt run with {number} agents: {}",
                spent.status
            )));
        }
        let summary = std::fs::read(results.join("summary.json")).map_err(BenchError::failed)?;
        let summary: Value = serde_json::from_slice(&summary).map_err(BenchError::failed)?;
        rows.push(row(number, seconds, &spent, &summary, output));
    }
    Ok(json!(rows))
}

/// An experiment with a light load on agents at these ports, as a user would write it.
fn experiment(address: &str, ports: &[u16], controller: &Path, seconds: u64) -> String {
    let host = |(index, port): (usize, &u16)| {
        let identity = controller.display();
        format!("[hosts.a{index}]\nagent = \"{address}:{port}\"\nidentity = \"{identity}\"\n")
    };
    let names: Vec<String> = (0..ports.len())
        .map(|index| format!("\"a{index}\""))
        .collect();
    format!(
        "name = \"agents\"\nrepetitions = 1\nhost_silence = \"60s\"\n{}[targets.t]\nurl = \"null:1GiB\"\n\
         [workloads.w]\nhosts = [{}]\ninterval = \"1s\"\n\
         arrival = {{ kind = \"open\", rate = {}, process = \"constant\" }}\nstop = {{ time = \"{seconds}s\" }}\n\
         [probes]\ninterval = \"200ms\"\nhosts = []\n",
        ports.iter().enumerate().map(host).collect::<String>(),
        names.join(", "),
        RATE * ports.len() as u32
    )
}

/// Prints the cost of a run.
fn row(
    number: u16,
    seconds: u64,
    spent: &ChildUsage,
    summary: &Value,
    output: &dyn Console,
) -> Value {
    let hosts = summary["points"][0]["runs"][0]["hosts"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let bytes = |key: &str| {
        let sum: f64 = hosts.iter().filter_map(|host| host[key].as_f64()).sum();
        sum / f64::from(number) / seconds as f64
    };
    let (sent, received) = (bytes("sent_bytes"), bytes("received_bytes"));
    let cpu_ms = spent.cost.cpu().as_secs_f64() * 1e3;
    let mib = spent.resident_bytes_max as f64 / f64::from(1 << 20);
    output.line(format_args!(
        "  {number:>5} {cpu_ms:>48.0} {mib:>5.1} {sent:>19.0} {received:>23.0}"
    ));
    json!({
        "agents": number,
        "controller_cpu_ms": cpu_ms,
        "controller_resident_bytes": spent.resident_bytes_max,
        "switches": spent.cost.switches(),
        "sent_bytes_per_agent_second": sent,
        "received_bytes_per_agent_second": received,
    })
}
