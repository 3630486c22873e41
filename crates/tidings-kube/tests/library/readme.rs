//! The README names what there is.

use std::path::Path;

#[test]
fn the_map_from_client_go_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = include_str!("../../README.md");
    let map = readme.split("## From client-go").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: Vec<_> = map.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() > 15, "{map}");
    for row in rows {
        let held_by = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        for part in held_by.split("; ") {
            for name in part.split('`').skip(1).step_by(2) {
                let exists = match part.strip_prefix("vectors ") {
                    Some(_) => {
                        let vectors = root.join("tests/conformance/vectors").read_dir().unwrap();
                        vectors.flatten().any(|file| {
                            file.file_name().to_string_lossy().starts_with(&format!("{name}-"))
                        })
                    }
                    None if name.starts_with("src/") => root.join(name).is_file(),
                    None if name.contains('.') => root.join("tests/library").join(name).is_file(),
                    None => root.join("examples").join(name).with_extension("rs").is_file(),
                };
                assert!(exists, "{name}: {row}");
            }
        }
    }
}
