//! Third-party replayers as contestants of `brunt-bench replay`: blkreplay and hfplayer. Neither is packaged, so the
//! user names the program. Their times are taken from their own output; nothing is measured here.
//!
//! The rule: a program that did not send every request has no timing figures.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use brunt_trace::BlockRequest;

use crate::cleanup::Start;
use crate::scratch::Scratch;
use crate::trace_file::write_trace;
use crate::{BenchError, BenchResult, Console};

/// How well a run kept to the trace's times.
pub struct KeptTimes {
    /// Relative error of the time between the first and the last request.
    pub drift: f64,
    /// Percentiles of the issue errors.
    pub p50_us: Option<f64>,
    /// See `p50_us`.
    pub p99_us: Option<f64>,
    /// See `p50_us`.
    pub max_us: Option<f64>,
    /// Requests that were sent after a request that comes later in the trace.
    pub reordered: Option<u64>,
}

/// When a request was due, and how much later it was sent, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IssuedRequest {
    due_ns: i64,
    error_ns: i64,
}

impl KeptTimes {
    /// Requires at least two requests, in the order of the trace.
    fn of(requests: &[IssuedRequest]) -> KeptTimes {
        let (first, last) = (requests[0], requests[requests.len() - 1]);
        let mut errors: Vec<i64> = requests.iter().map(|request| request.error_ns).collect();
        errors.sort_unstable();
        let us =
            |share: f64| errors[((errors.len() - 1) as f64 * share).round() as usize] as f64 / 1e3;
        let mut latest = i64::MIN;
        let reordered = requests.iter().filter(|request| {
            let sent = request.due_ns + request.error_ns;
            let is_late = sent < latest;
            latest = latest.max(sent);
            is_late
        });
        let reordered = reordered.count() as u64;
        KeptTimes {
            drift: (last.error_ns - first.error_ns) as f64 / (last.due_ns - first.due_ns) as f64,
            p50_us: Some(us(0.5)),
            p99_us: Some(us(0.99)),
            max_us: Some(us(1.0)),
            reordered: Some(reordered),
        }
    }
}

/// A third-party replayer and the command line that starts it.
pub struct PeerReplayer {
    /// The replayer's display name.
    pub name: &'static str,
    /// The user's command line: a program and options.
    command: Vec<String>,
    /// The replayer's trace format, from [`brunt_trace::WRITERS`].
    format: &'static str,
    run: fn(&Turn) -> Result<KeptTimes, BenchError>,
}

/// A single run of a replayer.
struct Turn<'a> {
    command: &'a [String],
    trace: &'a Path,
    /// A sparse file in place of a device.
    device: &'a Path,
    /// A folder for the program's output files.
    folder: &'a Path,
    requests: u32,
    span: Duration,
    output: &'a dyn Console,
}

/// hfplayer divides by its trace's line count divided by 10,000, which must not be zero.
const HFPLAYER_LINES_MIN: u32 = 10_000;
/// A program is stopped after this many times the trace's duration, plus the maximum time to start.
const TIMES_MAX: u32 = 20;
const START_MAX: Duration = Duration::from_secs(60);

impl PeerReplayer {
    /// blkreplay (Thomas Schoebel-Theuer), started with this command line.
    ///
    /// # Errors
    /// The command line contains no program.
    pub fn blkreplay(command: &str) -> Result<PeerReplayer, BenchError> {
        Ok(PeerReplayer {
            name: "blkreplay",
            command: words(command)?,
            format: "blkreplay",
            run: blkreplay,
        })
    }

    /// hfplayer (University of Minnesota), started with this command line.
    ///
    /// # Errors
    /// The command line contains no program.
    pub fn hfplayer(command: &str) -> Result<PeerReplayer, BenchError> {
        Ok(PeerReplayer {
            name: "hfplayer",
            command: words(command)?,
            format: "hfplayer",
            run: hfplayer,
        })
    }

