//! Names that tell several results apart, for histories, comparisons and results whose runs took turns.
//!
//! The rule: names are as short as possible, but unique: they may be all that a page shows of a result.

use std::collections::BTreeMap;

/// Returns a unique name for each of several things, each with possible names from short to long: the first name that
/// no other thing could have, otherwise the last.
pub fn distinct_names<const N: usize>(choices: Vec<[String; N]>) -> Vec<String> {
    let mut chosen = vec![0; choices.len()];
    for level in 0..N.saturating_sub(1) {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (choice, at) in choices.iter().zip(&chosen) {
            *counts.entry(&choice[*at]).or_default() += 1;
        }
        for (choice, at) in choices.iter().zip(&mut chosen) {
            if *at == level && counts[choice[level].as_str()] > 1 {
                *at += 1;
            }
        }
    }
    let named = choices.into_iter().zip(chosen);
    named
        .filter_map(|(choice, at)| choice.into_iter().nth(at))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_as_short_as_others_allow() {
        let of = |choices: &[[&str; 3]]| {
            let choices = choices.iter().map(|names| names.map(String::from));
            distinct_names(choices.collect())
        };
        assert_eq!(
            of(&[["a", "x/a", "/x/a"], ["b", "x/b", "/x/b"]]),
            ["a", "b"]
        );
        assert_eq!(
            of(&[
                ["a", "x/a", "/1/x/a"],
                ["a", "x/a", "/2/x/a"],
                ["a", "y/a", "/y/a"]
            ]),
            ["/1/x/a", "/2/x/a", "y/a"]
        );
        // A short name that another thing could have had counts as taken, too.
        assert_eq!(
            of(&[["a", "b", "c"], ["a", "d", "e"], ["b", "f", "g"]]),
            ["c", "d", "b"]
        );
    }
}
