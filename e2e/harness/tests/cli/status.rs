//! `status` and `explain`, wrong usage, and users who may read little.

use freehold_e2e::cluster::TestCluster;
use freehold_e2e::install::Programs;
use serde_json::json;

use crate::fleet::{observe, renew_lease, tell};
use crate::plugin::Plugin;
pub(super) fn wrong_usage_says_what_is_wrong(plugin: &Plugin) {
    let unknown = plugin.expect(&["statsu"], 2);
    assert!(unknown.err.contains("statsu"), "{}", unknown.err);
    let format = plugin.expect(&["status", "-o", "xml"], 2);
    assert!(
        format.err.contains("xml") && format.err.contains("yaml"),
        "{}",
        format.err
    );
    let context = plugin.expect(&["status", "--context", "elsewhere"], 2);
    assert!(context.err.contains("elsewhere"), "{}", context.err);
    let file = plugin.expect(&["status", "--kubeconfig", "/nowhere/config"], 2);
    assert!(file.err.contains("/nowhere/config"), "{}", file.err);
    let timeout = plugin.expect(&["status", "--timeout", "soon"], 2);
    assert!(timeout.err.contains("soon"), "{}", timeout.err);
}

pub(super) fn without_crds_the_way_to_an_installation_is_pointed_out(plugin: &Plugin) {
    let run = plugin.expect(&["status"], 1);
    assert!(
        run.err.contains("not installed") && run.err.contains("preflight"),
        "{}",
        run.err
    );
}

pub(super) async fn status_sums_up_and_exits_accordingly(cluster: &TestCluster, plugin: &Plugin) {
    let unheard = plugin.expect(&["status"], 1);
    assert!(
        unheard
            .out
            .contains("has not reported on this resource yet"),
        "{}",
        unheard.out
    );

    observe(cluster, 1, "False").await;
    let orphaned = plugin.expect(&["status"], 1);
    assert!(
        orphaned.out.contains("No controller holds the lease"),
        "{}",
        orphaned.out
    );

    renew_lease(cluster).await;
    let waiting = plugin.expect(&["status"], 4);
    assert!(
        waiting
            .out
            .starts_with("Under way: 1 waiting, 2 of 3 nodes ready."),
        "{}",
        waiting.out
    );
    assert!(
        waiting
            .out
            .contains("ConsumersRemain (FH402): 1 node in marsh-dra"),
        "{}",
        waiting.out
    );
    assert!(
        waiting
            .out
            .contains("Wait for the workloads on reed-3 to end."),
        "{}",
        waiting.out
    );
    assert!(
        !waiting.out.contains('\u{1b}'),
        "no colour without a terminal: {}",
        waiting.out
    );
    assert!(waiting.err.is_empty(), "{}", waiting.err);
    let coloured = plugin.expect(&["status", "--color", "always"], 4);
    assert!(coloured.out.contains('\u{1b}'), "{}", coloured.out);

    let json = plugin.expect(&["status", "-o", "json"], 4).json();
    assert_eq!(
        (&json["schemaVersion"], &json["kind"]),
        (&json!("cli.freehold.dev/v1"), &json!("Status"))
    );
    assert_eq!(json["nodes"].as_array().map(Vec::len), Some(3));
    let yaml = plugin.expect(&["status", "-o", "yaml"], 4);
    assert!(
        yaml.out.contains("schemaVersion: cli.freehold.dev/v1"),
        "{}",
        yaml.out
    );

    let left = plugin.expect(&["status", "-l", "bank=left"], 4);
    assert!(
        left.out.contains("all 2 nodes are owned"),
        "the cluster's own condition is False still: {}",
        left.out
    );
    observe(cluster, 1, "True").await;
    plugin.expect(&["status", "-l", "bank=left"], 0);
    let selector = plugin.expect(&["status", "-l", "bank=left,,"], 2);
    assert!(selector.err.contains("--selector"), "{}", selector.err);
    let lines = plugin.expect(
        &[
            "status",
            "--grouping=false",
            "--no-headers",
            "--status-selector",
            "waiting",
        ],
        4,
    );
    assert!(
        lines.out.contains("reed-3")
            && !lines.out.contains("reed-1")
            && !lines.out.contains("COHORT"),
        "{}",
        lines.out
    );

    tell(cluster, "reed-2", &json!({"step": "Hold", "reason": "ForeignOwner", "message": "somebody else", "nextStep": "Decide."})).await;
    let conflicted = plugin.expect(&["status"], 3);
    assert!(
        conflicted
            .out
            .starts_with("Not ready: 1 claimed by two parties"),
        "{}",
        conflicted.out
    );
    tell(
        cluster,
        "reed-2",
        &json!({"step": "Held", "reason": null, "message": null, "nextStep": null}),
    )
    .await;
}

pub(super) fn explain_tells_one_node(plugin: &Plugin) {
    let waiting = plugin.expect(&["explain", "reed-3"], 4);
    for part in [
        "DevicePlugin now, DRA wanted by cohort marsh-dra",
        "ConsumersRemain (FH402)",
        "By itself",
        "By hand",
        "Evidence",
    ] {
        assert!(
            waiting.out.contains(part),
            "{part:?} is missing: {}",
            waiting.out
        );
    }
    assert!(
        !waiting.out.contains("Unreadable"),
        "an administrator reads everything: {}",
        waiting.out
    );
    let held = plugin
        .expect(&["explain", "reed-1", "-o", "json"], 0)
        .json();
    assert_eq!(held["stories"][0]["step"], "Held");
    assert_eq!(held["evidence"]["orders"]["nvidia"]["term"], 2);
    let absent = plugin.expect(&["explain", "reed-9"], 1);
    assert!(absent.err.contains("reed-9"), "{}", absent.err);
}

pub(super) async fn who_may_read_little_is_told_what_is_missing(
    cluster: &TestCluster,
    programs: &Programs,
) {
    cluster
        .apply_yaml(
            r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: onlooker}
rules:
- {apiGroups: [freehold.dev], resources: [acceleratorclusters, acceleratornodes], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: onlooker}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: onlooker}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: wanda}]
",
        )
        .await
        .unwrap();
    let onlooker = Plugin {
        program: programs.cli.clone(),
        kubeconfig: cluster.kubeconfig_for("wanda", None).unwrap(),
    };
    let status = onlooker.expect(&["status"], 4);
    assert!(
        status.out.contains("its lease is unreadable (forbidden"),
        "{}",
        status.out
    );
    let explained = onlooker.expect(&["explain", "reed-3"], 4);
    assert!(
        explained.out.contains("Unreadable") && explained.out.contains("pods: forbidden"),
        "{}",
        explained.out
    );

    let stranger = Plugin {
        program: programs.cli.clone(),
        kubeconfig: cluster.kubeconfig_for("nobody", None).unwrap(),
    };
    let refused = stranger.expect(&["status"], 1);
    assert!(
        refused
            .err
            .contains("cannot read AcceleratorClusters: forbidden"),
        "{}",
        refused.err
    );
}
