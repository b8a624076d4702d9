use freehold_api::AcceleratorNode;
use freehold_core::blocker::Reason;
use freehold_core::tenure::Step;
use serde_json::json;

use super::*;
use crate::fleet;
use crate::testing::{at, cluster, node, observed, plain};

fn fleet(cluster: AcceleratorCluster, records: &[AcceleratorNode]) -> Fleet {
    Fleet {
        cluster,
        places: fleet::places(records),
        controller: Controller::Alive,
        gone: false,
    }
}

fn options() -> Options {
    Options {
        selector: None,
        status_selector: Vec::new(),
        grouping: true,
    }
}

fn answer(fleet: &Fleet, options: &Options) -> Status {
    Status::new(fleet, options, at(0))
}

fn mixed() -> Vec<AcceleratorNode> {
    let plugin = Some(Owner::DevicePlugin);
    let mut records: Vec<AcceleratorNode> = (1..=6)
        .map(|n| {
            node(
                &format!("w{n}"),
                "green-plugin",
                plugin,
                Step::Held,
                None,
                9000,
            )
        })
        .collect();
    records.push(node(
        "w20",
        "blue-dra",
        Some(Owner::Dra),
        Step::Held,
        None,
        300,
    ));
    records.push(node(
        "w21",
        "blue-dra",
        plugin,
        Step::Drain,
        Some((
            Reason::ConsumersRemain,
            "Pod ml/fit-0 (UID 7) uses extended resources of NVIDIA on this node",
        )),
        200,
    ));
    records.push(node("w22", "blue-dra", None, Step::Vacate, None, 12));
    for n in 30..35 {
        let message = format!("Node w{n}: 8 NVIDIA devices on the PCI bus and no driver");
        records.push(node(
            &format!("w{n}"),
            "blue-dra",
            None,
            Step::Hold,
            Some((Reason::DriverMissing, &message)),
            4000 + n,
        ));
    }
    records.push(node(
        "w40",
        "green-plugin",
        None,
        Step::Hold,
        Some((
            Reason::NoHardware,
            "Node w40: the agent finds no NVIDIA device on the host",
        )),
        50,
    ));
    records.push(node(
        "w41",
        "green-plugin",
        None,
        Step::Hold,
        Some((
            Reason::ForeignOwner,
            "DaemonSet other/plugin hands out NVIDIA devices on this node",
        )),
        50,
    ));
    records
}

#[test]
fn trouble_comes_first_and_healthy_nodes_take_one_line() {
    let fleet = fleet(cluster(&observed()), &mixed());
    let status = answer(&fleet, &options());
    assert_eq!(status.verdict.exit, Exit::Findings);
    insta::assert_snapshot!(status.text(plain(false)));
}

#[test]
fn wide_names_every_node() {
    let fleet = fleet(cluster(&observed()), &mixed());
    let text = answer(&fleet, &options()).text(plain(true));
    for n in 30..35 {
        assert!(
            text.contains(&format!("w{n} [Hold]")),
            "w{n} is missing:\n{text}"
        );
    }
    assert!(!text.contains("more"), "{text}");
}

