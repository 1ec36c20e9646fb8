//! Suggests the key or word that was probably meant by an unknown one. Pure.

use super::schema::Key;

/// Sections that are suggested at most; with more there is no suggestion.
const PLACES: usize = 3;

/// Returns the message for a key that its section does not have. `all`: every key of every section.
pub(super) fn unknown_key(key: &str, section: &str, keys: &[&str], all: &[Key]) -> String {
    let place = if section.is_empty() {
        "the file"
    } else {
        section
    };
    let meant = meant(key, section, keys, all);
    let meant = meant.map_or_else(String::new, |meant| format!(" ({meant})"));
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    let keys = keys.join(", ");
    format!("unknown key `{key}` in {place}{meant}; known keys: {keys}")
}

fn meant(key: &str, section: &str, keys: &[&str], all: &[Key]) -> Option<String> {
    let own = closest(key, keys).map(|name| {
        let here = all
            .iter()
            .find(|it| it.section == section && it.name == name);
        match here.and_then(|it| it.table.as_ref()) {
            Some(table) => format!("did you mean {table}?"),
            None => format!("did you mean `{name}`?"),
        }
    });
    let name = spelled(key);
    if keys.contains(&name.as_str()) {
        return own;
    }
    let elsewhere = || all.iter().filter(|it| it.name == name);
    // A level too high or too low takes precedence over a mistyped key.
    belongs(
        elsewhere().filter(|it| is_above(section, &it.section) || is_above(&it.section, section)),
    )
    .or(own)
    .or_else(|| belongs(elsewhere()))
}

fn belongs<'k>(keys: impl Iterator<Item = &'k Key>) -> Option<String> {
    let place = |key: &Key| match (&key.table, key.section.as_str()) {
        (Some(table), "") => format!("the file, as {table}"),
        (Some(table), section) => format!("{section}, as {table}"),
        (None, section) => section.to_owned(),
    };
    let places: Vec<String> = keys.map(place).collect();
    (1..=PLACES)
        .contains(&places.len())
        .then(|| format!("it belongs into {}", places.join(" or ")))
}

fn is_above(outer: &str, inner: &str) -> bool {
    let [outer, inner] = [outer, inner].map(|it| it.trim_matches(['[', ']']));
    let rest = inner.strip_prefix(outer);
    outer.is_empty() || rest.is_some_and(|rest| rest.starts_with('.'))
}

fn spelled(word: &str) -> String {
    word.replace('_', "-").to_lowercase()
}

/// Returns the known word closest to a mistyped one: at most a third of its letters differ, or it is the plural.
pub(super) fn closest<'k>(word: &str, candidates: &[&'k str]) -> Option<&'k str> {
    let word = spelled(word);
    let forms = [
        Some(word.as_str()),
        word.strip_suffix("es"),
        word.strip_suffix('s'),
    ];
    let distance = |candidate: &str| {
        let distances = forms.into_iter().flatten();
        distances
            .map(|form| strsim::osa_distance(form, candidate))
            .min()
    };
    candidates
        .iter()
        .filter_map(|candidate| Some((distance(candidate)?, *candidate)))
        .filter(|(distance, candidate)| *distance <= 1.max(candidate.len() / 3))
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_mistake_finds_the_word_that_was_meant() {
        let candidates = ["media", "min-size", "max-size", "model", "class"];
        assert_eq!(closest("medai", &candidates), Some("media"));
        assert_eq!(closest("min_size", &candidates), Some("min-size"));
        assert_eq!(closest("Model", &candidates), Some("model"));
        assert_eq!(closest("classes", &candidates), Some("class"));
        assert_eq!(closest("colour", &candidates), None);
    }
}
