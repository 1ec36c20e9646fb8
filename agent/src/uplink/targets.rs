//! Computes the connections to have: one to each address, or several to a single virtual one. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::SocketAddr,
    path::PathBuf,
};

/// Largest number of replicas that is accepted from a controller.
const MAX_REPLICAS: u32 = 16;

/// Address to connect to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Address {
    Tcp {
        address: SocketAddr,
        /// Name that the controller's certificate must be valid for.
        host: String,
    },
    Unix(PathBuf),
}

/// A connection to have: the n-th to this address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    pub(super) to: Address,
    /// Number of the connection to this address, from 0.
    pub(super) index: u32,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.to {
            Address::Tcp { address, host } => write!(f, "{address} ({host})"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Returns one connection to each socket, and to each address of the names; if both are fewer than the replicas `announced`, as many to
/// each address as are needed to reach all replicas. A socket has one replica.
pub(super) fn plan(
    resolved: &BTreeMap<String, BTreeSet<SocketAddr>>,
    sockets: &BTreeSet<PathBuf>,
    announced: u32,
) -> BTreeSet<Slot> {
    let mut hosts: BTreeMap<SocketAddr, &str> = BTreeMap::new();
    for (target, addresses) in resolved {
        let host = target
            .rsplit_once(':')
            .map_or(target.as_str(), |(host, _)| host);
        let host = host.trim_matches(['[', ']']);
        for address in addresses {
            hosts.entry(*address).or_insert(host);
        }
    }
    let addresses = hosts.len() + sockets.len();
    let addresses = u32::try_from(addresses).unwrap_or(u32::MAX).max(1);
    let each = announced.clamp(1, MAX_REPLICAS).div_ceil(addresses);
    let over_tcp = hosts.into_iter().flat_map(|(address, host)| {
        (0..each).map(move |index| Slot {
            to: Address::Tcp {
                address,
                host: host.to_owned(),
            },
            index,
        })
    });
    let here = sockets.iter().map(|path| Slot {
        to: Address::Unix(path.clone()),
        index: 0,
    });
    over_tcp.chain(here).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_connection_to_each_address_and_enough_to_a_virtual_one() {
        let address = |n: u8| SocketAddr::from(([10, 0, 0, n], 1));
        let resolved = |sets: &[(&str, &[u8])]| -> BTreeMap<String, BTreeSet<SocketAddr>> {
            sets.iter()
                .map(|(name, numbers)| {
                    let addresses = numbers.iter().map(|n| address(*n)).collect();
                    (format!("{name}:1"), addresses)
                })
                .collect()
        };
        for (sets, announced, expected) in [
            (&[][..], 3, 0),
            (&[("c", &[1][..])], 1, 1),
            (&[("c", &[1])], 3, 3),
            (&[("c", &[1])], 0, 1),
            (&[("c", &[1])], 1000, 16),
            (&[("c", &[1, 2, 3])], 3, 3),
            (&[("c", &[1, 2, 3, 4])], 2, 4),
            (&[("c", &[1, 2])], 3, 4),
            (&[("c", &[1, 2]), ("d", &[2, 3])], 3, 3),
        ] {
            let slots = plan(&resolved(sets), &BTreeSet::new(), announced);
            assert_eq!(slots.len(), expected, "{sets:?} {announced}");
        }
        let slot = plan(&resolved(&[("c", &[1])]), &BTreeSet::new(), 1).pop_first();
        assert_eq!(slot.unwrap().to_string(), "10.0.0.1:1 (c)");
        let socket = BTreeSet::from([PathBuf::from("/c.sock")]);
        let slots = plan(&resolved(&[]), &socket, 3);
        let slots: Vec<String> = slots.iter().map(Slot::to_string).collect();
        assert_eq!(slots, ["unix:/c.sock"]);
        assert_eq!(plan(&resolved(&[("c", &[1])]), &socket, 4).len(), 3);
    }
}
