//! The library's surface against the fake, which is loaded as the driver's own is.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what fails here fails a test"
)]

use std::path::Path;

use freehold_core::geometry::{Placement, Profile};
use freehold_fake_nvml::state::ModeChange;
use freehold_fake_nvml::{Board, FakeNvml};
use freehold_nvml::{Activation, Code, Error, Mode, Process, Session};

fn machine(boards: &[Board]) -> (tempfile::TempDir, FakeNvml, Session) {
    let root = tempfile::tempdir().unwrap();
    let fake = FakeNvml::install(root.path(), boards).unwrap();
    let session = Session::open(root.path()).unwrap();
    (root, fake, session)
}

fn profile(rows: &[Profile], name: &str) -> Profile {
    rows.iter()
        .find(|profile| profile.name == name)
        .unwrap_or_else(|| panic!("no {name} in {rows:#?}"))
        .clone()
}

fn profiles(session: &Session) -> Vec<Profile> {
    let rows = session.gpu(0).unwrap().rows().unwrap();
    rows.into_iter().map(|row| row.profile).collect()
}

#[test]
fn every_board_s_table_is_read_whole() {
    for board in Board::ALL {
        let (_root, _fake, session) = machine(&[board]);
        let table = board.table();
        let found = profiles(&session);
        assert_eq!(found.len(), table.profiles.len(), "{board:?}");
        for row in &table.profiles {
            let Profile {
                name: _,
                id,
                slices,
                size,
                starts,
                max,
            } = profile(&found, &row.name);
            let starts: Vec<u32> = starts.into_iter().map(u32::from).collect();
            assert_eq!(
                (id, slices.into(), size.into(), starts, max.into()),
                (row.id, row.slices, row.size, row.starts.clone(), row.max),
                "{board:?} {}",
                row.name
            );
        }
    }
}

#[test]
fn drivers_that_know_only_older_structures_give_the_same_table() {
    for board in Board::ALL {
        let (_root, fake, session) = machine(&[board]);
        let newest = profiles(&session);
        for version in [2, 1] {
            fake.change(|state| state.profile_structure = version)
                .unwrap();
            assert_eq!(
                profiles(&session),
                newest,
                "{board:?} with version {version}: names are computed where the driver gives none"
            );
        }
    }
}

#[test]
fn a_profile_that_the_driver_has_no_place_for_hides_neither_the_others_nor_its_instances() {
    for code in [2, 3] {
        let (_root, fake, session) = machine(&[Board::H100]);
        fake.carve(0, &[(9, 4)]).unwrap();
        let gpu = session.gpu(0).unwrap();
        let whole = gpu.rows().unwrap();
        let refused = whole
            .iter()
            .find(|row| row.profile.id == 9)
            .unwrap_or_else(|| panic!("{whole:?}"));
        let before = whole.iter().filter(|row| row.kind < refused.kind).count();
        let call = "nvmlDeviceGetGpuInstancePossiblePlacements_v2";
        // Each profile is asked twice: how many, and which.
        fake.fail(call, 2 * u64::try_from(before).unwrap(), code)
            .unwrap();
        let rest = gpu.rows().unwrap();
        let expected: Vec<_> = whole.iter().filter(|row| *row != refused).collect();
        assert_eq!(rest.iter().collect::<Vec<_>>(), expected);
        let instances = gpu.instances().unwrap();
        assert_eq!(instances.len(), 1);
        assert_eq!(instances[0].profile, 9);

        fake.fail_times(call, 0, 100, code).unwrap();
        let error = gpu.rows().unwrap_err();
        assert!(
            error.is(Code::from_number(code)),
            "a GPU that offers nothing says why: {error}"
        );
    }
}

#[test]
fn gpus_are_told_apart_by_more_than_their_index() {
    let (_root, fake, session) = machine(&[Board::A30, Board::H100]);
    fake.change_gpu(1, |gpu| gpu.minor = 4).unwrap();
    assert_eq!(session.driver_version().unwrap(), "580.95.05");
    assert_eq!(session.gpu_count().unwrap(), 2);
    let second = session.gpu(1).unwrap();
    assert_eq!(second.minor().unwrap(), 4);
    assert_eq!(second.name().unwrap(), "NVIDIA H100 80GB HBM3");
    let uuid = second.uuid().unwrap();
    assert_eq!(session.gpu_by_uuid(&uuid).unwrap().minor().unwrap(), 4);
    assert!(session.gpu_by_uuid("GPU-0").unwrap_err().is(Code::NotFound));
}