#[test]
fn without_grouping_there_is_a_line_for_each_node_and_no_header_when_told_so() {
    let fleet = fleet(cluster(&observed()), &mixed());
    let status = answer(
        &fleet,
        &Options {
            grouping: false,
            status_selector: vec![Health::Waiting, Health::Conflicted],
            ..options()
        },
    );
    let text = status.text(Look {
        no_headers: true,
        ..plain(false)
    });
    insta::assert_snapshot!(text, @r"
    Not ready: 1 claimed by two parties, 5 blocked, 1 waiting, 1 moving, 7 of 15 nodes ready, 1 left alone.

    blue-dra       NVIDIA   DRA            8   1   1   1   1   5   0   0   0
    green-plugin   NVIDIA   DevicePlugin   8   6   6   0   0   0   1   1   0

    w41   NVIDIA   green-plugin   -              Hold    50s     conflicted   ForeignOwner
    w21   NVIDIA   blue-dra       DevicePlugin   Drain   3m20s   waiting      ConsumersRemain
    ");
}

#[test]
fn everything_held_is_ready() {
    let records = [node(
        "w1",
        "green-plugin",
        Some(Owner::DevicePlugin),
        Step::Held,
        None,
        9000,
    )];
    let status = answer(&fleet(cluster(&observed()), &records), &options());
    assert_eq!(
        (status.verdict.exit, status.verdict.notes.len()),
        (Exit::Fine, 0)
    );
    assert_eq!(
        status.verdict.sentence,
        "Ready: the one node is owned and advertises what it should."
    );
}

#[test]
fn what_only_waits_is_neither_fine_nor_a_finding() {
    let records = [
        node(
            "w1",
            "green-plugin",
            Some(Owner::DevicePlugin),
            Step::Held,
            None,
            9000,
        ),
        node(
            "w2",
            "green-plugin",
            Some(Owner::DevicePlugin),
            Step::Drain,
            Some((Reason::ConsumersRemain, "Pod a/b")),
            9,
        ),
    ];
    let status = answer(&fleet(cluster(&observed()), &records), &options());
    assert_eq!(status.verdict.exit, Exit::Waiting);
    assert_eq!(
        status.verdict.sentence,
        "Under way: 1 waiting, 1 of 2 nodes ready."
    );
}

#[test]
fn a_state_that_nobody_keeps_up_to_date_is_not_called_ready() {
    let records = [node(
        "w1",
        "green-plugin",
        Some(Owner::DevicePlugin),
        Step::Held,
        None,
        9000,
    )];
    let mut fleet = fleet(cluster(&observed()), &records);
    for controller in [Controller::Absent, Controller::Silent { since: at(900) }] {
        fleet.controller = controller;
        let status = answer(&fleet, &options());
        assert_eq!(status.verdict.exit, Exit::Undetermined);
        assert!(
            status
                .verdict
                .notes
                .iter()
                .any(|note| note.contains("out of date")),
            "{:?}",
            status.verdict.notes
        );
    }
    fleet.controller = Controller::Unreadable {
        why: "forbidden: no".into(),
    };
    let status = answer(&fleet, &options());
    assert_eq!(status.verdict.exit, Exit::Fine);
    assert!(
        status
            .verdict
            .notes
            .iter()
            .any(|note| note.contains("forbidden"))
    );
}

#[test]
fn an_edit_that_was_not_looked_at_yet_is_a_wait_and_no_report_at_all_is_unknown() {
    let records = [node(
        "w1",
        "green-plugin",
        Some(Owner::DevicePlugin),
        Step::Held,
        None,
        9000,
    )];
    let mut old = observed();
    old["observedGeneration"] = json!(3);
    assert_eq!(
        answer(&fleet(cluster(&old), &records), &options())
            .verdict
            .exit,
        Exit::Waiting
    );
    assert_eq!(
        answer(&fleet(cluster(&json!(null)), &records), &options())
            .verdict
            .exit,
        Exit::Undetermined
    );
}

#[test]
fn a_node_the_controller_said_nothing_about_is_unknown() {
    let mut silent = node("w1", "green-plugin", None, Step::Held, None, 0);
    silent.status = None;
    let status = answer(&fleet(cluster(&observed()), &[silent]), &options());
    assert_eq!(status.verdict.exit, Exit::Undetermined);
}

#[test]
fn the_clusters_own_condition_is_believed_over_its_nodes() {
    let records = [node(
        "w1",
        "green-plugin",
        Some(Owner::DevicePlugin),
        Step::Held,
        None,
        9000,
    )];
    let with = |kind: &str, truth: &str| {
        let mut status = observed();
        status["conditions"] = json!([{"type": kind, "status": truth, "reason": "Because", "message": "a message", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        answer(&fleet(cluster(&status), &records), &options()).verdict
    };
    assert_eq!(with("Ready", "True").exit, Exit::Fine);
    assert_eq!(with("Ready", "False").exit, Exit::Waiting);
    let invalid = with("SpecValid", "False");
    assert_eq!(invalid.exit, Exit::Findings);
    assert!(invalid.notes.iter().any(|note| note.contains("a message")));
}

#[test]
fn a_blocker_of_no_node_in_particular_counts() {
    let records = [node(
        "w1",
        "green-plugin",
        Some(Owner::DevicePlugin),
        Step::Held,
        None,
        9000,
    )];
    let mut status = observed();
    status["blockers"] = json!([{"reason": "NameTaken", "message": "DeviceClass gpu.nvidia.com is not ours", "nextStep": "Rename it.",
        "since": "2026-01-01T00:00:00Z", "count": 1}]);
    let status = answer(&fleet(cluster(&status), &records), &options());
    assert_eq!(status.verdict.exit, Exit::Findings);
    let text = status.text(plain(false));
    assert!(
        text.contains("NameTaken (FH306)")
            && text.contains("DeviceClass gpu.nvidia.com is not ours"),
        "{text}"
    );
}

#[test]
fn json_carries_its_schema_version_and_every_node() {
    let fleet = fleet(cluster(&observed()), &mixed());
    let json = serde_json::to_value(answer(&fleet, &options())).expect("JSON");
    assert_eq!(
        json["nodes"].as_array().map(Vec::len),
        Some(fleet.places.len())
    );
    assert_eq!(json["verdict"]["exit"], "Findings");
    assert_eq!(json["steps"]["Held"], 7);
    assert_eq!(json["owners"]["DevicePlugin"], 7);
    let waiting = json["nodes"]
        .as_array()
        .and_then(|nodes| nodes.iter().find(|node| node["node"] == "w21"))
        .expect("w21");
    assert_eq!(
        (&waiting["id"], &waiting["health"], &waiting["owner"]),
        (&json!("FH402"), &json!("Waiting"), &json!("DevicePlugin"))
    );
}
