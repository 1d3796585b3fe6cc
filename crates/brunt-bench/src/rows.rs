//! Selects the rows of a benchmark that `--row` names.

use crate::BenchError;

/// The rows of a benchmark whose name contains the text; all rows if there is no text.
///
/// # Errors
/// No row name contains the text.
pub fn rows_named<'a, R>(
    rows: &'a [R],
    text: Option<&str>,
    name: fn(&R) -> &'static str,
) -> Result<Vec<&'a R>, BenchError> {
    let is_wanted = |row: &&R| text.is_none_or(|text| name(row).contains(text));
    let wanted: Vec<&R> = rows.iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        let names: Vec<&str> = rows.iter().map(name).collect();
        return Err(BenchError::usage("no row name contains this text")
            .advise(format!("rows are: {}", names.join(", "))));
    }
    Ok(wanted)
}