#[test]
fn instances_are_made_where_they_are_asked_for_and_unmade() {
    let (root, _fake, session) = machine(&[Board::RtxPro6000]);
    let gpu = session.gpu(0).unwrap();
    let uuid = gpu.uuid().unwrap();
    assert_eq!(gpu.set_mode(true).unwrap(), Activation::Done);
    let gpu = session.gpu_by_uuid(&uuid).unwrap();
    let on = Mode {
        current: true,
        pending: true,
    };
    assert_eq!(gpu.mode().unwrap(), Some(on));

    let at = |start, size| Placement { start, size };
    let two = gpu.create_instance(5, at(6, 6)).unwrap();
    let one = gpu.create_instance(47, at(3, 3)).unwrap();
    assert!(
        gpu.create_instance(14, at(9, 3))
            .unwrap_err()
            .is(Code::InsufficientResources)
    );
    assert!(
        gpu.create_instance(14, at(1, 3))
            .unwrap_err()
            .is(Code::InvalidArgument)
    );
    let mut both = [two, one];
    both.sort_by_key(|instance| instance.id);
    assert_eq!(gpu.instances().unwrap(), both);
    assert_eq!(gpu.compute_instances(two.id).unwrap(), []);

    let compute = gpu.create_whole_compute_instance(two.id).unwrap();
    let found = gpu.compute_instances(two.id).unwrap();
    assert!(
        found.len() == 1 && found[0].id == compute && found[0].whole,
        "{found:?}"
    );
    let access = format!(
        "proc/driver/nvidia/capabilities/gpu0/mig/gi{}/ci{compute}/access",
        two.id
    );
    let access = root.path().join(access);
    assert!(access.is_file(), "procfs follows");

    assert!(
        gpu.destroy_instance(two.id).unwrap_err().is(Code::InUse),
        "its compute instance is there"
    );
    gpu.destroy_compute_instance(two.id, compute).unwrap();
    gpu.destroy_instance(two.id).unwrap();
    assert!(!access.exists());
    let gone = gpu.destroy_instance(two.id).unwrap_err();
    assert!(gone.is(Code::NotFound), "{gone}");
    assert_eq!(gpu.instances().unwrap(), [one]);
}

#[test]
fn a_compute_instance_that_is_a_part_is_told_from_a_whole_one() {
    let (_root, fake, session) = machine(&[Board::H100]);
    fake.carve(0, &[(9, 4)]).unwrap();
    fake.change_gpu(0, |gpu| {
        let compute = &mut gpu.instances[0].compute[0];
        (compute.profile, compute.slices) = (1, 2);
    })
    .unwrap();
    let gpu = session.gpu(0).unwrap();
    let instance = gpu.instances().unwrap()[0];
    let compute = gpu.compute_instances(instance.id).unwrap();
    assert!(compute.len() == 1 && !compute[0].whole, "{compute:?}");
}

#[test]
fn who_uses_a_gpu_is_listed_with_the_instance() {
    let (_root, fake, session) = machine(&[Board::A100x80]);
    fake.carve(0, &[(19, 0), (19, 5)]).unwrap();
    // More than fit at the first try.
    for pid in 1..=300 {
        fake.occupy(0, 8, pid).unwrap();
    }
    let processes = session.gpu(0).unwrap().processes().unwrap();
    assert_eq!(processes.len(), 300);
    assert_eq!(
        processes[299],
        Process {
            pid: 300,
            instance: Some(8)
        }
    );
}

#[test]
fn an_activation_that_fails_is_not_a_success() {
    let (_root, fake, session) = machine(&[Board::A100x40]);
    let ask = || session.gpu(0).unwrap().set_mode(true).unwrap();
    for (change, expected) in [
        (ModeChange::NeedsReboot, Activation::ResetRequired),
        (ModeChange::NotSupported, Activation::NotSupported),
        (ModeChange::Waits, Activation::Done),
    ] {
        fake.change_gpu(0, |gpu| gpu.mode_change = change).unwrap();
        assert_eq!(ask(), expected);
        let mode = session.gpu(0).unwrap().mode().unwrap().unwrap();
        assert!(!mode.current && mode.pending, "{change:?}: {mode:?}");
    }
    fake.change_gpu(0, |gpu| gpu.unseen_client = true).unwrap();
    assert_eq!(ask(), Activation::InUse);
}

#[test]
fn refusals_say_which_call_and_which_code() {
    let (_root, fake, session) = machine(&[Board::H100]);
    fake.change(|state| state.privileged = false).unwrap();
    let refused = session.gpu(0).unwrap().set_mode(true).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "nvmlDeviceSetMigMode answered NO_PERMISSION (4)"
    );
    fake.fail("nvmlDeviceGetMigMode", 1, 999).unwrap();
    let gpu = session.gpu(0).unwrap();
    assert!(gpu.mode().is_ok());
    assert!(gpu.mode().unwrap_err().is(Code::Unknown));
    assert!(gpu.mode().is_ok());
    fake.change_gpu(0, |gpu| gpu.lost = true).unwrap();
    assert!(gpu.mode().unwrap_err().is(Code::GpuIsLost));
    assert!(session.gpu(0).unwrap_err().is(Code::GpuIsLost));
}

#[test]
fn a_root_without_a_driver_says_so() {
    let root = tempfile::tempdir().unwrap();
    let error = Session::open(root.path()).unwrap_err();
    assert!(matches!(error, Error::NotFound(_)), "{error}");
    let file = root.path().join("libnvidia-ml.so.1");
    std::fs::write(&file, "not a library").unwrap();
    let error = Session::open(&file).unwrap_err();
    assert!(matches!(error, Error::Load { .. }), "{error}");
    let error = Session::open(Path::new("/nonexistent")).unwrap_err();
    assert!(error.to_string().contains("/nonexistent"), "{error}");
}
