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
