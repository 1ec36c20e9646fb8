//! The example server of the page, and a browser on it.

use std::{
    env,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::LazyLock,
    time::Duration,
};

use drivebay_hwtests::{browser::Browser, children};

/// Longest time until a page is drawn, on a busy machine.
pub(crate) const DRAWN: Duration = Duration::from_secs(60);
/// True once the fleet is drawn and changes are followed.
pub(crate) const LIVE: &str = "document.getElementById('link-text')?.textContent === 'Live' && document.querySelectorAll('.tile').length";

/// Links of the tiles of BAD drives, in order.
pub(crate) const BAD: &str = "[...document.querySelectorAll('.tile.bad')].map((tile) => tile.getAttribute('href')).sort().join()";

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(program);

// DRIVEBAY_PAGE_FAKE, else the example, built with the assets as they are now. Tests build examples of their own package only; with all
// of the workspace, so that nothing is built a second time with other features.
fn program() -> PathBuf {
    if let Some(path) = env::var_os("DRIVEBAY_PAGE_FAKE") {
        return path.into();
    }
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--locked",
            "--workspace",
            "--example",
            "fake",
        ])
        .status()
        .unwrap();
    assert!(built.success(), "the page's example cannot be built");
    let own = env::current_exe().unwrap();
    let deps = own.parent().and_then(|dir| dir.parent()).unwrap();
    deps.join("examples/fake")
}

/// A running example server; killed on drop.
#[derive(Debug)]
pub(crate) struct Server {
    args: Vec<String>,
    child: Child,
    address: String,
}

impl Server {
    /// Starts one with this many nodes and drives of each, on a free port. `token`: what requests need.
    pub(crate) fn start(nodes: usize, drives: usize, token: Option<&str>) -> Self {
        let mut args = vec![nodes.to_string(), drives.to_string()];
        args.extend(token.map(str::to_owned));
        let (child, address) = spawn("127.0.0.1:0", &args);
        Self {
            args,
            child,
            address,
        }
    }

    /// Ends it; its port stays known.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again, on the same port.
    pub(crate) fn start_again(&mut self) {
        self.kill();
        (self.child, self.address) = spawn(&self.address, &self.args);
    }

    /// Address of its page, with this fragment.
    pub(crate) fn url(&self, fragment: &str) -> String {
        format!("http://{}/{fragment}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(address: &str, args: &[String]) -> (Child, String) {
    let mut command = children::mortal(PROGRAM.to_str().unwrap()).unwrap();
    command.arg(address).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = children::start(command).unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let address = line
        .split_whitespace()
        .find_map(|word| {
            let word = word.trim_start_matches("http://").trim_end_matches('/');
            word.parse::<std::net::SocketAddr>().ok()
        })
        .unwrap_or_else(|| panic!("the example began with {line:?}"));
    // What it prints later is discarded; with the pipe closed it would end.
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    (child, address.to_string())
}

/// Starts a server of 50 nodes with 24 drives and a browser that shows it.
pub(crate) fn shown() -> (Server, Browser) {
    let server = Server::start(50, 24, None);
    let browser = open(&server, "");
    (server, browser)
}

/// Opens a browser of 1280 × 900 on a server, and waits until it is live.
pub(crate) fn open(server: &Server, fragment: &str) -> Browser {
    let mut browser = Browser::start().unwrap();
    browser.set_viewport(1280, 900).unwrap();
    browser.navigate(&server.url(fragment)).unwrap();
    let live = "document.getElementById('link-text')?.textContent === 'Live'";
    browser.until(live, DRAWN).unwrap();
    browser
}

/// Evaluates to a number.
pub(crate) fn number(browser: &mut Browser, expression: &str) -> f64 {
    let value = browser.evaluate(expression).unwrap();
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{expression} is {value}"))
}

/// Evaluates to a text.
pub(crate) fn text(browser: &mut Browser, expression: &str) -> String {
    let value = browser.evaluate(expression).unwrap();
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => panic!("{expression} is {value}"),
    }
}

/// Prints to stderr directly, which the test runner does not capture.
pub(crate) fn report(what: impl std::fmt::Display) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(format!("page: {what}\n").as_bytes());
}
