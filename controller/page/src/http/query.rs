//! Parameters in a request's query. Pure.

/// Returns the decoded value of a parameter; None if it is missing, given twice or not UTF-8.
pub(super) fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    let mut all = query.unwrap_or_default().split('&').filter_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        (key == name).then_some(value)
    });
    let value = all.next()?;
    match all.next() {
        None => decode(value),
        Some(_) => None,
    }
}

// Decodes as application/x-www-form-urlencoded.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_what_is_malformed_is_none() {
        let query = Some(
            "node=n%201&id=wwn-0x5+%C3%A9%3D%26&bad=%4&worse=%zz&latin=%ff&twice=1&twice=2&none",
        );
        for (name, value) in [
            ("node", Some("n 1")),
            ("id", Some("wwn-0x5 é=&")),
            ("bad", None),
            ("worse", None),
            ("latin", None),
            ("twice", None),
            ("none", None),
            ("absent", None),
        ] {
            assert_eq!(parameter(query, name).as_deref(), value, "{name}");
        }
        assert_eq!(parameter(None, "node"), None);
    }
}
