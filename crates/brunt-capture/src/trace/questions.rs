//! Analyses as queries on the tables of a trace, in SQL that DuckDB and Spark share: run by `brunt sql`. Each
//! is one file in `sql/` and one line here; the file's first line is a comment that says what it answers.
//!
//! The one rule: where [`crate::analysis`] answers the same question, both give the same answer. If the report
//! estimates, the query is exact and the estimate is within its stated error. Tests check this. A query relies on no
//! order but the one it asks for and adds no floating-point numbers, so that every engine gives the same answer.

/// A query with a name.
#[derive(Clone, Copy, Debug)]
pub struct TraceQuestion {
    /// Its name.
    pub name: &'static str,
    /// The SQL statement, with its comments.
    pub sql: &'static str,
}

impl TraceQuestion {
    /// One line of help.
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
        /// All queries.
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

    /// Every query states what it answers and is in the table, and none uses SQL on which engines differ.
    #[test]
    fn every_query_is_listed_and_portable() {
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
            // Approximate functions differ, one engine hangs on the second, and shifts and `//` are not portable.
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
