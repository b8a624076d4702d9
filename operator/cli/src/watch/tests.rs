use freehold_core::blocker::Reason;
use freehold_core::tenure::Step;
use freehold_core::vendor::Owner;
use serde_json::{Value, json};

use super::frame::Frame;
use super::*;
use crate::fleet::places;
use crate::testing::{at, cluster, node, observed};

const PLUGIN: Option<Owner> = Some(Owner::DevicePlugin);

fn held(name: &str) -> freehold_api::AcceleratorNode {
    node(name, "green-plugin", PLUGIN, Step::Held, None, 900)
}

fn draining(name: &str) -> freehold_api::AcceleratorNode {
    node(
        name,
        "blue-dra",
        PLUGIN,
        Step::Drain,
        Some((Reason::ConsumersRemain, "Pod ml/fit-0 uses the devices")),
        60,
    )
}

fn vacating(name: &str) -> freehold_api::AcceleratorNode {
    node(name, "blue-dra", None, Step::Vacate, None, 5)
}

fn blocked(name: &str) -> freehold_api::AcceleratorNode {
    let message = format!("Node {name}: no driver");
    node(
        name,
        "blue-dra",
        None,
        Step::Hold,
        Some((Reason::DriverMissing, &message)),
        50,
    )
}

fn fleet(records: &[freehold_api::AcceleratorNode]) -> Fleet {
    Fleet {
        cluster: cluster(&observed()),
        places: places(records),
        controller: Controller::Alive,
        gone: false,
    }
}

fn how_it_ends(fleet: &Fleet, patient: bool) -> Option<Exit> {
    ended(fleet, &Verdict::new(fleet, at(0)), patient)
}

#[test]
fn it_ends_when_all_is_ready_or_only_people_can_help() {
    assert_eq!(how_it_ends(&fleet(&[held("w1")]), false), Some(Exit::Fine));
    assert_eq!(
        how_it_ends(&fleet(&[held("w1"), blocked("w2")]), false),
        Some(Exit::Findings)
    );
}

#[test]
fn it_goes_on_while_anything_moves_or_waits() {
    assert_eq!(
        how_it_ends(&fleet(&[held("w1"), vacating("w2")]), false),
        None
    );
    assert_eq!(
        how_it_ends(&fleet(&[blocked("w1"), vacating("w2")]), false),
        None
    );
    assert_eq!(
        how_it_ends(&fleet(&[blocked("w1"), draining("w2")]), false),
        None
    );
    assert_eq!(how_it_ends(&fleet(&[draining("w2")]), false), None);
}

#[test]
fn patience_ends_a_wait_but_not_a_move() {
    assert_eq!(
        how_it_ends(&fleet(&[held("w1"), draining("w2")]), true),
        Some(Exit::Waiting)
    );
    assert_eq!(
        how_it_ends(&fleet(&[vacating("w1"), draining("w2")]), true),
        None
    );
    let mut abandoned = fleet(&[vacating("w1")]);
    abandoned.controller = Controller::Absent;
    assert_eq!(
        how_it_ends(&abandoned, true),
        Some(Exit::Undetermined),
        "without a controller nothing moves"
    );
}

#[test]
fn an_edit_that_nobody_looked_at_is_not_the_end() {
    let mut fleet = fleet(&[held("w1")]);
    fleet.cluster.metadata.generation = Some(5);
    assert_eq!(how_it_ends(&fleet, false), None);
}

#[test]
fn a_teardown_that_is_over_is_the_end() {
    let mut fleet = fleet(&[]);
    fleet.gone = true;
    assert_eq!(how_it_ends(&fleet, false), Some(Exit::Fine));
}

#[test]
fn a_frame_fits_its_terminal_with_trouble_on_top() {
    let mut records: Vec<_> = (1..=9).map(|n| vacating(&format!("w{n}"))).collect();
    records.extend([held("w20"), held("w21"), blocked("w30"), draining("w31")]);
    let frame = Frame::new(&fleet(&records), at(0), 10);
    assert_eq!(
        (frame.cohorts.len(), frame.details.len(), frame.more),
        (2, 5, 6),
        "{frame:?}"
    );
    assert!(frame.cohorts.len() + frame.details.len() + 3 <= 10);
    assert_eq!(
        frame.details[0],
        (
            Health::Blocked,
            "✗ w30  Hold  50s  none  DriverMissing (FH201): no driver".to_owned()
        )
    );
    assert!(
        frame.details[1]
            .1
            .starts_with("… w31  Drain  60s  DevicePlugin  ConsumersRemain"),
        "{frame:?}"
    );
    let blue = &frame.cohorts[1];
    assert_eq!(
        (blue.name.as_str(), blue.done, blue.all),
        ("blue-dra", 0, 11)
    );
    assert_eq!(blue.text, "0/11 DRA, 9 moving, 1 waiting, 1 blocked");
    let low = Frame::new(&fleet(&records), at(0), 2);
    assert_eq!((low.details.len(), low.more), (3, 8));
}

#[test]
fn lines_tell_each_change_once() {
    let style = Style { colour: false };
    let mut lines = Lines::new(Format::Text, style);
    let mut tell = |records: &[freehold_api::AcceleratorNode]| {
        let fleet = fleet(records);
        lines
            .changes(&fleet, &Verdict::new(&fleet, at(0)), at(0))
            .expect("text")
    };
    let first = tell(&[held("w1"), vacating("w2")]);
    insta::assert_snapshot!(first, @r"
    2027-01-15T08:00:00Z ✓ w1 NVIDIA (green-plugin): Held under DevicePlugin
    2027-01-15T08:00:00Z → w2 NVIDIA (blue-dra): Vacate
    2027-01-15T08:00:00Z Under way: 1 moving, 1 of 2 nodes ready.
    ");
    assert_eq!(tell(&[held("w1"), vacating("w2")]), "", "nothing changed");
    let done = node("w2", "blue-dra", Some(Owner::Dra), Step::Held, None, 0);
    let second = tell(&[held("w1"), done]);
    assert!(
        second.contains("w2 NVIDIA (blue-dra): Held under DRA")
            && second.contains("Ready: all 2 nodes"),
        "{second}"
    );
    assert!(!second.contains("w1"), "{second}");
    assert!(tell(&[held("w1")]).contains("w2 NVIDIA: gone"));
}

#[test]
fn for_programs_each_change_is_a_line_of_json() {
    let mut lines = Lines::new(Format::Json, Style { colour: true });
    let fleet = fleet(&[held("w1")]);
    let text = lines
        .changes(&fleet, &Verdict::new(&fleet, at(0)), at(0))
        .expect("JSON");
    let entries: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(
        entries
            .iter()
            .map(|entry| &entry["kind"])
            .collect::<Vec<_>>(),
        [&json!("Change"), &json!("Verdict")]
    );
    assert_eq!(
        (&entries[0]["node"], &entries[0]["step"]),
        (&json!("w1"), &json!("Held"))
    );
    assert_eq!(entries[1]["verdict"]["exit"], "Fine");
}
