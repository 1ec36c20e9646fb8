//! Deserializes TOML into structs with serde, without stopping at the first mistake.
//!
//! toml's own deserializer ends at the first mistake. This one reports each with its line and key and continues, so that an operator sees
//! all of them at once: a refused value leaves its `At` empty, an unknown key is ignored, and a section that is no table is read as an
//! empty one.

use std::cell::RefCell;

use serde::{
    Deserializer,
    de::{
        DeserializeOwned, DeserializeSeed, Expected, IntoDeserializer, SeqAccess, Visitor,
        value::{MapDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    hint,
    report::Problem,
    schema::{self, Key, Role},
};

/// Returns the values with problems for unknown keys and refused values; Err, with syntax errors only, if the text is no TOML.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<(T, Vec<Problem>), Vec<Problem>> {
    let file = File {
        newlines: text.match_indices('\n').map(|(at, _)| at).collect(),
        problems: RefCell::default(),
        keys: schema::keys::<T>,
    };
    let (table, errors) = DeTable::parse_recoverable(text);
    // Values recovered after a syntax error would only cause further mistakes.
    if !errors.is_empty() {
        let problem = |error: &toml::de::Error| {
            let line = error.span().map(|span| file.line(span.start));
            let mut message = error.message().trim().replace('\n', ", ");
            let key = error.span().and_then(|span| text.get(span));
            if let Some(key) = key.filter(|_| message == "duplicate key") {
                message = format!("{message} {key}; each key and [section] may be there once");
            }
            Problem::new(line, "", format!("not TOML: {message}"))
        };
        return Err(errors.iter().map(problem).collect());
    }
    let root = Node {
        file: &file,
        section: "",
        key: "",
        role: Role::Key,
        value: &Spanned::new(table.span(), DeValue::Table(table.into_inner())),
    };
    let read = T::deserialize(root);
    let mut problems = file.problems.into_inner();
    match read {
        Ok(read) => Ok((read, problems)),
        Err(Mistake(message)) => {
            problems.push(Problem::new(None, "", message));
            Err(problems)
        }
    }
}

struct File {
    /// Byte offsets of newlines.
    newlines: Vec<usize>,
    problems: RefCell<Vec<Problem>>,
    /// Returns all known keys, for suggestions.
    keys: fn() -> Vec<Key>,
}

impl File {
    /// Returns the line of a byte offset, from 1.
    fn line(&self, offset: usize) -> usize {
        1 + self.newlines.partition_point(|&newline| newline < offset)
    }
}

/// Message for a refused value.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Mistake(String);

impl serde::de::Error for Mistake {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }

    fn unknown_variant(word: &str, expected: &'static [&'static str]) -> Self {
        let hint = hint::closest(word, expected);
        let hint = hint.map_or_else(String::new, |word| format!(" (did you mean {word:?}?)"));
        Self(format!(
            "{word:?} is not known{hint}; allowed: {}",
            expected.join(", ")
        ))
    }
}

/// The value of a key, or an entry of its list, as a deserializer.
#[derive(Clone, Copy)]
struct Node<'a, 'i> {
    file: &'a File,
    /// The table of the key, with its brackets.
    section: &'a str,
    key: &'a str,
    role: Role,
    value: &'a Spanned<DeValue<'i>>,
}

impl<'a> Node<'a, '_> {
    fn line(&self) -> usize {
        self.file.line(self.value.span().start)
    }

    fn name(&self) -> String {
        format!("{} {}", self.section, self.key).trim().to_owned()
    }

    /// Returns the section that this is, with its brackets; empty for the whole file.
    fn path(&self) -> String {
        schema::path(self.section, self.key, self.role)
    }

    fn must_be(&self, expected: &str) -> Mistake {
        let actual = self.value.get_ref().type_str();
        let article = match actual.starts_with(['a', 'e', 'i', 'o', 'u']) {
            true => "an",
            false => "a",
        };
        Mistake(format!("must be {expected}, not {article} {actual}"))
    }

    fn report(&self, mistake: Mistake) {
        let problem = Problem::new(Some(self.line()), &self.name(), mistake.0);
        self.file.problems.borrow_mut().push(problem);
    }

    fn text(&self) -> Result<&'a str, Mistake> {
        let text = self.value.get_ref().as_str();
        text.ok_or_else(|| {
            self.must_be(match self.role {
                Role::Entry => "a list of texts; this entry must be in quotes",
                Role::Key | Role::Value => "a text in quotes",
            })
        })
    }
}

