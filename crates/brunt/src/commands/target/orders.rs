//! Executes and answers the lines on the target's standard input (`--control`). Called by the thread that reads these
//! lines. The rule: every line is answered, and the answer to an invalid line says what would be correct.

use brunt_study::control::{Local, Reason, Refusal, Reply};
use serde_json::Value;

/// Executes a line and returns the answer. With several targets, `"target":"iqn…"` selects the target that has the
/// LUN.
pub fn answer(targets: &[String], local: impl Fn(&str) -> Local, line: &str) -> String {
    let Ok(Value::Object(mut message)) = serde_json::from_str(line) else {
        // The line isn't a valid command for any target.
        return Local::new([]).line(line);
    };
    let named = message.remove("target");
    // A reload applies to all targets.
    let any = message.get("do").is_some_and(|what| what == "reload");
    match addressee(targets, named, any) {
        Ok(name) => local(name).line(&Value::Object(message).to_string()),
        Err(refusal) => Reply::Refused(refusal).to_line(),
    }
}

fn addressee(targets: &[String], named: Option<Value>, any: bool) -> Result<&str, Refusal> {
    let names = || targets.join(", ");
    match (named, targets) {
        (Some(Value::String(name)), _) => {
            let known = targets.iter().find(|target| **target == name);
            let unknown = || format!("unknown target {name}; the targets are {}", names());
            known
                .map(String::as_str)
                .ok_or_else(|| Reason::NoTarget.because(unknown()))
        }
        (Some(other), _) => {
            Err(Reason::Unreadable.because(format!("\"target\" is a name, not {other}")))
        }
        (None, [first, rest @ ..]) if any || rest.is_empty() => Ok(first),
        (None, _) => Err(Reason::NoTarget.because(format!(
            "there are several targets; add \"target\", which is one of {}",
            names()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_block::open_url;

    #[test]
    fn a_line_reaches_the_target_that_it_names() {
        let local = |name: &str| {
            let url = if name == "iqn.a" {
                "null:1MiB?fault=off"
            } else {
                "null:1MiB"
            };
            Local::new([(0, open_url(url).unwrap().handles())])
        };
        let two = ["iqn.a".to_string(), "iqn.b".to_string()];
        let check = |line: &str, said: &str| {
            let answer = answer(&two, local, line);
            assert!(answer.contains(said), "{line}: {answer}");
        };
        check(
            r#"{"do":"arm","lun":0,"target":"iqn.a","fault":"busy"}"#,
            r#"{"answer":"armed","id":1}"#,
        );
        check(
            r#"{"do":"arm","lun":0,"target":"iqn.b","fault":"busy"}"#,
            "no-layer",
        );
        check(r#"{"do":"status","lun":0,"target":"iqn.c"}"#, "no-target");
        check(r#"{"do":"status","lun":0}"#, "one of iqn.a, iqn.b");
        check(r#"{"do":"status","lun":0,"target":7}"#, "unreadable");
        check("nonsense", "unreadable");
        check(r#"{"do":"status","target":"iqn.a"}"#, "missing field `lun`");
        check(r#"{"do":"reload"}"#, "no-server");
        assert!(answer(&two[..1], local, r#"{"do":"status","lun":0}"#).contains("status"));
    }
}
