//! Makes names given by tenants safe for a terminal, a log and JSON.

/// Limit of characters of a path that are shown, before escaping; a longer one is cut in the middle.
const SHOWN: usize = 240;

/// Returns a path with control characters and invalid UTF-8 escaped, of bounded length.
pub fn shown(path: &[u8]) -> String {
    let mut pieces = Vec::new();
    for chunk in path.utf8_chunks() {
        pieces.extend(chunk.valid().chars().map(escaped));
        pieces.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    if pieces.len() <= SHOWN {
        return pieces.concat();
    }
    let half = SHOWN / 2;
    let (head, tail) = (&pieces[..half], &pieces[pieces.len() - half..]);
    format!("{}…{}", head.concat(), tail.concat())
}

fn escaped(c: char) -> String {
    let acts = c.is_control()
        || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    match c {
        '\\' => "\\\\".to_owned(),
        c if acts => c.escape_unicode().to_string(),
        c => c.to_string(),
    }
}

/// Returns the text for an inode whose path was not found.
pub(crate) fn inode(number: u64) -> String {
    format!("inode {number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_shown_as_it_is_unless_it_could_act_or_is_no_text() {
        for (path, expected) in [
            (&b"/db/base/16384/2619"[..], "/db/base/16384/2619"),
            ("/Größe/文".as_bytes(), "/Größe/文"),
            (b"/a\n/etc/passwd", "/a\\u{a}/etc/passwd"),
            (b"/\x1b[2J", "/\\u{1b}[2J"),
            (b"/\xff\xfe", "/\\xff\\xfe"),
            (b"/back\\slash", "/back\\\\slash"),
            ("/\u{202e}gnp".as_bytes(), "/\\u{202e}gnp"),
        ] {
            assert_eq!(shown(path), expected);
        }
    }

    #[test]
    fn a_long_path_keeps_its_beginning_and_its_end() {
        let path = format!("/begin/{}/end", "x".repeat(10_000));
        let shown = shown(path.as_bytes());
        assert!(shown.starts_with("/begin/") && shown.ends_with("/end"));
        assert_eq!(shown.chars().count(), SHOWN + 1);
    }
}
