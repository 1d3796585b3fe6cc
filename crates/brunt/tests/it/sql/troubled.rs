//! A synthetic trace with every kind of finding: storms, slow tails, flushes, duplicates, loss.

use std::path::Path;

use brunt_capture::trace::tables;
use brunt_core::sketch::spread;
use brunt_lake::{ColumnKind, Table, TableWriter, WriterOptions};

/// A value of a column.
#[derive(Clone)]
enum Cell {
    Int(i64),
    Text(String),
}

impl From<i64> for Cell {
    fn from(value: i64) -> Cell {
        Cell::Int(value)
    }
}

impl From<i32> for Cell {
    fn from(value: i32) -> Cell {
        Cell::Int(value.into())
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Cell {
        Cell::Text(value.into())
    }
}

/// Writes a table whose rows have values in these columns; other columns are null, zero, empty or true.
fn write(folder: &Path, table: &'static Table, rows: &[Vec<(&str, Cell)>]) {
    let mut writer = TableWriter::create(folder, table, WriterOptions::default()).expect("a table");
    for values in rows {
        let row = table
            .columns
            .iter()
            .fold(writer.rows().row(), |row, column| {
                let value = values
                    .iter()
                    .find(|(name, _)| *name == column.name)
                    .map(|(_, value)| value.clone());
                match (column.kind, value) {
                    (ColumnKind::Int | ColumnKind::Time, Some(Cell::Int(value))) => row.int(value),
                    (ColumnKind::Bool, Some(Cell::Int(value))) => row.bool(value != 0),
                    (ColumnKind::Text, Some(Cell::Text(value))) => row.text(&value),
                    (kind, Some(_)) => panic!("{} is {kind:?}", column.name),
                    (_, None) if column.nullable => row.null(),
                    (ColumnKind::Int | ColumnKind::Time, None) => row.int(0),
                    (ColumnKind::Bool, None) => row.bool(true),
                    (ColumnKind::Text, None) => row.text(""),
                    (ColumnKind::Float, None) => row.float(0.0),
                    (ColumnKind::Bytes, None) => row.bytes(&[]),
                }
            });
        row.end();
    }
    writer.finish().expect("a part");
}

/// Writes the note that makes a folder a trace in this version.
pub fn note(folder: &Path) {
    write(
        folder,
        &tables::NOTES,
        &[vec![
            ("version", tables::VERSION.into()),
            ("program", "test".into()),
        ]],
    );
}

/// Writes the trace. Long because each kind of row is a list of its columns.
pub fn troubled_trace(folder: &Path) {
    const START_NS: i64 = 1_795_000_000_123_456_789;
    note(folder);
    let flow = |flow: i64, client: &str| {
        vec![
            ("flow", flow.into()),
            ("protocol", 6.into()),
            ("source", client.into()),
            ("destination", "10.0.0.1".into()),
        ]
    };
    write(
        folder,
        &tables::FLOWS,
        &[
            flow(1, "10.0.0.2"),
            flow(2, "10.0.0.3"),
            flow(3, "2001:db8::7"),
        ],
    );
    let mut operations = Vec::new();
    // Kind, number, direction, bytes; reads begin anywhere, writes are sequential.
    for (name, count, direction, bytes) in [
        ("GETATTR", 3000i64, None, 0),
        ("READ", 2500, Some(0), 4096),
        ("WRITE", 400, Some(1), 1000),
        ("COMMIT", 250, None, 0),
        ("LOOKUP", 300, None, 0),
    ] {
        for number in 0..count {
            let id = operations.len() as i64;
            let slow = if number % 40 == 0 {
                50_000_000
            } else {
                100_000 + 37 * (number % 991)
            };
            let file = if number % 3 == 0 {
                number % 20
            } else {
                number % 700
            };
            let mut row: Vec<(&str, Cell)> = vec![
                ("record_id", (3 * id).into()),
                ("completion_id", id.into()),
                ("protocol", "NFSv3".into()),
                ("operation", name.into()),
                ("flow", (1 + number % 3).into()),
                ("request_first", (START_NS + id * 777_777).into()),
                (
                    "status",
                    i64::from(13 * u8::from(name == "LOOKUP" && number % 2 == 0)).into(),
                ),
                (
                    "file",
                    (if name == "GETATTR" {
                        7
                    } else {
                        spread(file as u64) as i64
                    })
                    .into(),
                ),
                ("moved_bytes", bytes.into()),
                ("outstanding", (1 + number % 5).into()),
            ];
            row.extend((number % 50 != 3).then_some(("latency_ns", slow.into())));
            row.extend(direction.map(|direction: i64| ("direction", direction.into())));
            row.extend(direction.map(|_| {
                (
                    "offset_bytes",
                    (number / 700 * bytes + number % 2 * 512).into(),
                )
            }));
            operations.push(row);
        }
    }
    write(folder, &tables::OPERATIONS, &operations);
    let packets: Vec<_> = (0..100)
        .map(|number: i64| {
            let mut row = vec![
                ("time", (START_NS + number * 50_000_000).into()),
                ("wire_bytes", (64 + number).into()),
            ];
            row.extend(
                (number % 4 == 0).then_some(("not_understood", Cell::from("EtherType 0x88b5"))),
            );
            row
        })
        .collect();
    write(folder, &tables::PACKETS, &packets);
    let checksums: Vec<_> = (0..4000)
        .map(|number: i64| {
            let sum = if number % 3 == 0 {
                99
            } else {
                spread(number as u64) as i64
            };
            vec![
                ("file", 7.into()),
                ("offset_bytes", (512 * number).into()),
                ("sum", sum.into()),
                ("write", (number % 2).into()),
            ]
        })
        .collect();
    write(folder, &tables::CHECKSUMS, &checksums);
    let ledger = |time: i64, packets: i64| {
        let counts = [
            ("packets", packets),
            ("packets_dropped", 5),
            ("calls", 6450),
            ("replies", 6400),
            ("replies_unmatched", 40),
        ];
        let counts = counts.into_iter().map(|(name, count)| (name, count.into()));
        counts
            .chain([("time", (START_NS + time).into())])
            .collect::<Vec<_>>()
    };
    write(
        folder,
        &tables::STATISTICS,
        &[
            ledger(0, 0),
            ledger(5_000_000_000, 100),
            ledger(5_000_000_000, 90),
        ],
    );
}
