//! Prometheus metrics of runs: scraped during a run, including one in a lab, and checked with Prometheus's own tool.
//! Also tests the metrics of a target; `live.rs` tests those of a capture.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::support::controlled::ControlledTarget;
use crate::support::{
    TARGET_NAME, TempDir, brunt, eventually, experiment, need, root, skip, succeed,
};
use rustix::process::{Pid, Signal, kill_process};

/// A running command that serves metrics; killed on drop.
struct Watched {
    child: Child,
    said: BufReader<ChildStderr>,
    address: String,
}

impl Watched {
    /// Starts the command and waits until it prints its address; returns the output if it ended without an address.
    fn start(command: &mut Command) -> Result<Watched, String> {
        command
            .args(["--metrics", "127.0.0.1:0"])
            .stdin(Stdio::null());
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("brunt");
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        let mut all = String::new();
        while let Ok(1..) = said.read_line(&mut all) {
            let line = all.lines().last().unwrap_or_default();
            if let Some(rest) = line.strip_prefix("brunt: metrics at http://") {
                let address = rest
                    .strip_suffix("/metrics")
                    .expect("an address")
                    .to_string();
                return Ok(Watched {
                    child,
                    said,
                    address,
                });
            }
        }
        let _ = child.wait();
        Err(all)
    }

    /// The current page; empty once the server no longer answers.
    fn page(&self) -> String {
        scrape(&self.address)
    }

    /// Scrapes until `right` accepts the page.
    fn page_with(&self, what: &str, right: impl Fn(&str) -> bool) -> String {
        let mut page = String::new();
        eventually(what, 30, || {
            page = self.page();
            right(&page)
        });
        page
    }

    /// Sends SIGINT, like Ctrl-C, and waits for the command to end.
    fn end(mut self) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process's number");
        kill_process(pid, Signal::INT).expect("it is ours");
        let mut rest = String::new();
        let _ = self.said.read_to_string(&mut rest);
        self.child.wait().expect("it ends");
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The page at this address; empty if there is no answer.
fn scrape(address: &str) -> String {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask()
        .ok()
        .and_then(|answer| Some(answer.split_once("\r\n\r\n")?.1.to_string()))
        .unwrap_or_default()
}

/// The value of the first sample that starts with this prefix, which includes labels.
fn value(page: &str, sample: &str) -> Option<f64> {
    page.lines()
        .find(|line| line.starts_with(sample))?
        .rsplit_once(' ')?
        .1
        .parse()
        .ok()
}

/// Checks a page with Prometheus's own tool.
fn lint(page: &str) {
    let Some(promtool) = need("promtool", "prometheus") else {
        return;
    };
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(page.as_bytes())
        .expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}\n{page}");
}

/// From a lab whose network is isolated: requests of both kinds, and a fault while it is active and after it ended.
#[test]
fn a_run_in_a_lab_is_watched_from_outside() {
    let folder = TempDir::new("metrics");
    let text = "name = \"watched\"\n[lab]\nhosts = [\"a\", \"b\"]\n[lab.links.wire]\nbetween = [\"a\", \"b\"]\n\
                rate = \"1Gb/s\"\n[targets.disk]\nserve = \"memory:4MiB\"\nhost = \"b\"\n\
                [workloads.mixed]\nread = 0.5\nqueue_depth = 2\ninterval = \"50ms\"\nstop = { time = \"600s\" }\n\
                [[fault]]\nname = \"far\"\nlink = \"wire\"\nset = { delay = \"20ms\" }\nat = \"500ms\"\nfor = \"6s\"\n";
    let watched = match Watched::start(&mut experiment(&folder, text)) {
        Ok(watched) => watched,
        Err(said)
            if said.contains("cannot create the namespaces") || said.contains("/dev/net/tun") =>
        {
            return skip("user namespaces and /dev/net/tun");
        }
        Err(said) => panic!("{said}"),
    };
    let labels = "{point=\"disk mixed\",run=\"0\"";
    let requests = |page: &str, op: &str| {
        value(
            page,
            &format!("brunt_run_requests_total{labels},op=\"{op}\"}}"),
        )
        .unwrap_or(0.0)
    };
    let fault = "brunt_fault_active{fault=\"far\",kind=\"link\",place=\"link wire\"}";
    let first = watched.page_with("requests", |page| {
        requests(page, "read") > 0.0 && requests(page, "write") > 0.0
    });
    // Checking a page takes long on a busy machine, so the fault is looked for first.
    let during = watched.page_with("the fault", |page| value(page, fault) == Some(1.0));
    lint(&first);
    assert_eq!(value(&first, "brunt_runs_planned"), Some(5.0), "{first}");
    assert!(
        first.contains("brunt_run_info{experiment=\"watched\",point=\"disk mixed\",run=\"0\"} 1"),
        "{first}"
    );
    assert_eq!(
        value(&first, &format!("brunt_run_under_way{labels}}}")),
        Some(1.0)
    );
    let bytes = value(
        &first,
        &format!("brunt_run_bytes_total{labels},op=\"read\"}}"),
    );
    assert_eq!(bytes, Some(requests(&first, "read") * 4096.0), "{first}");
    assert!(requests(&during, "read") >= requests(&first, "read"));
    let after = watched.page_with("the fault's end", |page| value(page, fault) == Some(0.0));
    // Round trips became 40 ms longer, so some requests exceed 33.6 ms, the highest bucket bound below that.
    let of = |name: &str, more: &str| {
        let sample = format!("brunt_run_response_seconds_{name}{labels},op=\"read\"{more}}}");
        value(&after, &sample).unwrap_or_else(|| panic!("{sample} in {after}"))
    };
    assert!(
        of("bucket", ",le=\"0.033554432\"") < of("count", ""),
        "{after}"
    );
    assert_eq!(of("bucket", ",le=\"+Inf\""), requests(&after, "read"));
    lint(&after);
    watched.end();
}

