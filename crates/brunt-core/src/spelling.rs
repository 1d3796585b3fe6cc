//! Guesses which of the known names was meant by one that is not among them. Used in messages about mistakes in
//! users' files.

/// Asks whether the known name closest to a written one was meant; `None` if none is close.
pub fn did_you_mean<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(written, known).map(|name| format!("did you mean {name}?"))
}

/// The known name closest to a written one; `None` if it differs in more letters than allowed: a third of the written
/// name's, but at least two and at most three.
fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let close = (written.chars().count() / 3).clamp(2, 3);
    let measured = known
        .into_iter()
        .map(|name| (distance(written, name), name));
    let (distance, name) = measured.min_by_key(|(distance, _)| *distance)?;
    (distance <= close).then_some(name)
}

/// The Levenshtein distance, for short names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let cost = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_close_and_another_word_is_not() {
        let known = ["iodepth", "ioengine", "bs"];
        assert_eq!(nearest("iodetph", known), Some("iodepth"));
        assert_eq!(nearest("blocksize", known), None);
        assert_eq!(nearest("iodepth", []), None);
        let question = did_you_mean("iodetph", known);
        assert_eq!(question.as_deref(), Some("did you mean iodepth?"));
    }
}
