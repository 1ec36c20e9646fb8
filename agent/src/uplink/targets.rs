//! Which connections there should be: one to each address, or several to a single virtual one. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::SocketAddr,
};

/// Most replicas that are believed in, whatever a controller announces.
const MAX_REPLICAS: u32 = 16;

/// One connection that should be: the n-th to this address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    /// What is dialled.
    pub(super) address: SocketAddr,
    /// What its certificate must be for.
    pub(super) host: String,
    /// 0 for the first to this address.
    pub(super) index: u32,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.address, self.host)
    }
}

/// One connection to each address that the names lead to; when there are fewer addresses than replicas
/// `announced`, as many to each that all replicas can be met.
pub(super) fn plan(
    known: &BTreeMap<String, BTreeSet<SocketAddr>>,
    announced: u32,
) -> BTreeSet<Slot> {
    let mut hosts: BTreeMap<SocketAddr, &str> = BTreeMap::new();
    for (target, addresses) in known {
        let host = target
            .rsplit_once(':')
            .map_or(target.as_str(), |(host, _)| host);
        let host = host.trim_matches(['[', ']']);
        for address in addresses {
            hosts.entry(*address).or_insert(host);
        }
    }
    let addresses = u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(1);
    let each = announced.clamp(1, MAX_REPLICAS).div_ceil(addresses);
    hosts
        .into_iter()
        .flat_map(|(address, host)| {
            (0..each).map(move |index| Slot {
                address,
                host: host.to_owned(),
                index,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_connection_to_each_address_and_enough_to_a_virtual_one() {
        let address = |n: u8| SocketAddr::from(([10, 0, 0, n], 1));
        let known = |sets: &[(&str, &[u8])]| -> BTreeMap<String, BTreeSet<SocketAddr>> {
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
            let slots = plan(&known(sets), announced);
            assert_eq!(slots.len(), expected, "{sets:?} {announced}");
        }
        let slot = plan(&known(&[("c", &[1])]), 1).pop_first();
        assert_eq!(slot.map(|slot| slot.host), Some("c".to_owned()));
    }
}
