//! An AcceleratorCluster from a file.

use std::io::Read as _;
use std::path::Path;

use freehold_api::AcceleratorCluster;
use freehold_api::plan::Plan;
use freehold_core::names;
use kube::ResourceExt as _;
use serde_json::Value;

use crate::exit::Failure;

/// Reads the one AcceleratorCluster of a YAML or JSON file, or of stdin for `-`, and validates it.
pub(crate) fn read(path: &Path) -> Result<(AcceleratorCluster, Plan), Failure> {
    let text = if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    parse(&text).map_err(|why| Failure::usage(format!("{}: {why}", path.display())))
}

fn parse(text: &str) -> Result<(AcceleratorCluster, Plan), String> {
    let mut found = Vec::new();
    for document in documents(text) {
        let value: Value = serde_saphyr::from_str(&document).map_err(|error| error.to_string())?;
        if value.get("kind").and_then(Value::as_str) == Some("AcceleratorCluster") {
            // Once more from the text, so that an error names its line.
            let cluster: AcceleratorCluster =
                serde_saphyr::from_str(&document).map_err(|error| error.to_string())?;
            found.push(cluster);
        }
    }
    let cluster = match found.len() {
        0 => return Err("there is no AcceleratorCluster in it".to_owned()),
        1 => found.remove(0),
        more => {
            return Err(format!(
                "there are {more} AcceleratorClusters in it; a cluster has one"
            ));
        }
    };
    let name = cluster.name_any();
    if name != names::SINGLETON {
        return Err(format!(
            "metadata.name is {name:?}, expected {:?}",
            names::SINGLETON
        ));
    }
    let plan = Plan::parse(&cluster.spec).map_err(|problems| {
        let list: Vec<String> = problems
            .list()
            .iter()
            .map(|problem| format!("\n  {problem}"))
            .collect();
        format!("the resource is not valid:{}", list.concat())
    })?;
    Ok((cluster, plan))
}

/// The documents of a YAML stream, comments and empty ones left out.
pub(crate) fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        if line.trim_end() == "---" || line.starts_with("--- ") {
            documents.push(String::new());
        } else if let Some(last) = documents.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    let blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    documents.retain(|document| !document.lines().all(blank));
    documents
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# a comment\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ml}\n---\n\
        apiVersion: freehold.dev/v1alpha1\nkind: AcceleratorCluster\nmetadata: {name: cluster}\n\
        spec:\n  cohorts:\n  - {name: fen, vendor: NVIDIA, owner: DRA, nodeSelector: {matchLabels: {p: b}}}\n";

    #[test]
    fn the_resource_is_found_among_others() {
        let (cluster, plan) = parse(GOOD).expect("a valid file");
        assert_eq!(
            (cluster.name_any().as_str(), plan.cohorts.len()),
            ("cluster", 1)
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong =
            |from: &str, to: &str| parse(&GOOD.replace(from, to)).expect_err("an invalid file");
        assert!(wrong("kind: AcceleratorCluster", "kind: Other").contains("no AcceleratorCluster"));
        assert!(wrong("{name: cluster}", "{name: mine}").contains("expected \"cluster\""));
        assert!(wrong("owner: DRA", "owner: DRA, ownre: x").contains("ownre"));
        let invalid = wrong("name: fen", "name: Fen_1");
        assert!(
            invalid.contains("not valid") && invalid.contains("Fen_1"),
            "{invalid}"
        );
        assert!(
            parse(&GOOD.repeat(2))
                .expect_err("two")
                .contains("2 AcceleratorClusters")
        );
        assert!(parse("a: [").is_err());
    }
}
