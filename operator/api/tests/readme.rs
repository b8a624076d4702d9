//! What the README shows is true: its resources are valid, its commands exist.

use std::path::PathBuf;

use freehold_api::AcceleratorCluster;
use freehold_api::plan::Plan;

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Fenced blocks of one language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside: Option<String> = None;
    for line in text.lines() {
        match &mut inside {
            None if line == format!("```{language}") => inside = Some(String::new()),
            None => {}
            Some(_) if line == "```" => found.extend(inside.take()),
            Some(block) => {
                block.push_str(line);
                block.push('\n');
            }
        }
    }
    found
}

#[test]
fn every_resource_of_the_readme_is_valid() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("the README");
    let resources = blocks(&readme, "yaml");
    assert!(!resources.is_empty(), "the README shows a resource");
    for text in resources {
        let cluster: AcceleratorCluster =
            serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        if let Err(problems) = Plan::parse(&cluster.spec) {
            panic!("{problems}\n{text}");
        }
    }
}

#[test]
fn every_command_of_the_readme_exists() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("the README");
    let makefile = std::fs::read_to_string(root().join("Makefile")).expect("the Makefile");
    let commands = blocks(&readme, "console").concat();
    let mut checked = 0;
    for line in commands.lines() {
        let words: Vec<&str> = line
            .split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        match words.as_slice() {
            ["make", target, ..] => {
                assert!(
                    makefile.contains(&format!("\n{target}: ")),
                    "{line}: no such target"
                );
                checked += 1;
            }
            ["kubectl", _, "-k" | "-f", path, ..] => {
                assert!(root().join(path).exists(), "{line}: no such path");
                checked += 1;
            }
            _ => {}
        }
    }
    assert!(checked >= 4, "the README's commands were found: {checked}");
}
