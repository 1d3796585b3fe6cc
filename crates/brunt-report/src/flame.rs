//! A flame graph: what functions called while the CPU was busy, as nested bars whose width is the share of samples.
//!
//! The rule: memory and page size are bounded. Functions with a small share of samples are left out, but their
//! samples still count for their callers.

use std::collections::BTreeMap;

use brunt_result::profile::CpuPart;
use maud::{Markup, html};

/// Levels shown.
const DEPTH_MAX: usize = 48;
/// Smallest share of samples that gets a bar: at most 200 bars per level, or 9600 on 48 levels.
const SHARE_MIN: f64 = 0.005;
/// Maximum number of nodes in a tree while stacks are added.
const NODES_MAX: usize = 100_000;
/// Height of a bar, in pixels.
const BAR_PX: usize = 18;

/// A flame graph.
#[derive(Clone, Debug, Default)]
pub struct FlameGraph {
    root: Node,
    nodes: usize,
    /// Samples whose inner functions were left out because the tree had reached its maximum size.
    cut: u64,
}

#[derive(Clone, Debug, Default)]
struct Node {
    samples: u64,
    parts: BTreeMap<CpuPart, u64>,
    callees: BTreeMap<String, Node>,
}

/// A bar: its position as a share of the whole width, and its level from the top.
struct FlameBar<'a> {
    name: &'a str,
    samples: u64,
    part: CpuPart,
    left: f64,
    width: f64,
    level: usize,
}

impl FlameGraph {
    /// Adds a stack: functions from the outermost to the innermost, joined by `;`.
    pub fn add(&mut self, stack: &str, part: CpuPart, samples: u64) {
        let mut node = &mut self.root;
        node.samples += samples;
        for function in stack.split(';').take(DEPTH_MAX) {
            *node.parts.entry(part).or_default() += samples;
            if !node.callees.contains_key(function) {
                if self.nodes >= NODES_MAX {
                    self.cut += samples;
                    return;
                }
                self.nodes += 1;
                node.callees.insert(function.to_string(), Node::default());
            }
            node = node.callees.entry(function.to_string()).or_default();
            node.samples += samples;
        }
        *node.parts.entry(part).or_default() += samples;
    }

    /// Total number of samples.
    pub fn samples(&self) -> u64 {
        self.root.samples
    }

    fn bars(&self) -> Vec<FlameBar<'_>> {
        let mut bars = Vec::new();
        let whole = self.root.samples.max(1) as f64;
        // The bars, callers before what they call, from left to right.
        let mut open = vec![(&self.root, 0.0, 0)];
        while let Some((node, mut left, level)) = open.pop() {
            for (name, callee) in &node.callees {
                let width = callee.samples as f64 / whole;
                let part = callee.parts.iter().max_by_key(|(_, samples)| **samples);
                if width >= SHARE_MIN {
                    bars.push(FlameBar {
                        name,
                        samples: callee.samples,
                        part: part.map_or(CpuPart::Other, |(part, _)| *part),
                        left,
                        width,
                        level,
                    });
                    open.push((callee, left, level + 1));
                }
                left += width;
            }
        }
        bars
    }

    /// The graph as HTML; every bar has its name and share as a tooltip.
    pub(crate) fn render(&self) -> Markup {
        let bars = self.bars();
        let levels = bars.iter().map(|bar| bar.level + 1).max().unwrap_or(0);
        let colour = |part: CpuPart| {
            CpuPart::ALL
                .iter()
                .position(|one| *one == part)
                .unwrap_or(0)
        };
        let place = |bar: &FlameBar<'_>| {
            let (left, width, top) = (bar.left * 100.0, bar.width * 100.0, bar.level * BAR_PX);
            format!("left:{left:.3}%;width:{width:.3}%;top:{top}px")
        };
        html! {
            figure.bars {
                div.legend { @for part in CpuPart::ALL {
                    span.key { i class={ "swatch c" (colour(part)) } {} (part.title()) }
                } }
                div.flame style={ "height:" (levels * BAR_PX) "px" } {
                    @for bar in &bars {
                        i class={ "c" (colour(bar.part)) } style=(place(bar))
                            title={ (bar.name) ": " (format!("{:.1}", bar.width * 100.0)) " %, " (bar.samples) " samples, mostly " (bar.part.title()) } { (bar.name) }
                    }
                }
                p.caption {
                    (self.samples()) " samples. Callers are above what they call; width is the share \
                     of samples, colour the part "
                    "with most of them. Functions with less than " (SHARE_MIN * 100.0) " % are left out."
                    @if self.cut > 0 {
                        " Inner functions of " (self.cut)
                        " samples are left out as well, because there are too many different stacks."
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Widths add up, callees lie within their callers, and rarely sampled functions have no bar.
    #[test]
    fn bars_lie_within_their_callers() {
        let mut graph = FlameGraph::default();
        graph.add("brunt;send;copy", CpuPart::Copying, 600);
        graph.add("brunt;send", CpuPart::Network, 200);
        graph.add("brunt;digest", CpuPart::Checksums, 199);
        graph.add("brunt;rare", CpuPart::Other, 1);
        let bars = graph.bars();
        let bar = |name: &str| bars.iter().find(|bar| bar.name == name);
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
        near(bar("brunt").unwrap().width, 1.0);
        let (send, copy) = (bar("send").unwrap(), bar("copy").unwrap());
        near(send.width, 0.8);
        near(copy.width, 0.6);
        assert!(send.left <= copy.left && copy.left + copy.width <= send.left + send.width + 1e-9);
        assert_eq!(
            (send.part, send.level, copy.level),
            (CpuPart::Copying, 1, 2)
        );
        assert!(bar("rare").is_none() && graph.samples() == 1000);
    }

    #[test]
    fn names_are_text() {
        let mut graph = FlameGraph::default();
        graph.add("<b>;\"x", CpuPart::Other, 1);
        let text = graph.render().into_string();
        assert!(!text.contains("<b>") && !text.contains("\"\"x"), "{text}");
    }

    #[test]
    fn a_tree_is_bounded() {
        let mut graph = FlameGraph::default();
        for number in 0..=NODES_MAX {
            graph.add(&format!("{number}"), CpuPart::Other, 1);
        }
        assert_eq!((graph.nodes, graph.cut), (NODES_MAX, 1));
        assert!(graph.render().into_string().contains("too many"));
        graph = FlameGraph::default();
        graph.add(&"f;".repeat(1000), CpuPart::Other, 1);
        assert_eq!(graph.nodes, DEPTH_MAX);
    }
}
