use std::fs;

use super::super::shapes::Shape;
use super::{CDI, Tree};

fn tree(shape: &Shape) -> (tempfile::TempDir, Tree) {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::create(dir.path(), "basalt-7", shape).unwrap();
    (dir, tree)
}

fn entries(tree: &Tree, host: &str) -> usize {
    fs::read_dir(tree.path(host)).map_or(0, Iterator::count)
}

#[test]
fn a_lost_driver_leaves_the_pci_functions_and_comes_back_whole() {
    let (_dir, tree) = tree(&Shape::h100());
    assert_eq!(entries(&tree, "/proc/driver/nvidia/gpus"), 8);
    let functions = entries(&tree, "/sys/bus/pci/devices");
    tree.lose_nvidia_driver().unwrap();
    assert!(!tree.path("/proc/driver/nvidia/version").exists());
    assert!(!tree.path("/dev/nvidia0").exists());
    assert_eq!(entries(&tree, "/sys/bus/pci/devices"), functions);
    tree.load_nvidia_driver("590.11.03").unwrap();
    assert!(
        fs::read_to_string(tree.path("/proc/driver/nvidia/version"))
            .unwrap()
            .contains("590.11.03")
    );
}

#[test]
fn hardware_without_driver_is_on_the_bus_only() {
    let (_dir, tree) = tree(&Shape::h100_without_driver());
    assert!(!tree.path("/proc/driver/nvidia").exists());
    assert_eq!(entries(&tree, "/sys/bus/pci/devices"), 10);
}

#[test]
fn mig_instances_show_as_capabilities() {
    let (_dir, tree) = tree(&Shape::a100_mig());
    assert_eq!(
        entries(&tree, "/proc/driver/nvidia/capabilities/gpu0/mig"),
        7
    );
    assert_eq!(
        entries(&tree, "/proc/driver/nvidia/capabilities/gpu7/mig"),
        4
    );
    tree.nvml()
        .change_gpu(0, |gpu| gpu.instances.clear())
        .unwrap();
    assert_eq!(
        entries(&tree, "/proc/driver/nvidia/capabilities/gpu0/mig"),
        0
    );
}

#[test]
fn what_the_library_says_is_what_operands_find() {
    let (_dir, tree) = tree(&Shape::h100());
    let cut = |tree: &Tree| {
        let gpu = tree.nvidia().unwrap().gpus.remove(3);
        let names = gpu.mig.iter().map(|instance| instance.profile.name);
        (gpu.mig_enabled, names.collect::<Vec<_>>())
    };
    assert_eq!(cut(&tree), (false, vec![]));
    tree.nvml().carve(3, &[(9, 4), (19, 0)]).unwrap();
    assert_eq!(cut(&tree), (true, vec!["3g.40gb", "1g.10gb"]));
    tree.lose_nvidia_driver().unwrap();
    assert!(tree.nvml().state().is_err(), "no driver, no answer");
    tree.load_nvidia_driver("590.11.03").unwrap();
    assert_eq!(cut(&tree), (true, vec!["3g.40gb", "1g.10gb"]));
    assert_eq!(
        entries(&tree, "/proc/driver/nvidia/capabilities/gpu3/mig"),
        2
    );
    tree.boot().unwrap();
    assert_eq!(
        cut(&tree),
        (false, vec![]),
        "Hopper keeps neither over a reboot"
    );
}

#[test]
fn a_reboot_changes_the_boot_id_and_forgets_only_what_is_volatile() {
    let (_dir, tree) = tree(&Shape::trn2_48xlarge());
    tree.write("/var/lib/freehold/neuron/owner", "dra\n")
        .unwrap();
    tree.write(&format!("{CDI}/claim.yaml"), "x").unwrap();
    tree.add_pod("u-1").unwrap();
    let before = fs::read_to_string(tree.path("/proc/sys/kernel/random/boot_id")).unwrap();
    tree.boot().unwrap();
    let after = fs::read_to_string(tree.path("/proc/sys/kernel/random/boot_id")).unwrap();
    assert_ne!(before, after);
    assert_eq!(after.trim(), tree.boot_id());
    assert!(tree.path("/var/lib/freehold/neuron/owner").exists());
    assert!(tree.pod_dir("u-1").exists());
    assert!(!tree.pod_cgroup("u-1").exists());
    assert!(!tree.path(&format!("{CDI}/claim.yaml")).exists());
}

#[test]
fn the_lnc_file_decides_where_the_family_has_a_choice() {
    let (_dir, trn2) = tree(&Shape::trn2_3xlarge());
    assert_eq!(trn2.logical_neuron_core(), Some(2));
    trn2.write(
        "/opt/aws/neuron/logical_nc_config",
        "NEURON_LOGICAL_NC_CONFIG=1\n",
    )
    .unwrap();
    assert_eq!(trn2.logical_neuron_core(), Some(1));
    let (_dir, trn1) = tree(&Shape::trn1_2xlarge());
    trn1.write(
        "/opt/aws/neuron/logical_nc_config",
        "NEURON_LOGICAL_NC_CONFIG=2\n",
    )
    .unwrap();
    assert_eq!(trn1.logical_neuron_core(), Some(1));
}

#[test]
fn a_relocated_kubelet_root_moves_everything_but_the_device_plugin_directory() {
    let (_dir, tree) = tree(&Shape::h100().with_kubelet_root("/mnt/state/kubelet"));
    assert!(tree.path("/mnt/state/kubelet/dra_manager_state").exists());
    assert!(!tree.path("/var/lib/kubelet/dra_manager_state").exists());
    assert!(
        tree.path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
            .exists()
    );
}
