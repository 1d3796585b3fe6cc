use super::*;

/// The goal: every table is described as the others are.
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