    /// Writes the replayer's trace, and a file of `span_bytes` as a stand-in for a device.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn prepare(
        &self,
        scratch: &Scratch,
        span_bytes: u64,
        requests: impl Iterator<Item = BlockRequest>,
    ) -> BenchResult {
        let folder = scratch.join(self.name);
        let failed =
            |error: io::Error| BenchError::failed(format!("{}: {error}", folder.display()));
        fs::create_dir_all(&folder).map_err(failed)?;
        write_trace(&folder.join("trace"), self.format, requests)?;
        File::create(folder.join("device"))
            .and_then(|file| file.set_len(span_bytes))
            .map_err(failed)
    }

    /// Replays the trace, which contains `requests` requests over `span`, once.
    ///
    /// # Errors
    /// The program cannot be run, failed, took too long, or did not send every request.
    pub fn turn(
        &self,
        scratch: &Scratch,
        requests: u32,
        span: Duration,
        output: &dyn Console,
    ) -> Result<KeptTimes, BenchError> {
        let folder = scratch.join(self.name);
        let (trace, device) = (folder.join("trace"), folder.join("device"));
        let (command, trace, device, folder) = (&self.command[..], &trace, &device, &folder);
        (self.run)(&Turn {
            command,
            trace,
            device,
            folder,
            requests,
            span,
            output,
        })
    }
}

fn words(command: &str) -> Result<Vec<String>, BenchError> {
    let words: Vec<String> = command.split_whitespace().map(String::from).collect();
    if words.is_empty() {
        Err(BenchError::usage("the replayer's command line is empty"))
    } else {
        Ok(words)
    }
}

impl Turn<'_> {
    fn failed(&self, what: impl std::fmt::Display) -> BenchError {
        BenchError::failed(format!("{}: {what}", self.command.join(" ")))
    }

    /// Runs the program with additional arguments; returns the lines of its standard output.
    fn run(&self, arguments: &[&str], input: Option<&Path>) -> Result<Vec<String>, BenchError> {
        let io = |error: io::Error| self.failed(error);
        let stdout = self.folder.join("said");
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            .args(arguments)
            .current_dir(self.folder)
            .process_group(0);
        command
            .stdout(File::create(&stdout).map_err(io)?)
            .stderr(Stdio::null());
        command.stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        let mut program = Group(command.start().map_err(io)?);
        let pipe = program.0.stdin.take();
        let deadline = Instant::now() + START_MAX + self.span * TIMES_MAX;
        let status = std::thread::scope(|scope| {
            if let (Some(input), Some(mut pipe)) = (input, pipe) {
                // If the program ends early, the pipe breaks; its status and output explain why.
                scope.spawn(move || {
                    File::open(input).and_then(|mut file| io::copy(&mut file, &mut pipe))
                });
            }
            let ended = loop {
                match program.0.try_wait().map_err(io)? {
                    Some(status) => break Ok(status),
                    None if self.output.is_interrupted() => {
                        break Err(BenchError::interrupted("interrupted"));
                    }
                    None if Instant::now() > deadline => {
                        break Err(self.failed(format!(
                            "did not end within {TIMES_MAX} times the trace's duration"
                        )));
                    }
                    None => std::thread::sleep(Duration::from_millis(20)),
                }
            };
            // Dropping the program closes the pipe's other end.
            drop(program);
            ended
        })?;
        let lines = BufReader::new(File::open(&stdout).map_err(io)?).lines();
        let lines: Vec<String> = lines.collect::<io::Result<_>>().map_err(io)?;
        if status.success() {
            return Ok(lines);
        }
        let last = lines
            .iter()
            .rev()
            .find(|line| line.chars().any(char::is_alphanumeric));
        Err(self.failed(format!(
            "{status}: {}",
            last.map_or("printed nothing", |line| line.trim())
        )))
    }

    fn times(&self, requests: &[IssuedRequest]) -> Result<KeptTimes, BenchError> {
        if requests.len() != self.requests as usize {
            return Err(self.failed(format!(
                "sent {} of {} requests, according to its output",
                requests.len(),
                self.requests
            )));
        }
        Ok(KeptTimes::of(requests))
    }
}

/// A program and its descendants, which are killed on drop.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.0.id().cast_signed()) {
            // Usually, no process of the group is left.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// blkreplay prints a row for each request, with its start and how much later it was sent. The trace is passed
/// through a pipe, because blkreplay's processes would share a file's position and disturb each other. `--dry-run`
/// omits the system call that would read or write.
fn blkreplay(turn: &Turn) -> Result<KeptTimes, BenchError> {
    let device = turn.device.to_string_lossy();
    // blkreplay measures the trace's time from the end of a grace period, in which it starts its processes.
    let lines = turn.run(
        &["--start-grace=3", "--dry-run", "--no-o-direct", &device],
        Some(turn.trace),
    )?;
    let mut requests: Vec<IssuedRequest> = lines
        .iter()
        .filter_map(|line| blkreplay_row(line))
        .collect();
    requests.sort_by_key(|request| request.due_ns);
    turn.times(&requests)
}

