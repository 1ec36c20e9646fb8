//! Reading one table of the file, key by key: what is asked for is known, what is left is not.
//!
//! Every mistake is noted with its line and key, and reading goes on, so that an operator
//! sees all of them at once.

use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value with the place it was written at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    pub value: T,
    /// Its key path, e.g. `[csi] socket`.
    pub key: String,
    /// Line in the file, from 1.
    pub line: usize,
}

/// One thing that is wrong, or worth a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line in the file, from 1; None when something is missing altogether.
    pub line: Option<usize>,
    /// Key path; empty when the whole file is meant.
    pub key: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

impl Problem {
    /// A problem with a value that is there.
    pub fn at<T>(place: &At<T>, message: impl Into<String>) -> Self {
        Self {
            line: Some(place.line),
            key: place.key.clone(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "{line}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Line of a byte offset, from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    let upto = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    1 + upto.iter().filter(|&&b| b == b'\n').count()
}

/// A table being read.
pub struct Section<'a, 'i> {
    text: &'i str,
    path: String,
    line: usize,
    table: Option<&'a DeTable<'i>>,
    asked: Vec<&'static str>,
}

impl<'a, 'i> Section<'a, 'i> {
    /// The whole file.
    pub fn root(text: &'i str, table: &'a DeTable<'i>) -> Self {
        Self {
            text,
            path: String::new(),
            line: 1,
            table: Some(table),
            asked: Vec::new(),
        }
    }

    /// Line of its header.
    pub fn line(&self) -> usize {
        self.line
    }

    fn name_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{} {key}", self.path)
        }
    }

    fn take(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'i>>> {
        self.asked.push(key);
        let table = self.table?;
        table
            .iter()
            .find(|(name, _)| name.get_ref().as_ref() == key)
            .map(|(_, value)| value)
    }

    fn place<T>(&self, key: &str, span: usize, value: T) -> At<T> {
        At {
            value,
            key: self.name_of(key),
            line: line_of(self.text, span),
        }
    }

    fn wrong(&self, key: &str, value: &Spanned<DeValue<'i>>, expected: &str) -> Problem {
        let found = value.get_ref().type_str();
        Problem::at(
            &self.place(key, value.span().start, ()),
            format!("must be {expected}, not {} {found}", article(found)),
        )
    }

    /// A text.
    pub fn string(&mut self, key: &'static str, problems: &mut Vec<Problem>) -> Option<At<String>> {
        let value = self.take(key)?;
        match value.get_ref().as_str() {
            Some(text) => Some(self.place(key, value.span().start, text.to_owned())),
            None => {
                problems.push(self.wrong(key, value, "a text in quotes"));
                None
            }
        }
    }

    /// A text, or a whole number as text (sizes).
    pub fn string_or_number(
        &mut self,
        key: &'static str,
        problems: &mut Vec<Problem>,
    ) -> Option<At<String>> {
        let value = self.take(key)?;
        let text = match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => {
                Some(number.as_str().replace('_', ""))
            }
            other => other.as_str().map(str::to_owned),
        };
        match text {
            Some(text) => Some(self.place(key, value.span().start, text)),
            None => {
                problems.push(self.wrong(key, value, "a size in quotes or a number of bytes"));
                None
            }
        }
    }

    /// true or false.
    pub fn boolean(&mut self, key: &'static str, problems: &mut Vec<Problem>) -> Option<At<bool>> {
        let value = self.take(key)?;
        match value.get_ref().as_bool() {
            Some(flag) => Some(self.place(key, value.span().start, flag)),
            None => {
                problems.push(self.wrong(key, value, "true or false"));
                None
            }
        }
    }

    /// A whole number.
    pub fn integer(&mut self, key: &'static str, problems: &mut Vec<Problem>) -> Option<At<i32>> {
        let value = self.take(key)?;
        let number = match value.get_ref() {
            DeValue::Integer(number) => {
                i32::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()
            }
            _ => None,
        };
        match number {
            Some(number) => Some(self.place(key, value.span().start, number)),
            None => {
                problems.push(Problem::at(
                    &self.place(key, value.span().start, ()),
                    "must be a whole number from -2147483648 to 2147483647",
                ));
                None
            }
        }
    }

