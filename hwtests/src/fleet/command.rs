//! Commands for a running fleet: one line each, answered by one line, `ok …` or `error …`.

use std::{fmt, str::FromStr};

use super::{plan::Plan, seats::Seats};
use crate::Trouble;

/// Nodes that a command applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nodes {
    /// `all`: every node of the plan.
    All,
    /// `FIRST` or `FIRST..LAST`, inclusive.
    Range(String, String),
}

impl Nodes {
    fn indexes(&self, plan: &Plan) -> Result<Vec<usize>, Trouble> {
        let (first, last) = match self {
            Self::All => return Ok((0..plan.nodes).collect()),
            Self::Range(first, last) => (index(plan, first)?, index(plan, last)?),
        };
        Ok((first..=last).collect())
    }
}

fn index(plan: &Plan, node: &str) -> Result<usize, Trouble> {
    plan.index(node)
        .ok_or_else(|| Trouble::new(format!("there is no node {node:?}")))
}

/// A command. NODES is `all`, a node id, or two node ids with `..` between.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// `hold-create NODES`: carries out creations without answering them
    HoldCreate(Nodes),
    /// `hush NODES`: sends no further changes in the inventory
    Hush(Nodes),
    /// `go-on NODES`: answers and sends everything held back
    GoOn(Nodes),
    /// `list NODE`: returns the names of its volumes, as JSON
    List(String),
    /// `ids NODES`: returns the ids of their volumes, as JSON
    Ids(Nodes),
    /// `count`: returns the number of volumes
    Count,
    /// `connected`: returns the number of nodes with a session, and the number of sessions
    Connected,
    /// `restart NODES`: starts new agents on the same drives
    Restart(Nodes),
    /// `stop NODES`: ends the agents
    Stop(Nodes),
    /// `start NODES`: starts the agents that do not run
    Start(Nodes),
    /// `replay-old-snapshot NODES`: sends an old snapshot of the same agent again
    ReplayOldSnapshot(Nodes),
    /// `machine NODE ID`: sets the machine id and starts a new agent
    Machine(String, String),
    /// `suspect NODES`: turns their first drive SUSPECT
    Suspect(Nodes),
    /// `change PERCENT`: changes this share of the volumes each minute from now on
    Change(Percent),
}

/// A percentage, written with or without `%`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Percent(pub f64);

impl Percent {
    /// Returns this percentage of a number.
    pub fn of(self, whole: usize) -> f64 {
        self.0 / 100.0 * whole as f64
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl FromStr for Percent {
    type Err = Trouble;

    fn from_str(text: &str) -> Result<Self, Trouble> {
        let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>();
        let percent = number.ok().filter(|number| (0.0..=1e6).contains(number));
        percent
            .map(Self)
            .ok_or_else(|| Trouble::new(format!("{text:?} is no percentage")))
    }
}

impl FromStr for Nodes {
    type Err = Trouble;

    fn from_str(text: &str) -> Result<Self, Trouble> {
        Ok(match text.split_once("..") {
            _ if text == "all" => Self::All,
            Some((first, last)) => Self::Range(first.to_owned(), last.to_owned()),
            None => Self::Range(text.to_owned(), text.to_owned()),
        })
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Range(first, last) if first == last => f.write_str(first),
            Self::Range(first, last) => write!(f, "{first}..{last}"),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HoldCreate(nodes) => write!(f, "hold-create {nodes}"),
            Self::Hush(nodes) => write!(f, "hush {nodes}"),
            Self::GoOn(nodes) => write!(f, "go-on {nodes}"),
            Self::List(node) => write!(f, "list {node}"),
            Self::Ids(nodes) => write!(f, "ids {nodes}"),
            Self::Count => f.write_str("count"),
            Self::Connected => f.write_str("connected"),
            Self::Restart(nodes) => write!(f, "restart {nodes}"),
            Self::Stop(nodes) => write!(f, "stop {nodes}"),
            Self::Start(nodes) => write!(f, "start {nodes}"),
            Self::ReplayOldSnapshot(nodes) => write!(f, "replay-old-snapshot {nodes}"),
            Self::Machine(node, id) => write!(f, "machine {node} {id}"),
            Self::Suspect(nodes) => write!(f, "suspect {nodes}"),
            Self::Change(percent) => write!(f, "change {percent}"),
        }
    }
}

impl FromStr for Command {
    type Err = Trouble;

