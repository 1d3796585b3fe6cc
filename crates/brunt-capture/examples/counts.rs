//! Counts operations of a capture by procedure: the smallest driver of a pipeline.
use std::collections::BTreeMap;
use std::path::Path;

use brunt_capture::{Batch, Body, ChecksumRun, FileSource, Limits, Operation, Pipeline, Sink};

#[derive(Default)]
struct Counts {
    by_procedure: BTreeMap<&'static str, [u64; 2]>,
    sums: u64,
}

impl Sink for Counts {
    fn on_operation(&mut self, operation: &Operation<'_>) {
        if let Body::Nfs3 { procedure, .. } = operation.body {
            let counts = self.by_procedure.entry(procedure.name()).or_default();
            counts[0] += 1;
            counts[1] += u64::from(operation.reply.is_some());
        }
    }
    fn on_checksums(&mut self, run: &ChecksumRun<'_>) {
        self.sums += run.sums.len() as u64;
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: counts FILE")?;
    let mut source = FileSource::open(Path::new(&path))?;
    let mut batch = Batch::default();
    let mut pipeline = Pipeline::new(Counts::default(), Limits::default());
    while source.fill(&mut batch)? {
        pipeline.on_batch(&batch);
    }
    let (counts, ledger) = pipeline.finish();
    println!("procedure\tcalls\treplies");
    for (name, [calls, replies]) in counts.by_procedure {
        println!("{name}\t{calls}\t{replies}");
    }
    eprintln!("{ledger:#?}");
    ledger.check()?;
    Ok(())
}
