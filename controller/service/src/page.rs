//! Pagination: pages bounded in entries and bytes, and tokens that stay valid while volumes are created and deleted.

use drivebay_proto::VolumeId;

/// Most entries of one page; a larger request is reduced to it.
pub const MAX_ENTRIES: usize = 1000;
/// Most encoded bytes of one page's entries. Go clients refuse messages over 4 MiB by default.
pub const MAX_BYTES: usize = 2 << 20;

const PREFIX: &str = "after:";
// Upper bound of the field tag and length before each entry, bytes.
const FRAME: usize = 6;

/// The token was not issued by Drivebay.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "starting_token is not one that Drivebay gave out; start the listing over, without a token"
)]
pub struct BadToken;

/// Parses a token into the id after which the page starts; None for the first page. The volume of that id need not
/// exist any more: entries are in the order of ids.
pub fn parse_token(token: &str) -> Result<Option<VolumeId>, BadToken> {
    if token.is_empty() {
        return Ok(None);
    }
    let id = token.strip_prefix(PREFIX).ok_or(BadToken)?;
    id.parse().map(Some).map_err(|_| BadToken)
}

/// Takes entries for one page, and returns them with the token of the next page, which is empty if this is the
/// last one. `entries` must be in the order of their volumes' ids and start after the token's.
///
/// `bytes`: encoded length of an entry; `id`: id of its volume.
pub fn page<E>(
    entries: impl Iterator<Item = E>,
    max_entries: Option<usize>,
    bytes: impl Fn(&E) -> usize,
    id: impl Fn(&E) -> String,
) -> (Vec<E>, String) {
    let most = max_entries.unwrap_or(MAX_ENTRIES).min(MAX_ENTRIES);
    let mut taken: Vec<E> = Vec::new();
    let mut size = 0;
    for entry in entries {
        size += bytes(&entry) + FRAME;
        // An entry is far smaller than a page, so each page has at least one.
        if taken.len() == most || (size > MAX_BYTES && !taken.is_empty()) {
            let last = taken.last().map(id).unwrap_or_default();
            let token = format!("{PREFIX}{last}");
            return (taken, token);
        }
        taken.push(entry);
    }
    (taken, String::new())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn id(n: u128) -> String {
        let uuid = Uuid::from_u128(n);
        VolumeId {
            uuid,
            node: "n".into(),
        }
        .to_string()
    }

    #[test]
    fn a_token_that_was_not_given_out_is_refused() {
        for token in ["invalid-token", "after:", "after:x", "after:x@n", " ", "0"] {
            assert_eq!(parse_token(token), Err(BadToken), "{token}");
        }
        assert_eq!(parse_token(""), Ok(None));
    }

    proptest! {
        #[test]
        fn any_token_text_is_answered_without_panic(token in ".*") {
            let _ = parse_token(&token);
            let _ = parse_token(&format!("after:{token}"));
        }

        // A volume that exists all the time is listed exactly once, whatever is created or deleted between pages.
        #[test]
        fn volumes_that_stay_are_listed_once_while_others_come_and_go(
            stay in prop::collection::btree_set(any::<u128>(), 1..60),
            passing in prop::collection::vec(prop::collection::btree_set(any::<u128>(), 0..30), 1..80),
            size in 1usize..9,
        ) {
            let mut listed: Vec<String> = Vec::new();
            let mut token = String::new();
            for round in 0.. {
                let others = &passing[round % passing.len()];
                let ids: BTreeSet<String> = stay.iter().chain(others).map(|n| id(*n)).collect();
                let after = parse_token(&token).unwrap().map(|id| id.to_string());
                let rest = ids.into_iter().filter(|id| after.as_ref().is_none_or(|after| id > after));
                let (entries, next) = page(rest, Some(size), String::len, String::clone);
                prop_assert!(entries.len() <= size);
                listed.extend(entries);
                if next.is_empty() { break; }
                prop_assert!(next > token);
                token = next;
            }
            for n in &stay {
                let id = id(*n);
                prop_assert_eq!(listed.iter().filter(|entry| **entry == id).count(), 1);
            }
        }
    }
}
