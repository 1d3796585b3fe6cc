//! Measures the CPU time and disk space per row of a captured operation. The baseline copies the same values in memory.

use std::time::Instant;

use brunt_core::Nanos;
use brunt_core::cost::ResourceUsage;
use brunt_core::random::Random;
use brunt_lake::{Coding, Column, Table, TableWriter, WriterOptions};

const ROWS: u64 = 4_000_000;

const TABLE: Table = Table {
    name: "operations",
    doc: "Rows like those of an NFS trace.",
    columns: &[
        Column::int("called_ns", "Increasing."),
        Column::int("latency_ns", "Spread over three decades."),
        Column::int("xid", "Increasing, mostly."),
        Column::int("procedure", "One of 20.").coded(Coding::Dictionary),
        Column::int("status", "Nearly always 0.").coded(Coding::Dictionary),
        Column::int("file", "One of 100000.").coded(Coding::Plain),
        Column::int("offset_bytes", "Random blocks.").coded(Coding::Plain),
        Column::int("len_bytes", "One of three."),
        Column::int("client", "One of 64.").coded(Coding::Dictionary),
        Column::int("segments", "Small."),
    ],
};

fn values(random: &mut Random, row: u64) -> [i64; 10] {
    let decade = [1_000.0, 10_000.0, 100_000.0][random.below(3) as usize];
    [
        (row * 1000 + random.below(900)) as i64,
        random.exponential(decade) as i64,
        (row * 3) as i64 & 0xffff_ffff,
        random.below(20) as i64,
        i64::from(random.below(1000) == 0),
        random.below(100_000) as i64,
        random.below(1 << 28) as i64 * 4096,
        [4096, 8192, 65536][random.below(3) as usize],
        random.below(64) as i64,
        random.below(12) as i64,
    ]
}

fn main() {
    let root = std::env::temp_dir().join(format!("brunt-lake-bench-{}", std::process::id()));
    let mut random = Random::new(1);
    let sample: Vec<[i64; 10]> = (0..ROWS).map(|row| values(&mut random, row)).collect();

    let begin = Instant::now();
    let mut columns: [Vec<i64>; 10] = Default::default();
    for row in &sample {
        columns
            .iter_mut()
            .zip(row)
            .for_each(|(column, value)| column.push(*value));
    }
    std::hint::black_box(&columns);
    let copied = begin.elapsed();

    let mut writer =
        TableWriter::create(&root, &TABLE, WriterOptions::default()).expect("a folder");
    let (begin, before) = (Instant::now(), ResourceUsage::of_thread());
    for chunk in sample.chunks(1024) {
        for values in chunk {
            values
                .iter()
                .fold(writer.rows().row(), |row, value| row.int(*value))
                .end();
        }
        writer
            .commit(Nanos(begin.elapsed().as_nanos() as u64))
            .expect("room");
    }
    let written = writer.finish().expect("room");
    let (time, cost) = (begin.elapsed(), ResourceUsage::of_thread().since(before));
    let each = |nanos: u128| nanos as f64 / ROWS as f64;
    println!(
        "{ROWS} rows of {} columns in {} parts: {:.0} ns of processor time and {:.1} bytes each, {:.2} M rows/s \
         (copying them: {:.0} ns; {:.1} times that)",
        TABLE.columns.len(),
        written.parts,
        each(cost.cpu().as_nanos()),
        written.bytes as f64 / ROWS as f64,
        ROWS as f64 / time.as_secs_f64() / 1e6,
        each(copied.as_nanos()),
        time.as_secs_f64() / copied.as_secs_f64(),
    );
    if std::env::var_os("BRUNT_KEEP").is_none() {
        std::fs::remove_dir_all(&root).expect("the folder goes");
    } else {
        println!("{}", root.display());
    }
}
