//! Text from headers: bounded fields, made fit for a terminal.

/// Text from a header that may go to a terminal: control characters and those that change the
/// direction of text are escaped; at most 100 characters.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::new();
    for (index, c) in text.chars().enumerate() {
        match c {
            _ if index == 100 => {
                out.push('…');
                break;
            }
            c if c.is_control() || turns_text(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Source: Unicode Standard Annex 9, explicit directional formatting characters.
fn turns_text(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text field of a binary header: up to its first NUL, and never its last byte, which
/// cryptsetup always reads as NUL.
pub(crate) fn field(bytes: &[u8]) -> String {
    let bounded = bytes.split_last().map_or(bytes, |(_, rest)| rest);
    let text = bounded.split(|&b| b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(printable("\u{202e}é🔐"), "\\u{202e}é🔐");
        assert!(printable(&"x".repeat(10_000)).len() < 110);
    }

    #[test]
    fn fields_end_at_nul_or_before_the_last_byte() {
        assert_eq!(field(b"ab\0cd\0"), "ab");
        assert_eq!(field(b"abcdef"), "abcde");
        assert_eq!(field(b""), "");
    }
}
