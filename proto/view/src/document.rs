//! Output for programs: JSON, or the same fields as YAML.

use serde::{Serialize, ser::Error};

/// A format for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Document {
    Json,
    Yaml,
}

impl Document {
    /// Returns the value as a whole document.
    pub fn write(self, value: &impl Serialize) -> serde_json::Result<String> {
        match self {
            Self::Json => Ok(serde_json::to_string_pretty(value)? + "\n"),
            Self::Yaml => yaml(value),
        }
    }
}

/// Returns YAML in kubectl's layout, with each text on one line. Texts that YAML 1.1 or 1.2 would parse as a number or a boolean are
/// quoted, and control characters are escaped.
pub fn yaml(value: &impl Serialize) -> serde_json::Result<String> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(value, options).map_err(serde_json::Error::custom)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_has_the_same_fields_in_the_layout_of_kubectl() {
        let value = json!({"drives": [{"id": "wwn-a", "rejects": [{"code": "Mounted"}], "notes": []}], "since": null, "size": 1});
        assert_eq!(
            Document::Yaml.write(&value).unwrap(),
            "\
drives:
- id: wwn-a
  notes: []
  rejects:
  - code: Mounted
since: null
size: 1
"
        );
    }

    #[test]
    fn yaml_texts_stay_texts_on_one_line_without_control_characters() {
        let long = "a message that is longer than a line of a terminal, and that must not be folded for all that";
        for (text, written) in [
            ("no", "\"no\""),
            ("010", "\"010\""),
            ("2026-11-25", "\"2026-11-25\""),
            ("1:30", "\"1:30\""),
            ("", "\"\""),
            ("Mounted: /", "\"Mounted: /\""),
            ("two\nlines", "\"two\\nlines\""),
            ("\u{1b}[2J\u{9b}", "\"\\e[2J\\x9B\""),
            ("/srv/db (persisted)", "/srv/db (persisted)"),
            (long, long),
        ] {
            let value = json!({ "text": text });
            assert_eq!(
                Document::Yaml.write(&value).unwrap(),
                format!("text: {written}\n")
            );
        }
    }
}
