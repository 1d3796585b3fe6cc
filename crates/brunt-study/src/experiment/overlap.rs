//! Faults that are there at the same time, where one has to do with the other: what comes of it, or why it
//! cannot be and what to write instead. Read by the parser, which refuses, and by `--check`, which tells.
//!
//! The rule: two faults may be there together only if both can be shown, and taken away without taking the
//! other along.

use std::collections::BTreeMap;
use std::time::Duration;

use brunt_block::layers::fault::Fault as StorageFault;

use super::fault::FaultEntry;

/// What comes of two faults at once.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Together {
    /// Both are there; how.
    Both(String),
    /// Not possible.
    Refused {
        /// Why.
        why: String,
        /// What to write instead.
        instead: &'static str,
    },
}

/// Two faults of an experiment, by their places in its list (from 0), and what comes of them.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Overlap {
    /// The one that stands first in the file.
    pub first: usize,
    /// The other one.
    pub second: usize,
    /// What comes of them.
    pub together: Together,
}

/// All pairs of faults that have to do with each other, in the order of the file.
pub fn overlaps(faults: &[FaultEntry]) -> Vec<Overlap> {
    let mut found = Vec::new();
    for (second, b) in faults.iter().enumerate() {
        for (first, a) in faults[..second].iter().enumerate() {
            // Without a target a fault is there in every run.
            let meet = a.target.is_empty() || b.target.is_empty() || a.target == b.target;
            if !meet {
                continue;
            }
            if let Some(together) = of(a, b) {
                found.push(Overlap { first, second, together });
            }
        }
    }
    found.extend(busy_cores(faults));
    found
}

fn refused(why: impl Into<String>, instead: &'static str) -> Option<Together> {
    Some(Together::Refused { why: why.into(), instead })
}

fn of(a: &FaultEntry, b: &FaultEntry) -> Option<Together> {
    // A target is on one set of cores in all of a run.
    if (a.kind(), b.kind()) == ("cpu", "cpu")
        && !a.target.is_empty()
        && a.target == b.target
        && a.cores != b.cores
    {
        return refused(
            format!("target {} cannot be kept on other cores for each of them", a.target),
            "write the same cores for both, or leave target out of the one that is not about its cores",
        );
    }
    if !Times::of(a).meet(Times::of(b)) {
        return None;
    }
    // The one that comes by name first, whatever the order in the file.
    let (a, b) = if rank(a) <= rank(b) { (a, b) } else { (b, a) };
    let same_target = !a.target.is_empty() && a.target == b.target;
    let same_layer = a.layer == b.layer;
    match (a.kind(), b.kind()) {
        ("storage", "storage") if same_target && same_layer => storage(a, b),
        ("member", "member") if same_target && same_layer && a.member == b.member => refused(
            "one member cannot fail twice",
            "write another member, or end the first fault (for = …) before the second begins",
        ),
        ("member", "member") if same_target && same_layer => Some(Together::Both(
            "the second member fails while the first is missing; both end when the array is whole again"
                .into(),
        )),
        ("link", "link") if a.link == b.link => refused(
            format!(
                "the one that ends first would end the other on link {}",
                a.link.as_deref().unwrap_or("")
            ),
            "write one [[fault]] after the other, with all settings of the time they share in one of its own",
        ),
        ("memory", "memory") => Some(Together::Both("their amounts add up".into())),
        ("freeze" | "kill", "freeze" | "kill") if same_target => refused(
            "a process that stands still or is dead can be neither stopped nor killed",
            "let one end before the other begins",
        ),
        ("storage" | "member", away @ ("freeze" | "kill"))
            if same_target && Times::of(b).cover(Times::of(a)) =>
        {
            refused(
                format!("the target serves nobody in all of that time ({away}), so that it could not show"),
                "let the fault of the storage begin earlier or last longer than that of the process",
            )
        }
        ("storage", "kill") if same_target => Some(Together::Both(
            "the storage's is lost with the process, and put in place again when the target is back".into(),
        )),
        ("storage", "freeze") if same_target => Some(Together::Both(
            "the storage's is there all the time, and hits when the target goes on".into(),
        )),
        ("member", "kill") if same_target => refused(
            "which member has failed is known to the process alone: the array would come back as if whole",
            "end the member's fault (for = …) before the target is killed, or write freeze = true for kill = true",
        ),
        _ => None,
    }
}

/// Two faults at one layer.
fn storage(a: &FaultEntry, b: &FaultEntry) -> Option<Together> {
    let words = |entry: &FaultEntry| StorageFault::parse(entry.storage.as_deref().unwrap_or_default()).ok();
    // Of two that are about a request the older one hits it.
    let (older, younger) = if Times::of(a).begin <= Times::of(b).begin { (a, b) } else { (b, a) };
    if let (Some(first), Some(second)) = (words(older), words(younger))
        && first.leaves_nothing_to(&second)
        && Times::of(older).cover(Times::of(younger))
    {
        return refused(
            format!(
                "{first} hits every request that {second} is about, and of two at one layer the older one hits"
            ),
            "give the older one a p= below 1, or each a layer of its own in the target's URL: \
             ?fault=off;name=a&fault=off;name=b, with layer = \"a\" and layer = \"b\"",
        );
    }
    Some(Together::Both("of requests that both are about, the older one takes what it hits".into()))
}

