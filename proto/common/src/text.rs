//! Untrusted text, from a drive, a user or another node, made safe for a terminal, a log line or a status.

/// True if a terminal or another viewer could interpret the character instead of showing it: control characters, line separators, and marks
/// that change the writing direction.
pub fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Returns the text with each such character escaped.
pub fn escaped(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if acts(c) {
            clean.extend(c.escape_default());
        } else {
            clean.push(c);
        }
    }
    clean
}

/// Returns at most `most` bytes of the text: its beginning, which has what failed, and its end, which has the reason.
pub fn both_ends(text: &str, most: usize) -> String {
    const GAP: &str = " … ";
    if text.len() <= most {
        return text.to_owned();
    }
    let room = most.saturating_sub(GAP.len());
    let head = text.floor_char_boundary(room / 2);
    let tail = text.ceil_char_boundary(text.len() - (room - room / 2));
    format!("{}{GAP}{}", &text[..head], &text[tail..])
}

/// Splits a comma-separated list; commas inside double quotes do not separate.
pub fn split_options(list: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    list.split(move |c| {
        quoted ^= c == '"';
        c == ',' && !quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_upon_is_written_out_and_letters_of_any_script_stay() {
        let hostile = "a\r\n\u{1b}[2J\0\u{7f}\u{85}\u{202e}b\u{2066}\u{61c}\u{feff}ü体🦀";
        let shown = r"a\r\n\u{1b}[2J\u{0}\u{7f}\u{85}\u{202e}b\u{2066}\u{61c}\u{feff}ü体🦀";
        assert_eq!(escaped(hostile), shown);
        // Both ends of each range.
        for c in "\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}".chars() {
            assert!(acts(c), "{c:?}");
        }
        for c in "\u{200d}\u{2010}\u{2027}\u{202f}\u{2065}\u{206a}".chars() {
            assert!(!acts(c), "{c:?}");
        }
    }

    #[test]
    fn a_long_text_keeps_both_ends_and_no_character_is_cut() {
        assert_eq!(both_ends("short", 5), "short");
        for most in 0..40 {
            let long = format!("begin{}end", "ä体".repeat(100));
            let cut = both_ends(&long, most);
            assert!(cut.len() <= most.max(" … ".len()), "{most}: {cut}");
        }
        let cut = both_ends(&format!("begin {} end", "x".repeat(900)), 64);
        assert!(
            cut.starts_with("begin x") && cut.ends_with("x end"),
            "{cut}"
        );
    }
}
