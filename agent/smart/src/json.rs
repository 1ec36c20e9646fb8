//! Reads JSON leniently: a missing key, a null or a wrong type is an unknown value, and a number may be text. None of them is an error,
//! which would lose all data of the drive.

use serde_json::Value;

/// A position in a document, which may be missing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<'a>(Option<&'a Value>);

impl<'a> Node<'a> {
    pub(super) fn new(value: &'a Value) -> Self {
        Self(Some(value))
    }

    /// Returns a member of an object; missing if there is none.
    pub(super) fn get(self, key: &str) -> Self {
        Self(self.0.and_then(|value| value.get(key)))
    }

    /// Returns a member by its path.
    pub(super) fn path(self, keys: &[&str]) -> Self {
        keys.iter().fold(self, |node, key| node.get(key))
    }

    /// True if there is a value other than null.
    pub(super) fn exists(self) -> bool {
        self.0.is_some_and(|value| !value.is_null())
    }

    pub(super) fn is_object(self) -> bool {
        self.0.is_some_and(Value::is_object)
    }

    /// Returns the members of an object; none if it is no object.
    pub(super) fn members(self) -> impl Iterator<Item = (&'a str, Self)> {
        let members = self.0.and_then(Value::as_object);
        let members = members.into_iter().flatten();
        members.map(|(key, value)| (key.as_str(), Self(Some(value))))
    }

    /// Returns the elements of an array; none if it is no array.
    pub(super) fn items(self) -> impl Iterator<Item = Self> {
        let array = self.0.and_then(Value::as_array);
        array.into_iter().flatten().map(|value| Self(Some(value)))
    }

    /// Returns a number that is not negative, also from text ("163.5", "0x10"). Fractions are cut off, and larger numbers saturate at 2^64
    /// - 1.
    pub(super) fn u64(self) -> Option<u64> {
        match self.0? {
            Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(whole)),
            Value::String(text) => number_in(text),
            _ => None,
        }
    }

    /// Returns a counter of smartctl's: above 2^53 it also writes the exact digits into `<key>_s`.
    pub(super) fn count(self, key: &str) -> Option<u64> {
        self.get(&format!("{key}_s"))
            .u64()
            .or_else(|| self.get(key).u64())
    }

    /// Returns a number that may be negative, such as a temperature; saturates at the range of i32.
    pub(super) fn i32(self) -> Option<i32> {
        let value = match self.0? {
            Value::Number(number) => number.as_f64()?,
            Value::String(text) => text.trim().parse().ok()?,
            _ => return None,
        };
        // `as` saturates a float.
        value.is_finite().then_some(value as i32)
    }

    pub(super) fn bool(self) -> Option<bool> {
        match self.0? {
            Value::Bool(value) => Some(*value),
            Value::Number(number) => number.as_u64().map(|number| number != 0),
            Value::String(text) => match text.trim() {
                "true" | "1" => Some(true),
                "false" | "0" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns text of at most `max` characters, trimmed, without control characters; empty if there is none.
    pub(super) fn text(self, max: usize) -> String {
        match self.0 {
            Some(Value::String(text)) => tidy(text, max),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        }
    }
}

/// Replaces control characters, trims, and cuts to `max` characters: texts of a drive are shown in messages and metrics.
pub(super) fn tidy(text: &str, max: usize) -> String {
    let clean: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    clean.trim().chars().take(max).collect()
}

fn whole(number: f64) -> Option<u64> {
    // `as` saturates a float.
    (number.is_finite() && number >= 0.0).then_some(number as u64)
}

fn number_in(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).ok();
    }
    if let Ok(number) = text.parse::<u128>() {
        return Some(u64::try_from(number).unwrap_or(u64::MAX));
    }
    decimal(text).and_then(whole)
}

/// Parses a fraction, also one that was written with a decimal comma.
pub(super) fn decimal(text: &str) -> Option<f64> {
    text.trim().replacen(',', ".", 1).parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn odd_numbers_are_read_and_wrong_types_are_ignored() {
        let value = json!({
            "plain": 7, "float": 41.9, "text": "535", "gigabytes": "162438.759", "comma": "162438,759", "hex": "0x2f",
            "large": 18446744073709551615_u64, "larger": 3.4e38, "digits": "340282366920938463463374607431768211455",
            "negative": -3, "null": null, "list": [1], "word": "n/a", "flag": true,
        });
        let node = Node::new(&value);
        for (key, number) in [
            ("plain", Some(7)),
            ("float", Some(41)),
            ("text", Some(535)),
            ("gigabytes", Some(162_438)),
            ("comma", Some(162_438)),
            ("hex", Some(0x2f)),
            ("large", Some(u64::MAX)),
            ("larger", Some(u64::MAX)),
            ("digits", Some(u64::MAX)),
            ("negative", None),
            ("null", None),
            ("list", None),
            ("word", None),
            ("flag", None),
            ("missing", None),
        ] {
            assert_eq!(node.get(key).u64(), number, "{key}");
        }
        assert_eq!(node.get("negative").i32(), Some(-3));
        assert!(!node.get("null").exists());
    }

    #[test]
    fn exact_digits_win_over_a_rounded_number() {
        let value = json!({"n": 9_007_199_254_740_992_u64, "n_s": "9007199254740993"});
        assert_eq!(Node::new(&value).count("n"), Some(9_007_199_254_740_993));
    }

    #[test]
    fn texts_lose_control_characters_and_length() {
        let value = json!({"t": "  a\u{7}b\ncdef  "});
        assert_eq!(Node::new(&value).get("t").text(5), "a b c");
    }
}