/// `orig_start ; sector; length ; op ;  replay_delay; replay_duration`, in seconds.
fn blkreplay_row(line: &str) -> Option<IssuedRequest> {
    let fields: Vec<&str> = line.split(';').map(str::trim).collect();
    let [start, _, _, _, delay, _] = fields[..] else {
        return None;
    };
    Some(IssuedRequest {
        due_ns: nanos(start)?,
        error_ns: nanos(delay)?,
    })
}

fn nanos(seconds: &str) -> Option<i64> {
    let (whole, nanos) = seconds.split_once('.')?;
    // blkreplay prints negative seconds as unsigned numbers: 18446744073709551615 is -1.
    let whole: u64 = whole.parse().ok()?;
    let nanos = Some(nanos)
        .filter(|nanos| nanos.len() == 9)?
        .parse::<i64>()
        .ok()?;
    whole
        .cast_signed()
        .checked_mul(1_000_000_000)?
        .checked_add(nanos)
}

/// hfplayer prints its total time, from 100 ms before the first request. If it was compiled with `DEBUG_TIMING`,
/// `Timing-Log.csv` contains each request's time.
fn hfplayer(turn: &Turn) -> Result<KeptTimes, BenchError> {
    let io = |error: io::Error| turn.failed(error);
    let (map, log, padded) = (
        turn.folder.join("map.csv"),
        turn.folder.join("Timing-Log.csv"),
        turn.folder.join("padded"),
    );
    let columns = "#LUN_SSID.I,START_OFFSET.I,RANGE_NBYTES.I,NREQS.I,OFFSET_SHIFT.I,OFFSET_SCALE.D,IOSIZE_SCALE.D,\
                   START_USECS.I,NUM_USECS.I,SLACK_SCALE.D,AWAIT_REPLY.I,FILE.S";
    let all = i64::MAX;
    fs::write(
        &map,
        format!(
            "{columns}\n0,0,{all},1,0,1,1,0,{all},1,1,{}\n",
            turn.device.display()
        ),
    )
    .map_err(io)?;
    // hfplayer skips these lines, but counts them.
    let mut trace = fs::read(turn.trace).map_err(io)?;
    trace.extend(
        "#\n"
            .repeat(HFPLAYER_LINES_MIN.saturating_sub(turn.requests) as usize)
            .into_bytes(),
    );
    fs::write(&padded, trace).map_err(io)?;
    if log.exists() {
        fs::remove_file(&log).map_err(io)?;
    }
    let [map, padded] = [map, padded].map(|path| path.to_string_lossy().into_owned());
    // A single worker, which keeps the requests in order.
    let lines = turn.run(&["-nt", "1", "-cfg", &map, &padded], None)?;
    if log.exists() {
        let text = fs::read_to_string(&log).map_err(io)?;
        let requests: Vec<IssuedRequest> = text.lines().filter_map(hfplayer_row).collect();
        return turn.times(&requests);
    }
    let (sent, took_s) = lines
        .iter()
        .find_map(|line| hfplayer_total(line))
        .ok_or_else(|| turn.failed("does not report how long it took"))?;
    if sent != turn.requests {
        return Err(turn.failed(format!("completed {sent} of {} requests", turn.requests)));
    }
    let span_s = turn.span.as_secs_f64();
    let drift = (took_s - 0.1) / span_s - 1.0;
    Ok(KeptTimes {
        drift,
        p50_us: None,
        p99_us: None,
        max_us: None,
        reordered: None,
    })
}

/// `THREAD_ID , DepParentComompletionTimeNano, slackTimeNano , depStartTime , issueTime , depWaitTimeStart, WaitTime`.
fn hfplayer_row(line: &str) -> Option<IssuedRequest> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [_, _, _, due, issued, _, _] = fields[..] else {
        return None;
    };
    let (due_ns, issued) = (due.parse::<i64>().ok()?, issued.parse::<i64>().ok()?);
    Some(IssuedRequest {
        due_ns,
        error_ns: issued - due_ns,
    })
}