/// Processor faults whose shares of a core are more than there is of it.
fn busy_cores(faults: &[FaultEntry]) -> Vec<Overlap> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = |entry: &FaultEntry| match entry.cores.as_slice() {
        [] => (0..all).collect(),
        named => named.to_vec(),
    };
    let mut found = BTreeMap::new();
    for (second, b) in faults.iter().enumerate().filter(|(_, fault)| fault.kind() == "cpu") {
        // At the begin of each, the others that are there then.
        let there = faults[..].iter().enumerate().filter(|(index, a)| {
            let older = (Times::of(a).begin, *index) < (Times::of(b).begin, second);
            let meet = a.target.is_empty() || b.target.is_empty() || a.target == b.target;
            a.kind() == "cpu" && older && meet && Times::of(a).meet(Times::of(b))
        });
        let there: Vec<(usize, &FaultEntry)> = there.collect();
        for core in cores(b) {
            let on_it = there.iter().filter(|(_, a)| cores(a).contains(&core));
            let on_it: Vec<usize> = on_it.map(|(index, _)| *index).collect();
            let Some(first) = on_it.first().copied() else { continue };
            let share = |index: usize| faults[index].cpu.unwrap_or_default();
            let sum = share(second) + on_it.iter().map(|index| share(*index)).sum::<f64>();
            let together = if sum > 1.0 {
                Together::Refused {
                    why: format!("together they ask for {:.0}% of core {core}", sum * 100.0),
                    instead: "write shares that are 1 together at the most",
                }
            } else {
                Together::Both(format!("together they take {:.0}% of core {core}", sum * 100.0))
            };
            let pair = (first.min(second), first.max(second));
            let known = found.entry(pair).or_insert_with(|| together.clone());
            if matches!(together, Together::Refused { .. }) {
                *known = together;
            }
        }
    }
    found.into_iter().map(|((first, second), together)| Overlap { first, second, together }).collect()
}

fn rank(entry: &FaultEntry) -> usize {
    ["storage", "member", "cpu", "memory", "link", "freeze", "kill"]
        .iter()
        .position(|kind| *kind == entry.kind())
        .unwrap_or(usize::MAX)
}

/// From when to when; before everything and after it, where a fault does not say.
#[derive(Clone, Copy)]
struct Times {
    begin: Option<Duration>,
    end: Duration,
}

impl Times {
    fn of(entry: &FaultEntry) -> Times {
        let (begin, end) = entry.times();
        Times { begin, end: end.unwrap_or(Duration::MAX) }
    }

    /// Whether there is a time in both. One that begins when the other ends comes after it.
    fn meet(self, other: Times) -> bool {
        let before = |a: Times, b: Times| b.begin.is_none_or(|begin| begin < a.end);
        before(self, other) && before(other, self)
    }

