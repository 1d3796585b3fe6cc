//! Characters that affect a terminal or the order of text. Used where text from other sources is printed, and where
//! names are read.

/// Whether a character is a control character, ends a line, or changes the direction of text (Unicode's bidirectional
/// controls, UAX #9, section 2).
pub fn moves_text(one: char) -> bool {
    one.is_control()
        || matches!(
            one,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_all_scripts_show() {
        assert!("Disk_1 äß 磁盘 دِسك 🗄".chars().all(|one| !moves_text(one)));
        assert!(
            "\0\n\u{1b}\u{9b}\u{202e}\u{2069}\u{200f}"
                .chars()
                .all(moves_text)
        );
    }
}
