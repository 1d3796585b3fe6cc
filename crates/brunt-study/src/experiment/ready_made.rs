//! Ready-made workloads: files that are part of the program and that experiments include by name, such as `include =
//! "brunt:iozone"`. To add one, write the file, with a comment that cites the public description that it follows, and
//! add a line to [`READY_MADE`].

use std::path::Path;

/// The prefix of their names in `include`.
pub const PREFIX: &str = "brunt:";

/// Each file's name, without [`PREFIX`], and its text.
pub const READY_MADE: &[(&str, &str)] = &[
    ("iozone", include_str!("ready_made/iozone.toml")),
    ("postmark", include_str!("ready_made/postmark.toml")),
    ("sfs-2008", include_str!("ready_made/sfs-2008.toml")),
    ("sfs-3", include_str!("ready_made/sfs-3.toml")),
    ("spc-1", include_str!("ready_made/spc-1.toml")),
    ("tpc-c", include_str!("ready_made/tpc-c.toml")),
    ("vdi-boot", include_str!("ready_made/vdi-boot.toml")),
];

/// The text of an included file with the name of a ready-made one; `None` if it is a path.
///
/// # Errors
/// No ready-made file has this name.
pub(super) fn text_of(file: &Path) -> Option<Result<&'static str, UnknownName>> {
    let name = file.to_str()?.strip_prefix(PREFIX)?;
    let found = READY_MADE.iter().find(|(known, _)| *known == name);
    Some(found.map(|(_, text)| *text).ok_or(UnknownName))
}

/// No ready-made file has this name.
pub(super) struct UnknownName;

impl UnknownName {
    /// What to write instead.
    pub(super) fn help() -> String {
        let names: Vec<String> = READY_MADE
            .iter()
            .map(|(name, _)| format!("{PREFIX}{name}"))
            .collect();
        format!("available: {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Experiment;
    use super::*;

    /// An experiment that includes the named file with its defaults, on three targets.
    fn experiment(name: &str) -> Experiment {
        let with = match name {
            "postmark" => r#"directory = "/tmp""#,
            "spc-1" => r#"asu1 = "a", asu2 = "b", asu3 = "c""#,
            "tpc-c" => r#"data = "a", log = "b""#,
            _ => "",
        };
        let targets = match name {
            "postmark" => "",
            _ => {
                "targets = { a = { url = \"memory:1MiB\" }, b = { url = \"memory:1MiB\" }, \
                 c = { url = \"memory:1MiB\" } }"
            }
        };
        let text = format!(
            "name = \"x\"\ninclude = {{ file = \"{PREFIX}{name}\", with = {{ {with} }} }}\n{targets}\n"
        );
        Experiment::parse("x.toml", &text).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    #[test]
    fn every_file_is_accepted_with_its_defaults_and_cites_its_source() {
        for (name, text) in READY_MADE {
            let source: String = text
                .lines()
                .take_while(|line| line.starts_with('#'))
                .collect();
            assert!(source.contains('"'), "{name} cites no title: {source}");
            experiment(name);
        }
    }

    /// The shares of the requests agree with "SPC-1 Like" in B. Gill et al., USENIX ATC 2005: 29 % random reads, 32 %
    /// random writes, 11 % sequential reads, 28 % sequential writes.
    #[test]
    fn spc_1_has_the_published_shares_of_reads_and_writes() {
        let experiment = toml::Table::try_from(experiment("spc-1")).unwrap();
        let mut shares = [[0.0; 2]; 2];
        for stream in experiment["workloads"].as_table().unwrap().values() {
            let number = |value: &toml::Value| {
                value
                    .as_float()
                    .or(value.as_integer().map(|whole| whole as f64))
                    .unwrap()
            };
            let share = number(&stream["arrival"]["rate"]) / 1000.0;
            let read = number(&stream["read"]);
            let sequential = usize::from(number(&stream["sequential"]) == 1.0);
            shares[sequential][0] += share * read;
            shares[sequential][1] += share * (1.0 - read);
        }
        let percent = shares.map(|row| row.map(|share: f64| (share * 100.0).round()));
        assert_eq!(percent, [[29.0, 32.0], [11.0, 28.0]]);
    }

    /// All of a published mix except its 1 % of FSSTAT.
    #[test]
    fn spec_sfs_has_the_published_shares() {
        let weights = |name: &str| {
            let experiment = toml::Table::try_from(experiment(name)).unwrap();
            let mix = experiment["workloads"][name]["nfs"]["mix"].as_table();
            let weights = mix.unwrap().values();
            weights.filter_map(toml::Value::as_float).sum::<f64>()
        };
        assert_eq!((weights("sfs-2008"), weights("sfs-3")), (99.0, 98.0));
    }

    #[test]
    fn an_unknown_name_is_a_mistake_that_lists_the_others() {
        let error = Experiment::parse("x.toml", "name = \"x\"\ninclude = \"brunt:tpcc\"\n");
        let told = format!("{:?}", miette::Report::new(*error.unwrap_err()));
        assert!(
            told.contains("brunt:tpcc") && told.contains("brunt:tpc-c"),
            "{told}"
        );
    }
}