/// `Completed 40000 IO in 4.135 seconds, 9673.2 IOPS`: requests and seconds.
fn hfplayer_total(line: &str) -> Option<(u32, f64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["Completed", sent, "IO", "in", took_s, "seconds,", ..] = words[..] else {
        return None;
    };
    Some((sent.parse().ok()?, took_s.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::Unread;

    /// Rows in the formats of both programs.
    #[test]
    fn rows_of_both_programs_are_parsed() {
        let row = "   6.555258210 ;   43841760 ;  16 ; W ;   0.000204988 ;   0.000011559";
        assert_eq!(
            blkreplay_row(row),
            Some(IssuedRequest {
                due_ns: 6_555_258_210,
                error_ns: 204_988
            })
        );
        let early = "6.5 ; 4 ; 16 ; W ; 18446744073709551615.999990000 ; 0.000011559";
        assert_eq!(
            blkreplay_row(&early.replace("6.5", "6.500000000")).map(|row| row.error_ns),
            Some(-10_000)
        );
        for other in [
            "orig_start ; sector; length ; op ;  replay_delay; replay_duration",
            "ERROR: bad input count=0, line='start ; sector; length ; op ;  replay_delay=0 ; replay_duration=0",
            "# completed requests          :    191",
        ] {
            assert_eq!(blkreplay_row(other), None, "{other}");
        }
        assert_eq!(
            hfplayer_row("0, 100100000, 0, 100100000, 116000226 , 116000226 , 0 "),
            Some(IssuedRequest {
                due_ns: 100_100_000,
                error_ns: 15_900_226
            })
        );
        assert_eq!(
            hfplayer_row(" THREAD_ID , A, b , depStartTime , issueTime , c, WaitTime"),
            None
        );
        let total = "Completed 40000 IO in 22.892002 seconds, 1747.335170 IOPS";
        assert_eq!(hfplayer_total(total), Some((40_000, 22.892_002)));
        assert_eq!(
            hfplayer_total(&total.replace("IO in", "IO Bundles in")),
            None
        );
    }

    #[test]
    fn kept_times_are_computed_from_the_requests() {
        let request = |due_us: i64, error_us: i64| IssuedRequest {
            due_ns: due_us * 1000,
            error_ns: error_us * 1000,
        };
        // The third request is sent before the second.
        let kept = KeptTimes::of(&[
            request(0, 5),
            request(100, 150),
            request(200, 6),
            request(300, 8),
        ]);
        assert_eq!(kept.reordered, Some(1));
        assert_eq!((kept.p50_us, kept.max_us), (Some(8.0), Some(150.0)));
        assert!((kept.drift - 0.01).abs() < 1e-12, "{}", kept.drift);
    }

    /// If a program ends early, fails or hangs, the result is an error with its name.
    #[test]
    fn a_program_that_does_not_send_everything_has_no_times() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(Some(folder.path()), "x").unwrap();
        let program = |name: &str, text: &str| {
            let path = scratch.join(name);
            fs::write(&path, text).unwrap();
            format!("sh {}", path.display())
        };
        let row = "1.000000000 ; 8 ; 8 ; R ; 0.000001000 ; 0.0";
        let turn = |command: &str| {
            let peer = PeerReplayer::blkreplay(command).unwrap();
            peer.prepare(&scratch, 4096, std::iter::empty()).unwrap();
            peer.turn(&scratch, 2, Duration::from_millis(1), &Unread)
                .map(|kept| kept.max_us)
        };
        let what = |command: &str| turn(command).unwrap_err().what;
        let two = program(
            "two",
            &format!("echo '{row}'; echo '{row}' | sed s/1.0/2.0/"),
        );
        assert_eq!(turn(&two).unwrap(), Some(1.0));
        let one = what(&program("one", &format!("echo '{row}'")));
        assert!(
            one.ends_with("sent 1 of 2 requests, according to its output"),
            "{one}"
        );
        let fails = what(&program(
            "fails",
            "echo Not enough cores; echo ====; exit 3",
        ));
        assert!(
            fails.ends_with("exit status: 3: Not enough cores"),
            "{fails}"
        );
        assert!(PeerReplayer::hfplayer(" ").is_err());
        assert!(what("/no/such/program").contains("/no/such/program"));
    }
}
