//! Splits an input with several outputs of smartctl: one after the other, or as an array. Pure.

use serde_json::Value;

use super::parse::{ParseError, is_smartctl, not_json};

/// Returns the outputs in an input, each to be parsed separately. Text before and between them is skipped. Text that begins like a further
/// output and is none, or does not end, is returned too, so that parsing it fails.
pub fn documents(bytes: &[u8]) -> Result<Vec<Vec<u8>>, ParseError> {
    // Same length: names of drives have control characters, which JSON forbids.
    let clean: Vec<u8> = bytes.iter().map(|byte| (*byte).max(b' ')).collect();
    if clean.trim_ascii_start().starts_with(b"[") {
        return in_array(&clean);
    }
    let mut outputs: Vec<Vec<u8>> = Vec::new();
    let mut from = 0;
    while let Some((start, end)) = next(bytes, &clean, from, outputs.is_empty()) {
        outputs.extend(clean.get(start..end).map(<[u8]>::to_vec));
        from = end;
    }
    if outputs.is_empty() {
        // Parsing it reports the error.
        outputs.push(bytes.to_vec());
    }
    Ok(outputs)
}

fn in_array(clean: &[u8]) -> Result<Vec<Vec<u8>>, ParseError> {
    let values: Vec<Value> = match serde_json::from_slice(clean) {
        Ok(values) => values,
        Err(error) if error.is_eof() => {
            return Err(ParseError::Truncated { len: clean.len() });
        }
        Err(error) => return Err(not_json(&error.to_string(), clean)),
    };
    if values.is_empty() {
        return Err(not_json("the array is empty", clean));
    }
    Ok(values
        .iter()
        .map(|value| value.to_string().into_bytes())
        .collect())
}

/// Returns where the next output begins and ends. The first one must be smartctl's, because text before it may have braces.
fn next(bytes: &[u8], clean: &[u8], from: usize, first: bool) -> Option<(usize, usize)> {
    let mut begins_line = true;
    for (start, byte) in bytes.iter().enumerate().skip(from) {
        let may_begin = begins_line || first && !bytes.iter().take(start).any(|byte| *byte == b'{');
        begins_line = *byte == b'\n' || begins_line && byte.is_ascii_whitespace();
        if *byte != b'{' || !may_begin {
            continue;
        }
        let rest = clean.get(start..)?;
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) if !first || is_smartctl(&value) => {
                return Some((start, start + values.byte_offset()));
            }
            Some(Err(error)) if error.is_eof() => return Some((start, bytes.len())),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<String> {
        let outputs = documents(text.as_bytes()).unwrap().into_iter();
        outputs.map(|one| String::from_utf8(one).unwrap()).collect()
    }

    #[test]
    fn answers_one_after_the_other_or_in_an_array_are_taken_apart() {
        let (a, b) = (r#"{"smartctl":{"a":1}}"#, r#"{"device":{"b":2}}"#);
        for text in [
            format!("{a}{b}"),
            format!("{a}\n{b}\n"),
            format!("some text\n{a}\nmore text {{\n  {b} end"),
            format!("[{a}, {b}]"),
            format!("\n [\n{a},\n{b}]\n"),
        ] {
            assert_eq!(split(&text), [a, b], "{text}");
        }
        assert_eq!(split(a), [a]);
        assert_eq!(split(&format!("name {a}")), [a]);
        assert_eq!(split("no json at all"), ["no json at all"]);
        // An incomplete output is not skipped.
        assert_eq!(split(&format!("{a}{{\"x\":1}}")), [a, "{\"x\":1}"]);
        assert_eq!(split(&format!("{a}\n{{\"smart")), [a, "{\"smart"]);
        assert!(matches!(
            documents(format!("[{a}, {{").as_bytes()),
            Err(ParseError::Truncated { .. })
        ));
        assert!(documents(b"[]").is_err());
        assert!(documents(format!("[{a} {b}]").as_bytes()).is_err());
    }
}
