//! Table `environment`.

use brunt_lake::{Batch, Coding, Column, Table};

/// Definition of the table; `doc` describes its rows.
pub const TABLE: Table = Table {
    name: "environment",
    doc: "One row for each fact about the machine, the program and the targets at the start of the experiment.",
    columns: &[
        Column::text(
            "subject",
            "`machine`, `brunt`, `experiment`, or `target` and its name.",
        ),
        Column::text(
            "key",
            "Name of the fact, such as `kernel` or `mount_options`.",
        ),
        Column::text("value", "Value of the fact.").coded(Coding::Delta),
    ],
};

/// Maximum length of a value in bytes: the kernel decides how long a file under /proc or /sys is.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// Adds one entry; a value longer than [`VALUE_BYTES_MAX`] is truncated.
pub fn append(rows: &mut Batch, subject: &str, key: &str, value: &str) {
    let end = (0..=VALUE_BYTES_MAX.min(value.len()))
        .rev()
        .find(|end| value.is_char_boundary(*end));
    rows.row()
        .text(subject)
        .text(key)
        .text(&value[..end.unwrap_or(0)])
        .end();
}
