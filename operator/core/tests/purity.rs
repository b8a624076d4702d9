//! Core decides and does nothing else: no client, no runtime, no clock may creep into its dependency tree.

use std::process::Command;

/// Crates whose presence would mean I/O, a client, a runtime or a clock.
const IMPURE: [&str; 12] = [
    "kube",
    "kube-client",
    "kube-core",
    "kube-runtime",
    "k8s-openapi",
    "tokio",
    "hyper",
    "jiff",
    "chrono",
    "time",
    "futures",
    "reqwest",
];

#[test]
fn no_client_runtime_or_clock_is_in_the_dependency_tree() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let arguments = [
        "tree",
        "--offline",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
        "--format",
        "{lib}",
    ];
    let output = Command::new(cargo)
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let tree = String::from_utf8(output.stdout).expect("UTF-8");
    let crates: Vec<String> = tree
        .lines()
        .map(|line| line.trim().replace('_', "-"))
        .collect();
    assert!(
        crates.iter().any(|name| name == "freehold-core"),
        "the tree was read:\n{tree}"
    );
    for name in IMPURE {
        assert!(
            !crates.iter().any(|found| found == name),
            "{name} is in core's dependency tree:\n{tree}"
        );
    }
}

#[test]
fn the_sources_read_no_clock_and_no_file() {
    let mut folders = vec![std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a source file");
            seen += 1;
            for word in [
                "SystemTime",
                "Instant::now",
                "std::fs",
                "std::net",
                "std::process",
                "std::env",
            ] {
                assert!(!text.contains(word), "{} uses {word}", path.display());
            }
        }
    }
    assert!(seen > 20, "the sources were found: {seen}");
}

/// H45: what a node can carry is what its own driver offers. A published table serves planning without a cluster, and tests.
#[test]
fn no_decision_about_a_node_is_made_on_a_published_table() {
    let operator = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    // Where the tables are, and who draws on them without a cluster.
    let allowed = [
        "core/src/catalogue/boards.rs",
        "core/src/catalogue/mod.rs",
        "cli/src/plan/board.rs",
    ];
    let mut folders: Vec<std::path::PathBuf> = std::fs::read_dir(&operator)
        .expect("the crates")
        .map(|entry| entry.expect("an entry").path().join("src"))
        .filter(|source| source.is_dir())
        .collect();
    assert!(folders.len() >= 6, "the crates were found: {folders:?}");
    let mut users = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                // `tests.rs` and `tests/` hold unit tests and nothing else.
                if !path.ends_with("tests") {
                    folders.push(path);
                }
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs")
                || path.ends_with("tests.rs")
            {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a source file");
            let code = text
                .split("\n#[cfg(test)]\nmod tests {")
                .next()
                .unwrap_or_default();
            if ["published_board", "PUBLISHED_BOARDS"]
                .iter()
                .any(|name| code.contains(name))
            {
                let path = path.strip_prefix(&operator).expect("below the crates");
                users.push(path.display().to_string());
            }
        }
    }
    users.sort();
    let mut allowed = allowed.map(str::to_owned);
    allowed.sort();
    assert_eq!(users, allowed);
}
