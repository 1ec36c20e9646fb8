//! `drivebay-controller node show`: one node, its last sessions, and the refusals under its name.

use std::io::Write;

use drivebay_proto::controller::{Connection, Node};
use serde::Serialize;

use super::{
    CommandError, args::ShowNodeArgs, client::Client, nodes, output::write, show::Sheet,
    table::printable, terminal::Terminal,
};

/// One node for programs. Field names are stable; moments are seconds since 1970.
#[derive(Debug, Serialize)]
struct NodeSheet<'a> {
    #[serde(flatten)]
    node: &'a Node,
    history: &'a [Connection],
}

/// Runs `node show`, and writes the node with its connection history to `out`. Errs if the node is unknown. `now`: Unix time, seconds.
pub(super) async fn run(
    client: &mut Client,
    args: &ShowNodeArgs,
    now: u64,
    terminal: Terminal,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let Some(node) = client.node(&args.node).await? else {
        return Err(CommandError::NoSuchNode(vec![args.node.clone()]));
    };
    if let Some(document) = args.output.document() {
        let sheet = NodeSheet {
            node: &node,
            history: &node.history,
        };
        return write(out, &document.write(&sheet)?);
    }
    write(out, &text(&node, now, terminal))
}

fn text(node: &Node, now: u64, terminal: Terminal) -> String {
    let mut sheet = Sheet::new(now, terminal);
    sheet.title(&format!("Node {}", printable(&node.node_id)));
    let state = nodes::state(node);
    sheet.painted("state", &terminal.paint.word(&printable(&state)));
    sheet.line("version", &node.version);
    sheet.line("address", &node.address);
    sheet.line("machine", &node.machine_id);
    sheet.line("instance", &node.instance);
    sheet.line(
        "drives",
        &format!("{}, {} in trouble", node.drives, node.drives_in_trouble),
    );
    sheet.line(
        "volumes",
        &format!("{}, {} abnormal", node.volumes, node.volumes_abnormal),
    );
    for line in nodes::below(node, true) {
        sheet.line("", &line);
    }
    if !node.findings.is_empty() {
        sheet.title("Findings");
    }
    for one in &node.findings {
        sheet.line("", &format!("{}: {}", one.code, one.message));
    }
    sheet.title("Connections since this controller started, oldest first");
    if node.history.is_empty() {
        sheet.line("", "none");
    }
    for one in &node.history {
        let times = match one.times {
            0 | 1 => String::new(),
            many => format!(", {many} times"),
        };
        let what = format!("{} {}{times}", one.outcome, sheet.ago(one.at));
        sheet.line("", &format!("{what}, {}: {}", one.address, one.text));
    }
    sheet.text
}
