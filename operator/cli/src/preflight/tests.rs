use std::collections::BTreeSet;

use super::*;
use crate::testing::plain;

#[test]
fn ids_are_unique_and_follow_the_categories() {
    let ids: BTreeSet<&str> = Check::ALL.iter().map(|check| check.id()).collect();
    assert_eq!(ids.len(), Check::ALL.len());
    // Checks of one category stand together, so that its heading is printed once.
    let mut categories: Vec<&str> = Check::ALL.iter().map(|check| check.category()).collect();
    categories.dedup();
    assert_eq!(
        categories,
        [
            "API server",
            "Installation",
            "AcceleratorCluster",
            "Other owners"
        ]
    );
}

fn report(findings: Vec<Finding>, fail_on: FailOn) -> Report {
    let mut report = Report {
        findings,
        ..Report::default()
    };
    report.conclude(fail_on);
    report
}

#[test]
fn the_exit_code_follows_the_severity_asked_for() {
    let failed = || vec![Check::Intent.fail("o", "c", "n")];
    let warned = || vec![Check::DraApi.warn("o", "c", "n")];
    let unknown = || vec![Check::Policies.unknown("forbidden")];
    assert_eq!(report(failed(), FailOn::Error).exit, Exit::Findings);
    assert_eq!(report(failed(), FailOn::Never).exit, Exit::Fine);
    assert_eq!(report(warned(), FailOn::Error).exit, Exit::Fine);
    assert_eq!(report(warned(), FailOn::Warning).exit, Exit::Findings);
    assert_eq!(
        report(unknown(), FailOn::Error).exit,
        Exit::Undetermined,
        "what is not known is not called fine"
    );
    assert_eq!(
        report(
            vec![Check::Intent.pass(""), Check::Floors.skipped("no")],
            FailOn::Warning
        )
        .exit,
        Exit::Fine
    );
}

#[test]
fn every_outcome_is_told() {
    let findings = vec![
        Check::Reachable.pass("Kubernetes v1.36.3, as wanda"),
        Check::DraApi.warn("API server", "resource.k8s.io/v1 is not served", "Upgrade."),
        Check::Namespaces.fail(
            "Namespace freehold-operands",
            "it does not exist",
            "Install.",
        ),
        Check::Permissions.unknown("forbidden"),
        Check::Selectors.skipped("there is no AcceleratorCluster yet"),
    ];
    insta::assert_snapshot!(report(findings, FailOn::Error).text(plain(false)), @r"
    API server
      ✓ answers, and knows who is asking (Kubernetes v1.36.3, as wanda) FH1001
      ! serves resource.k8s.io/v1 FH1003
          API server: resource.k8s.io/v1 is not served
          Next: Upgrade.

    Installation
      ✗ namespaces are there and admit what runs in them FH1103
          Namespace freehold-operands: it does not exist
          Next: Install.
      ? service accounts may do what they must – not known: forbidden FH1104

    AcceleratorCluster
      - selects nodes, each by one cohort of a vendor – skipped: there is no AcceleratorCluster yet FH1204

    1 wrong, 1 not known, 1 warning.
    ");
}

const HEAD: &str = "# Preflight checks

<!-- Written from the table in operator/cli/src/preflight/check.rs. Do not edit. -->

`kubectl freehold preflight` makes these checks. The IDs are stable. Every check passes, warns, fails, is skipped (it did not
apply) or is not known (it could not be made); none is left out. The exit code is 3 from `--fail-on` on, 1 when something is not
known, 0 otherwise.
";

#[test]
fn the_page_of_checks_is_up_to_date() {
    let section = |check: &Check| {
        let (id, category, title) = (check.id(), check.category(), check.title());
        format!(
            "\n## {id}\n\n{category}: {title}. {}\n",
            check.about().trim()
        )
    };
    let page = format!(
        "{HEAD}{}",
        Check::ALL.iter().map(section).collect::<String>()
    );
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/preflight.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).expect("docs/ can be written");
    }
    let found = std::fs::read_to_string(path).expect("docs/preflight.md is committed");
    assert!(
        found == page,
        "docs/preflight.md is out of date: UPDATE_DOCS=1 cargo test -p freehold-cli"
    );
}
