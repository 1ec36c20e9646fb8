//! Headless Chromium, controlled over two pipes (`--remote-debugging-pipe`): JSON messages of the DevTools protocol, each ended by a NUL.
//!
//! The browser reads its file descriptor 3 and writes its 4. A shell makes those of standard input and output, so that no code runs between
//! fork and exec here. Calls block the thread; programs under test run in other processes.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{Trouble, children, tools, wait};

/// Names of the program: Debian's, and that of other distributions.
pub const PROGRAMS: [&str; 2] = ["chromium", "chromium-browser"];
/// Longest time of an answer; a first start on a busy machine takes many seconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Arguments besides the profile. No sandbox: root has none in a container, and the pages are those of the test.
const ARGS: [&str; 9] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
];
/// Becomes the program with its standard input and output as 3 and 4.
const PIPES: &str = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";

/// A browser with one page; killed on drop.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    input: ChildStdin,
    inbox: Receiver<Value>,
    session: Option<String>,
    last: u64,
    complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

/// A modifier-free key as the page sees it: `key`, its virtual code, and the text it types.
fn key(name: &str) -> (i64, String) {
    let code = match name {
        "Tab" => 9,
        "Enter" => 13,
        "Escape" => 27,
        "End" => 35,
        "Home" => 36,
        "ArrowLeft" => 37,
        "ArrowUp" => 38,
        "ArrowRight" => 39,
        "ArrowDown" => 40,
        _ => 0,
    };
    match (name, name.chars().count()) {
        ("Enter", _) => (code, "\r".to_owned()),
        (_, 1) => (code, name.to_owned()),
        _ => (code, String::new()),
    }
}

