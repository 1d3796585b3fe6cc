//! Queries on the tables of windows, in SQL that DuckDB and Spark share; run by `brunt sql` under their names. Each
//! query is one file in `sql/` and one line here.

use crate::trace::questions::TraceQuestion;

macro_rules! questions {
    ($($name:ident)*) => {
        /// All queries.
        pub const WINDOW_QUESTIONS: &[TraceQuestion] = &[$(TraceQuestion {
            name: stringify!($name),
            sql: include_str!(concat!("../../sql/", stringify!($name), ".sql")),
        },)*];
    };
}

questions! {
    over_windows
    days
    whole
    hot_by_day
    findings_by_window
    sizer_by_window
}
