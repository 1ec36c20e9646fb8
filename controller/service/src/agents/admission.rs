//! Admission of an agent under its node's name. Pure.
//!
//! A session belongs to the identity that was proved. The agent's own statements (machine id, instance) can be copied by
//! anyone with a certificate for the name, so they never suffice alone: a volume that the newcomer lacks would count as
//! deleted on the node.

use drivebay_common::tls::KeyFingerprint;

/// The proved identity of a connection's peer, as opposed to its own statements.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// A certificate of a trusted CA that names the node.
    Certificate {
        node: String,
        /// Fingerprint of the certificate's public key.
        key: KeyFingerprint,
    },
    /// A ServiceAccount token that the cluster's API server accepts as that of an agent's pod on this node.
    ServiceAccount { node: String },
}

impl Identity {
    /// Returns the proved node id.
    pub fn node(&self) -> &str {
        match self {
            Self::Certificate { node, .. } | Self::ServiceAccount { node } => node,
        }
    }

    /// Returns the kind of proof, for logs and outputs.
    pub fn proof(&self) -> &'static str {
        match self {
            Self::Certificate { .. } => "certificate",
            Self::ServiceAccount { .. } => "service-account",
        }
    }
}

/// Identity and statements of an agent that says hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub node: String,
    /// None if nothing is proved: on one machine, and in files of older controllers.
    pub identity: Option<Identity>,
    /// Random id of the agent process.
    pub instance: String,
    /// The machine's id; empty if it has none.
    pub machine_id: String,
    pub version: String,
    /// Address of the connection's peer, for logs and outputs.
    pub address: String,
    /// True if the agent's hello says that it supports snapshots and copies; false for recalled facts.
    pub copies: bool,
}

impl Facts {
    /// True if both have the same proved identity, or the new one is proved by the API server, and they state the same machine id.
    pub fn is_same(&self, other: &Self) -> bool {
        self.is_known_as(other) && self.machine_id == other.machine_id
    }

    // The API server's proof replaces a key that was known before: an upgrade from certificates to tokens.
    fn is_known_as(&self, other: &Self) -> bool {
        let proven = |facts: &Self| matches!(facts.identity, Some(Identity::ServiceAccount { .. }));
        self.identity == other.identity || proven(other)
    }
}

/// The agent that has the name now, or had it last.
#[derive(Debug, Clone, Copy)]
pub struct Holder<'a> {
    pub facts: &'a Facts,
    /// True while it has a session.
    pub connected: bool,
    /// True if volumes of it are known.
    pub has_volumes: bool,
}

/// Decision of [`admit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    Enter,
    /// The node has a session: the newcomer is refused if that session's agent answers, else admission is decided again.
    AskHolder,
    /// Another key or machine, while the agent whose volumes are known is disconnected: admitted only if it shows drives of that node.
    Prove,
}

/// Refusal of an agent. These texts are for the controller's log and its operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The node has a session, and its agent answers.
    #[error(
        "node {node} has a connected agent that answers (machine {holder_machine}, instance {holder}, at {holder_address}); the agent of machine {machine}, instance {instance}, at {address} is refused: run one agent per node, and give each machine a node id of its own"
    )]
    Connected {
        node: String,
        holder: String,
        holder_machine: String,
        holder_address: String,
        instance: String,
        machine: String,
        address: String,
    },
    /// Another key or machine, which shows none of the drives of the node's former agent.
    #[error(
        "node {node} was machine {holder}, which is disconnected; the agent of machine {machine} at {address} has {what} and has shown none of that node's drives with volumes, so it cannot replace it: give it another name, or forget the former node's volumes with `node forget {node}`"
    )]
    NotItsDrives {
        node: String,
        /// Machine id of the former agent.
        holder: String,
        /// Machine id of the refused agent.
        machine: String,
        address: String,
        /// `another machine id`, `another key`, or both.
        what: &'static str,
    },
}

