//! `docs/reasons.md` is written from the table of reasons; `UPDATE_DOCS=1 cargo test -p freehold-core --test reasons` writes it.

use std::path::PathBuf;

use freehold_core::blocker::Reason;

const HEAD: &str = "# Reasons

<!-- Written from the table in operator/core/src/blocker.rs. Do not edit. -->

Every node that is not what its cohort wants has one of these reasons: in `status.tenures` of its AcceleratorNode, in
`status.blockers` of the AcceleratorCluster, in events, and as the label `reason` of `freehold_blocked_nodes`.
The IDs are stable. The kind says how a reason counts:

| kind | meaning |
|---|---|
| Excluded | not ours to own: listed, never an error |
| Waiting | time or workloads will resolve it |
| Blocked | a person must act |
| Conflicted | two parties claim the node |

";

fn page() -> String {
    let row = |reason: &Reason| {
        let (id, kind) = (reason.id(), reason.kind().name());
        format!("| [{id}](#{}) | `{reason}` | {kind} |\n", id.to_lowercase())
    };
    let section = |reason: &Reason| {
        let (id, kind, meaning, next) = (
            reason.id(),
            reason.kind().name(),
            reason.meaning(),
            reason.next_step(),
        );
        format!("\n## {id}\n\n**{reason}** ({kind}). {meaning}\n\nWhat to do: {next}\n")
    };
    let rows: String = Reason::ALL.iter().map(row).collect();
    let sections: String = Reason::ALL.iter().map(section).collect();
    // Angle brackets would read as HTML.
    format!("{HEAD}| ID | reason | kind |\n|---|---|---|\n{rows}{sections}")
        .replace("<node>", "NODE")
        .replace("<key>", "KEY")
        .replace("<pod>", "POD")
        .replace("<name>", "NAME")
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_page_of_reasons_is_up_to_date() {
    let path = root().join("docs/reasons.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page()).expect("docs/ can be written");
    }
    let found = std::fs::read_to_string(&path).expect("docs/reasons.md is committed");
    assert!(
        found == page(),
        "docs/reasons.md is out of date: UPDATE_DOCS=1 cargo test -p freehold-core --test reasons"
    );
}

#[test]
fn every_file_and_anchor_that_a_next_step_names_exists() {
    let page = page();
    for reason in Reason::ALL {
        let (file, anchor) = reason
            .anchor()
            .split_once('#')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .expect("an anchor");
        assert!(root().join(&file).exists(), "{file}");
        assert!(
            page.to_lowercase().contains(&format!("\n## {anchor}\n")),
            "{anchor}"
        );
        for word in reason
            .next_step()
            .split_whitespace()
            .filter(|word| word.starts_with("docs/"))
        {
            assert!(
                root().join(word).exists(),
                "{reason} names {word}, which does not exist"
            );
        }
    }
}