/// Metrics also cover a replay; a request for another page is redirected to the right one.
#[test]
fn a_replay_exports_metrics() {
    let mut command = brunt();
    command
        .arg("replay")
        .arg(root().join("testdata/mysql-minutes.load.gz"))
        .args(["null:64GiB"]);
    let watched = Watched::start(&mut command).unwrap_or_else(|said| panic!("{said}"));
    let labelled = |page: &str| page.contains("brunt_run_info{experiment=\"replay\",point=\"");
    let page = watched.page_with("requests", |page| {
        page.lines().any(|line| {
            let count = || line.rsplit_once(' ')?.1.parse::<f64>().ok();
            line.starts_with("brunt_run_requests_total{")
                && count().is_some_and(|count| count > 0.0)
        })
    });
    assert!(labelled(&page), "{page}");
    lint(&page);
    watched.end();
}

/// An address that is in use is an ordinary error, reported before anything is opened.
#[test]
fn a_taken_address_is_refused() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let folder = TempDir::new("metrics");
    let text =
        "name = \"x\"\n[targets.a]\nurl = \"null:1MiB\"\n[workloads.w]\nstop = { requests = 1 }\n";
    let output = experiment(&folder, text)
        .args(["--metrics", &address])
        .output()
        .expect("brunt");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("cannot serve metrics at {address}")) && said.contains("port 0"),
        "{said}"
    );
    assert!(!folder.join("results/summary.json").exists());
}

/// Prometheus can parse each query in the dashboard.
#[test]
fn the_dashboards_queries_are_valid_promql() {
    let Some(promtool) = need("promtool", "prometheus") else {
        return;
    };
    let text = std::fs::read_to_string(root().join("docs/grafana.json")).expect("the dashboard");
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let queries = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let rules: Vec<serde_json::Value> = queries
        .enumerate()
        .map(|(index, target)| {
            let query = target["expr"].as_str().expect("a query");
            let query = query
                .replace("$__rate_interval", "1m")
                .replace("$instance", ".*");
            serde_json::json!({ "record": format!("query:{index}"), "expr": query })
        })
        .collect();
    assert!(rules.len() > 20, "{}", rules.len());
    let folder = TempDir::new("metrics");
    let file = folder.join("rules.yml");
    let document = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    std::fs::write(&file, document.to_string()).expect("a file");
    let output = Command::new(promtool)
        .args(["check", "rules"])
        .arg(&file)
        .output()
        .expect("promtool");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The page shows a target's work for each initiator, its LUNs, and their access states.
#[test]
fn a_target_exports_metrics() {
    let luns = ["--lun", "memory:1MiB", "--lun", "null:1GiB,block=4096"];
    let portal = [
        "--portal",
        "127.0.0.1:0,state=non-optimized",
        "--metrics",
        "127.0.0.1:0",
    ];
    let mut target = ControlledTarget::start(&[luns, portal].concat(), 1);
    let note = target.wait_for_note("metrics at http://");
    let address = note
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.strip_suffix("/metrics"))
        .expect("an address");
    let url = format!("iscsi://{}/{TARGET_NAME}/1", target.portals[0]);
    succeed(
        brunt().args(["io", "write", &url, "--bs", "64k", "--count", "100"]),
        30,
    );
    target.ask(r#"{"do":"resize","lun":0,"size":"2MiB"}"#);
    target.ask(r#"{"do":"access","group":1,"state":"standby"}"#);
    let of = format!("{{target=\"{TARGET_NAME}\"");
    // A connection's counters become final a moment after its initiator has left.
    eventually("the session is gone", 10, || {
        value(&scrape(address), "brunt_target_sessions_open ") == Some(0.0)
    });
    let page = scrape(address);
    lint(&page);
    // The page has the target metrics that the dashboard queries.
    let dashboard =
        std::fs::read_to_string(root().join("docs/grafana.json")).expect("the dashboard");
    let names = dashboard.match_indices("brunt_target_").map(|(at, _)| {
        dashboard[at..]
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .next()
            .expect("a name")
    });
    let mut asked = 0;
    for name in names {
        asked += 1;
        assert!(
            page.contains(&format!("# TYPE {name} ")),
            "docs/grafana.json asks for {name}\n{page}"
        );
    }
    assert!(asked >= 9, "{asked}");
    let check = |sample: String, expected: f64| {
        assert_eq!(value(&page, &sample), Some(expected), "{sample}\n{page}");
    };
    check(
        format!("brunt_target_written_bytes_total{of}}}"),
        100.0 * 65536.0,
    );
    check(
        format!("brunt_target_lun_size_bytes{of},lun=\"0\"}}"),
        f64::from(2 << 20),
    );
    check(
        format!("brunt_target_lun_size_bytes{of},lun=\"1\"}}"),
        f64::from(1 << 30),
    );
    check(
        format!("brunt_target_port_group_state{of},lun=\"1\",group=\"1\",state=\"standby\"}}"),
        1.0,
    );
    check("brunt_target_connections_broken_total".to_string(), 0.0);
    assert!(
        value(&page, &format!("brunt_target_commands_total{of}}}"))
            .is_some_and(|count| count >= 100.0),
        "{page}"
    );
}
