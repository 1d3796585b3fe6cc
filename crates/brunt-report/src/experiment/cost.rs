//! What measuring cost the measuring host, for each request: so that a figure that is ours rather
//! than the target's can be told.

use brunt_result::statistics::Estimate;
use brunt_result::summary::{CostPerRequest, Summary};

use super::points::{Points, told};
use crate::format::Unit;
use crate::page::{Block, Cell, PageTable, Section};

/// A share of a request's mean response time that our own processor time should stay under.
const LARGE: f64 = 0.5;

pub(super) fn section(summary: &Summary) -> Section {
    let points = Points::of(summary);
    let mut section = Section::new("Cost of measuring");
    let mut large = 0;
    let rows: Vec<Vec<Cell>> = summary
        .points
        .iter()
        .filter_map(|point| {
            let over = |get: &dyn Fn(&CostPerRequest) -> f64| {
                let runs = point.runs.iter().filter(|run| run.is_complete());
                Estimate::of(&runs.map(|run| get(&run.cost_per_request)).collect::<Vec<f64>>())
            };
            let cpu = over(&|cost| cost.cpu_ns / 1e3)?;
            let (value, uncertainty) = told(&cpu, Unit::Micros);
            let depth = summary.experiment.workloads.get(&point.workload).map_or(Some(1), |w| w.queue_depth);
            if let Some(mean) = point.response_mean_us
                && depth == Some(1)
                && cpu.mean > LARGE * mean.mean
            {
                large += 1;
            }
            let plain = |estimate: Option<Estimate>| {
                estimate.map_or(Cell::Empty, |estimate| Cell::number(format!("{:.4}", estimate.mean)))
            };
            Some(vec![
                Cell::text(points.full_name(point)),
                Cell::Estimate(value, uncertainty),
                plain(over(&|cost| cost.system_calls)),
                plain(over(&|cost| cost.context_switches)),
            ])
        })
        .collect();
    if rows.is_empty() {
        section
            .blocks
            .push(Block::Missing("No run went to its end, so the cost of measuring is not known.".into()));
        return section;
    }
    section.prose(
        "What the workers themselves took for each completed request, measured: processor time, system calls and \
         context switches. A target inside the same process works in these figures too.",
    );
    let columns = ["point", "processor time", "system calls", "context switches"];
    section.table(PageTable::new("For each request", &columns, rows));
    section
}
