//! Whether an agent that says hello is let in under its node's name. Pure.
//!
//! A session belongs to the identity that was proven. What the agent says of itself (machine id, instance) can be copied
//! by whoever has a certificate for the name, so it never decides alone: what the newcomer does not have would count as
//! deleted on the node.

use drivebay_common::tls::KeyFingerprint;

/// What the other end of a connection has proved, as opposed to what it says of itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// A certificate of a trusted CA that names the node.
    Certificate {
        node: String,
        /// Of the certificate's public key.
        key: KeyFingerprint,
    },
    /// A ServiceAccount token that the cluster's API server takes for that of an agent's pod on this node.
    ServiceAccount { node: String },
}

impl Identity {
    /// The node whose agent it proves to be.
    pub fn node(&self) -> &str {
        match self {
            Self::Certificate { node, .. } | Self::ServiceAccount { node } => node,
        }
    }

    /// What kind of proof it is, for people.
    pub fn proof(&self) -> &'static str {
        match self {
            Self::Certificate { .. } => "certificate",
            Self::ServiceAccount { .. } => "service-account",
        }
    }
}

/// Who says hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub node: String,
    /// None where nothing is proved: on one machine, and in files of older controllers.
    pub identity: Option<Identity>,
    /// Random id of the agent process.
    pub instance: String,
    /// The machine's id; empty when it has none.
    pub machine_id: String,
    /// The agent's version, for people.
    pub version: String,
    /// Where the connection comes from, for people.
    pub address: String,
    /// It takes snapshots and makes copies, by its hello; false in what was known before this process began.
    pub copies: bool,
}

impl Facts {
    /// Whether both have proved to be the same, and say that they are the same machine.
    pub fn is_same(&self, other: &Self) -> bool {
        self.is_known_as(other) && self.machine_id == other.machine_id
    }

    // The API server's word for the node is worth more than a key that was known before: an upgrade from certificates.
    fn is_known_as(&self, other: &Self) -> bool {
        let proven = |facts: &Self| matches!(facts.identity, Some(Identity::ServiceAccount { .. }));
        self.identity == other.identity || proven(other)
    }
}

/// Who holds the name now, or held it last.
#[derive(Debug, Clone, Copy)]
pub struct Holder<'a> {
    /// Who it is.
    pub facts: &'a Facts,
    /// Its session stands.
    pub connected: bool,
    /// It has volumes, as far as is known.
    pub has_volumes: bool,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Let in.
    Enter,
    /// A session stands: the newcomer is refused if the session's agent answers, and asks again if it does not.
    AskHolder,
    /// Another key or another machine, while the one whose volumes are known is disconnected: let in only if it turns
    /// out to have that one's drives.
    Prove,
}

/// Why an agent is not let in. These texts are for the controller's log and its operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The name's session stands, and its agent answers.
    #[error(
        "node {node} has a connected agent that answers (machine {holder_machine}, instance {holder}, at {holder_address}); the agent of machine {machine}, instance {instance}, at {address} is refused: run one agent per node, and give each machine a node id of its own"
    )]
    Connected {
        node: String,
        /// Who has it.
        holder: String,
        holder_machine: String,
        holder_address: String,
        /// Who asked for it.
        instance: String,
        machine: String,
        address: String,
    },
    /// Another key or machine, with none of the drives of the one that held the name.
    #[error(
        "node {node} was machine {holder}, which is disconnected; the agent of machine {machine} at {address} has {what} and has shown none of that node's drives with volumes, so it cannot replace it: give it another name, or forget the former node's volumes with `node forget {node}`"
    )]
    NotItsDrives {
        node: String,
        /// Who had it.
        holder: String,
        /// Who asked for it.
        machine: String,
        address: String,
        /// Another machine id, another key, or both.
        what: &'static str,
    },
}

impl Refusal {
    /// For the agent that is refused: nothing of the one that holds the name, which it could repeat.
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

    /// What is different about a newcomer that had to show drives.
    pub(super) fn difference(old: Option<&Facts>, new: &Facts) -> &'static str {
        match old {
            Some(old) if old.machine_id == new.machine_id => "another key",
            Some(old) if old.identity == new.identity => "another machine id",
            _ => "another machine id and key",
        }
    }
}

/// Decides. `holder`: None for an unknown or forgotten name.
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
    fn a_session_that_stands_is_asked_and_a_disconnected_one_makes_way_for_its_own_key_and_machine()
    {
        use Admission::{AskHolder, Enter, Prove};
        let (own, restarted) = (facts("a", 1, "1"), facts("a", 1, "2"));
        let (other_machine, other_key) = (facts("b", 1, "1"), facts("a", 2, "1"));
        let unproven = facts("a", 0, "1");
        assert_eq!(admit(None, &own), Enter);
        for (holder, connected, has_volumes, new, expected) in [
            // Whoever comes: only silence of the standing session makes it end.
            (&own, true, true, &own, AskHolder),
            (&own, true, false, &restarted, AskHolder),
            (&own, true, true, &other_machine, AskHolder),
            (&own, true, true, &other_key, AskHolder),
            (&own, false, true, &own, Enter),
            (&own, false, true, &restarted, Enter),
            (&own, false, true, &other_machine, Prove),
            (&own, false, true, &other_key, Prove),
            (&own, false, true, &unproven, Prove),
            // A file of an older controller does not say which key it was.
            (&unproven, false, true, &own, Prove),
            (&unproven, false, true, &unproven, Enter),
            // There is nothing to lose.
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
    fn a_refusal_says_nothing_of_the_holder_to_the_one_that_is_refused() {
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