impl Refusal {
    /// Returns the text for the refused agent. It has no data about the other agent, which the refused one could use to impersonate it.
    pub fn for_peer(&self) -> String {
        match self {
            Self::Connected { node, .. } => format!(
                "node {node} has a connected agent that answers, so this one is refused: run one agent per node, and give each machine a node id of its own; the controller's log names both"
            ),
            Self::NotItsDrives { node, .. } => format!(
                "this agent has not shown any drive with volumes of node {node}, which is known with another machine or key: give this node another name, or forget the former node's volumes with `node forget {node}`; the controller's log names both"
            ),
        }
    }

    /// Returns the difference to the former agent, for `what` of [`Refusal::NotItsDrives`].
    pub(super) fn difference(old: Option<&Facts>, new: &Facts) -> &'static str {
        match old {
            Some(old) if old.machine_id == new.machine_id => "another key",
            Some(old) if old.identity == new.identity => "another machine id",
            _ => "another machine id and key",
        }
    }
}

/// Decides on an agent that says hello. `holder`: None for an unknown or forgotten name.
pub fn admit(holder: Option<Holder<'_>>, new: &Facts) -> Admission {
    match holder {
        None => Admission::Enter,
        Some(holder) if holder.connected => Admission::AskHolder,
        Some(holder) if holder.has_volumes && !holder.facts.is_same(new) => Admission::Prove,
        Some(_) => Admission::Enter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(machine: &str, key: u8, instance: &str) -> Facts {
        Facts {
            node: "n".into(),
            identity: (key > 0).then(|| Identity::Certificate {
                node: "n".into(),
                key: KeyFingerprint([key; 32]),
            }),
            instance: instance.into(),
            machine_id: machine.into(),
            version: String::new(),
            address: format!("{machine}:1"),
            copies: false,
        }
    }

    #[test]
    fn a_connected_holder_is_queried_and_a_disconnected_one_makes_way_for_its_own_key_and_machine()
    {
        use Admission::{AskHolder, Enter, Prove};
        let (own, restarted) = (facts("a", 1, "1"), facts("a", 1, "2"));
        let (other_machine, other_key) = (facts("b", 1, "1"), facts("a", 2, "1"));
        let unproven = facts("a", 0, "1");
        assert_eq!(admit(None, &own), Enter);
        for (holder, connected, has_volumes, new, expected) in [
            // In every case, only a session that does not answer is ended.
            (&own, true, true, &own, AskHolder),
            (&own, true, false, &restarted, AskHolder),
            (&own, true, true, &other_machine, AskHolder),
            (&own, true, true, &other_key, AskHolder),
            (&own, false, true, &own, Enter),
            (&own, false, true, &restarted, Enter),
            (&own, false, true, &other_machine, Prove),
            (&own, false, true, &other_key, Prove),
            (&own, false, true, &unproven, Prove),
            // A file of an older controller does not have the key.
            (&unproven, false, true, &own, Prove),
            (&unproven, false, true, &unproven, Enter),
            // No known volumes, so nothing can be lost.
            (&own, false, false, &other_machine, Enter),
            (&own, false, false, &other_key, Enter),
        ] {
            let holder = Holder {
                facts: holder,
                connected,
                has_volumes,
            };
            assert_eq!(admit(Some(holder), new), expected, "{holder:?} {new:?}");
        }
    }

    #[test]
    fn a_refusal_reveals_nothing_of_the_holder_to_the_one_that_is_refused() {
        let connected = Refusal::Connected {
            node: "n".into(),
            holder: "secret-instance".into(),
            holder_machine: "secret-machine".into(),
            holder_address: "secret-address".into(),
            instance: "i".into(),
            machine: "m".into(),
            address: "a".into(),
        };
        let drives = Refusal::NotItsDrives {
            node: "n".into(),
            holder: "secret-machine".into(),
            machine: "m".into(),
            address: "a".into(),
            what: "another key",
        };
        for refusal in [connected, drives] {
            assert!(refusal.to_string().contains("secret"));
            assert!(
                !refusal.for_peer().contains("secret"),
                "{}",
                refusal.for_peer()
            );
        }
    }
}
