//! Analyses as queries on the tables of a trace, in SQL that DuckDB and Spark share; run by `brunt sql`. Analyses of
//! packets include their own query; each other query is one file in `sql/` and one line here. The first line of a
//! query is a comment that says which question it answers.
//!
//! The one rule: where [`crate::analysis`] answers the same question, both give the same answer. If the report
//! estimates, the query is exact, and the estimate is within its stated error. Tests check this. A query relies on no
//! order except the one it asks for, and adds no floating-point numbers, so that every engine gives the same answer.

use crate::analysis::{ANALYSES, AnalysisInfo};

/// A named query.
#[derive(Clone, Copy, Debug)]
pub struct TraceQuestion {
    /// Its name.
    pub name: &'static str,
    /// The SQL statement, with its comments.
    pub sql: &'static str,
}

impl TraceQuestion {
    /// The line of help.
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
        /// The queries that belong to no analysis.
        const OTHERS: &[TraceQuestion] = &[$(TraceQuestion {
            name: stringify!($name),
            sql: include_str!(concat!("../../sql/", stringify!($name), ".sql")),
        },)*];
    };
}

questions! {
    summary
    sizes
    alignment
    working_set
    sizer
    servers
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
    findings
    ledger
}

/// All queries: those of analyses, under the analyses' names, and the others.
pub const QUESTIONS: &[TraceQuestion] = &ALL;

const ALL: [TraceQuestion; of_analyses() + OTHERS.len()] = {
    let mut all = [TraceQuestion { name: "", sql: "" }; of_analyses() + OTHERS.len()];
    let (mut count, mut index) = (0, 0);
    while index < ANALYSES.len() {
        if let AnalysisInfo {
            name,
            sql: Some(sql),
            ..
        } = ANALYSES[index]
        {
            all[count] = TraceQuestion { name, sql };
            count += 1;
        }
        index += 1;
    }
    index = 0;
    while index < OTHERS.len() {
        all[count + index] = OTHERS[index];
        index += 1;
    }
    all
};

/// Number of analyses with a query.
const fn of_analyses() -> usize {
    let (mut count, mut index) = (0, 0);
    while index < ANALYSES.len() {
        count += ANALYSES[index].sql.is_some() as usize;
        index += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::windows::questions::WINDOW_QUESTIONS;

    /// Every query states what it answers and is in the table, and none uses SQL that engines interpret differently.
    #[test]
    fn every_query_is_listed_and_portable() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/sql");
        for file in std::fs::read_dir(folder).unwrap() {
            let file = file.unwrap().path();
            let sql = std::fs::read_to_string(&file).unwrap();
            let stem = file.file_stem().unwrap().to_str().unwrap();
            let listed = QUESTIONS
                .iter()
                .chain(WINDOW_QUESTIONS)
                .any(|question| question.sql == sql && question.name == stem);
            assert!(listed, "{}", file.display());
        }
        let all: Vec<_> = QUESTIONS.iter().chain(WINDOW_QUESTIONS).collect();
        let names: std::collections::HashSet<_> = all.iter().map(|q| q.name).collect();
        assert_eq!(names.len(), all.len(), "names are unique");
        for question in all {
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
            // Approximate functions differ between engines, one engine hangs on the second pattern, and shifts and
            // `//` are not portable.
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
