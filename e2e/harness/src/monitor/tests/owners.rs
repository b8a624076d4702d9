//! I1 and I2: who hands out devices, and how an owner loses a node.

use super::*;

#[test]
fn a_whole_handover_by_the_rules_finds_nothing() {
    let mut script = Script::held();
    script.up_to_attested();
    script.revoke();
    script.truth(|truth| truth.operands.clear());
    script.node.allocatable.insert("nvidia.com/gpu".into(), 0);
    script.see_node();
    script.term(5);
    script.attest(5);
    script.term(6);
    script.attest(6);
    script.own("dra", "violet");
    script.see_node();
    script.truth(|truth| {
        truth.operands = BTreeSet::from([(Vendor::Nvidia, Owner::Dra, NEW_POD.into())]);
    });
    script.slices(4);
    script.fence(None);
    script.see_node();
    script.ready(true);
    assert_eq!(script.found(), Vec::<String>::new());
}

#[test]
fn two_running_operands_are_found() {
    let mut script = Script::held();
    script.truth(|truth| {
        truth
            .operands
            .insert((Vendor::Nvidia, Owner::Dra, NEW_POD.into()));
    });
    assert_eq!(script.found(), ["I1 two operands run"]);
}

#[test]
fn operands_of_two_vendors_are_no_violation() {
    let mut script = Script::held();
    script.truth(|truth| {
        truth
            .operands
            .insert((Vendor::Neuron, Owner::Dra, NEW_POD.into()));
    });
    assert_eq!(script.found(), Vec::<String>::new());
}

#[test]
fn devices_advertised_in_both_ways_are_found() {
    let mut script = Script::held();
    script.slices(4);
    assert_eq!(script.found(), ["I1 advertised twice"]);
}

#[test]
fn a_device_handed_out_by_both_is_found() {
    let mut script = Script::held();
    script.truth(|truth| {
        truth.given.insert((Vendor::Nvidia, "uid-of-a-pod".into()));
        truth
            .claims
            .insert((Vendor::Nvidia, "uid-of-a-claim".into()));
    });
    assert_eq!(script.found(), ["I1 handed out by both"]);
}

#[test]
fn our_operand_started_beside_a_stranger_is_found_and_a_stranger_who_comes_later_is_not_our_doing()
{
    let mut script = Script::held();
    script.truth(|truth| {
        truth.strangers.insert(Vendor::Nvidia);
    });
    script.truth(|truth| truth.operands.clear());
    script.truth(|truth| {
        truth
            .operands
            .insert((Vendor::Nvidia, Owner::DevicePlugin, NEW_POD.into()));
    });
    assert_eq!(script.found(), ["I1 started beside a stranger"]);
}

#[test]
fn an_operand_deselected_without_a_fence_is_found() {
    let mut script = Script::held();
    script.revoke();
    assert_eq!(script.found(), ["I2 deselected without a fence"]);
}

#[test]
fn labels_that_somebody_else_moves_are_not_our_doing() {
    let mut script = Script::held();
    script.own("their-operator", "amber");
    script.see_node();
    script.disown();
    script.see_node();
    assert_eq!(script.found(), Vec::<String>::new());

    let mut script = Script::held();
    let label = "f:metadata/f:labels/f:freehold.node-restriction.kubernetes.io/nvidia-owner";
    script.node.controller_fields.insert(label.into());
    script.own("dra", "amber");
    script.see_node();
    assert_eq!(script.found(), ["I2 deselected without a fence"]);
}