impl<'de> Deserializer<'de> for Node<'_, '_> {
    type Error = Mistake;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        // The derived code of an At also accepts its fields in order; `value` may be omitted then.
        if name == "At" {
            return visitor.visit_seq(Parts {
                node: self,
                next: 0,
            });
        }
        let path = self.path();
        let empty = DeTable::new();
        let table = match (self.value.get_ref(), self.role) {
            (DeValue::Table(table), _) => table,
            (_, Role::Entry) => return Err(self.must_be(&format!("a table: write {path}"))),
            _ => {
                self.report(self.must_be(&format!("a table, {path}")));
                &empty
            }
        };
        let mut entries = Vec::new();
        for (key, value) in table {
            let node = Node {
                section: &path,
                key: key.get_ref(),
                role: Role::Key,
                value,
                ..self
            };
            if fields.contains(&node.key) {
                entries.push((node.key, node));
            } else {
                let line = self.file.line(key.span().start);
                let message = hint::unknown_key(node.key, &path, fields, &(self.file.keys)());
                let mut problems = self.file.problems.borrow_mut();
                problems.push(Problem::new(Some(line), "", message));
            }
        }
        visitor.visit_map(MapDeserializer::new(entries.into_iter()))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let entries = match (self.value.get_ref(), self.role) {
            (DeValue::Array(entries), _) => entries.iter().collect(),
            // A single text is a list of one.
            (DeValue::String(_), Role::Value) => vec![self.value],
            (_, Role::Value) => return Err(self.must_be("a list of texts, like [\"a\", \"b\"]")),
            _ => {
                let path = self.path();
                let tables = format!("a list of tables: write [{path}], with two brackets");
                self.report(self.must_be(&tables));
                Vec::new()
            }
        };
        let role = Role::Entry;
        let nodes = entries.into_iter().map(|value| Node {
            role,
            value,
            ..self
        });
        visitor.visit_seq(SeqDeserializer::new(nodes))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_some(self)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_str(self.text()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_str(self.text()?)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let flag = self.value.get_ref().as_bool();
        visitor.visit_bool(flag.ok_or_else(|| self.must_be("true or false"))?)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let number = self.value.get_ref().as_integer().and_then(|number| {
            i32::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()
        });
        let range = || format!("must be a whole number from {} to {}", i32::MIN, i32::MAX);
        visitor.visit_i32(number.ok_or_else(|| Mistake(range()))?)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        visitor.visit_enum(self.text()?.into_deserializer())
    }

    /// Deserializes a text, or a whole number as text: it may exceed any number type.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self.value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => {
                visitor.visit_str(&number.as_str().replace('_', ""))
            }
            DeValue::String(text) => visitor.visit_str(text),
            _ => Err(self.must_be(&(&visitor as &dyn Expected).to_string())),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct
        newtype_struct tuple tuple_struct map identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Mistake> for Node<'_, '_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The fields of an `At`, in order.
struct Parts<'a, 'i> {
    node: Node<'a, 'i>,
    next: u8,
}

impl<'de> SeqAccess<'de> for Parts<'_, '_> {
    type Error = Mistake;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Mistake> {
        self.next += 1;
        let mut node = self.node;
        match self.next {
            1 => {
                if node.role == Role::Key {
                    node.role = Role::Value;
                }
                let value = seed.deserialize(node);
                Ok(value.map_err(|mistake| node.report(mistake)).ok())
            }
            2 => seed.deserialize(node.name().into_deserializer()).map(Some),
            _ => seed.deserialize(node.line().into_deserializer()).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_count_from_one() {
        let file = File {
            newlines: vec![1, 3],
            problems: RefCell::default(),
            keys: Vec::new,
        };
        assert_eq!(
            [0, 1, 2, 4, 99].map(|offset| file.line(offset)),
            [1, 1, 2, 3, 3]
        );
    }
}
