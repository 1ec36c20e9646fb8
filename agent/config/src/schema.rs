//! Finds every key of the configuration by letting serde request all of them, so that the structs of `raw` remain the only list.

use std::cell::RefCell;

use serde::{
    Deserializer,
    de::{
        DeserializeOwned, DeserializeSeed, Error as _, IntoDeserializer, SeqAccess, Visitor,
        value::{Error, MapDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};

/// A key of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    /// The table of the key, with its brackets; empty for the file itself.
    pub(super) section: String,
    pub(super) name: &'static str,
    /// Heading if it is a table itself, such as `[[class]]`.
    pub(super) table: Option<String>,
    /// Allowed words, if there are no others.
    pub(super) words: &'static [&'static str],
}

/// Returns all keys of `T`, in its order; a table precedes its keys.
pub(super) fn keys<T: DeserializeOwned>() -> Vec<Key> {
    let recorded = RefCell::default();
    let root = Walk {
        recorded: &recorded,
        section: String::new(),
        key: "",
        role: Role::Key,
    };
    // Every value is refused, so only the requests have an effect.
    let _ = T::deserialize(root);
    recorded.into_inner()
}

/// Returns the heading of a table `key` in `section`; empty for the file itself.
pub(super) fn path(section: &str, key: &str, role: Role) -> String {
    let path = match section.trim_matches(['[', ']']) {
        "" if key.is_empty() => return String::new(),
        "" => format!("[{key}]"),
        outer => format!("[{outer}.{key}]"),
    };
    match role {
        Role::Entry => format!("[{path}]"),
        Role::Key | Role::Value => path,
    }
}

/// The kind of value that is deserialized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A section, a list of tables, or not determined yet.
    Key,
    /// The value of an `At`.
    Value,
    /// An entry of a list.
    Entry,
}

/// A deserializer without values that records the requests.
#[derive(Clone)]
struct Walk<'a> {
    recorded: &'a RefCell<Vec<Key>>,
    section: String,
    key: &'static str,
    role: Role,
}

impl Walk<'_> {
    fn note(&self, table: Option<String>, words: &'static [&'static str]) {
        if !self.key.is_empty() {
            self.recorded.borrow_mut().push(Key {
                section: self.section.clone(),
                name: self.key,
                table,
                words,
            });
        }
    }

    fn value<T>(&self, words: &'static [&'static str]) -> Result<T, Error> {
        self.note(None, words);
        Err(Error::custom("no value"))
    }
}

impl<'de> Deserializer<'de> for Walk<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name == "At" {
            return visitor.visit_seq(Parts {
                walk: self,
                next: 0,
            });
        }
        let section = path(&self.section, self.key, self.role);
        self.note(Some(section.clone()), &[]);
        let entry = |key: &&'static str| {
            let walk = Walk {
                section: section.clone(),
                key,
                role: Role::Key,
                ..self
            };
            (*key, walk)
        };
        visitor.visit_map(MapDeserializer::new(fields.iter().map(entry)))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let role = Role::Entry;
        let one = Walk { role, ..self };
        visitor.visit_seq(SeqDeserializer::new(std::iter::once(one)))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        words: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Error> {
        self.value(words)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        self.value(&[])
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct tuple tuple_struct map identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Error> for Walk<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The fields of an `At`, in order.
struct Parts<'a> {
    walk: Walk<'a>,
    next: u8,
}

impl<'de> SeqAccess<'de> for Parts<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        self.next += 1;
        match self.next {
            1 => Ok(seed.deserialize(self.walk.clone()).ok()),
            2 => seed.deserialize("".into_deserializer()).map(Some),
            _ => seed.deserialize(0_usize.into_deserializer()).map(Some),
        }
    }
}