#[test]
fn an_operand_deselected_on_an_attestation_of_another_term_boot_or_node_is_found() {
    type Spoil = fn(&mut Script);
    let spoils: [Spoil; 4] = [
        |script| script.attest(3),
        |script| {
            script.node.boot_id = "boot-of-wednesday".into();
            script.see_node();
        },
        |script| {
            script.record["status"]["report"]["nodeUID"] = json!("uid-of-its-predecessor");
            script.see_record();
        },
        |script| {
            script.record["status"]["report"]["nvidia"]["inUse"]["dra"] = json!(1);
            script.see_record();
        },
    ];
    for spoil in spoils {
        let mut script = Script::held();
        script.up_to_attested();
        spoil(&mut script);
        script.revoke();
        assert_eq!(script.found(), ["I2 deselected without an attestation"]);
    }
}

#[test]
fn a_term_that_ran_ahead_of_the_fence_is_found() {
    let mut script = Script::held();
    script.up_to_attested();
    script.term(5);
    script.attest(5);
    script.revoke();
    assert_eq!(
        script.found(),
        ["I2 deselected at another term than the fence's"]
    );
}

#[test]
fn an_operand_deselected_over_a_pod_or_a_claim_is_found() {
    let pod = PodSeen {
        namespace: "ml".into(),
        name: "training".into(),
        node: Some(NODE.into()),
        asks_plugin: BTreeSet::from(["nvidia.com/gpu".into()]),
        ..PodSeen::default()
    };
    let claim = ClaimSeen {
        namespace: "ml".into(),
        name: "training".into(),
        allocated: BTreeSet::from([("gpu.nvidia.com".into(), NODE.into())]),
        ..ClaimSeen::default()
    };
    for consumer in [Object::Pod(pod.clone()), Object::Claim(claim)] {
        let mut script = Script::held();
        script.see(consumer.clone(), false);
        script.up_to_attested();
        script.revoke();
        assert_eq!(script.found(), ["I2 deselected over a consumer"]);
        // Gone before the attestation, it is no longer in the way.
        let mut script = Script::held();
        script.see(consumer.clone(), false);
        script.see(consumer, true);
        script.up_to_attested();
        script.revoke();
        assert_eq!(script.found(), Vec::<String>::new());
    }
    // One that ended holds nothing.
    let mut script = Script::held();
    script.see(Object::Pod(PodSeen { ended: true, ..pod }), false);
    script.up_to_attested();
    script.revoke();
    assert_eq!(script.found(), Vec::<String>::new());
}

#[test]
fn an_attestation_that_the_node_itself_belies_is_found() {
    let mut script = Script::held();
    script.truth(|truth| {
        truth
            .claims
            .insert((Vendor::Nvidia, "uid-of-a-claim".into()));
    });
    script.up_to_attested();
    script.revoke();
    assert_eq!(script.found(), ["I2 deselected while in use on the node"]);
}

#[test]
fn a_daemon_set_deleted_under_its_nodes_is_found() {
    let mut script = Script::held();
    script.kept("DaemonSet", Some(CLUSTER_UID), false);
    script.kept("DaemonSet", Some(CLUSTER_UID), true);
    assert_eq!(script.found(), ["I2 DaemonSet deleted under its nodes"]);
}

#[test]
fn a_current_operand_deleted_by_the_controller_is_found_and_an_outdated_one_may_go() {
    for (template, expected) in [
        (
            "template-1",
            vec!["I2 operand deleted though it was current"],
        ),
        ("template-0", vec![]),
    ] {
        let labels = [
            ("freehold.dev/component", "operand"),
            ("freehold.dev/vendor", "nvidia"),
            ("freehold.dev/owner", "device-plugin"),
            ("freehold.dev/cohort", "amber"),
        ];
        let pod = PodSeen {
            namespace: "freehold-operands".into(),
            name: "amber-x".into(),
            node: Some(NODE.into()),
            labels: labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            template: Some(template.into()),
            ..PodSeen::default()
        };
        let mut script = Script::held();
        script.kept("DaemonSet", Some(CLUSTER_UID), false);
        script.see(Object::Pod(pod.clone()), false);
        script.see(Object::Pod(pod), true);
        script.wrote(false, "delete", "pods", "amber-x");
        assert_eq!(script.found(), expected);
    }
}
