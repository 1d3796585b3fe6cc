//! Warnings below the terminal's table: similar warnings about several points become one line with the range of their
//! numbers, unless each number matters.

/// Notes on points, in order of their first appearance.
#[derive(Default)]
pub(super) struct Notes(Vec<Group>);

/// A group of notes that differ only in their numbers.
struct Group {
    /// The text between the numbers.
    words: Vec<String>,
    /// For each number, its smallest and largest value as written.
    ranges: Vec<(String, String)>,
    points: Vec<String>,
}

impl Notes {
    /// Adds a note on a point.
    pub fn add(&mut self, point: &str, note: String) {
        self.group(point, taken_apart(&note));
    }

    /// Adds a note that is merged only with identical ones.
    pub fn add_exact(&mut self, point: &str, note: String) {
        self.group(point, (vec![note], Vec::new()));
    }

    fn group(&mut self, point: &str, (words, numbers): (Vec<String>, Vec<String>)) {
        match self.0.iter_mut().find(|group| group.words == words) {
            Some(group) => {
                for (range, number) in group.ranges.iter_mut().zip(numbers) {
                    widen(range, number);
                }
                if group.points.last().is_none_or(|last| last != point) {
                    group.points.push(point.to_string());
                }
            }
            None => self.0.push(Group {
                words,
                ranges: numbers.into_iter().map(|one| (one.clone(), one)).collect(),
                points: vec![point.to_string()],
            }),
        }
    }

    /// Returns a line for each group of notes, with the points that it is about unless there is only one point.
    pub fn lines(&self, points: usize) -> Vec<String> {
        let line = |group: &Group| match &group.points[..] {
            _ if points == 1 => group.text(),
            [point] => format!("{point}: {}", group.text()),
            all if all.len() == points => format!("all {points} points: {}", group.text()),
            several => format!("{} of {points} points: {}", several.len(), group.text()),
        };
        self.0.iter().map(line).collect()
    }
}

impl Group {
    fn text(&self) -> String {
        let mut text = String::new();
        for (index, word) in self.words.iter().enumerate() {
            text.push_str(word);
            match self.ranges.get(index) {
                Some((low, high)) if low == high => text.push_str(low),
                Some((low, high)) => text.push_str(&format!("{low} to {high}")),
                None => {}
            }
        }
        text
    }
}

/// Splits a note into words and the numbers between them; there is one more text than numbers. Digits within a word,
/// such as `p99`, belong to the word.
fn taken_apart(note: &str) -> (Vec<String>, Vec<String>) {
    let (mut words, mut numbers) = (vec![String::new()], Vec::new());
    let (mut rest, mut is_within_a_word) = (note, false);
    while let Some(c) = rest.chars().next() {
        if c.is_ascii_digit() && !is_within_a_word {
            let inside = |c: char| c.is_ascii_digit() || c == '.';
            let len = rest.find(|c| !inside(c)).unwrap_or(rest.len());
            let number = rest[..len].trim_end_matches('.');
            numbers.push(number.to_string());
            words.push(String::new());
            rest = &rest[number.len()..];
        } else {
            is_within_a_word = c.is_alphanumeric() || c == '_';
            words.last_mut().expect("there is one").push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    (words, numbers)
}

fn widen(range: &mut (String, String), number: String) {
    let value = |text: &str| text.parse().unwrap_or(f64::NAN);
    if value(&number) < value(&range.0) {
        range.0 = number;
    } else if value(&number) > value(&range.1) {
        range.1 = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alike_notes_are_one_line_with_ranges() {
        let mut notes = Notes::default();
        notes.add("a qd1", "too noisy: ± 12%; about 7 runs of 4k".into());
        notes.add("a qd4", "too noisy: ± 9.5%; about 7 runs of 4k".into());
        notes.add("a qd4", "something else.".into());
        assert_eq!(
            notes.lines(3),
            [
                "2 of 3 points: too noisy: ± 9.5 to 12%; about 7 runs of 4k",
                "a qd4: something else."
            ]
        );
        let mut exact = Notes::default();
        for place in ["4096 bytes at 0", "8192 bytes at 16384"] {
            exact.add_exact("a", place.into());
        }
        assert_eq!(exact.lines(1), ["4096 bytes at 0", "8192 bytes at 16384"]);
        let mut alone = Notes::default();
        alone.add("a", "p99 is 3. And more".into());
        assert_eq!(alone.lines(1), ["p99 is 3. And more"]);
    }
}
