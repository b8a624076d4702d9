//! What operands advertise on a machine: the device plugins' extended resources and the DRA drivers' devices.

mod published;
mod resources;

pub use published::{neuron_devices, nvidia_devices};
pub use resources::{PluginConfig, Resources, Shared, neuron_resources, nvidia_resources};

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::shapes::Shape;
    use super::super::tree::Tree;
    use super::*;

    fn counts(
        shape: &Shape,
        file: Option<&str>,
        env: &[(&str, &str)],
    ) -> Result<BTreeMap<String, usize>, String> {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::create(dir.path(), "basalt-7", shape).unwrap();
        let env = env
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect();
        let config = PluginConfig::read(file, &env)?;
        let resources = nvidia_resources(&tree, &tree.nvidia().unwrap(), &config)?;
        Ok(resources
            .into_iter()
            .map(|(name, ids)| (name, ids.len()))
            .collect())
    }

    fn map(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
        pairs
            .iter()
            .map(|(name, count)| ((*name).into(), *count))
            .collect()
    }

    #[test]
    fn mig_strategies_advertise_what_the_plugin_would() {
        assert_eq!(
            counts(&Shape::h100(), None, &[]).unwrap(),
            map(&[("nvidia.com/gpu", 8)])
        );
        assert_eq!(
            counts(&Shape::a100_mig(), None, &[("MIG_STRATEGY", "none")]).unwrap(),
            map(&[("nvidia.com/gpu", 8)])
        );
        assert_eq!(
            counts(&Shape::a100_mig(), None, &[("MIG_STRATEGY", "mixed")]).unwrap(),
            map(&[
                ("nvidia.com/mig-1g.5gb", 36),
                ("nvidia.com/mig-2g.10gb", 4),
                ("nvidia.com/mig-3g.20gb", 4)
            ])
        );
        assert!(
            counts(&Shape::a100_mig(), None, &[("MIG_STRATEGY", "single")])
                .unwrap_err()
                .contains("more than one MIG")
        );
    }

    #[test]
    fn time_slicing_multiplies_and_renames() {
        let file = "version: v1\nsharing:\n  timeSlicing:\n    renameByDefault: true\n    resources:\n    - {name: nvidia.com/gpu, replicas: 4}\n";
        assert_eq!(
            counts(&Shape::h100(), Some(file), &[]).unwrap(),
            map(&[("nvidia.com/gpu.shared", 32)])
        );
        let kept = file.replace("renameByDefault: true", "renameByDefault: false");
        assert_eq!(
            counts(&Shape::h100(), Some(&kept), &[]).unwrap(),
            map(&[("nvidia.com/gpu", 32)])
        );
        let one = file.replace("replicas: 4", "replicas: 1");
        assert!(
            counts(&Shape::h100(), Some(&one), &[])
                .unwrap_err()
                .contains(">= 2")
        );
    }

    #[test]
    fn the_environment_overrides_the_file() {
        let file = "version: v1\nflags: {migStrategy: mixed}\n";
        let env = BTreeMap::from([("MIG_STRATEGY".to_owned(), "none".to_owned())]);
        assert_eq!(
            PluginConfig::read(Some(file), &env).unwrap().mig_strategy,
            "none"
        );
        assert_eq!(
            PluginConfig::read(Some(file), &BTreeMap::new())
                .unwrap()
                .mig_strategy,
            "mixed"
        );
    }

    #[test]
    fn neuron_cores_follow_the_lnc_setting_and_devices_do_not() {
        let hardware = Shape::trn2_48xlarge().neuron.unwrap();
        let count = |lnc: u32, name: &str| neuron_resources(&hardware, lnc).get(name).map(Vec::len);
        assert_eq!(
            (
                count(2, "aws.amazon.com/neuron"),
                count(2, "aws.amazon.com/neuroncore")
            ),
            (Some(16), Some(64))
        );
        assert_eq!(
            (
                count(1, "aws.amazon.com/neuron"),
                count(1, "aws.amazon.com/neuroncore")
            ),
            (Some(16), Some(128))
        );
    }

    #[test]
    fn mig_enabled_gpus_are_published_as_instances_only() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::create(dir.path(), "basalt-7", &Shape::a100_mig()).unwrap();
        let devices = nvidia_devices(&tree, &tree.nvidia().unwrap());
        assert_eq!(devices.len(), 4 * 7 + 4 * 4);
        assert!(
            devices
                .iter()
                .any(|device| device.name == "gpu-0-mig-1g5gb-19-0")
        );
        assert!(devices.iter().all(|device| device.name.contains("-mig-")));
    }

    #[test]
    fn only_large_trainium_types_carry_topology_and_device_groups() {
        let keys = |shape: Shape| {
            let hardware = shape.neuron.unwrap();
            neuron_devices(&shape.instance_type, &hardware)
                .pop()
                .unwrap()
                .attributes
                .unwrap()
                .len()
        };
        assert_eq!(keys(Shape::trn1_2xlarge()), 8);
        assert_eq!(keys(Shape::inf2_48xlarge()), 8);
        assert_eq!(keys(Shape::trn2_48xlarge()), 8 + 4 + 4);
    }
}
