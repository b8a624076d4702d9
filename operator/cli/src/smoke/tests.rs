use freehold_api::AcceleratorCluster;
use freehold_core::expect::{Expected, expected};
use freehold_core::report::{Inventory, VendorReport};

use super::*;

/// The demo fleet: every path at once.
const FLEET: &str = include_str!("../../../../config/samples/acceleratorcluster.yaml");

fn plan() -> Plan {
    let cluster: AcceleratorCluster = serde_saphyr::from_str(FLEET).expect("the sample");
    Plan::parse(&cluster.spec).expect("a valid sample")
}

fn options(cohort: &str) -> Options {
    Options {
        cohort: cohort.into(),
        image: "registry.example.com/check@sha256:0".into(),
        namespace: None,
        size: None,
        resource: None,
        file: None,
    }
}

fn only_job(cohort: &str) -> Value {
    let mut objects = objects(&plan(), &options(cohort)).expect("a manifest");
    assert_eq!(objects.len(), 1, "a template of a size is there already");
    objects.remove(0)
}

#[test]
fn every_job_is_suspended_and_bounded() {
    for cohort in plan().cohorts {
        let objects = objects(&plan(), &options(&cohort.cohort.name)).expect("a manifest");
        let spec = &objects.last().expect("a Job")["spec"];
        assert_eq!(
            (&spec["suspend"], &spec["backoffLimit"]),
            (&json!(true), &json!(0)),
            "{}",
            cohort.cohort.name
        );
        assert_eq!(
            (&spec["activeDeadlineSeconds"], &spec["completions"]),
            (&json!(120), &json!(1))
        );
        let pod = &spec["template"]["spec"];
        assert_eq!(pod["restartPolicy"], "Never");
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(
            pod["nodeSelector"]["workload.example.com/gpu-allocation"],
            cohort.cohort.owner.word()
        );
    }
}

#[test]
fn a_plugin_job_asks_for_a_resource_that_the_cohort_advertises() {
    for cohort in plan()
        .cohorts
        .iter()
        .filter(|cohort| cohort.cohort.owner == Owner::DevicePlugin)
    {
        let name = &cohort.cohort.name;
        let report = VendorReport {
            pci_devices: 8,
            inventory: Inventory {
                devices: 8,
                physical_cores: Some(16),
                logical_cores: Some(16),
                ..Inventory::default()
            },
            ..VendorReport::default()
        };
        let Ok(Expected::Resources(advertised)) = expected(&cohort.cohort, &report) else {
            panic!("{name}: not computable")
        };
        let job = only_job(name);
        let limits = &job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"];
        let asked: Vec<&String> = limits
            .as_object()
            .expect("limits")
            .keys()
            .filter(|key| key.contains('/'))
            .collect();
        assert_eq!(asked.len(), 1, "{name}: {asked:?}");
        assert!(
            advertised.get(asked[0]).is_some_and(|count| *count > 0),
            "{name}: {asked:?} is not among {advertised:?}"
        );
    }
}

#[test]
fn a_share_of_the_board_names_no_resource_so_a_literal_name_is_used_or_asked_for() {
    let with = |from: &str, to: &str| {
        let changed = FLEET.replace(from, to);
        assert_ne!(changed, FLEET, "the sample has {from}");
        let cluster: AcceleratorCluster = serde_saphyr::from_str(&changed).expect("the sample");
        Plan::parse(&cluster.spec).expect("a valid sample")
    };
    let mixed = with("2g.10gb: 1", "2g.1/4: 1");
    let job = objects(&mixed, &options("a100-mig")).expect("a manifest");
    let limits = &job[0]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(limits["nvidia.com/mig-1g.5gb"], json!(1), "{limits}");

    let shares = FLEET
        .replace("1g.5gb:", "1g.1/8:")
        .replace("2g.10gb: 1", "2g.1/4: 1")
        .replace("3g.20gb: 1", "3g.1/2: 1");
    let cluster: AcceleratorCluster = serde_saphyr::from_str(&shares).expect("the sample");
    let shares = Plan::parse(&cluster.spec).expect("a valid sample");
    let refused = objects(&shares, &options("a100-mig")).expect_err("no name");
    assert!(refused.to_string().contains("--resource"), "{refused}");
}

#[test]
fn a_dra_job_uses_the_smallest_fitting_size_and_its_namespace() {
    let job = only_job("trn2-dra");
    assert_eq!(job["metadata"]["namespace"], "ml");
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(
        pod["resourceClaims"],
        json!([{"name": "device", "resourceClaimTemplateName": "single-neuron-device"}])
    );
    assert_eq!(
        pod["containers"][0]["resources"]["claims"],
        json!([{"name": "device"}])
    );
    assert_eq!(
        only_job("gpu-dra")["spec"]["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"],
        "single-large-gpu"
    );
}

#[test]
fn without_a_fitting_size_the_template_comes_with_the_job() {
    let mut plan = plan();
    plan.sizes.clear();
    let objects = objects(
        &plan,
        &Options {
            namespace: Some("lab".into()),
            ..options("gpu-dra")
        },
    )
    .expect("a manifest");
    assert_eq!(
        objects
            .iter()
            .map(|object| object["kind"].as_str().expect("a kind"))
            .collect::<Vec<_>>(),
        ["ResourceClaimTemplate", "Job"]
    );
    assert_eq!(
        objects[0]["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"],
        "gpu.nvidia.com"
    );
    assert_eq!(
        objects[0]["metadata"],
        json!({"name": "gpu-dra-smoke", "namespace": "lab"})
    );
    assert_eq!(
        objects[1]["spec"]["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"],
        "gpu-dra-smoke"
    );
}

#[test]
fn wrong_choices_are_refused_with_the_right_ones() {
    let refused = |options: Options| {
        let failure = objects(&plan(), &options).expect_err("a refusal");
        assert_eq!(failure.exit, Exit::Usage);
        failure.message
    };
    assert!(refused(options("gpu-dar")).contains("gpu-dra"));
    assert!(
        refused(Options {
            size: Some("xl-trn2".into()),
            ..options("gpu-dra")
        })
        .contains("does not fit")
    );
    assert!(
        refused(Options {
            size: Some("xl-trn2".into()),
            ..options("gpu-plugin")
        })
        .contains("--resource")
    );
    assert!(
        refused(Options {
            size: Some("xxl".into()),
            ..options("trn2-dra")
        })
        .contains("xl-trn2")
    );
    assert!(
        refused(Options {
            resource: Some("aws.amazon.com/neuron".into()),
            ..options("gpu-plugin")
        })
        .contains("nvidia.com/")
    );
    assert!(image("registry.example.com:5000/check").is_err());
    assert!(image("check:v1").is_ok());
}

#[test]
fn the_manifest_is_yaml_that_reads_back() {
    let objects = objects(&plan(), &options("gpu-shared")).expect("a manifest");
    let text = manifest(Format::Text, &objects).expect("YAML");
    let back: Value = serde_saphyr::from_str(&text).expect("YAML that reads back");
    assert_eq!(back, objects[0]);
    assert!(text.contains("nvidia.com/gpu.shared"), "{text}");
}
