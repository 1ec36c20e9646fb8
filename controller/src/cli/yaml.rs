//! JSON values as YAML that any parser reads the same way: every string is quoted as JSON quotes it, so that
//! nothing from outside can be taken for syntax, a number or a truth value. Pure.

use serde_json::Value;

/// The value as a YAML document, ended by a newline.
pub fn document(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

/// Writes a value that begins on a line of its own, at this indentation.
fn block(value: &Value, indent: usize, text: &mut String) {
    let margin = " ".repeat(indent);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                text.push_str(&margin);
                text.push_str(&self::key(key));
                text.push(':');
                after(value, indent + 2, text);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                text.push_str(&margin);
                text.push('-');
                if is_plain(item) {
                    after(item, indent + 2, text);
                } else {
                    // The first line of the item goes on the dash's.
                    let mut inner = String::new();
                    block(item, indent + 2, &mut inner);
                    text.push(' ');
                    text.push_str(inner.trim_start_matches(' '));
                }
            }
        }
        plain => {
            text.push_str(&margin);
            text.push_str(&scalar(plain));
            text.push('\n');
        }
    }
}

/// Writes a value after its key, on the same line if it is one word.
fn after(value: &Value, indent: usize, text: &mut String) {
    if is_plain(value) {
        text.push(' ');
        text.push_str(&scalar(value));
        text.push('\n');
    } else {
        text.push('\n');
        block(value, indent, text);
    }
}

fn is_plain(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    }
}

/// As JSON, with the characters escaped that YAML or a terminal would act upon. All of them are in the
/// basic plane, so that JSON's escape is YAML's.
fn scalar(value: &Value) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        let acts = c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
                | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
        if acts {
            text.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            text.push(c);
        }
    }
    text
}

/// A key bare where no parser takes it for anything but a text.
fn key(key: &str) -> String {
    let word = key.len() > 3
        && key.bytes().all(|b| b.is_ascii_alphabetic())
        && !["true", "false", "null"].contains(&key.to_ascii_lowercase().as_str());
    if word || matches!(key, "csi" | "key") {
        key.to_owned()
    } else {
        scalar(&Value::String(key.to_owned()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use yaml_rust2::{Yaml, YamlLoader};

    use super::*;

    #[test]
    fn it_reads_as_a_manifest() {
        let value = json!({
            "kind": "PersistentVolume",
            "metadata": {"name": "yes", "labels": {}},
            "spec": {"terms": [{"key": "a/b", "values": ["n1", 7]}, [], "no"]},
        });
        assert_eq!(
            document(&value),
            r#"kind: "PersistentVolume"
metadata:
  labels: {}
  name: "yes"
spec:
  terms:
    - key: "a/b"
      values:
        - "n1"
        - 7
    - []
    - "no"
"#
        );
    }

    #[test]
    fn what_an_older_parser_or_a_terminal_acts_upon_is_escaped() {
        assert_eq!(
            document(&json!("a\u{7f}\u{85}\u{2028}\u{202e}\u{feff}\u{ffff}\n数")),
            "\"a\\u007f\\u0085\\u2028\\u202e\\ufeff\\uffff\\n数\"\n"
        );
    }

    fn same(yaml: &Yaml, json: &Value) -> bool {
        match (yaml, json) {
            (Yaml::String(a), Value::String(b)) => a == b,
            (Yaml::Integer(a), Value::Number(b)) => Some(*a) == b.as_i64(),
            (Yaml::Boolean(a), Value::Bool(b)) => a == b,
            (Yaml::Null, Value::Null) => true,
            (Yaml::Array(a), Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
            }
            (Yaml::Hash(a), Value::Object(b)) => {
                let field = |(key, value): (&String, &Value)| {
                    a.get(&Yaml::String(key.clone()))
                        .is_some_and(|found| same(found, value))
                };
                a.len() == b.len() && b.iter().all(field)
            }
            _ => false,
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            any::<String>(),
            "[-#:?&*!|>%@`'\"{}\\[\\], \n\r\t\u{7f}\u{85}\u{a0}\u{2028}\u{feff}\u{ffff}~a0]{0,8}",
            Just("no".to_owned()),
            Just("null".to_owned()),
            Just("1e3".to_owned()),
            Just("0x10".to_owned()),
            Just("2026-11-21".to_owned()),
            Just("---".to_owned()),
        ];
        let leaf = prop_oneof![
            text.clone().prop_map(Value::String),
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            Just(Value::Null),
        ];
        leaf.prop_recursive(4, 32, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::btree_map(text.clone(), inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_parser_reads_back_what_was_written(value in values()) {
            let text = document(&value);
            let read = YamlLoader::load_from_str(&text);
            prop_assert!(read.is_ok(), "{text}\n{read:?}");
            let read = read.unwrap();
            prop_assert_eq!(read.len(), 1, "{}", text);
            prop_assert!(same(&read[0], &value), "{text}\n{read:?}");
        }
    }
}
