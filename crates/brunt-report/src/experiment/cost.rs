//! The load generator's cost per request, so that a limit of the measuring host isn't mistaken for a limit of the
//! target.

use brunt_result::statistics::Estimate;
use brunt_result::summary::{CostPerRequest, Summary};

use super::points::{Points, with_uncertainty};
use crate::format::Unit;
use crate::page::{Block, Cell, PageTable, Section};

/// Share of the mean response time that the load generator's CPU time should not exceed.
const LARGE: f64 = 0.5;

pub(super) fn section(summary: &Summary) -> Section {
    let points = Points::of(summary);
    let mut section = Section::new("Cost of measuring");
    let mut large = 0;
    let rows: Vec<Vec<Cell>> = summary
        .points
        .iter()
        .filter_map(|point| {
            point.runs.iter().find(|run| run.is_complete())?;
            let over = |get: &dyn Fn(&CostPerRequest) -> Option<f64>| {
                let runs = point.runs.iter().filter(|run| run.is_complete());
                let each: Option<Vec<f64>> = runs.map(|run| get(&run.cost_per_request)).collect();
                Estimate::of(&each?)
            };
            let us = |estimate: Option<Estimate>| {
                estimate.map_or(Cell::Empty, |estimate| {
                    let (value, uncertainty) = with_uncertainty(&estimate, Unit::Micros);
                    Cell::Estimate(value, uncertainty)
                })
            };
            let cpu = over(&|cost| Some(cost.cpu_ns? / 1e3));
            let depth = summary
                .experiment
                .workloads
                .get(&point.workload)
                .map_or(Some(1), |w| w.queue_depth);
            if let Some(mean) = point.response_mean_us
                && depth == Some(1)
                && cpu.is_some_and(|cpu| cpu.mean > LARGE * mean.mean)
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
                us(cpu),
                us(over(&|cost| Some(cost.polling_ns? / 1e3))),
                plain(over(&|cost| Some(cost.system_calls))),
                plain(over(&|cost| Some(cost.context_switches))),
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
        "Cost of the workers per completed request: CPU time, system calls and context switches. \
         Includes kernel threads that work for them (io-wq, SQPOLL), and the work of a target inside the same \
         process. Polling is the share of the time that the workers looked for completions instead of sleeping.",
    );
    let columns = [
        "point",
        "processor time",
        "of it, polling",
        "system calls",
        "context switches",
    ];
    section.table(PageTable::new("Per request", &columns, rows));
    section
}
