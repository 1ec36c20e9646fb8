//! Anti-affinity: groups of volumes that should be on different drives, by a StorageClass's pattern for names of claims. Pure.

use std::collections::HashMap;

use drivebay_common::units::count;
use drivebay_proto::names;
use regex::bytes::{Regex, RegexBuilder};

use super::{InvalidRequest, text};

/// Longest pattern, bytes.
const MAX_PATTERN_BYTES: usize = 256;
/// Largest size of a compiled pattern, bytes: a short pattern can need much memory, e.g. `(a{999}){999}`.
const MAX_COMPILED_BYTES: usize = 256 << 10;
/// Values of the parameter, which the agent implements.
const KINDS: [&str; 2] = [names::ANTI_AFFINITY_SOFT, names::ANTI_AFFINITY_HARD];
/// Longest name of a claim or a namespace, bytes (Kubernetes: 253 and 63).
const MAX_NAME_BYTES: usize = 253;

/// Checks both parameters, if they are given.
pub fn check(parameters: &HashMap<String, String>) -> Result<(), InvalidRequest> {
    let pattern = parameters.get(names::PARAM_ANTI_AFFINITY_PATTERN);
    pattern.map(|text| compile(text)).transpose()?;
    let bad = |reason| InvalidRequest::BadParameter {
        key: names::PARAM_ANTI_AFFINITY,
        reason,
    };
    match parameters.get(names::PARAM_ANTI_AFFINITY) {
        Some(_) if pattern.is_none() => Err(bad(
            "it needs antiAffinityPattern, which says which volumes belong together",
        )),
        None => Ok(()),
        Some(value) if KINDS.contains(&value.as_str()) => Ok(()),
        Some(_) => Err(bad("it is \"soft\", the default, or \"hard\"")),
    }
}

/// Returns the group of a requested volume as `namespace/capture`; None if the StorageClass has no pattern, or it does not match the
/// claim's name. Errs if the request lacks the claim's name or namespace.
pub fn group(parameters: &HashMap<String, String>) -> Result<Option<String>, InvalidRequest> {
    check(parameters)?;
    let Some(pattern) = parameters.get(names::PARAM_ANTI_AFFINITY_PATTERN) else {
        return Ok(None);
    };
    let name = |key| {
        let name = parameters.get(key).filter(|name| !name.is_empty());
        text(
            key,
            name.ok_or(InvalidRequest::NoClaimName { key })?,
            MAX_NAME_BYTES,
        )
    };
    let (claim, namespace) = (name(names::CLAIM_NAME)?, name(names::CLAIM_NAMESPACE)?);
    let captures = compile(pattern)?;
    let matched = captures.captures(claim.as_bytes());
    let capture = matched.as_ref().and_then(|matched| matched.get(1));
    Ok(capture.map(|capture| {
        let capture = String::from_utf8_lossy(capture.as_bytes());
        format!("{namespace}/{capture}")
    }))
}

/// Compiles a pattern so that it matches whole names. Errs unless it has exactly one capture.
fn compile(pattern: &str) -> Result<Regex, InvalidRequest> {
    let key = "parameters.antiAffinityPattern";
    text(key, pattern, MAX_PATTERN_BYTES)?;
    let bad = |reason: String| InvalidRequest::BadPattern {
        pattern: pattern.to_owned(),
        reason,
    };
    let build = |pattern: &str| {
        let built = RegexBuilder::new(pattern)
            // Names are ASCII. Unicode tables would add a quarter of a megabyte to each program.
            .unicode(false)
            .size_limit(MAX_COMPILED_BYTES)
            .build();
        built.map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => bad("it is too large when compiled".to_owned()),
            error => {
                // The error has several lines that show the position; the last one is the message.
                let text = error.to_string();
                let last = text.lines().last().unwrap_or_default();
                bad(last.trim_start_matches("error: ").to_owned())
            }
        })
    };
    // Compiled without the surrounding group first, which the pattern could close.
    let captures = build(pattern)?.captures_len() - 1;
    if captures != 1 {
        return Err(bad(format!(
            "it has {}; put parentheses around the one part of the name that the claims of a group have in \
             common, as in data-(db-[0-9]+), and write (?:...) for others",
            count(captures, "capture")
        )));
    }
    build(&format!("^(?:{pattern})$"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(given: &[(&str, &str)]) -> HashMap<String, String> {
        let claim = [
            (names::CLAIM_NAMESPACE, "prod"),
            (names::CLAIM_NAME, "data-db-0"),
        ];
        let all = claim.iter().chain(given);
        all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn named(pattern: &str, claim: &str) -> Option<String> {
        let given = of(&[("antiAffinityPattern", pattern), (names::CLAIM_NAME, claim)]);
        group(&given).unwrap()
    }

    #[test]
    fn the_group_is_the_namespace_and_what_the_pattern_captures_of_the_claims_name() {
        for (pattern, claim, name) in [
            ("data-(db-0)", "data-db-0", Some("prod/db-0")),
            ("(?:data|log)-(db-[0-9]+)", "log-db-12", Some("prod/db-12")),
            (r"[a-z]+\d?-(.+-\d+)", "data1-my-db-3", Some("prod/my-db-3")),
            (r"(?i)DATA-(\w+)\b.*", "data-db-0", Some("prod/db")),
            // The pattern must match the whole name.
            ("data-(db-0)", "data-db-01", None),
            ("data-(db-0)", "my-data-db-0", None),
            ("a|(b)c", "bcd", None),
            // The capture does not take part in this match.
            ("a|(b)", "a", None),
        ] {
            assert_eq!(named(pattern, claim).as_deref(), name, "{pattern} {claim}");
        }
        assert_eq!(group(&of(&[])), Ok(None));
    }

    #[test]
    fn the_kind_is_soft_or_hard() {
        let accepts = |value: Option<&str>| {
            let mut given = of(&[("antiAffinityPattern", "data-(.*)")]);
            given.extend(value.map(|value| ("antiAffinity".to_owned(), value.to_owned())));
            group(&given).is_ok()
        };
        assert!(accepts(None));
        assert!(accepts(Some("soft")));
        assert!(accepts(Some("hard")));
        assert!(!accepts(Some("Hard")));
    }

    #[test]
    fn a_pattern_that_cannot_be_used_is_refused_with_the_reason() {
        for (pattern, why) in [
            ("data-(db", "unclosed group"),
            ("data-db-0", "it has 0 captures"),
            ("(data)-(db-0)", "it has 2 captures"),
            ("a)|(b", "unopened group"),
            ("([a-z]{99}){999}", "too large when compiled"),
            ("(\\pL+)", "Unicode not allowed here"),
            (&format!("({})", "a".repeat(256)), "258 bytes long"),
        ] {
            let error = group(&of(&[("antiAffinityPattern", pattern)])).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(why), "{pattern}: {text}");
            assert!(!text.contains('\n'), "{text}");
            assert_eq!(check(&of(&[("antiAffinityPattern", pattern)])), Err(error));
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let given = [("antiAffinity".to_owned(), "hard".to_owned())].into();
        let error = check(&given).unwrap_err().to_string();
        assert!(error.contains("it needs antiAffinityPattern"), "{error}");
        let given = [("antiAffinityPattern".to_owned(), "(.*)".to_owned())].into();
        // As for ValidateVolumeCapabilities, whose requests have no claim.
        assert_eq!(check(&given), Ok(()));
        let error = group(&given).unwrap_err().to_string();
        assert!(error.contains("--extra-create-metadata"), "{error}");
    }
}
