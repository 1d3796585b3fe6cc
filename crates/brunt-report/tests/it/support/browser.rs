//! Drives headless Chromium over its own pipe (the DevTools protocol, with a JSON object and a zero byte per
//! message), so that a test needs no network, no port and no other program.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// A browser with one page open.
pub struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    folder: PathBuf,
    session: Option<String>,
    next: u64,
    /// Prefix of the URLs that pages may request: `file:` unless a page is opened elsewhere.
    origin: String,
    /// Problems with the page: console errors, exceptions, requests to anything but the file.
    pub complaints: Vec<String>,
}

impl Browser {
    /// Starts a browser; `None` if Chromium is not installed, which fails the test if BRUNT_REQUIRE_ALL is set.
    pub fn start(folder: &Path) -> Option<Browser> {
        let found = Command::new("chromium")
            .arg("--version")
            .stderr(Stdio::null())
            .output();
        if !found.is_ok_and(|output| output.status.success()) {
            assert!(
                std::env::var_os("BRUNT_REQUIRE_ALL").is_none(),
                "chromium is required here"
            );
            println!("skipped: needs chromium");
            return None;
        }
        let (to, from) = (folder.join("to"), folder.join("from"));
        let made = Command::new("mkfifo").arg(&to).arg(&from).status().unwrap();
        assert!(made.success());
        // The browser reads from file descriptor 3 and writes to 4.
        let script = "exec chromium --headless=new --no-sandbox --disable-gpu --no-first-run \
            --disable-dev-shm-usage --disable-background-networking --force-color-profile=srgb \
            --user-data-dir=\"$1\" --remote-debugging-pipe about:blank 3<\"$2\" 4>\"$3\"";
        let child = Command::new("sh")
            .args(["-c", script, "sh"])
            .args([&folder.join("profile"), &to, &from])
            .env("HOME", folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = File::options().write(true).open(&to).unwrap();
        let from = BufReader::new(File::open(&from).unwrap());
        let folder = folder.to_path_buf();
        let (session, complaints, origin) = (None, Vec::new(), "file:".to_string());
        let mut browser = Browser {
            child,
            to,
            from,
            folder,
            session,
            next: 0,
            origin,
            complaints,
        };
        let target =
            browser.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"]
                .clone();
        let attached = browser.call(
            "Target.attachToTarget",
            json!({ "targetId": target, "flatten": true }),
        );
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_string());
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Calls a method and waits for its answer; handles events that arrive in between.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to
            .write_all(format!("{message}\0").as_bytes())
            .unwrap();
        loop {
            let answer = self.receive();
            if answer["id"] == self.next {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    /// Waits for an event.
    pub fn wait(&mut self, method: &str) {
        while self.receive()["method"] != method {}
    }

    fn receive(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.from.read_until(0, &mut bytes).unwrap();
        assert!(bytes.pop().is_some(), "the browser is gone");
        let message: Value = serde_json::from_slice(&bytes).unwrap();
        let params = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                self.complaints.push(params["exceptionDetails"].to_string())
            }
            Some("Runtime.consoleAPICalled")
                if params["type"] == "error" || params["type"] == "warning" =>
            {
                self.complaints.push(params["args"].to_string());
            }
            Some("Log.entryAdded") => self.complaints.push(params["entry"].to_string()),
            Some("Network.requestWillBeSent") => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                if !url.starts_with(&self.origin)
                    && !url.starts_with("about:")
                    && !url.starts_with("data:")
                {
                    self.complaints.push(format!("request to {url}"));
                }
            }
            _ => {}
        }
        message
    }

    /// Opens a file at this page width, in light or dark mode.
    pub fn open(&mut self, page: &Path, width: u32, dark: bool) {
        self.visit("file:", &format!("//{}", page.display()), width, dark);
    }

