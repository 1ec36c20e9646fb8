//! `drivebay-controller health`: problems in the cluster, worst first, with the next steps.

use std::{collections::BTreeMap, io::Write};

use drivebay_proto::{
    agent::Volume,
    controller::{Node, VolumeOnNode},
    words::NodeState,
};

use super::{
    CommandError,
    args::Show,
    claims::is_unclaimed,
    client::Client,
    nodes,
    output::write,
    table::human_seconds,
    terminal::Terminal,
    wrong::{Health, Kind, Problem, Reason, Severity},
};
use drivebay_csi::health::NODE_UNREACHABLE;
use drivebay_view::{args::Format, show::claim, volumes::count};

/// Runs the command and prints the result. Fails with [`CommandError::Unwell`] if there are problems, for the exit
/// code, and with [`CommandError::NotPolled`] if the only reason is that drives were not polled yet.
pub async fn run(
    client: &mut Client,
    args: &Show,
    now: u64,
    terminal: Terminal,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let listed_nodes = nodes::query(client, &args.nodes).await?;
    let mut health = Health::default();
    let mut unclaimed = 0_usize;
    let mut abnormal: BTreeMap<String, Vec<Volume>> = BTreeMap::new();
    let mut incoming = client.volumes(&args.nodes, false).await?;
    while let Some(there) = incoming.next().await? {
        health.volumes += 1;
        unclaimed += usize::from(is_unclaimed(&there));
        health.problems.extend(of_duplicate(&there));
        if let VolumeOnNode {
            volume: Some(volume),
            node_id,
            ..
        } = there
            && is_judged(&volume)
        {
            abnormal.entry(node_id).or_default().push(volume);
        }
    }
    if unclaimed > 0 {
        health.notes.push(format!(
            "{} without a PersistentVolume; see `drivebay-controller volumes --unclaimed`",
            count(unclaimed as u64)
        ));
    }
    let mut incoming = client.drives(&args.nodes).await?;
    while let Some(node) = incoming.next().await? {
        let volumes = abnormal.remove(&node.node_id).unwrap_or_default();
        let volumes: Vec<&Volume> = volumes.iter().collect();
        // The drives of a disconnected node are as last reported; the disconnection is reported instead.
        let drives = match node.known_state().is_some_and(NodeState::is_absent) {
            true => &[][..],
            false => &node.drives,
        };
        health.add(&node.node_id, drives, &volumes);
    }
    health.add_controller(&client.controller().await?.findings);
    for node in &listed_nodes {
        health.problems.extend(of_node(node));
        // Those of a disconnected node are outdated.
        if !node.known_state().is_some_and(NodeState::is_absent) {
            health.add_host(&node.node_id, &node.findings, true);
        }
        if node.known_state() == Some(NodeState::Forgotten) {
            health
                .notes
                .push(format!("node {} is forgotten", node.node_id));
        }
    }
    if listed_nodes.is_empty() {
        health.problems.push(Problem {
            severity: Severity::Starting,
            kind: Kind::Node,
            node: String::new(),
            id: "none".to_owned(),
            name: String::new(),
            claim: String::new(),
            reasons: vec![reason(
                "no agent has dialled this controller yet; see [controller] in the agents' config",
            )],
            volumes: Vec::new(),
        });
    }
    let health = health.done();
    if let Some(document) = args.output.document() {
        write(out, &document.write(&health)?)?;
    } else {
        let wide = args.output == Format::Wide;
        write(out, &health.text("the cluster", true, wide, now, terminal))?;
    }
    match () {
        () if health.well => Ok(()),
        () if health.awaits_polls() => Err(CommandError::NotPolled),
        () => Err(CommandError::Unwell),
    }
}

/// True if the volume has an abnormal condition other than that its node is disconnected, which is reported once per node.
fn is_judged(volume: &Volume) -> bool {
    let mut wrong = volume.conditions.iter().filter(|one| one.abnormal);
    wrong.any(|one| one.reason != NODE_UNREACHABLE)
}

fn reason(message: &str) -> Reason {
    Reason {
        code: String::new(),
        message: message.to_owned(),
        since: None,
    }
}

/// Returns the problem of a volume that shares its name with another volume, or that another node has, too.
fn of_duplicate(there: &VolumeOnNode) -> Option<Problem> {
    let volume = there.volume.as_ref()?;
    let messages = [
        ("DuplicateName", &there.duplicate),
        ("VolumeOnTwoNodes", &there.other_copy),
    ];
    let messages = messages
        .into_iter()
        .filter(|(_, message)| !message.is_empty());
    let reasons = messages.map(|(code, message)| Reason {
        code: code.to_owned(),
        ..reason(message)
    });
    let reasons: Vec<Reason> = reasons.collect();
    (!reasons.is_empty()).then(|| Problem {
        severity: Severity::Warning,
        kind: Kind::Volume,
        node: there.node_id.clone(),
        id: volume.id.clone(),
        name: volume.name.clone(),
        claim: claim(volume),
        reasons,
        volumes: Vec::new(),
    })
}

fn of_node(node: &Node) -> Option<Problem> {
    let (severity, cause) = match node.known_state() {
        Some(NodeState::Connected | NodeState::Forgotten) if node.notes.is_empty() => return None,
        Some(NodeState::Connected | NodeState::Forgotten) => (Severity::Warning, None),
        Some(NodeState::Starting) => (
            Severity::Starting,
            Some("it is still scanning its drives; try again".to_owned()),
        ),
        _ => {
            let long = match node.away_seconds {
                0 => String::new(),
                seconds => format!(" for {}", human_seconds(seconds)),
            };
            let volumes = count(node.volumes);
            let cause = format!(
                "its agent is disconnected{long}, so the state of {volumes} there is unknown; check the machine, its network and the agent"
            );
            (Severity::Away, Some(cause))
        }
    };
    let causes = cause.iter().map(|cause| reason(cause));
    Some(Problem {
        severity,
        kind: Kind::Node,
        node: node.node_id.clone(),
        id: node.node_id.clone(),
        name: String::new(),
        claim: String::new(),
        reasons: causes
            .chain(node.notes.iter().map(|note| reason(note)))
            .collect(),
        volumes: Vec::new(),
    })
}
