//! The load generator's cost per request, so that a limit of the measuring host is not mistaken for one of the target.

use brunt_result::statistics::Estimate;
use brunt_result::summary::{CostPerRequest, Summary};

use super::points::{Points, told};
use crate::format::Unit;
use crate::page::{Block, Cell, PageTable, Section};

/// Share of the mean response time that our own processor time should not exceed.
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
                Estimate::of(
                    &runs
                        .map(|run| get(&run.cost_per_request))
                        .collect::<Vec<f64>>(),
                )
            };
            let cpu = over(&|cost| cost.cpu_ns / 1e3)?;
            let (value, uncertainty) = told(&cpu, Unit::Micros);
            let depth = summary
                .experiment
                .workloads
                .get(&point.workload)
                .map_or(Some(1), |w| w.queue_depth);
            if let Some(mean) = point.response_mean_us
                && depth == Some(1)
                && cpu.mean > LARGE * mean.mean
            {
                large += 1;
            }
            let plain = |estimate: Option<Estimate>| {
                estimate.map_or(Cell::Empty, |estimate| {
                    Cell::number(format!("{:.4}", estimate.mean))
                })
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
        section.blocks.push(Block::Missing(
            "No run completed, so the cost of measuring is unknown.".into(),
        ));
        return section;
    }
    section.prose(
        "Cost of the workers per completed request: CPU time, system calls and context switches. Includes the work of a target inside the same process.",
    );
    let columns = [
        "point",
        "processor time",
        "system calls",
        "context switches",
    ];
    section.table(PageTable::new("Per request", &columns, rows));
    section
}
