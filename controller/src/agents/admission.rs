//! Whether an agent that says hello is let in under its node's name. Pure.
//!
//! Two machines under one name must never be taken for one: what one of them does not have would count
//! as deleted on the other. One machine's newer agent must not wait for the older one's dead connection.

/// Who says hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub node: String,
    /// Random id of the agent process.
    pub instance: String,
    /// The machine's id; empty when it has none.
    pub machine_id: String,
    /// The agent's version, for people.
    pub version: String,
    /// Where the connection comes from, for people.
    pub address: String,
}

/// Who holds the name now, or held it last.
#[derive(Debug, Clone, Copy)]
pub struct Holder<'a> {
    /// Who it is.
    pub facts: &'a Facts,
    /// Its session stands.
    pub connected: bool,
    /// Earlier instances of this machine that made way for the holder.
    pub fenced: &'a [String],
    /// It has volumes, as far as is known.
    pub has_volumes: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Let in. A session that stands under the name is ended.
    Enter,
    /// Another machine, while the one whose volumes are known is away: let in only if it turns out to
    /// have that one's drives.
    Prove,
    /// Not let in.
    Refuse(Refusal),
}

/// Why an agent is not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The name is another machine's, which is connected.
    #[error(
        "node {node} is machine {holder} at {holder_address}; machine {machine} at {address} calls itself by the same name and is refused: give one of them another name"
    )]
    OtherMachine {
        node: String,
        /// Who has it.
        holder: String,
        /// Where that is.
        holder_address: String,
        /// Who asked for it.
        machine: String,
        /// Where that is.
        address: String,
    },
    /// Two agents of one machine id take turns.
    #[error(
        "node {node}: agent {instance} at {address} was replaced by agent {holder} at {holder_address} and is alive all the same: two machines share the machine id {machine}, or two agents run on one; end one of them, and give a cloned machine an id of its own"
    )]
    Fenced {
        node: String,
        /// Who asked for it.
        instance: String,
        /// Where that is.
        address: String,
        /// Who has it.
        holder: String,
        /// Where that is.
        holder_address: String,
        /// The machine id of both.
        machine: String,
    },
    /// A machine that has none of the drives of the one that held the name.
    #[error(
        "node {node} was machine {holder}, which is disconnected; machine {machine} at {address} has none of its drives with volumes, so it cannot replace it: give it another name, or forget the former machine's volumes with `node forget {node}`"
    )]
    NotItsDrives {
        node: String,
        /// Who had it.
        holder: String,
        /// Who asked for it.
        machine: String,
        /// Where that is.
        address: String,
    },
}

/// Decides. `holder`: None for an unknown or forgotten name.
pub fn admit(holder: Option<Holder<'_>>, new: &Facts) -> Admission {
    let Some(holder) = holder else {
        return Admission::Enter;
    };
    let old = holder.facts;
    if old.machine_id != new.machine_id {
        return if holder.connected {
            Admission::Refuse(Refusal::OtherMachine {
                node: new.node.clone(),
                holder: old.machine_id.clone(),
                holder_address: old.address.clone(),
                machine: new.machine_id.clone(),
                address: new.address.clone(),
            })
        } else if holder.has_volumes {
            Admission::Prove
        } else {
            Admission::Enter
        };
    }
    // One that was let in again after it had made way is the holder itself, with a connection that has died.
    let takes_turns = old.instance != new.instance && holder.fenced.contains(&new.instance);
    if holder.connected && takes_turns {
        return Admission::Refuse(Refusal::Fenced {
            node: new.node.clone(),
            instance: new.instance.clone(),
            address: new.address.clone(),
            holder: old.instance.clone(),
            holder_address: old.address.clone(),
            machine: new.machine_id.clone(),
        });
    }
    Admission::Enter
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(machine: &str, instance: &str) -> Facts {
        Facts {
            node: "n".into(),
            instance: instance.into(),
            machine_id: machine.into(),
            version: String::new(),
            address: format!("{machine}:1"),
        }
    }

    fn said(
        old: &Facts,
        connected: bool,
        fenced: &[String],
        has_volumes: bool,
        new: &Facts,
    ) -> &'static str {
        let holder = Holder {
            facts: old,
            connected,
            fenced,
            has_volumes,
        };
        match admit(Some(holder), new) {
            Admission::Enter => "enter",
            Admission::Prove => "prove",
            Admission::Refuse(Refusal::OtherMachine { .. }) => "other machine",
            Admission::Refuse(Refusal::Fenced { .. }) => "fenced",
            Admission::Refuse(Refusal::NotItsDrives { .. }) => "not its drives",
        }
    }

    #[test]
    fn each_kind_of_newcomer_is_told_apart() {
        let (a1, a2, b1) = (facts("a", "1"), facts("a", "2"), facts("b", "1"));
        assert_eq!(admit(None, &a1), Admission::Enter);
        let fenced = ["2".to_owned()];
        for (holder, connected, fenced, volumes, new, expected) in [
            // The same agent again: its former connection is half-open.
            (&a1, true, &[][..], true, &a1, "enter"),
            // A newer agent of the machine need not wait for the older one's connection to die.
            (&a1, true, &[], true, &a2, "enter"),
            (&a1, false, &[], true, &a2, "enter"),
            // One that made way and comes again is alive: there are two.
            (&a1, true, &fenced, true, &a2, "fenced"),
            (&a1, false, &fenced, true, &a2, "enter"),
            (&a2, true, &fenced, true, &a2, "enter"),
            (&a1, true, &[], true, &b1, "other machine"),
            (&a1, true, &[], false, &b1, "other machine"),
            (&a1, false, &[], true, &b1, "prove"),
            (&a1, false, &[], false, &b1, "enter"),
        ] {
            assert_eq!(
                said(holder, connected, fenced, volumes, new),
                expected,
                "{holder:?} {connected} {fenced:?} {volumes} {new:?}"
            );
        }
    }
}