    /// A list of texts; one text alone is a list of one.
    pub fn strings(
        &mut self,
        key: &'static str,
        problems: &mut Vec<Problem>,
    ) -> Option<At<Vec<At<String>>>> {
        let value = self.take(key)?;
        if let Some(text) = value.get_ref().as_str() {
            let one = self.place(key, value.span().start, text.to_owned());
            return Some(self.place(key, value.span().start, vec![one]));
        }
        let Some(array) = value.get_ref().as_array() else {
            problems.push(self.wrong(key, value, "a list of texts, like [\"a\", \"b\"]"));
            return None;
        };
        let mut texts = Vec::new();
        for item in array.iter() {
            match item.get_ref().as_str() {
                Some(text) => texts.push(self.place(key, item.span().start, text.to_owned())),
                None => problems.push(self.wrong(
                    key,
                    item,
                    "a list of texts; this entry must be in quotes",
                )),
            }
        }
        Some(self.place(key, value.span().start, texts))
    }

    /// A table in it; an empty one when it is missing.
    pub fn table(&mut self, key: &'static str, problems: &mut Vec<Problem>) -> Section<'a, 'i> {
        let mut section = Section {
            text: self.text,
            path: self.sub_path(key),
            line: self.line,
            table: None,
            asked: Vec::new(),
        };
        if let Some(value) = self.take(key) {
            section.line = line_of(self.text, value.span().start);
            section.table = value.get_ref().as_table();
            if section.table.is_none() {
                problems.push(self.wrong(key, value, &format!("a table, {}", section.path)));
            }
        }
        section
    }

    /// A list of tables (`[[key]]`).
    pub fn tables(
        &mut self,
        key: &'static str,
        problems: &mut Vec<Problem>,
    ) -> Vec<Section<'a, 'i>> {
        let Some(value) = self.take(key) else {
            return Vec::new();
        };
        let path = format!("[{}]", self.sub_path(key));
        let Some(array) = value.get_ref().as_array() else {
            problems.push(self.wrong(
                key,
                value,
                &format!("a list of tables: write {path}, with two brackets"),
            ));
            return Vec::new();
        };
        let mut sections = Vec::new();
        for item in array.iter() {
            match item.get_ref().as_table() {
                Some(table) => sections.push(Section {
                    text: self.text,
                    path: path.clone(),
                    line: line_of(self.text, item.span().start),
                    table: Some(table),
                    asked: Vec::new(),
                }),
                None => problems.push(self.wrong(key, item, &format!("a table: write {path}"))),
            }
        }
        sections
    }

    fn sub_path(&self, key: &str) -> String {
        let outer = self.path.trim_matches(['[', ']']);
        if outer.is_empty() {
            format!("[{key}]")
        } else {
            format!("[{outer}.{key}]")
        }
    }

    /// Every key that nobody asked for is a mistake.
    pub fn finish(self, problems: &mut Vec<Problem>) {
        let Some(table) = self.table else { return };
        for (name, _) in table.iter() {
            let key = name.get_ref().as_ref();
            if self.asked.contains(&key) {
                continue;
            }
            let place = if self.path.is_empty() {
                "the file".to_owned()
            } else {
                self.path.clone()
            };
            let hint = closest(key, &self.asked)
                .map(|known| format!(" (did you mean `{known}`?)"))
                .unwrap_or_default();
            let mut known = self.asked.clone();
            known.sort_unstable();
            problems.push(Problem {
                line: Some(line_of(self.text, name.span().start)),
                key: String::new(),
                message: format!(
                    "unknown key `{key}` in {place}{hint}; known keys: {}",
                    known.join(", ")
                ),
            });
        }
    }
}

fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    }
}

/// The known word that a mistyped one most likely stands for: at most a third of its letters differ.
pub fn closest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word = word.replace('_', "-").to_lowercase();
    known
        .iter()
        .map(|candidate| (distance(&word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= 1.max(candidate.len() / 3))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Edit distance with neighbouring letters swapped counting once.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1)
                .min(row[j - 1] + 1)
                .min(rows[i - 1][j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_mistake_finds_the_word_that_was_meant() {
        let known = ["media", "min-size", "max-size", "model"];
        assert_eq!(closest("medai", &known), Some("media"));
        assert_eq!(closest("min_size", &known), Some("min-size"));
        assert_eq!(closest("Model", &known), Some("model"));
        assert_eq!(closest("colour", &known), None);
    }

    #[test]
    fn lines_count_from_one() {
        assert_eq!(line_of("a\nb\nc", 0), 1);
        assert_eq!(line_of("a\nb\nc", 4), 3);
        assert_eq!(line_of("a\nb\nc", 99), 3);
    }
}
