//! Scrapes as by Prometheus, and their check by promtool.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::{Trouble, need};

/// Prometheus' default scrape timeout.
const LIMIT: Duration = Duration::from_secs(10);

/// Sends one GET over a unix socket; returns the status line and the body.
///
/// # Errors
/// No answer, or not in time.
pub fn get(socket: &Path, path: &str) -> Result<(String, String), Trouble> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(LIMIT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| Trouble::new(format!("no HTTP answer: {answer}")))?;
    let status = head.lines().next().unwrap_or_default();
    Ok((status.to_owned(), body.to_owned()))
}

/// Scrapes /metrics over a unix socket.
///
/// # Errors
/// It was not answered with 200.
pub fn scrape(socket: &Path) -> Result<String, Trouble> {
    let (status, body) = get(socket, "/metrics")?;
    if status.contains(" 200 ") {
        Ok(body)
    } else {
        Err(Trouble::new(format!("{status}: {body}")))
    }
}

/// Scrapes a program that listens on TCP, with HTTP/1.0: the answer is in one piece and uncompressed, and the connection is closed.
///
/// # Errors
/// It was not answered with 200.
pub fn scrape_at(address: SocketAddr) -> Result<String, Trouble> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LIMIT))?;
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: test\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.lines().next().unwrap_or_default().contains(" 200 ") => {
            Ok(body.to_owned())
        }
        _ => Err(Trouble::new(format!("{address}: {answer}"))),
    }
}

/// Returns the value of the first series with this name and all these labels (`drive="x"`).
pub fn value(scrape: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let line = scrape.lines().find(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    })?;
    line.rsplit_once(' ')?.1.parse().ok()
}

/// Makes promtool parse and lint a scrape; returns its complaints.
///
/// # Errors
/// There is no promtool, or it cannot be run.
pub fn lint(scrape: &str) -> Result<String, Trouble> {
    let program = need::promtool().ok_or_else(|| Trouble::new("no promtool"))?;
    let mut child = Command::new(program)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = child
        .stdin
        .take()
        .ok_or_else(|| Trouble::new("promtool has no stdin"))?;
    input.write_all(scrape.as_bytes())?;
    drop(input);
    let output = child.wait_with_output()?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    if !output.status.success() && text.is_empty() {
        text = output.status.to_string();
    }
    Ok(text)
}

/// Returns the names in a text that look like Drivebay's metrics but are not defined.
pub fn unknown_metrics(text: &str) -> BTreeSet<String> {
    let mut defined: BTreeSet<&str> = drivebay_agent::metrics::definitions()
        .iter()
        .chain(drivebay_common::metrics::DEFINITIONS)
        .chain(drivebay_controller::metrics::cluster::DEFINITIONS)
        .map(|def| def.name)
        .collect();
    defined.extend(["drivebay_rpc_total", "drivebay_rpc_duration_seconds_bucket"]);
    text.split(|c: char| !(c.is_ascii_lowercase() || c == '_'))
        .filter(|word| word.starts_with("drivebay_") && !defined.contains(word))
        .map(str::to_owned)
        .collect()
}

/// Returns the series that occur more than once.
pub fn repeated(scrape: &str) -> Vec<&str> {
    let mut series: Vec<&str> = scrape
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.rsplit_once(' ')?.0))
        .collect();
    series.sort_unstable();
    series
        .windows(2)
        .filter(|pair| pair[0] == pair[1])
        .map(|pair| pair[0])
        .collect()
}

/// Returns the queries in the section on joins of deploy/docs/metrics.md: its indented paragraphs. The first uses node_exporter's metrics,
/// the others kube-state-metrics'.
///
/// # Panics
/// There is no such section.
pub fn documented_joins() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/docs/metrics.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once("\n## Joins\n").unwrap();
    let section = section.split("\n#").next().unwrap();
    let paragraphs = section.split("\n\n");
    let indented = paragraphs.filter(|part| part.starts_with("    "));
    indented.map(str::to_owned).collect()
}
