//! LVM's text config format: sections, strings, numbers, arrays, comments.
//!
//! Total and bounded: any bytes give a value or an error, memory stays proportional to the text,
//! and nesting ends at `DEPTH`. Stricter than LVM: what LVM never writes (a key twice in one
//! section, a bare word as a value) is an error, not guessed at.

use std::collections::HashSet;

/// Sections within sections and arrays within arrays that are followed. LVM writes four levels.
const DEPTH: usize = 16;

/// What a key has.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// A quoted text, without its escapes.
    Text(String),
    /// `[ … ]`
    Array(Vec<Value>),
    /// `{ … }`
    Section(Section),
}

impl Value {
    /// A number that is not negative.
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Int(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// A text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A section.
    pub fn section(&self) -> Option<&Section> {
        match self {
            Self::Section(section) => Some(section),
            _ => None,
        }
    }

    /// An array of texts.
    pub fn texts(&self) -> Option<Vec<&str>> {
        match self {
            Self::Array(values) => values.iter().map(Self::text).collect(),
            _ => None,
        }
    }
}

/// Keys and what they have, in the order of the text. No key is there twice.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Section(pub Vec<(String, Value)>);

impl Section {
    /// What this key has.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    }
}

/// Reads a whole text. An error says what was expected, and at which byte.
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
    /// Up to the closing brace, or to the end of the text at the top.
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
            // Of ASCII alone.
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
        // Nearly all have no escapes: what is up to the next quote.
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

    /// Past spaces and comments.
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
