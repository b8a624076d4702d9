use freehold_core::tenure::Step;
use freehold_core::vendor::{Owner, Vendor};
use serde_json::json;

use super::*;
use crate::plan::board::OnBoard;
use crate::plan::moves::Class;
use crate::plan::order::Pace;
use crate::testing::{NOW, node as record, plain};

/// What is wanted: `green-plugin` on p=g, `blue-dra` on p=b.
fn wanted(rollout: &serde_json::Value) -> (AcceleratorCluster, Plan) {
    let cluster: AcceleratorCluster = serde_json::from_value(json!({
        "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorCluster", "metadata": {"name": "cluster"},
        "spec": {"rollout": rollout, "cohorts": [
            {"name": "green-plugin", "vendor": "NVIDIA", "owner": "DevicePlugin", "nodeSelector": {"matchLabels": {"p": "g"}}},
            {"name": "blue-dra", "vendor": "NVIDIA", "owner": "DRA", "nodeSelector": {"matchLabels": {"p": "b"}}},
        ]}}))
    .expect("a cluster");
    let plan = Plan::parse(&cluster.spec).expect("a valid spec");
    (cluster, plan)
}

/// A node with a pool, and the owner and cohort that its labels name.
fn node(name: &str, pool: &str, owned: Option<(Owner, &str)>) -> NodeView {
    let mut node = NodeView {
        name: name.into(),
        uid: format!("uid-{name}"),
        boot_id: "boot".into(),
        kubelet_version: "v1.34.2".into(),
        ready: true,
        ..NodeView::default()
    };
    node.labels.insert("p".into(), pool.into());
    if let Some((owner, cohort)) = owned {
        node.labels
            .insert(names::owner_label(Vendor::Nvidia), owner.word().into());
        node.labels
            .insert(names::cohort_label(Vendor::Nvidia), cohort.into());
    }
    node
}

/// A record whose agent reports eight GPUs, or none.
fn reported(name: &str, cohort: &str, owner: Option<Owner>, devices: i32) -> AcceleratorNode {
    let mut record = record(name, cohort, owner, Step::Held, None, 90_000);
    let part = json!({"observedTerm": 2, "pciDevices": devices, "inventory": {"driverVersion": "580.65.06", "devices": devices}, "inUse": {"devicePlugin": 0, "dra": 0}});
    let report = json!({"nodeUID": format!("uid-{name}"), "bootID": "boot", "agentVersion": "0", "nvidia": part});
    record.status.as_mut().expect("a status").report =
        Some(serde_json::from_value(report).expect("a report"));
    record
}

fn world(nodes: Vec<NodeView>, records: Vec<AcceleratorNode>) -> World {
    World {
        nodes,
        records: records
            .into_iter()
            .map(|record| (record.name_any(), record))
            .collect(),
        pods: BTreeMap::new(),
        view: ClusterView {
            server_version: "v1.36.3".into(),
            dra_api: true,
            ..ClusterView::default()
        },
        config_files: BTreeMap::new(),
        daemon_sets: Vec::new(),
    }
}

/// Nodes of every kind: held, to be handed over, new, without hardware, to be released.
fn mixed() -> World {
    let plugin = Some((Owner::DevicePlugin, "green-plugin"));
    let mut nodes = vec![node("w1", "g", plugin)];
    let mut records = vec![reported("w1", "green-plugin", Some(Owner::DevicePlugin), 8)];
    for n in 2..5 {
        // Their pool label was changed from g to b.
        let name = format!("w{n}");
        nodes.push(node(&name, "b", plugin));
        records.push(reported(
            &name,
            "green-plugin",
            Some(Owner::DevicePlugin),
            8,
        ));
    }
    nodes.extend([
        node("w5", "b", None),
        node("w6", "g", None),
        node("w7", "none", plugin),
        node("w8", "none", None),
    ]);
    records.push(reported("w6", "green-plugin", None, 0));
    records.push(reported("w7", "green-plugin", Some(Owner::DevicePlugin), 8));
    world(nodes, records)
}

fn planned(world: &World, rollout: &serde_json::Value) -> Answered {
    let (_, plan) = wanted(rollout);
    let rendered = freehold_render::render(&plan, &world.settings(None));
    let (mut moves, stays, settled) = moves::all(world, &rendered.intent, false);
    for move_ in moves.iter_mut().filter(|move_| move_.class.fences()) {
        let consumer = Consumer {
            vendor: Vendor::Nvidia,
            how: "pods",
            name: "mon/exporter-1".into(),
            daemon_set: Some("mon/exporter".into()),
            ending: false,
        };
        move_.consumers = Some(if move_.node == "w2" {
            vec![consumer]
        } else {
            Vec::new()
        });
    }
    let pace = Pace {
        intent: &rendered.intent,
        generation: 2,
        confirmed: None,
        tearing_down: false,
        now_s: NOW,
    };
    order::assign(&mut moves, world, &stays, &settled, &pace);
    Answered::new(
        &rendered,
        moves,
        stays,
        settled.len(),
        Objects::default(),
        Vec::new(),
    )
}

