//! I3 to I6: what goes last, what is written, how many at once, what is said.

use super::*;

#[test]
fn a_finalizer_that_does_not_go_last_is_found() {
    let mut script = Script::held();
    script.cluster(&json!(1), &[]);
    assert_eq!(script.found(), ["I3 finalizer gone first"]);
}

#[test]
fn a_class_that_goes_before_its_nodes_is_found() {
    let mut script = Script::held();
    script.node.allocatable.clear();
    script.kept("DeviceClass", Some(CLUSTER_UID), false);
    script.up_to_attested();
    script.own("dra", "violet");
    script.see_node();
    script.kept("DeviceClass", Some(CLUSTER_UID), true);
    assert_eq!(script.found(), ["I3 class gone before its nodes"]);
}

#[test]
fn a_write_to_what_is_not_ours_is_found() {
    type Plant = fn(&mut Script);
    let plants: [(Plant, &str); 7] = [
        (
            |script| script.kept("DaemonSet", None, false),
            "I4 the controller wrote an object of somebody else",
        ),
        (
            |script| {
                script.see(
                    Object::Kept(KeptSeen {
                        kind: "DeviceClass",
                        name: "theirs".into(),
                        ..KeptSeen::default()
                    }),
                    true,
                );
                script.wrote(false, "delete", "deviceclasses.resource.k8s.io", "theirs");
            },
            "I4 a foreign object was deleted",
        ),
        (
            |script| script.wrote(false, "patch", "configmaps", "theirs"),
            "I4 unexpected write",
        ),
        (
            |script| {
                script.wrote(
                    true,
                    "patch",
                    "acceleratornodes.freehold.dev/status",
                    "quince-2",
                );
            },
            "I4 an agent wrote what is not its own",
        ),
        (
            |script| {
                script
                    .node
                    .controller_fields
                    .insert("f:metadata/f:labels/f:pool".into());
                script.see_node();
            },
            "I4 the controller wrote a foreign field",
        ),
        (
            |script| {
                script.fence(Some(4));
                script.node.labels.remove("pool");
                script.see_node();
            },
            "I4 a write of ours changed a foreign mark",
        ),
        (
            |script| {
                script.record["metadata"]["ownerReferences"][0]["uid"] =
                    json!("uid-of-its-predecessor");
                script.see_record();
            },
            "I4 a record of another node",
        ),
    ];
    for (plant, expected) in plants {
        let mut script = Script::held();
        plant(&mut script);
        assert_eq!(script.found(), [expected]);
    }
}

#[test]
fn our_own_writes_are_no_violation() {
    let mut script = Script::held();
    script
        .node
        .controller_fields
        .insert("f:spec/f:taints".into());
    script
        .node
        .controller_fields
        .insert("f:metadata/f:labels/f:freehold.node-restriction.kubernetes.io/agent".into());
    script.fence(Some(4));
    script.see_node();
    script.kept("ResourceClaimTemplate", Some(CLUSTER_UID), false);
    script.kept("ResourceClaimTemplate", Some(CLUSTER_UID), true);
    script.wrote(
        false,
        "delete",
        "resourceclaimtemplates.resource.k8s.io",
        "thing",
    );
    script.wrote(true, "patch", "acceleratornodes.freehold.dev/status", NODE);
    assert_eq!(script.found(), Vec::<String>::new());
}

/// Fences owned nodes besides the first; `stuck` of them have a status that asks for a person.
fn fenced_nodes(budget: &Value, moving: usize, stuck: usize) -> Vec<String> {
    let spec = json!({"cohorts": [], "rollout": {"maxUnavailable": budget}});
    fenced_nodes_under(&spec, moving, stuck)
}

fn fenced_nodes_under(spec: &Value, moving: usize, stuck: usize) -> Vec<String> {
    let mut script = Script::held();
    script.cluster_of(spec, &["freehold.dev/teardown"]);
    script.node.allocatable.clear();
    for index in 0..moving + stuck {
        let name = format!("quince-{}", index + 2);
        script.node.name.clone_from(&name);
        script.node.uid = format!("uid-of-{name}");
        script.fence(None);
        script.see_node();
        let is_stuck = index < stuck;
        let record = json!({
            "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorNode",
            "metadata": {"name": name, "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": name, "uid": script.node.uid}]},
            "spec": {"nodeUID": script.node.uid, "nvidia": {"term": 4}},
            "status": {"tenures": {"nvidia": {"step": "Drain", "since": "2026-01-01T00:00:00Z",
                "reason": is_stuck.then_some("DaemonSetConsumer")}}},
        });
        script.history.started_s = 1_767_225_600; // 2026-01-01
        script.fence(Some(4));
        script.see_node();
        script.see(
            Object::Record(Box::new(serde_json::from_value(record).unwrap())),
            false,
        );
    }
    let found = script.found();
    found
        .into_iter()
        .filter(|found| found.starts_with("I5"))
        .collect()
}