    /// Opens a page of this origin at this width, in light or dark mode; requests to other origins are complaints.
    pub fn visit(&mut self, origin: &str, path: &str, width: u32, dark: bool) {
        self.origin = origin.to_string();
        let scale = if width < 500 { 2 } else { 1 };
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": 900, "deviceScaleFactor": scale, "mobile": width < 500 }),
        );
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "media": "", "features": features }),
        );
        self.call("Page.navigate", json!({ "url": format!("{origin}{path}") }));
        self.wait("Page.loadEventFired");
        // Wait for two frames, so that resize observers have run.
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))",
        );
    }

    /// Evaluates an expression; if it is a promise, waits for its value.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        result["result"]["value"].clone()
    }

    /// Waits until the page contains this text, and returns the page's text.
    pub fn text_with(&mut self, what: &str) -> String {
        let look = format!(
            "new Promise((done) => {{ let left = 1200; const look = () => {{ \
               const text = document.body.innerText.replace(/\\s+/g, ' '); \
               if (text.includes({what}) || --left === 0) done(text); else setTimeout(look, 50); }}; look(); }})",
            what = json!(what)
        );
        let text = self.evaluate(&look).as_str().expect("text").to_string();
        assert!(text.contains(what), "{what} is not in {text}");
        text
    }

    /// Presses a named key, such as `Tab`, with or without Shift.
    pub fn key(&mut self, name: &str, shift: bool) {
        let (code, text) = match name {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            " " => (32, " "),
            _ => panic!("no code for the key {name}"),
        };
        for kind in ["keyDown", "keyUp"] {
            let code_name = if name == " " { "Space" } else { name };
            let mut params = json!({ "type": kind, "key": name, "code": code_name, "windowsVirtualKeyCode": code,
                "modifiers": if shift { 8 } else { 0 } });
            if kind == "keyDown" && !text.is_empty() {
                params["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", params);
        }
    }

    /// Clicks in the middle of the element that an expression finds, as soon as it exists and is enabled.
    pub fn click(&mut self, element: &str) {
        let look = format!(
            "new Promise((done) => {{ let left = 1200; const look = () => {{ \
               const found = {element}; \
               if (found && !found.disabled) {{ \
                 found.scrollIntoView({{ block: 'center', behavior: 'instant' }}); \
                 const {{ x, y, width, height }} = found.getBoundingClientRect(); \
                 done([x + width / 2, y + height / 2]); }} \
               else if (--left === 0) done(null); else setTimeout(look, 50); }}; look(); }})"
        );
        let at = self.evaluate(&look);
        assert!(at.is_array(), "nothing to click: {element}");
        for kind in ["mousePressed", "mouseReleased"] {
            let params =
                json!({ "type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", params);
        }
    }

    /// Problems that axe finds on the page, as lists of rule, help and elements.
    pub fn axe(&mut self, script: &str) -> Value {
        self.evaluate(&format!("{script}; 1"));
        let passed = self.evaluate("axe.run().then((result) => result.passes.length)");
        assert!(passed.as_u64().expect("a count") > 15, "{passed}");
        self.evaluate(
            "axe.run().then((result) => result.violations.map((one) => \
               [one.id, one.help, one.nodes.map((node) => node.html)]))",
        )
    }

    /// Writes pictures of the whole page, each of this height, to the folder in BRUNT_PAGES.
    pub fn picture(&mut self, name: &str, piece: u64) {
        let Some(folder) = std::env::var_os("BRUNT_PAGES") else {
            return;
        };
        let size = self.call("Page.getLayoutMetrics", json!({}))["cssContentSize"].clone();
        let (width, height) = (
            size["width"].as_f64().unwrap(),
            size["height"].as_f64().unwrap() as u64,
        );
        for (index, top) in (0..height).step_by(piece as usize).enumerate() {
            let clip = json!({ "x": 0, "y": top, "width": width, "height": piece.min(height - top), "scale": 1 });
            let params = json!({ "clip": clip, "captureBeyondViewport": true });
            let data = self.call("Page.captureScreenshot", params)["data"]
                .as_str()
                .unwrap()
                .to_string();
            std::fs::write(
                Path::new(&folder).join(format!("{name}-{index}.png")),
                decode(&data),
            )
            .unwrap();
        }
    }

    /// Prints the page.
    pub fn print(&mut self) -> Vec<u8> {
        let params = json!({ "printBackground": true, "preferCSSPageSize": true });
        decode(
            self.call("Page.printToPDF", params)["data"]
                .as_str()
                .unwrap(),
        )
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        let _ = self
            .to
            .write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        for _ in 0..100 {
            if let Ok(Some(_)) = self.child.try_wait() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(self.folder.join("profile"));
    }
}

/// The axe-core script, as `tools/live-page.sh --prepare` installs it.
pub fn axe_script() -> Option<String> {
    let tools = std::env::var_os("BRUNT_TOOLS").map(PathBuf::from);
    let tools =
        tools.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tools"));
    let script =
        std::fs::read_to_string(tools.join("live-page/web/node_modules/axe-core/axe.min.js")).ok();
    if script.is_none() {
        assert!(
            std::env::var_os("BRUNT_REQUIRE_ALL").is_none(),
            "axe-core is required here"
        );
        println!("skipped: needs axe-core (tools/live-page.sh --prepare)");
    }
    script
}

/// Decodes base64 (RFC 4648, 4).
fn decode(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = chunk
            .iter()
            .fold(0u32, |bits, byte| bits << 6 | u32::from(value(*byte)))
            << (6 * (4 - chunk.len()));
        bytes.extend(&bits.to_be_bytes()[1..chunk.len()]);
    }
    bytes
}
