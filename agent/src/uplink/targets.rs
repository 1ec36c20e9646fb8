//! Which connections there should be: one to each address, or several to a single virtual one. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::SocketAddr,
};

/// Most replicas that are believed in, whatever a controller announces.
const MAX_REPLICAS: u32 = 16;

/// A controller's name or address, and its port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Name or address, without brackets; also what its certificate must be for.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// `HOST:PORT` is neither a name nor an address with a port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a controller's address: write NAME:PORT, ADDRESS:PORT or [IPV6]:PORT")]
pub struct NotATarget(String);

impl std::str::FromStr for Target {
    type Err = NotATarget;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NotATarget(text.to_owned());
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self {
                host: address.ip().to_string(),
                port: address.port(),
            });
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse::<u16>().ok().filter(|port| *port != 0);
        let label = |label: &str| {
            let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            let bytes = label.as_bytes();
            bytes.len() <= 63
                && edge(bytes.first())
                && edge(bytes.last())
                && bytes
                    .iter()
                    .all(|&byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        };
        let name = host.strip_suffix('.').unwrap_or(host);
        if name.len() > 253 || !name.split('.').all(label) {
            return Err(wrong());
        }
        Ok(Self {
            host: name.to_owned(),
            port: port.ok_or_else(wrong)?,
        })
    }
}

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
    fn a_controller_is_named_by_name_or_address_and_port() {
        for (text, expected) in [
            ("controller:9443", Some("controller:9443")),
            ("c.drivebay.svc.:9443", Some("c.drivebay.svc:9443")),
            ("10.0.0.1:9443", Some("10.0.0.1:9443")),
            ("[fd00::1]:9443", Some("[fd00::1]:9443")),
            ("controller", None),
            ("controller:", None),
            ("controller:0", None),
            ("controller:99999", None),
            (":9443", None),
            ("https://c:9443", None),
            ("a b:9443", None),
            ("fd00::1:9443", None),
        ] {
            let parsed = text.parse::<Target>().ok().map(|target| target.to_string());
            assert_eq!(parsed.as_deref(), expected, "{text}");
        }
    }

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
