//! Derives a node id from a host name. Pure.

use drivebay_proto::volume_id::is_node_id;

/// Node ids are label values and topology values: 1–63 characters.
const MAX: usize = 63;
/// Hex digits of the hash that distinguishes shortened names.
const HASH_DIGITS: usize = 10;

/// Returns the node id for a host name: the name itself if it is valid, else its valid characters, shortened, and a hash of the whole. The
/// same name always gives the same id, since volume ids and node labels contain it.
pub(super) fn node_id_from_hostname(hostname: &str) -> String {
    if is_node_id(hostname) {
        return hostname.to_owned();
    }
    let kept: String = hostname
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') {
                c
            } else {
                '-'
            }
        })
        .take(MAX - 1 - HASH_DIGITS)
        .collect();
    let kept = kept.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let head = if kept.is_empty() { "node" } else { kept };
    let hash = format!("{:016x}", fnv1a(hostname.as_bytes()));
    let digits = hash.get(..HASH_DIGITS).unwrap_or(&hash);
    format!("{head}-{digits}")
}

/// Computes 64-bit FNV-1a: short, must never change, and not for secrets.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usable_host_name_is_the_node_id() {
        for name in ["a", "rack1-node7", "node7.example.org", "Node_7"] {
            assert_eq!(node_id_from_hostname(name), name);
        }
    }

    #[test]
    fn an_odd_or_long_name_is_shortened_with_a_hash_that_never_changes() {
        // Literal on purpose: a changed hash would orphan every volume id of such a node.
        assert_eq!(node_id_from_hostname("-node-"), "node-54b2ff4bcb");
        assert_eq!(node_id_from_hostname(""), "node-cbf29ce484");
        let long = "n".repeat(64);
        let id = node_id_from_hostname(&long);
        assert_eq!(id.len(), 63);
        assert!(is_node_id(&id), "{id}");
    }

    #[test]
    fn names_that_shorten_alike_stay_apart() {
        let (a, b) = (
            format!("{}a", "n".repeat(70)),
            format!("{}b", "n".repeat(70)),
        );
        assert_ne!(node_id_from_hostname(&a), node_id_from_hostname(&b));
        assert_ne!(node_id_from_hostname("ä"), node_id_from_hostname("ö"));
    }

    proptest::proptest! {
        #[test]
        fn every_name_gives_a_node_id(name in ".{0,100}") {
            proptest::prop_assert!(is_node_id(&node_id_from_hostname(&name)));
        }
    }
}
