use std::path::Path;

use brunt_lake::markdown;

use super::*;

/// Every table is documented in the same way.
#[test]
fn tables_are_described() {
    let mut names: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), TABLES.len());
    for table in TABLES {
        assert_eq!(table.mistakes(), Vec::<String>::new());
    }
}

/// The page docs/results.md describes exactly the existing tables and columns. With `BRUNT_WRITE_DOCS=1` the test
/// updates the page instead.
#[test]
fn the_page_has_all_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (written, described) = (
        markdown::between_marks(&page).unwrap(),
        markdown::sections(TABLES),
    );
    if std::env::var_os("BRUNT_WRITE_DOCS").is_some() {
        std::fs::write(&path, page.replacen(written, &described, 1)).unwrap();
    } else {
        assert!(
            written == described,
            "docs/results.md is behind: run this test with BRUNT_WRITE_DOCS=1"
        );
    }
}