#[test]
fn a_plan_tells_class_order_disruption_and_what_stays() {
    let plan = planned(&mixed(), &json!({"maxUnavailable": 2}));
    insta::assert_snapshot!(plan.text(plain(false)));
}

#[test]
fn nobody_waits_for_more_than_the_budget_lets_through() {
    let plan = planned(
        &mixed(),
        &json!({"maxUnavailable": 1, "canary": {"nodes": 0}}),
    );
    let mut waves: BTreeMap<usize, usize> = BTreeMap::new();
    for move_ in plan.moves.iter().filter(|move_| move_.class.fences()) {
        *waves.entry(move_.wave.expect("a place")).or_default() += 1;
    }
    assert_eq!(
        waves,
        BTreeMap::from([(1, 1), (2, 1), (3, 1), (4, 1)]),
        "{:?}",
        plan.moves
    );
}

#[test]
fn while_paused_only_first_owners_go() {
    let plan = planned(&mixed(), &json!({"paused": true}));
    for move_ in &plan.moves {
        let paused = move_
            .blockers
            .iter()
            .any(|blocker| blocker.reason == freehold_core::blocker::Reason::Paused);
        assert_eq!(paused, move_.class != Class::FirstOwner, "{move_:?}");
        assert_eq!(move_.wave.is_none(), paused, "{move_:?}");
    }
}

#[test]
fn a_fleet_as_wanted_has_no_changes() {
    let plugin = Some((Owner::DevicePlugin, "green-plugin"));
    let plan = planned(
        &world(
            vec![node("w1", "g", plugin)],
            vec![reported("w1", "green-plugin", Some(Owner::DevicePlugin), 8)],
        ),
        &json!({}),
    );
    assert!(!plan.changes());
    assert_eq!(plan.sentence, "No node changes; 1 as wanted.");
}

#[test]
fn a_running_operand_of_another_template_is_a_restart_and_of_another_shape_a_reshape() {
    let plugin = Some((Owner::DevicePlugin, "green-plugin"));
    let (_, plan) = wanted(&json!({}));
    let base = || {
        world(
            vec![node("w1", "g", plugin)],
            vec![reported("w1", "green-plugin", Some(Owner::DevicePlugin), 8)],
        )
    };
    let rendered = freehold_render::render(&plan, &base().settings(None));
    let cohort = &rendered.intent.cohorts["green-plugin"];
    let class = |shape: &str, template: &str| {
        let mut world = base();
        let operand = seen::Operand {
            vendor: Vendor::Nvidia,
            owner: Owner::DevicePlugin,
            cohort: "green-plugin".into(),
            shape: shape.into(),
            template: template.into(),
        };
        let pod = OurPod {
            name: "x".into(),
            operand: Some(operand),
            ready: true,
            ending: false,
            state: "Running".into(),
        };
        world.pods.insert("w1".into(), vec![pod]);
        moves::all(&world, &rendered.intent, false)
            .0
            .first()
            .map(|move_| move_.class)
    };
    assert_eq!(class(&cohort.shape, &cohort.template), None);
    assert_eq!(class(&cohort.shape, "other"), Some(Class::Restart));
    assert_eq!(class("other", "other"), Some(Class::Reshape));
}

#[test]
fn deleting_the_resource_releases_every_owned_node() {
    let (_, plan) = wanted(&json!({}));
    let (moves, stays, _) = moves::all(&mixed(), &plan.intent, true);
    assert!(stays.is_empty());
    let released: Vec<&str> = moves
        .iter()
        .filter(|move_| move_.class == Class::Release)
        .map(|move_| move_.node.as_str())
        .collect();
    assert_eq!(
        (released, moves.len()),
        (vec!["w1", "w2", "w3", "w4", "w7"], 5)
    );
}

/// Three cohorts with layouts: one that fits, one that does not, one that the strategy cannot advertise.
fn with_layouts() -> Plan {
    let cluster: AcceleratorCluster = serde_json::from_value(json!({
        "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorCluster", "metadata": {"name": "cluster"},
        "spec": {"cohorts": [
            {"name": "olive-mixed", "vendor": "NVIDIA", "owner": "DevicePlugin", "nodeSelector": {"matchLabels": {"p": "o"}},
             "nvidia": {"devicePlugin": {"migStrategy": "Mixed"}, "mig": {"layouts": [
                {"gpus": "All", "instances": {"4g.1/2": 1, "1g.1/8": 3}}, {"gpus": "0", "instances": {"3g.1/2": 2}}]}}},
            {"name": "rust-dra", "vendor": "NVIDIA", "owner": "DRA", "nodeSelector": {"matchLabels": {"p": "r"}},
             "nvidia": {"mig": {"layouts": [{"gpus": "All", "instances": {"3g.40gb": 2, "1g.10gb": 1}}]}}},
            {"name": "teal-single", "vendor": "NVIDIA", "owner": "DevicePlugin", "nodeSelector": {"matchLabels": {"p": "t"}},
             "nvidia": {"devicePlugin": {"migStrategy": "Single"}, "mig": {"layouts": [{"gpus": "1", "instances": {"1g.1/8": 7}}]}}},
        ]}}))
    .expect("a cluster");
    Plan::parse(&cluster.spec).expect("a valid spec")
}