    fn from_str(line: &str) -> Result<Self, Trouble> {
        let words: Vec<&str> = line.split_whitespace().collect();
        Ok(match words.as_slice() {
            ["hold-create", nodes] => Self::HoldCreate(nodes.parse()?),
            ["hush", nodes] => Self::Hush(nodes.parse()?),
            ["go-on", nodes] => Self::GoOn(nodes.parse()?),
            ["list", node] => Self::List((*node).to_owned()),
            ["ids", nodes] => Self::Ids(nodes.parse()?),
            ["count"] => Self::Count,
            ["connected"] => Self::Connected,
            ["restart", nodes] => Self::Restart(nodes.parse()?),
            ["stop", nodes] => Self::Stop(nodes.parse()?),
            ["start", nodes] => Self::Start(nodes.parse()?),
            ["replay-old-snapshot", nodes] => Self::ReplayOldSnapshot(nodes.parse()?),
            ["machine", node, id] => Self::Machine((*node).to_owned(), (*id).to_owned()),
            ["suspect", nodes] => Self::Suspect(nodes.parse()?),
            ["change", percent] => Self::Change(percent.parse()?),
            _ => {
                return Err(Trouble::new(format!(
                    "{line:?} is no command; see drivebay-fleet --help"
                )));
            }
        })
    }
}

impl Command {
    /// Executes the command. `change` sets `rate`.
    ///
    /// # Errors
    /// There is no such node, or its agent does not run.
    pub async fn perform(self, seats: &mut Seats, rate: &mut Percent) -> Result<String, Trouble> {
        let plan = seats.plan().clone();
        let done = Ok(String::new());
        match self {
            Self::HoldCreate(nodes) => each(seats, &nodes, |node| node.hold_create()),
            Self::Hush(nodes) => each(seats, &nodes, |node| node.hush()),
            Self::GoOn(nodes) => each(seats, &nodes, |node| node.go_on()),
            Self::ReplayOldSnapshot(nodes) => {
                each(seats, &nodes, |node| node.replay_old_snapshot())
            }
            Self::Suspect(nodes) => each(seats, &nodes, |node| {
                node.publish(|contents| contents.suspect.insert(0));
            }),
            Self::List(node) => {
                let contents = seats.machine(index(&plan, &node)?)?.contents();
                let names = contents.living().map(|(_, volume)| volume.name.clone());
                Ok(json(names.collect()))
            }
            Self::Ids(nodes) => {
                let mut ids = Vec::new();
                for index in nodes.indexes(&plan)? {
                    let node = plan.node(index);
                    let contents = seats.machine(index)?.contents();
                    ids.extend(contents.living().map(|(uuid, _)| format!("{uuid}@{node}")));
                }
                Ok(json(ids))
            }
            Self::Count => Ok(seats.count().to_string()),
            Self::Connected => {
                let (nodes, sessions) = seats.connected();
                Ok(format!("{nodes} {sessions}"))
            }
            Self::Restart(nodes) => {
                let nodes = nodes.indexes(&plan)?;
                seats.stop(&nodes).await;
                seats.start(&nodes);
                done
            }
            Self::Stop(nodes) => {
                seats.stop(&nodes.indexes(&plan)?).await;
                done
            }
            Self::Start(nodes) => {
                seats.start(&nodes.indexes(&plan)?);
                done
            }
            Self::Machine(node, id) => {
                let index = index(&plan, &node)?;
                seats.stop(&[index]).await;
                seats.machine(index)?.set_machine_id(id);
                seats.start(&[index]);
                done
            }
            Self::Change(percent) => {
                *rate = percent;
                done
            }
        }
    }
}

fn each(seats: &Seats, nodes: &Nodes, act: impl Fn(&super::SimNode)) -> Result<String, Trouble> {
    for index in nodes.indexes(seats.plan())? {
        act(seats.node(index)?);
    }
    Ok(String::new())
}

fn json(words: Vec<String>) -> String {
    serde_json::Value::from(words).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_read_back_as_it_was_written() {
        for line in [
            "hold-create n1",
            "hush all",
            "go-on n1..n3",
            "list n1",
            "ids n1..n2",
            "count",
            "connected",
            "restart n1",
            "stop n0..n249",
            "start all",
            "replay-old-snapshot n1",
            "machine n1 other",
            "suspect n0..n99",
            "change 1%",
        ] {
            let command: Command = line.parse().unwrap();
            assert_eq!(command.to_string(), line);
        }
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for line in [
            "",
            "restart",
            "stop n1 n2",
            "change much",
            "machine n1",
            "halt",
        ] {
            assert!(line.parse::<Command>().is_err(), "{line}");
        }
    }

    #[test]
    fn only_nodes_of_the_plan_are_found() {
        let plan = Plan::default();
        let indexes = |text: &str| text.parse::<Nodes>().unwrap().indexes(&plan);
        assert_eq!(indexes("all"), Ok(vec![0, 1, 2]));
        assert_eq!(indexes("n1"), Ok(vec![1]));
        assert_eq!(indexes("n1..n2"), Ok(vec![1, 2]));
        for text in ["n3", "m1", "n01", "n0..n3", "n"] {
            assert!(indexes(text).is_err(), "{text}");
        }
    }
}
