//! Both ways of installing: the kustomization, and the chart, which installs the same.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use freehold_e2e::{
    cluster::{Binaries, Options, Release, TestCluster},
    install::Programs,
};
use serde_json::{Value, json};

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// What a command printed; anything but success ends the test with what it said.
fn output(command: &mut Command) -> String {
    let done = command.output().unwrap();
    let (stdout, stderr) = (
        String::from_utf8(done.stdout).unwrap(),
        String::from_utf8_lossy(&done.stderr).into_owned(),
    );
    assert!(done.status.success(), "{command:?}: {stdout}{stderr}");
    stdout
}

/// What a command that must fail said.
fn refusal(command: &mut Command) -> String {
    let done = command.output().unwrap();
    assert!(!done.status.success(), "{command:?} succeeded");
    String::from_utf8_lossy(&done.stderr).into_owned()
}

fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for part in ["crds", "install"] {
        for entry in fs::read_dir(folder.join(part)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().to_owned();
            found.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
    found
}

#[test]
fn the_charts_generated_templates_are_up_to_date() {
    let fresh = tempfile::tempdir().unwrap();
    output(
        Command::new("sh")
            .arg(repository("charts/generate.sh"))
            .arg(fresh.path()),
    );
    let (wanted, committed) = (
        files(fresh.path()),
        files(&repository("charts/freehold/templates")),
    );
    let stale: Vec<_> = wanted
        .keys()
        .chain(committed.keys())
        .filter(|name| wanted.get(*name) != committed.get(*name))
        .collect();
    assert!(stale.is_empty(), "run charts/generate.sh: {stale:?} differ");
}

#[test]
fn every_value_is_in_the_schema_and_the_schema_has_a_default_for_everything() {
    let text = fs::read_to_string(repository("charts/freehold/values.yaml")).unwrap();
    let values: Value = serde_saphyr::from_str(&text).unwrap();
    let text = fs::read_to_string(repository("charts/freehold/values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    same_keys("values", &values, &schema);
}

/// Objects whose keys are the user's own, and those that Helm reserves, have no defaults to compare.
fn same_keys(path: &str, values: &Value, schema: &Value) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return;
    };
    assert_eq!(
        schema["additionalProperties"],
        json!(false),
        "{path} accepts misspelt keys"
    );
    let values = values
        .as_object()
        .unwrap_or_else(|| panic!("{path} is no object"));
    let of_helm = ["global", "enabled"];
    let known: Vec<_> = properties
        .keys()
        .filter(|key| path != "values" || !of_helm.contains(&key.as_str()))
        .collect();
    assert_eq!(values.keys().collect::<Vec<_>>(), known, "{path}");
    for (key, value) in values {
        same_keys(&format!("{path}.{key}"), value, &properties[key]);
    }
}

/// Objects of a manifest by kind, namespace and name.
fn objects(manifest: &str) -> BTreeMap<String, Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(manifest).unwrap();
    documents
        .into_iter()
        .filter(|document| !document.is_null())
        .map(|mut object| {
            let metadata = object["metadata"].as_object_mut().unwrap();
            // Says only what Helm leaves behind.
            if let Some(annotations) = metadata
                .get_mut("annotations")
                .and_then(Value::as_object_mut)
            {
                annotations.remove("helm.sh/resource-policy");
                if annotations.is_empty() {
                    metadata.remove("annotations");
                }
            }
            let part = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let key = [
                part(&object["kind"]),
                part(&object["metadata"]["namespace"]),
                part(&object["metadata"]["name"]),
            ];
            (key.join("/"), object)
        })
        .collect()
}

/// One form for numbers: Kustomize writes 1024.0 as 1024.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().map_or_else(|| value.clone(), Value::from),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), plain(value)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

/// Helm itself, from its Go module.
fn helm() -> PathBuf {
    let binary = freehold_e2e::install::repository().join("target/helm");
    output(
        Command::new("go")
            .args(["build", "-trimpath", "-o"])
            .arg(&binary)
            .arg("helm.sh/helm/v4/cmd/helm")
            .current_dir(repository("e2e/helm")),
    );
    binary
}

fn template(helm: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(helm);
    command
        .args(["template", "freehold"])
        .arg(repository("charts/freehold"))
        .args(["--namespace", "freehold-system", "--kube-version", "1.36.3"])
        .args(arguments);
    command
}

