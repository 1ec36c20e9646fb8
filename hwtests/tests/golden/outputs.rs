//! Whether an output still has every field, family and label that scripts and dashboards of the first release's users rely on.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Ends of the names of moments and of what is counted from them.
const MOMENTS: [&str; 4] = ["since", "_at", "until", "_eta_seconds"];

/// Where each value is, and of what type; members of arrays are one. Null says nothing of a type, nor does the 0 that the first
/// release had where a moment never was, and that is null today (CHANGELOG).
fn shape(value: &Value, at: &str, into: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    let never = || *value == 0 && MOMENTS.iter().any(|end| at.ends_with(end));
    let kind = match value {
        Value::Null => return,
        Value::Number(_) if never() => return,
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(items) => {
            for item in items {
                shape(item, &format!("{at}[]"), into);
            }
            "array"
        }
        Value::Object(members) => {
            for (key, member) in members {
                shape(member, &format!("{at}.{key}"), into);
            }
            "object"
        }
    };
    into.entry(at.to_owned()).or_default().insert(kind);
}

/// Asserts that all that was in the golden JSON is there today, with its type. `without`: beginnings of paths that today's
/// state gives no occasion for.
pub(crate) fn has_every_field(what: &str, golden: &str, today: &str, without: &[&str]) {
    let shape_of = |text: &str| {
        let mut all = BTreeMap::new();
        let value =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{what}: {error}: {text}"));
        shape(&value, "", &mut all);
        all
    };
    let (golden, today) = (shape_of(golden), shape_of(today));
    let gone: Vec<_> = golden
        .iter()
        .filter(|(path, _)| !without.iter().any(|left| path.starts_with(left)))
        .filter(|(path, kinds)| today.get(*path).is_none_or(|now| !kinds.is_subset(now)))
        .map(|(path, kinds)| (path, kinds, today.get(path)))
        .collect();
    assert!(
        gone.is_empty(),
        "{what} lacks what the first release had: {gone:#?}"
    );
}

/// Families with their types, and the labels that each has.
fn families(scrape: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut all: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    for line in scrape.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            all.entry(name.to_owned()).or_default().0 = kind.to_owned();
        } else if let Some((series, _)) = line.split_once(' ').filter(|_| !line.starts_with('#')) {
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let name = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix).filter(|of| all.contains_key(*of)))
                .unwrap_or(name);
            let keys = labels
                .split("=\"")
                .map(|part| part.rsplit(['"', ',', '{']).next().unwrap_or(part));
            let keys = keys.filter(|key| !key.is_empty() && !key.contains('}'));
            let family = all.entry(name.to_owned()).or_default();
            family.1.extend(keys.map(str::to_owned));
        }
    }
    all
}

/// Asserts that every family of the golden scrape is there with its type and labels, but for these.
pub(crate) fn has_every_family(golden: &str, today: &str, without: &[&str]) {
    let (golden, today) = (families(golden), families(today));
    let gone: Vec<_> = golden
        .iter()
        .filter(|(name, _)| !without.contains(&name.as_str()))
        .filter(|(name, (kind, labels))| {
            today
                .get(*name)
                .is_none_or(|(now, has)| now != kind || !labels.is_subset(has))
        })
        .map(|(name, was)| (name, was, today.get(name)))
        .collect();
    assert!(
        gone.is_empty(),
        "metrics lack what the first release had: {gone:#?}"
    );
}

#[test]
fn what_is_gone_or_of_another_type_is_noticed() {
    let golden = r#"{"a": [{"b": 1, "c": null}], "d": "x"}"#;
    has_every_field("same", golden, golden, &[]);
    has_every_field(
        "more",
        golden,
        r#"{"a": [{"b": 2, "c": true, "e": 1}], "d": ""}"#,
        &[],
    );
    has_every_field("left", golden, r#"{"d": "x"}"#, &[".a"]);
    let never = r#"{"since": 0, "erase_eta_seconds": 0}"#;
    has_every_field(
        "never",
        never,
        r#"{"since": null, "erase_eta_seconds": null}"#,
        &[],
    );
    let noticed = std::panic::catch_unwind(|| {
        has_every_field("since", r#"{"since": 7}"#, r#"{"since": null}"#, &[]);
    });
    assert!(noticed.is_err());
    for worse in [
        r#"{"a": [{"B": 1}], "d": "x"}"#,
        r#"{"a": [{"b": "1"}], "d": "x"}"#,
        "{}",
    ] {
        let noticed = std::panic::catch_unwind(|| has_every_field("worse", golden, worse, &[]));
        assert!(noticed.is_err(), "{worse}");
    }
    let golden = "# TYPE a gauge\na{x=\"1\",y=\"2,z\"} 3\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 1\n";
    has_every_family(golden, golden, &[]);
    for worse in [
        golden.replace("gauge", "counter"),
        golden.replace("y=", "q="),
        golden.replace("h", "i"),
    ] {
        let noticed = std::panic::catch_unwind(|| has_every_family(golden, &worse, &[]));
        assert!(noticed.is_err(), "{worse}");
    }
}

/// What is asked of a controller with `-o json`, and the file that keeps the answer.
pub(crate) fn of_a_controller<'a>(
    drive: &'a str,
    volume: &'a str,
) -> [(&'static str, Vec<&'a str>); 7] {
    [
        ("nodes", vec!["nodes"]),
        ("drives", vec!["drives", "--all"]),
        ("volumes", vec!["volumes", "--deleted"]),
        ("health", vec!["health"]),
        ("drive-show", vec!["drive", "show", drive]),
        ("volume-show", vec!["volume", "show", volume]),
        ("volume-pv", vec!["volume", "pv", volume]),
    ]
}