#[test]
fn more_nodes_in_handover_than_the_budget_are_found() {
    assert_eq!(fenced_nodes(&json!(2), 2, 0), Vec::<String>::new());
    assert_eq!(fenced_nodes(&json!(2), 3, 0), ["I5 over budget"]);
    // Four nodes are owned: half of them are two.
    assert_eq!(fenced_nodes(&json!("50%"), 2, 0), Vec::<String>::new());
    assert_eq!(fenced_nodes(&json!("10%"), 2, 0), ["I5 over budget"]);
}

#[test]
fn more_nodes_of_a_cohort_than_its_own_budget_are_found() {
    let cohort = |name: &str, pool: &str, budget: &Value| {
        json!({"name": name, "vendor": "NVIDIA", "owner": "DRA", "nodeSelector": {"matchLabels": {"pool": pool}},
            "rollout": {"maxUnavailable": budget}})
    };
    let spec = |budget: &Value, pool: &str| json!({"cohorts": [cohort("amber", pool, budget)], "rollout": {"maxUnavailable": 9}});
    let fenced = |spec: &Value| fenced_nodes_under(spec, 3, 0);
    assert_eq!(fenced(&spec(&json!(3), "quinces")), Vec::<String>::new());
    assert_eq!(
        fenced(&spec(&json!(2), "quinces")),
        ["I5 over a cohort's budget"]
    );
    // Four are owned: a quarter of them is one. (At the second fence the former spec, without the cohort, still counts.)
    let found = fenced(&spec(&json!("25%"), "quinces"));
    assert_eq!(found, ["I5 over a cohort's budget"]);
    // Nodes of other cohorts take no place in this one.
    assert_eq!(fenced(&spec(&json!(1), "medlars")), Vec::<String>::new());
}

#[test]
fn stuck_nodes_leave_the_window_up_to_the_budget_and_hold_places_beyond() {
    assert_eq!(fenced_nodes(&json!(1), 1, 1), Vec::<String>::new());
    assert_eq!(fenced_nodes(&json!(1), 1, 2), ["I5 over budget"]);
    assert_eq!(fenced_nodes(&json!(2), 2, 2), Vec::<String>::new());
}

#[test]
fn a_status_that_says_ready_about_what_is_not_advertised_is_found() {
    let mut script = Script::held();
    script.ready(true);
    script.node.allocatable.insert("nvidia.com/gpu".into(), 0);
    script.see_node();
    let told = |seconds: usize, script: &mut Script| {
        for _ in 0..seconds {
            script.truth(|_| ());
        }
    };
    // It may lag behind for a moment.
    told(2, &mut script);
    script.ready(false);
    told(9, &mut script);
    script.node.allocatable.insert("nvidia.com/gpu".into(), 4);
    script.see_node();
    script.ready(true);
    assert_eq!(script.found(), Vec::<String>::new());

    let mut script = Script::held();
    script.ready(true);
    script.node.allocatable.insert("nvidia.com/gpu".into(), 0);
    script.see_node();
    told(9, &mut script);
    assert_eq!(script.found(), ["I6 Ready without an advertisement"]);
}

#[test]
fn a_status_that_says_ready_about_a_part_of_what_must_be_advertised_is_found() {
    let amber = |nvidia: &Value| {
        json!({"cohorts": [{"name": "amber", "vendor": "NVIDIA", "owner": "DevicePlugin",
            "nodeSelector": {"matchLabels": {"pool": "quinces"}}, "nvidia": nvidia}]})
    };
    let with = |nvidia: &Value, gpus: u64| {
        let mut script = Script::held();
        script.cluster_of(&amber(nvidia), &["freehold.dev/teardown"]);
        script.ready(true);
        script
            .node
            .allocatable
            .insert("nvidia.com/gpu".into(), gpus);
        script.see_node();
        for _ in 0..9 {
            script.truth(|_| ());
        }
        script.found()
    };
    // The agent reports four devices.
    let plain = json!({});
    assert_eq!(with(&plain, 4), Vec::<String>::new());
    for wrong in [3, 8, 0] {
        assert_eq!(
            with(&plain, wrong),
            ["I6 Ready without an advertisement"],
            "{wrong}"
        );
    }
    // Shared devices are advertised under other names and counts: something has to be there.
    let shared = json!({"devicePlugin": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 2}]}}});
    assert_eq!(with(&shared, 8), Vec::<String>::new());
    assert_eq!(with(&shared, 0), ["I6 Ready without an advertisement"]);
}

#[test]
fn a_status_that_says_ready_without_a_report_is_found() {
    let mut script = Script::held();
    script.record["status"]["report"] = Value::Null;
    script.ready(true);
    assert_eq!(script.found(), ["I6 Ready without a report"]);
}
