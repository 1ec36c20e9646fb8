//! The last sessions and refusals of a node, for the analysis of incidents.

use std::{
    collections::VecDeque,
    time::{SystemTime, UNIX_EPOCH},
};

use drivebay_proto::words::ConnectionOutcome;

use super::{admission::Facts, session_error::SessionError};
use crate::peer_log::printable_sentence;

/// Most refusals kept per node, and most other entries.
const MAX: usize = 10;

/// One start, end or refusal of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    /// Time of the first occurrence, seconds since 1970.
    pub at: u64,
    pub outcome: ConnectionOutcome,
    /// Address of the peer at the first occurrence.
    pub address: String,
    pub text: String,
    /// Number of repetitions; a refused agent retries forever.
    pub times: u64,
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Returns the address without the port.
pub(super) fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

impl Past {
    pub(super) fn connected(facts: &Facts) -> Self {
        Self {
            at: now(),
            outcome: ConnectionOutcome::Connected,
            address: facts.address.clone(),
            text: format!(
                "version {}, instance {}, machine {}",
                facts.version, facts.instance, facts.machine_id
            ),
            times: 1,
        }
    }

    pub(super) fn ended(error: &SessionError, address: &str) -> Self {
        Self {
            at: now(),
            outcome: match error.refusal() {
                Some(_) => ConnectionOutcome::Refused,
                None => ConnectionOutcome::Ended,
            },
            address: address.to_owned(),
            text: printable_sentence(&error.to_string()),
            times: 1,
        }
    }

    // A retry comes from another port.
    fn is_same(&self, other: &Self) -> bool {
        // A refusal's text contains the address with its port.
        let text = |past: &Self| past.text.replace(&past.address, "");
        self.outcome == other.outcome
            && host(&self.address) == host(&other.address)
            && text(self) == text(other)
    }
}

/// The newest entries, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    entries: VecDeque<Past>,
}

impl History {
    /// Adds an entry. A repetition of a refusal since the last session only increments its count.
    pub(super) fn add(&mut self, past: Past) {
        let since_session = self
            .entries
            .iter_mut()
            .rev()
            .take_while(|one| one.outcome == ConnectionOutcome::Refused);
        for one in since_session {
            if one.is_same(&past) {
                one.times += 1;
                return;
            }
        }
        // Refusals do not displace the entries of sessions.
        let is_kind = |one: &Past| {
            (one.outcome == ConnectionOutcome::Refused)
                == (past.outcome == ConnectionOutcome::Refused)
        };
        if self.entries.iter().filter(|one| is_kind(one)).count() == MAX {
            let oldest = self.entries.iter().position(is_kind);
            oldest.and_then(|at| self.entries.remove(at));
        }
        self.entries.push_back(past);
    }

    /// Returns all entries, oldest first.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Past> {
        self.entries.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(outcome: ConnectionOutcome, address: &str, text: &str) -> Past {
        Past {
            at: 1,
            outcome,
            address: address.into(),
            text: text.into(),
            times: 1,
        }
    }

    #[test]
    fn a_refusal_that_repeats_takes_one_place_and_the_newest_are_kept() {
        let mut history = History::default();
        history.add(past(ConnectionOutcome::Connected, "1.1.1.1:1", "v"));
        for port in 0..1000 {
            let address = format!("9.9.9.9:{port}");
            history.add(past(
                ConnectionOutcome::Refused,
                &address,
                &format!("at {address} is refused"),
            ));
            history.add(past(
                ConnectionOutcome::Refused,
                &format!("8.8.8.8:{port}"),
                "no",
            ));
        }
        let entries: Vec<_> = history.entries().map(|past| past.times).collect();
        assert_eq!(entries, [1, 1000, 1000]);
        for n in 0..100 {
            history.add(past(ConnectionOutcome::Ended, "1.1.1.1:1", &n.to_string()));
        }
        let texts: Vec<_> = history.entries().map(|past| past.text.as_str()).collect();
        assert_eq!(texts.len(), 2 + MAX);
        assert_eq!((texts[1], texts[2], texts[1 + MAX]), ("no", "90", "99"));
    }
}