/// A node of H100s that carry seven small instances each, the second of three with none.
fn with_boards(name: &str, cohort: &str, small: &str) -> AcceleratorNode {
    let mut record = reported(name, cohort, None, 3);
    let board = freehold_core::catalogue::published_board("H100-80").expect("H100-80");
    let report = record
        .status
        .as_mut()
        .and_then(|status| status.report.as_mut());
    let part = report
        .and_then(|report| report.nvidia.as_mut())
        .expect("a part");
    part.layout.boards = vec![freehold_core::geometry::Board {
        gpus: vec![0, 1, 2],
        profiles: board.profiles(),
    }];
    let seven = vec![freehold_core::report::MigProfileCount {
        profile: small.into(),
        count: 7,
    }];
    part.layout.mig = [("0".to_owned(), seven.clone()), ("2".to_owned(), seven)].into();
    part.layout.shaping = Some(freehold_core::report::Shaping {
        outcome: freehold_core::report::ShapingOutcome::Idle,
        message: None,
    });
    record
}

#[test]
fn a_layout_is_drawn_once_for_the_nodes_and_gpus_that_are_alike() {
    let plan = with_layouts();
    let names = ["n1", "n2", "n3", "n4", "n5"];
    let mut records: Vec<AcceleratorNode> = names
        .iter()
        .map(|name| with_boards(name, "olive-mixed", "1g.10gb"))
        .collect();
    // This one's shaper has not named its instances.
    records[4] = with_boards("n5", "olive-mixed", "unknown");
    let nodes = names.iter().map(|name| node(name, "o", None)).collect();
    let world = world(nodes, records);
    let (moves, _, _) = moves::all(&world, &plan.intent, false);
    let drawn = drawn::all(&world, &plan.intent, &moves);
    insta::assert_snapshot!(drawn::text(&drawn, plain(false)).join("\n"));
}

#[test]
fn without_a_cluster_a_layout_is_drawn_on_a_published_board_and_a_wrong_one_is_proven_wrong() {
    let on_board = OnBoard::new(&with_layouts(), "h100-80", 2).expect("a board");
    assert_eq!(on_board.exit(), Exit::Findings);
    insta::assert_snapshot!(on_board.text(plain(false)));
    let (_, without) = wanted(&json!({}));
    let nothing = OnBoard::new(&without, "A30", 4).expect("a board");
    assert_eq!(nothing.exit(), Exit::Fine);
    assert!(
        nothing
            .text(plain(false))
            .starts_with("No cohort sets nvidia.mig.layouts.")
    );
}

#[test]
fn a_board_without_a_table_is_answered_with_those_that_have_one() {
    let wrong = OnBoard::new(&with_layouts(), "H1000", 8).expect_err("no such board");
    assert_eq!(wrong.exit, Exit::Usage);
    for known in [
        "H1000",
        "A100-40",
        "RTX-PRO-6000",
        "H100 NVL",
        "PCI 2330, 2331",
    ] {
        assert!(wrong.message.contains(known), "{}", wrong.message);
    }
}

/// The lines of the README's fenced block that holds this text.
fn readme_block(holding: &str) -> Vec<String> {
    let readme = include_str!("../../../../README.md");
    let blocks = readme.split("\n```").skip(1).step_by(2);
    let block = blocks
        .filter(|block| block.contains(holding))
        .collect::<Vec<_>>();
    let [block] = block.as_slice() else {
        panic!("one block of the README holds {holding:?}");
    };
    block.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn the_layout_and_its_drawing_in_the_readme_are_what_the_command_prints() {
    let resource = readme_block("name: h100-mig").join("\n");
    let cluster: AcceleratorCluster = serde_saphyr::from_str(&resource).expect("a resource");
    let plan = Plan::parse(&cluster.spec).expect("a valid spec");
    let shown = readme_block("--board H100-80 --gpus 4");
    let printed = OnBoard::new(&plan, "H100-80", 4)
        .expect("a board")
        .text(plain(false));
    // Every part between two ellipses is printed, in this order.
    let mut rest = printed.as_str();
    let parts = shown[1..]
        .split(|line| line == "…")
        .filter(|part| !part.is_empty());
    assert_eq!(parts.clone().count(), 3, "{shown:?}");
    for part in parts {
        let part = part.join("\n") + "\n";
        let Some((_, after)) = rest.split_once(&part) else {
            panic!("the README shows\n{part}\nwhich is not in\n{printed}");
        };
        rest = after;
    }
}