    /// Whether all of `other` is in this one.
    fn cover(self, other: Times) -> bool {
        self.begin <= other.begin && other.end <= self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<FaultEntry> {
        #[derive(serde::Deserialize)]
        struct File {
            fault: Vec<FaultEntry>,
        }
        let lines = text.split(" | ").map(|fault| format!("[[fault]]\n{}\n", fault.replace("; ", "\n")));
        toml::from_str::<File>(&lines.collect::<String>())
            .unwrap_or_else(|error| panic!("{text}: {error}"))
            .fault
    }

    /// The goal: for each two kinds that have to do with each other, either both are possible or the refusal
    /// has its reason; the order in the file does not matter.
    #[test]
    fn pairs() {
        let check = |a: &str, b: &str, expected: Option<Result<&str, &str>>| {
            for text in [format!("{a} | {b}"), format!("{b} | {a}")] {
                let found = overlaps(&entries(&text));
                match (found.as_slice(), expected) {
                    ([], None) => {}
                    ([Overlap { together: Together::Both(how), .. }], Some(Ok(said))) => {
                        assert!(how.contains(said), "{text}: {how}")
                    }
                    ([Overlap { together: Together::Refused { why, .. }, .. }], Some(Err(said))) => {
                        assert!(why.contains(said), "{text}: {why}")
                    }
                    other => panic!("{text}: {other:?}"),
                }
            }
        };
        let at = |what: &str, at: u64, lasts: u64| {
            format!("target = \"t\"; {what}; at = \"{at}s\"; for = \"{lasts}s\"")
        };
        let busy = "storage = \"busy,p=0.5\"";
        let (kill, freeze) = ("kill = true", "freeze = true");
        check(&at(busy, 1, 4), &at(kill, 2, 1), Some(Ok("put in place again")));
        check(&at(busy, 1, 4), &at(freeze, 2, 1), Some(Ok("goes on")));
        check(&at(busy, 2, 1), &at(kill, 1, 3), Some(Err("serves nobody")));
        check(&at(busy, 2, 1), &at(freeze, 2, 1), Some(Err("serves nobody")));
        check(&at(busy, 1, 1), &at(kill, 2, 1), None);
        check(&at(busy, 1, 4), &at(kill, 2, 1).replace("\"t\"", "\"u\""), None);
        check(&at("member = 1", 1, 4), &at(kill, 2, 1), Some(Err("as if whole")));
        check("target = \"t\"; member = 1; at = \"1s\"", &at(kill, 9, 1), Some(Err("as if whole")));
        check(&at("member = 1", 1, 4), &at(freeze, 2, 1), None);
        check(&at(kill, 1, 3), &at(freeze, 2, 1), Some(Err("neither stopped nor killed")));
        check(&at(kill, 1, 3), &at(kill, 4, 1), None);
        check("target = \"t\"; kill = true", &at(kill, 4, 1), Some(Err("neither stopped nor killed")));
        check(&at("member = 1", 1, 4), &at("member = 1", 2, 4), Some(Err("fail twice")));
        check(&at("member = 1", 1, 4), &at("member = 2", 2, 4), Some(Ok("second member")));
        let link = |loss: &str, at: u64| {
            format!("link = \"wan\"; set = {{ loss = {loss} }}; at = \"{at}s\"; for = \"2s\"")
        };
        check(&link("0.1", 1), &link("0.2", 2), Some(Err("end the other on link wan")));
        check(&link("0.1", 1), &link("0.2", 3), None);
        check("memory = \"1MiB\"", "memory = \"2MiB\"; at = \"1s\"", Some(Ok("add up")));
    }

    /// The goal: two faults at one layer are refused only when the younger could hit nothing at all.
    #[test]
    fn at_one_layer() {
        let check = |older: &str, younger: &str, possible: bool| {
            let text = format!(
                "target = \"t\"; storage = \"{older}\" | target = \"t\"; storage = \"{younger}\"; at = \"1s\"; for = \"1s\""
            );
            let found = overlaps(&entries(&text));
            let [Overlap { together, .. }] = found.as_slice() else { panic!("{found:?}") };
            assert_eq!(matches!(together, Together::Both(_)), possible, "{text}: {together:?}");
        };
        check("busy", "slow:1ms", false);
        check("busy,p=0.5", "slow:1ms", true);
        check("busy,p=0.5", "busy,p=0.5", true);
        check("busy,every=2", "slow:1ms", true);
        check("busy,times=9", "slow:1ms", true);
        check("busy,op=read", "slow:1ms", true);
        check("busy,op=read", "slow:1ms,op=read", false);
        check("busy,op=read+write", "drop", true);
        check("busy,lba=0-9", "slow:1ms", true);
        check("busy,lba=0-9", "slow:1ms,lba=2-3", true);
        check("torn:4", "drop", true);
        let layers = entries(
            "target = \"t\"; storage = \"busy\"; layer = \"a\" | target = \"t\"; storage = \"slow:1ms\"; layer = \"b\"",
        );
        assert_eq!(overlaps(&layers), []);
        let younger_stays = entries(
            "target = \"t\"; storage = \"busy\"; at = \"1s\"; for = \"1s\" | target = \"t\"; storage = \"slow:1ms\"; at = \"1s\"",
        );
        assert!(matches!(overlaps(&younger_stays)[0].together, Together::Both(_)));
    }

    /// The goal: shares of a core add up to the core at the most, all that are there counted; and a target
    /// stays on its cores.
    #[test]
    fn shares_of_a_core() {
        let cpu = |share: f64, core: usize, more: &str| format!("cpu = {share}; cores = [{core}]{more}");
        let refusals = |text: String| {
            let found = overlaps(&entries(&text));
            found.iter().filter(|one| matches!(one.together, Together::Refused { .. })).count()
        };
        assert_eq!(refusals(format!("{} | {}", cpu(0.5, 0, ""), cpu(0.5, 0, "; at = \"1s\""))), 0);
        assert_eq!(refusals(format!("{} | {}", cpu(0.5, 0, ""), cpu(0.6, 0, "; at = \"1s\""))), 1);
        assert_eq!(refusals(format!("{} | {}", cpu(0.5, 0, ""), cpu(0.6, 1, "; at = \"1s\""))), 0);
        let three = [cpu(0.4, 0, ""), cpu(0.4, 0, "; at = \"1s\""), cpu(0.4, 0, "; at = \"2s\"")];
        assert_eq!(refusals(three.join(" | ")), 1);
        let apart = "; target = \"t\"; at = \"1s\"; for = \"1s\" | target = \"t\"; cpu = 0.1; cores = [1]; at = \"3s\"";
        assert_eq!(refusals(cpu(0.1, 0, apart)), 1);
    }
}