#[test]
#[ignore = "builds Helm from its Go module, minutes the first time: cargo test -p freehold-e2e --test chart -- --ignored"]
fn rendered_with_its_defaults_the_chart_is_the_kustomization() {
    let helm = helm();
    output(
        Command::new(&helm)
            .args(["lint", "--strict"])
            .arg(repository("charts/freehold"))
            .args(["--namespace", "freehold-system"]),
    );
    let chart = objects(&output(&mut template(&helm, &["--no-hooks"])));
    let kubectl = Binaries::ensure(Release::from_env().unwrap())
        .unwrap()
        .path("kubectl");
    let mut config = objects(&output(
        Command::new(kubectl)
            .arg("kustomize")
            .arg(repository("config")),
    ));
    assert!(
        config.remove("Namespace//freehold-system").is_some(),
        "Helm makes this one"
    );
    assert_eq!(
        chart.keys().collect::<Vec<_>>(),
        config.keys().collect::<Vec<_>>()
    );
    for (key, object) in &config {
        assert_eq!(plain(&chart[key]), plain(object), "{key}");
    }

    // Each value ends where it belongs.
    let pinned = format!("sha256:{}", "a".repeat(64));
    let digest = format!("agent.image.digest={pinned}");
    let set = objects(&output(&mut template(
        &helm,
        &[
            "--no-hooks",
            "--set",
            "controller.replicas=3",
            "--set",
            "controller.image.tag=v9.9.9",
            "--set",
            &digest,
            "--set",
            "controller.extraArgs={--settle-seconds=7}",
            "--set",
            "imagePullSecrets[0].name=one",
            "--set",
            "agent.imagePullSecrets={two,three}",
            "--set",
            "crds.enabled=false",
            "--set",
            "operands.nvidiaDra.mps=true",
            "--set",
            "operands.neuronDevicePlugin.kubeletPods=true",
            "--set",
            "serviceMonitor.enabled=true",
            "--api-versions",
            "monitoring.coreos.com/v1",
        ],
    )));
    let spec = &set["Deployment/freehold-system/freehold-controller"]["spec"];
    let pod = &spec["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(spec["replicas"], 3);
    assert_eq!(
        container["image"],
        "ghcr.io/freehold-dev/freehold-operator:v9.9.9"
    );
    assert_eq!(container["args"], json!(["run", "--settle-seconds=7"]));
    assert_eq!(
        container["env"][0]["value"],
        format!("ghcr.io/freehold-dev/freehold-agent@{pinned}")
    );
    assert_eq!(
        container["env"][1],
        json!({"name": "FREEHOLD_AGENT_IMAGE_PULL_SECRETS", "value": "two,three"})
    );
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "one"}]));
    assert!(
        !set.keys()
            .any(|key| key.starts_with("CustomResourceDefinition/"))
    );
    for added in [
        "Role/freehold-operands/freehold-nvidia-dra-driver-mps",
        "ClusterRole//freehold-neuron-device-plugin-kubelet",
        "ServiceMonitor/freehold-system/freehold-controller",
    ] {
        assert!(set.contains_key(added), "{added}");
    }
}

#[test]
#[ignore = "builds Helm from its Go module, minutes the first time: cargo test -p freehold-e2e --test chart -- --ignored"]
fn wrong_values_are_refused_with_what_to_do() {
    let helm = helm();
    let elsewhere = refusal(
        Command::new(&helm)
            .args(["template", "freehold"])
            .arg(repository("charts/freehold"))
            .args(["--namespace", "gpu-system"]),
    );
    assert!(
        elsewhere.contains("install with --namespace freehold-system"),
        "{elsewhere}"
    );
    let misspelt = refusal(&mut template(&helm, &["--set", "controller.replica=3"]));
    assert!(misspelt.contains("replica"), "{misspelt}");
    let unmonitored = refusal(&mut template(
        &helm,
        &["--set", "serviceMonitor.enabled=true"],
    ));
    assert!(
        unmonitored.contains("does not serve monitoring.coreos.com/v1"),
        "{unmonitored}"
    );
    let tag = refusal(&mut template(
        &helm,
        &["--set", "agent.image.digest=sha256:short"],
    ));
    assert!(tag.contains("digest"), "{tag}");
}

