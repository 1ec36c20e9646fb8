//! Parses LVM's text config format: sections, strings, numbers, arrays, comments.
//!
//! Any bytes give a value or an error, memory is proportional to the text, and nesting is limited
//! to `DEPTH`. Stricter than LVM: constructs that LVM never writes (a repeated key in a section, a
//! bare word as a value) are errors.

use std::collections::HashSet;

/// Deepest nesting of sections and arrays. LVM writes four levels.
const DEPTH: usize = 16;

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Int(i64),
    Float(f64),
    /// A quoted string, without its escapes.
    Text(String),
    /// `[ … ]`: elements in the order of the text, of any types; may be empty.
    Array(Vec<Value>),
    /// `{ … }`: keys, which are unique, and their values.
    Section(Section),
}

impl Value {
    /// Returns the number; None for other values and for negative numbers.
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Int(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// Returns the string; None for other values.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the section; None for other values.
    pub fn section(&self) -> Option<&Section> {
        match self {
            Self::Section(section) => Some(section),
            _ => None,
        }
    }

    /// Returns an array of strings; None for other values, or if an element is none.
    pub fn texts(&self) -> Option<Vec<&str>> {
        match self {
            Self::Array(values) => values.iter().map(Self::text).collect(),
            _ => None,
        }
    }
}

/// Keys and their values, in the order of the text. Keys are unique.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Section(pub Vec<(String, Value)>);

impl Section {
    /// Returns the value of this key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    }
}

/// Parses a whole text. An error says what was expected, and at which byte.
pub fn parse(text: &[u8]) -> Result<Section, String> {
    let mut parser = Parser { text, at: 0 };
    let section = parser.section(true, 0)?;
    Ok(section)
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Parser<'a> {
    /// Reads up to the closing brace, or at the top up to the end of the text.
    fn section(&mut self, top: bool, depth: usize) -> Result<Section, String> {
        if depth > DEPTH {
            return Err(self.wrong("less nesting"));
        }
        let mut entries = Vec::new();
        let mut names = HashSet::new();
        loop {
            self.skip();
            match self.peek() {
                None if top => return Ok(Section(entries)),
                Some(b'}') if !top => {
                    self.at += 1;
                    return Ok(Section(entries));
                }
                _ => {}
            }
            let name = self.name()?;
            if !names.insert(name) {
                return Err(format!(
                    "{name} twice in one section, before byte {}",
                    self.at
                ));
            }
            self.skip();
            let value = match self.peek() {
                Some(b'{') => {
                    self.at += 1;
                    Value::Section(self.section(false, depth + 1)?)
                }
                Some(b'=') => {
                    self.at += 1;
                    self.value(depth + 1)?
                }
                _ => return Err(self.wrong("= or {")),
            };
            entries.push((name.to_owned(), value));
        }
    }

    fn name(&mut self) -> Result<&'a str, String> {
        let start = self.at;
        while self
            .peek()
            .is_some_and(|c| c.is_ascii_alphanumeric() || b"_+.-/".contains(&c))
        {
            self.at += 1;
        }
        match self.text.get(start..self.at) {
            // The bytes are ASCII.
            Some(name) if !name.is_empty() => {
                str::from_utf8(name).map_err(|_| self.wrong("a name"))
            }
            _ => Err(self.wrong("a name")),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > DEPTH {
            return Err(self.wrong("less nesting"));
        }
        self.skip();
        match self.peek() {
            Some(b'"') => self.string().map(Value::Text),
            Some(b'[') => self.array(depth),
            Some(c) if c.is_ascii_digit() || b"+-.".contains(&c) => self.number(),
            _ => Err(self.wrong("a value")),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, String> {
        self.at += 1;
        let mut values = Vec::new();
        loop {
            self.skip();
            if self.peek() == Some(b']') {
                self.at += 1;
                return Ok(Value::Array(values));
            }
            values.push(self.value(depth + 1)?);
            self.skip();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {}
                _ => return Err(self.wrong(", or ]")),
            }
        }
    }

    fn string(&mut self) -> Result<String, String> {
        self.at += 1;
        // Nearly all strings have no escapes: the part up to the next quote is copied at once.
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest.iter().position(|c| b"\"\\\0".contains(c));
        let mut bytes = rest.get(..end.unwrap_or(0)).unwrap_or_default().to_vec();
        self.at += bytes.len();
        loop {
            match self.peek() {
                None => return Err(self.wrong("a closing quote")),
                Some(b'"') => {
                    self.at += 1;
                    return String::from_utf8(bytes).map_err(|_| self.wrong("UTF-8 in a string"));
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(c @ (b'"' | b'\\')) => bytes.push(c),
                        _ => return Err(self.wrong("a quote or backslash after a backslash")),
                    }
                }
                Some(0) => return Err(self.wrong("no zero byte in a string")),
                Some(c) => bytes.push(c),
            }
            self.at += 1;
        }
    }

    fn number(&mut self) -> Result<Value, String> {
        let start = self.at;
        while self
            .peek()
            .is_some_and(|c| c.is_ascii_alphanumeric() || b"+-.".contains(&c))
        {
            self.at += 1;
        }
        let text = self
            .text
            .get(start..self.at)
            .and_then(|text| std::str::from_utf8(text).ok())
            .unwrap_or_default();
        let value = if text.contains('.') {
            text.parse()
                .ok()
                .filter(|number: &f64| number.is_finite())
                .map(Value::Float)
        } else {
            text.parse().ok().map(Value::Int)
        };
        value.ok_or_else(|| self.wrong("a number"))
    }

    /// Skips spaces and comments.
    fn skip(&mut self) {
        while let Some(c) = self.peek() {
            if c == b'#' {
                while self.peek().is_some_and(|c| c != b'\n') {
                    self.at += 1;
                }
            } else if c.is_ascii_whitespace() {
                self.at += 1;
            } else {
                return;
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn wrong(&self, expected: &str) -> String {
        format!("expected {expected} at byte {}", self.at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_lvm_writes_is_read() {
        let text = br#"vg {
id = "a-\"b\\" # a comment { "
n = -3
f = 1.5
list = ["x", 7,
  ["y"],
]
empty = []
sub { deeper{k=1}}
}
# Generated
contents = "Text"
"#;
        let section = parse(text).expect("a config");
        let vg = section.get("vg").and_then(Value::section).expect("vg");
        assert_eq!(vg.get("id"), Some(&Value::Text(r#"a-"b\"#.into())));
        assert_eq!(vg.get("n"), Some(&Value::Int(-3)));
        assert_eq!(vg.get("f"), Some(&Value::Float(1.5)));
        assert_eq!(vg.get("empty"), Some(&Value::Array(Vec::new())));
        let list = vec![
            Value::Text("x".into()),
            Value::Int(7),
            Value::Array(vec![Value::Text("y".into())]),
        ];
        assert_eq!(vg.get("list"), Some(&Value::Array(list)));
        let deeper = vg.get("sub").and_then(Value::section);
        assert!(deeper.is_some_and(|sub| sub.get("deeper").is_some()));
        assert_eq!(section.get("contents").and_then(Value::text), Some("Text"));
    }

    #[test]
    fn what_lvm_never_writes_is_an_error() {
        for text in [
            "a",
            "a =",
            "a = b",
            "a = \"x",
            "a = \"\\n\"",
            "a {",
            "}",
            "a = [1",
            "a = [1 2]",
            "a = 1 a = 2",
            "a = 99999999999999999999",
            "a = 1x",
            "= 1",
            "a = 1.e999",
            "a = \"\0\"",
            "a = [1]]",
            "a { b = 1 b { } }",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn nesting_has_an_end() {
        assert!(parse("a{".repeat(100_000).as_bytes()).is_err());
        assert!(parse(format!("a={}", "[".repeat(100_000)).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_value_or_an_error(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }

        #[test]
        fn anything_that_looks_like_a_config_does_too(text in r#"([a-c]|[ =\[\]{}",\\#0-9.]|\n){0,200}"#) {
            let _ = parse(text.as_bytes());
        }
    }
}
