//! Names of Kubernetes objects.

/// A claim by its namespace and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRef {
    pub namespace: String,
    pub name: String,
}

/// A text that is not a valid name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error(
        "not a name: at most 253 lower-case letters, digits, '-' and '.', no part empty or with '-' at an end"
    )]
    Subdomain,
    #[error("not NAMESPACE/NAME of a PersistentVolumeClaim")]
    Claim,
    #[error("not NAMESPACE/NAME of a ServiceAccount")]
    ServiceAccount,
}

/// True for a DNS label (RFC 1123): up to 63 lower-case letters, digits and '-', neither first nor last of which is '-'.
pub fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len()) && is_part(text)
}

fn is_part(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// True for a DNS subdomain as Kubernetes accepts it for names: up to 253 characters, parts as in a label but of any length.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

/// Parses the name of an object.
pub fn subdomain(text: &str) -> Result<String, NameError> {
    if is_subdomain(text) {
        Ok(text.to_owned())
    } else {
        Err(NameError::Subdomain)
    }
}

/// Parses `NAMESPACE/NAME` of a claim.
pub fn claim_ref(text: &str) -> Result<ClaimRef, NameError> {
    let (namespace, name) = text.split_once('/').ok_or(NameError::Claim)?;
    if !is_label(namespace) || !is_subdomain(name) {
        return Err(NameError::Claim);
    }
    Ok(ClaimRef {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Returns a name that is valid in Kubernetes and similar to `text`, of at most `limit` characters; empty if no character can be kept.
pub fn resembling(text: &str, limit: usize) -> String {
    let mut name = String::new();
    for c in text.chars() {
        let c = c.to_ascii_lowercase();
        if c.is_ascii_lowercase() || c.is_ascii_digit() {
            name.push(c);
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
        if name.len() >= limit {
            break;
        }
    }
    name.truncate(name.trim_end_matches('-').len());
    name
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_those_of_kubernetes() {
        for (text, good) in [
            ("pvc-7b1d5c1e-58f3-4f0e-9d1a-2f6c1f0b3a77", true),
            ("a.b-c.1", true),
            ("", false),
            ("A", false),
            ("-a", false),
            ("a-", false),
            ("a..b", false),
            ("a.-b", false),
            ("a_b", false),
            ("a\n", false),
            (&"a".repeat(253), true),
            (&"a".repeat(254), false),
        ] {
            assert_eq!(subdomain(text).is_ok(), good, "{text:?}");
        }
    }

    #[test]
    fn a_claim_has_a_namespace_and_a_name() {
        let claim = claim_ref("shop/data-db-0").unwrap();
        assert_eq!((&*claim.namespace, &*claim.name), ("shop", "data-db-0"));
        for text in [
            "data",
            "/data",
            "shop/",
            "a.b/data",
            "shop/data/x",
            "Shop/data",
        ] {
            assert_eq!(claim_ref(text), Err(NameError::Claim), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_resembles_is_a_name(text in any::<String>(), limit in 1_usize..300) {
            let name = resembling(&text, limit);
            prop_assert!(name.is_empty() || is_part(&name), "{name:?}");
            prop_assert!(name.len() <= limit);
        }
    }
}