#[tokio::test]
#[ignore = "builds Helm from its Go module, minutes the first time: cargo test -p freehold-e2e --test chart -- --ignored"]
async fn a_release_installs_upgrades_and_leaves_intent_and_operands_behind() {
    let helm = helm();
    let cluster = TestCluster::start(Options {
        scheduler: false,
        ..Options::named("chart").unwrap()
    })
    .await
    .unwrap();
    let kubeconfig = cluster.kubeconfig_admin();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&helm);
        command
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(["--namespace", "freehold-system"])
            .args(arguments);
        output(&mut command)
    };
    let chart = repository("charts/freehold");
    let chart = chart.to_str().unwrap();
    let notes = run(&["install", "freehold", chart, "--create-namespace"]);
    assert!(notes.contains("owns nothing yet"), "{notes}");
    let intent = repository("config/samples/acceleratorcluster.yaml");
    output(
        cluster
            .kubectl()
            .arg("apply")
            .arg("--server-side")
            .arg("-f")
            .arg(&intent),
    );
    run(&[
        "upgrade",
        "freehold",
        chart,
        "--set",
        "controller.replicas=1",
    ]);
    run(&["uninstall", "freehold", "--no-hooks", "--wait"]);
    for kept in [
        "acceleratorcluster/cluster",
        "namespace/freehold-operands",
        "clusterrole/freehold-nvidia-dra-driver",
        "clusterrolebinding/freehold-neuron-dra-driver",
    ] {
        output(cluster.kubectl().arg("get").arg(kept));
    }
    let gone = refusal(cluster.kubectl().args([
        "--namespace",
        "freehold-system",
        "get",
        "deployment/freehold-controller",
    ]));
    assert!(gone.contains("not found"), "{gone}");
    // A second installation takes over what was left.
    run(&["install", "freehold", chart]);
}

#[tokio::test]
async fn the_check_before_an_uninstallation_refuses_while_an_intent_exists() {
    let programs = Programs::build().unwrap();
    let cluster = TestCluster::start(Options::named("uninstall").unwrap().api_server_only())
        .await
        .unwrap();
    let check = || {
        let mut command = Command::new(&programs.operator);
        command
            .arg("uninstall-check")
            .env("KUBECONFIG", cluster.kubeconfig_admin());
        command
    };
    output(&mut check());
    cluster.apply_dir(repository("crds")).await.unwrap();
    output(&mut check());
    let intent = fs::read_to_string(repository("config/samples/acceleratorcluster.yaml")).unwrap();
    cluster.apply_yaml(&intent).await.unwrap();
    let refused = refusal(&mut check());
    assert!(
        refused.contains("kubectl delete acceleratorcluster cluster"),
        "{refused}"
    );

    let hold = r#"{"metadata": {"finalizers": ["freehold.dev/teardown"]}}"#;
    output(cluster.kubectl().args([
        "patch",
        "acceleratorcluster/cluster",
        "--type=merge",
        "--patch",
        hold,
    ]));
    output(
        cluster
            .kubectl()
            .args(["delete", "acceleratorcluster/cluster", "--wait=false"]),
    );
    let refused = refusal(&mut check());
    assert!(
        refused.contains("is still handing its nodes back"),
        "{refused}"
    );
    let release = r#"{"metadata": {"finalizers": null}}"#;
    output(cluster.kubectl().args([
        "patch",
        "acceleratorcluster/cluster",
        "--type=merge",
        "--patch",
        release,
    ]));
    output(&mut check());
}

#[tokio::test]
async fn one_command_installs_everything_and_the_controller_fits_its_restricted_namespace() {
    let options = Options::named("kustomization").unwrap().api_server_only();
    let cluster = TestCluster::start(options).await.unwrap();
    let config = repository("config");
    for _again in 0..2 {
        output(
            cluster
                .kubectl()
                .args(["apply", "--server-side", "-k"])
                .arg(&config),
        );
    }
    let mut get = cluster.kubectl();
    get.args([
        "--namespace",
        "freehold-system",
        "get",
        "deployment/freehold-controller",
        "--output",
        "json",
    ]);
    let deployment: Value = serde_json::from_str(&output(&mut get)).unwrap();
    let mut pod = deployment["spec"]["template"].clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!("controller-1");
    pod["metadata"]["namespace"] = json!("freehold-system");
    let file = cluster.folder().join("pod.json");
    fs::write(&file, serde_json::to_vec(&pod).unwrap()).unwrap();
    let mut create = cluster.kubectl();
    create
        .args(["create", "--dry-run=server", "--filename"])
        .arg(&file);
    output(&mut create);
    // The level is enforced, not only asked for.
    pod["spec"]["containers"][0]["securityContext"]["privileged"] = json!(true);
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
    fs::write(&file, serde_json::to_vec(&pod).unwrap()).unwrap();
    let mut create = cluster.kubectl();
    create
        .args(["create", "--dry-run=server", "--filename"])
        .arg(&file);
    let refused = refusal(&mut create);
    assert!(refused.contains("restricted"), "{refused}");
}
