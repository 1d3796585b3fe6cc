//! Analyses as questions to the tables of a trace, in SQL that DuckDB and Spark share: `brunt sql` asks them. Each is
//! one file in `sql/` and one line here; its first line says in a comment what it answers.
//!
//! The one rule: where [`crate::analysis`] answers the same question, both give the same answer, or an exact one where the
//! report estimates, and then within the error that the report states; tests hold them to it. A question has no order but
//! the one it asks for and adds no floating-point numbers, so that every engine answers the same.

/// A question.
#[derive(Clone, Copy, Debug)]
pub struct TraceQuestion {
    /// What it is called.
    pub name: &'static str,
    /// The statement, with its comments.
    pub sql: &'static str,
}

impl TraceQuestion {
    /// What it answers, in a line.
    pub fn help(&self) -> &'static str {
        self.sql
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("-- ")
    }
}

macro_rules! questions {
    ($($name:ident)*) => {
        /// All of them.
        pub const QUESTIONS: &[TraceQuestion] = &[$(TraceQuestion {
            name: stringify!($name),
            sql: include_str!(concat!("../../sql/", stringify!($name), ".sql")),
        },)*];
    };
}

questions! {
    summary
    mix
    rates
    profile
    sizes
    alignment
    working_set
    sizer
    duplicates
    latency_over_time
    arrivals
    gaps
    files
    directories
    clients
    pairs
    concentration
    compound_operations
    scsi
    errors
    findings
    not_understood
    ledger
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every question says what it answers and is in the table; what engines would answer differently is not in it.
    #[test]
    fn every_question_is_portable() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/sql");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let mut named: Vec<String> = QUESTIONS
            .iter()
            .map(|question| format!("{}.sql", question.name))
            .collect();
        named.sort();
        assert_eq!(files, named);
        for question in QUESTIONS {
            assert!(
                question.sql.starts_with("-- ") && question.help().ends_with(['.', '?']),
                "{}",
                question.name
            );
            let statement: String = question
                .sql
                .lines()
                .filter(|line| !line.trim_start().starts_with("--"))
                .collect();
            // Approximate functions differ, one engine hangs on the second, and shifts and `//` are not shared.
            for foreign in [
                "approx",
                "count(distinct",
                "quantile(",
                "median(",
                "<<",
                ">>",
                "//",
                "::",
                "GROUP BY ALL",
            ] {
                assert!(
                    !statement.to_lowercase().contains(&foreign.to_lowercase()),
                    "{}: {foreign}",
                    question.name
                );
            }
        }
    }
}
