//! Lines on the target's standard input (`--control`), and their answers. Called by the thread that reads them. The
//! one rule: every line is answered, with what would be right where it was wrong.

use std::collections::BTreeMap;

use brunt_study::control::{Local, Reason, Refusal, Reply};
use serde_json::Value;

/// Carries out a line; the answer is one. `"target":"iqn…"` says whose LUN is meant where there are several targets.
pub fn answer(targets: &BTreeMap<String, Local>, line: &str) -> String {
    let Ok(Value::Object(mut message)) = serde_json::from_str(line) else {
        // Whoever it is for, it is none.
        return Local::new([]).line(line);
    };
    match addressee(targets, message.remove("target")) {
        Ok(local) => local.line(&Value::Object(message).to_string()),
        Err(refusal) => Reply::Refused(refusal).to_line(),
    }
}

fn addressee(targets: &BTreeMap<String, Local>, named: Option<Value>) -> Result<&Local, Refusal> {
    let names = || targets.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let mut all = targets.values();
    match (named, all.next(), all.next()) {
        (Some(Value::String(name)), ..) => targets.get(&name).ok_or_else(|| {
            Reason::NoTarget.because(format!("unknown target {name}; the targets are {}", names()))
        }),
        (Some(other), ..) => Err(Reason::Unreadable.because(format!("\"target\" is a name, not {other}"))),
        (None, Some(only), None) => Ok(only),
        (None, ..) => Err(Reason::NoTarget
            .because(format!("there are several targets; add \"target\", which is one of {}", names()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_block::open_url;

    #[test]
    fn lines_are_addressed() {
        let local = |url| Local::new([(0, open_url(url).unwrap().handles())]);
        let two = BTreeMap::from([
            ("iqn.a".to_string(), local("null:1MiB?fault=off")),
            ("iqn.b".to_string(), local("null:1MiB")),
        ]);
        let check = |line: &str, said: &str| {
            let answer = answer(&two, line);
            assert!(answer.contains(said), "{line}: {answer}");
        };
        check(r#"{"do":"arm","lun":0,"target":"iqn.a","fault":"busy"}"#, r#"{"answer":"armed","id":1}"#);
        check(r#"{"do":"arm","lun":0,"target":"iqn.b","fault":"busy"}"#, "no-layer");
        check(r#"{"do":"status","lun":0,"target":"iqn.c"}"#, "no-target");
        check(r#"{"do":"status","lun":0}"#, "one of iqn.a, iqn.b");
        check(r#"{"do":"status","lun":0,"target":7}"#, "unreadable");
        check("nonsense", "unreadable");
        check(r#"{"do":"status","target":"iqn.a"}"#, "missing field `lun`");
        let one = BTreeMap::from([("iqn.a".to_string(), local("null:1MiB"))]);
        assert!(super::answer(&one, r#"{"do":"status","lun":0}"#).contains("status"));
    }
}