impl Browser {
    /// Starts one with an empty page and a profile of its own.
    ///
    /// # Errors
    /// It is not installed, or does not answer.
    pub fn start() -> Result<Self, Trouble> {
        let program = PROGRAMS.iter().find_map(|name| tools::find(name));
        let program = program.ok_or_else(|| Trouble::new("chromium is not installed"))?;
        let profile = tempfile::tempdir()?;
        let mut command = children::mortal("sh")?;
        command
            .args(["-c", PIPES, "sh"])
            .arg(program)
            .args(ARGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = children::start(command)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or_else(|| Trouble::new("the browser has no pipes"))?;
        let mut browser = Self {
            child,
            input,
            inbox: messages(output),
            session: None,
            last: 0,
            complaints: Vec::new(),
            _profile: profile,
        };
        let page = browser.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": page["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach)?;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Performance"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// Calls a method of the protocol and returns its result. Dialogs that open meanwhile are noted and dismissed.
    ///
    /// # Errors
    /// The method failed, or the browser does not answer.
    pub fn call(&mut self, method: &str, params: Value) -> Result<Value, Trouble> {
        let id = self.send(method, params)?;
        let began = Instant::now();
        loop {
            let left = ANSWER_LIMIT.saturating_sub(began.elapsed());
            let message = match self.inbox.recv_timeout(left) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Trouble::new(format!(
                        "{method}: no answer from the browser"
                    )));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Trouble::new(format!("{method}: the browser has ended")));
                }
            };
            if message["id"] != id {
                self.event(&message)?;
                continue;
            }
            return match message.get("error") {
                Some(error) => Err(Trouble::new(format!("{method}: {error}"))),
                None => Ok(message["result"].clone()),
            };
        }
    }

    fn send(&mut self, method: &str, params: Value) -> Result<u64, Trouble> {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes)?;
        self.input.flush()?;
        Ok(self.last)
    }

    fn event(&mut self, message: &Value) -> Result<(), Trouble> {
        let params = &message["params"];
        match message["method"].as_str() {
            Some("Page.javascriptDialogOpening") => {
                self.complaints
                    .push(format!("dialog: {}", params["message"]));
                // The answer to it is no event: it is skipped, as its id is that of no call.
                self.send("Page.handleJavaScriptDialog", json!({"accept": false}))?;
            }
            Some("Runtime.exceptionThrown") => self
                .complaints
                .push(format!("exception: {}", params["exceptionDetails"])),
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => self
                .complaints
                .push(format!("log: {}", params["entry"]["text"])),
            _ => {}
        }
        Ok(())
    }

    /// Opens an address, and waits until the document and its modules are loaded.
    ///
    /// # Errors
    /// It cannot be loaded.
    pub fn navigate(&mut self, url: &str) -> Result<(), Trouble> {
        let answer = self.call("Page.navigate", json!({"url": url}))?;
        if let Some(error) = answer["errorText"].as_str() {
            return Err(Trouble::new(format!("{url}: {error}")));
        }
        let loaded = "location.href !== 'about:blank' && document.readyState === 'complete'";
        self.until(loaded, ANSWER_LIMIT).map(drop)
    }

    /// Evaluates an expression in the page, waits for it if it is a promise, and returns its value.
    ///
    /// # Errors
    /// It throws.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value, Trouble> {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", params)?;
        match answer.get("exceptionDetails") {
            Some(details) => Err(Trouble::new(format!("{expression}: {details}"))),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// Evaluates until the value is neither null, false, 0 nor empty; returns it.
    ///
    /// # Errors
    /// The time is over: with the text of the page.
    pub fn until(&mut self, expression: &str, limit: Duration) -> Result<Value, Trouble> {
        let result = wait::poll(limit, || {
            // While a page is being replaced, an evaluation fails.
            self.evaluate(expression).ok().filter(|value| match value {
                Value::Null | Value::Bool(false) => false,
                Value::Number(number) => number.as_f64() != Some(0.0),
                Value::String(text) => !text.is_empty(),
                _ => true,
            })
        });
        result.ok_or_else(|| {
            let page = self.evaluate("document.body.innerText.slice(0, 2000)");
            Trouble::new(format!(
                "not within {limit:?}: {expression}; page: {page:?}"
            ))
        })
    }

    /// Sets the size of the window's contents, pixels.
    ///
    /// # Errors
    /// The browser does not answer.
    pub fn set_viewport(&mut self, width: u32, height: u32) -> Result<(), Trouble> {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size)
            .map(drop)
    }

    /// Sets a media feature, such as `prefers-color-scheme` to `dark`, until the next call.
    ///
    /// # Errors
    /// The browser does not answer.
    pub fn emulate(&mut self, feature: &str, value: &str) -> Result<(), Trouble> {
        let features = json!({"features": [{"name": feature, "value": value}]});
        self.call("Emulation.setEmulatedMedia", features).map(drop)
    }

    /// Presses and releases a key: a name of the DOM (`Enter`, `ArrowDown`), or a character.
    ///
    /// # Errors
    /// The browser does not answer.
    pub fn press(&mut self, name: &str) -> Result<(), Trouble> {
        let (code, text) = key(name);
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({"type": kind, "key": name, "windowsVirtualKeyCode": code});
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = text.as_str().into();
            }
            self.call("Input.dispatchKeyEvent", event)?;
        }
        Ok(())
    }

    /// Presses the keys of a text.
    ///
    /// # Errors
    /// The browser does not answer.
    pub fn write(&mut self, text: &str) -> Result<(), Trouble> {
        text.chars()
            .try_for_each(|one| self.press(&one.to_string()))
    }

    /// Saves what is visible as PNG.
    ///
    /// # Errors
    /// It cannot be taken or saved.
    pub fn screenshot(&mut self, file: &Path) -> Result<(), Trouble> {
        let answer = self.call("Page.captureScreenshot", json!({"format": "png"}))?;
        let data = answer["data"].as_str().unwrap_or_default();
        let decoded = STANDARD.decode(data);
        let bytes =
            decoded.map_err(|error| Trouble::doing("cannot decode a screenshot", &error))?;
        Ok(fs::write(file, bytes)?)
    }

    /// Returns a figure of `Performance.getMetrics`, such as `JSHeapUsedSize`.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn metric(&mut self, name: &str) -> Result<f64, Trouble> {
        let answer = self.call("Performance.getMetrics", json!({}))?;
        let mut metrics = answer["metrics"].as_array().into_iter().flatten();
        let metric = metrics.find(|metric| metric["name"] == name);
        metric
            .and_then(|metric| metric["value"].as_f64())
            .ok_or_else(|| Trouble::new(format!("no metric {name}")))
    }

    /// Returns dialogs, exceptions and errors of the log since the last call: refused scripts and styles are among them.
    pub fn complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// Ends when the browser does, or when the receiver is dropped.
fn messages(output: ChildStdout) -> Receiver<Value> {
    let (sender, inbox) = channel();
    thread::spawn(move || {
        for bytes in BufReader::new(output).split(0).map_while(Result::ok) {
            let Ok(message) = serde_json::from_slice(&bytes) else {
                return;
            };
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    inbox
}
