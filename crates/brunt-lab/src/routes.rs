//! Routing in a lab whose links form a graph: over the fewest links and, among equally long routes, over the one with
//! the lowest delay.
//!
//! Called once when a lab is built, with the links' initial settings: a link that is slowed down later keeps its
//! traffic, as in a network without a routing protocol.

use std::collections::BTreeMap;
use std::time::Duration;

/// A link between two hosts, by index, and its delays in both directions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub between: [usize; 2],
    pub delay: [Duration; 2],
}

/// For each host, the first link on the path to each other host: the link's index, and the direction (0 from its first
/// host). Unreachable hosts are omitted.
pub(crate) fn first_steps(hosts: usize, edges: &[Edge]) -> Vec<BTreeMap<usize, (usize, usize)>> {
    (0..hosts)
        .map(|from| from_host(from, hosts, edges))
        .collect()
}

/// The first link on the path from one host to each other host, as in [`first_steps`].
fn from_host(from: usize, hosts: usize, edges: &[Edge]) -> BTreeMap<usize, (usize, usize)> {
    /// Number of links and total delay of a path, and its first step.
    type Way = ((usize, Duration), Option<(usize, usize)>);
    let mut best: Vec<Option<Way>> = vec![None; hosts];
    best[from] = Some(((0, Duration::ZERO), None));
    // Bellman-Ford: a path has fewer links than there are hosts, and a lab is small.
    for _ in 1..hosts {
        let mut better = false;
        for (number, edge) in edges.iter().enumerate() {
            for direction in 0..2 {
                let (near, far) = (edge.between[direction], edge.between[1 - direction]);
                let Some(((links, time), first)) = best[near] else {
                    continue;
                };
                let cost = (links + 1, time + edge.delay[direction]);
                if best[far].is_none_or(|(known, _)| cost < known) {
                    best[far] = Some((cost, first.or(Some((number, direction)))));
                    better = true;
                }
            }
        }
        if !better {
            break;
        }
    }
    let found = best.into_iter().enumerate();
    found
        .filter_map(|(host, way)| way.and_then(|(_, first)| first).map(|first| (host, first)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(first: usize, second: usize, delay_ms: u64) -> Edge {
        Edge {
            between: [first, second],
            delay: [Duration::from_millis(delay_ms); 2],
        }
    }

    /// Fewest links first, then the lowest delay; unreachable hosts are omitted; cycles terminate.
    #[test]
    fn routes_use_the_fewest_links_then_the_lowest_delay() {
        let check =
            |what: &str, hosts: usize, edges: &[Edge], from: usize, expected: &[(usize, usize)]| {
                let steps = first_steps(hosts, edges);
                let seen: Vec<(usize, usize)> = steps[from]
                    .iter()
                    .map(|(to, (link, _))| (*to, *link))
                    .collect();
                assert_eq!(seen, expected, "{what}");
            };
        check("alone", 1, &[], 0, &[]);
        check("no way", 3, &[edge(0, 1, 1)], 0, &[(1, 0)]);
        check("none from the other", 3, &[edge(0, 1, 1)], 2, &[]);
        let chain = [edge(0, 1, 1), edge(2, 1, 1), edge(2, 3, 1)];
        check("a chain", 4, &chain, 0, &[(1, 0), (2, 0), (3, 0)]);
        check(
            "a chain, backwards",
            4,
            &chain,
            3,
            &[(0, 2), (1, 2), (2, 2)],
        );
        let circle = [edge(0, 1, 5), edge(1, 2, 5), edge(2, 0, 50)];
        check(
            "fewer links before a lower delay",
            3,
            &circle,
            0,
            &[(1, 0), (2, 2)],
        );
        let square = [edge(0, 1, 9), edge(1, 3, 9), edge(0, 2, 1), edge(2, 3, 1)];
        check(
            "of two equally long paths the faster one",
            4,
            &square,
            0,
            &[(1, 0), (2, 2), (3, 2)],
        );
        let late = [
            edge(0, 1, 1),
            edge(0, 2, 1),
            edge(1, 3, 9),
            edge(2, 3, 1),
            edge(3, 4, 1),
        ];
        check(
            "beyond it, too",
            5,
            &late,
            0,
            &[(1, 0), (2, 1), (3, 1), (4, 1)],
        );
    }

    /// Directions are those in the links' configurations.
    #[test]
    fn directions_are_those_of_the_links() {
        let steps = first_steps(3, &[edge(1, 0, 1), edge(1, 2, 1)]);
        assert_eq!(steps[0][&2], (0, 1));
        assert_eq!(steps[1][&2], (1, 0));
        assert_eq!(steps[2][&0], (1, 1));
    }
}
