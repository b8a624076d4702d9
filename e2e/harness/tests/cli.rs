//! `kubectl freehold` against a real API server: what it prints, and how it exits. The controller's part is written by the test.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use freehold_api::{AcceleratorCluster, AcceleratorNode};
use freehold_e2e::cluster::{Options, TestCluster};
use freehold_e2e::install::{self, Programs, repository};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// How a run ended.
struct Run {
    code: i32,
    out: String,
    err: String,
}

impl Run {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| {
            panic!("no JSON ({error}) in {:?}; stderr: {}", self.out, self.err)
        })
    }
}

/// The plugin with a kubeconfig.
struct Plugin {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Plugin {
    fn run(&self, arguments: &[&str]) -> Run {
        let output = Command::new(&self.program)
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env_remove("NO_COLOR")
            .output()
            .expect("the plugin runs");
        Run {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    fn expect(&self, arguments: &[&str], code: i32) -> Run {
        let run = self.run(arguments);
        assert_eq!(
            run.code, code,
            "{arguments:?}\nstdout: {}\nstderr: {}",
            run.out, run.err
        );
        run
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_tells_a_cluster_from_bare_to_installed() {
    let programs = Programs::build().unwrap();
    let options = Options::named("cli").unwrap().api_server_only();
    let cluster = TestCluster::start(options).await.unwrap();
    let plugin = Plugin {
        program: programs.cli.clone(),
        kubeconfig: cluster.kubeconfig_admin(),
    };

    wrong_usage_says_what_is_wrong(&plugin);
    without_crds_the_way_to_an_installation_is_pointed_out(&plugin);
    a_bare_cluster_is_ready_for_an_installation_and_can_be_planned_for(&plugin);

    cluster.apply_dir(repository().join("crds")).await.unwrap();
    let absent = plugin.expect(&["status"], 1);
    assert!(
        absent.err.contains("no AcceleratorCluster"),
        "{}",
        absent.err
    );
    assert!(absent.out.is_empty(), "data only on stdout: {}", absent.out);

    a_fleet(&cluster).await;
    status_sums_up_and_exits_accordingly(&cluster, &plugin).await;
    explain_tells_one_node(&plugin);
    who_may_read_little_is_told_what_is_missing(&cluster, &programs).await;
    plan_tells_what_would_change(&cluster, &plugin).await;
    watch_follows_until_nothing_is_left_to_follow(&cluster, &plugin).await;
    smoke_prints_what_the_api_server_takes(&cluster, &plugin).await;

    half_an_installation_is_told_from_a_whole_one(&cluster, &plugin).await;
    cluster.stop().unwrap();
}

fn wrong_usage_says_what_is_wrong(plugin: &Plugin) {
    let unknown = plugin.expect(&["statsu"], 2);
    assert!(unknown.err.contains("statsu"), "{}", unknown.err);
    let format = plugin.expect(&["status", "-o", "xml"], 2);
    assert!(
        format.err.contains("xml") && format.err.contains("yaml"),
        "{}",
        format.err
    );
    let context = plugin.expect(&["status", "--context", "elsewhere"], 2);
    assert!(context.err.contains("elsewhere"), "{}", context.err);
    let file = plugin.expect(&["status", "--kubeconfig", "/nowhere/config"], 2);
    assert!(file.err.contains("/nowhere/config"), "{}", file.err);
    let timeout = plugin.expect(&["status", "--timeout", "soon"], 2);
    assert!(timeout.err.contains("soon"), "{}", timeout.err);
}

/// The demo fleet, as a file.
fn sample() -> String {
    repository()
        .join("config/samples/acceleratorcluster.yaml")
        .display()
        .to_string()
}

fn a_bare_cluster_is_ready_for_an_installation_and_can_be_planned_for(plugin: &Plugin) {
    let bare = plugin.expect(&["preflight"], 0);
    assert!(
        bare.out.contains("Ready for an installation"),
        "{}",
        bare.out
    );
    assert!(
        bare.out
            .contains("accepts this version's custom resource definitions (by a dry run)"),
        "{}",
        bare.out
    );
    let plan = plugin.expect(&["plan", "-f", &sample(), "--exit-code"], 3);
    assert!(
        plan.out.contains("+ DaemonSet freehold-agent")
            && plan.out.contains("+ DeviceClass gpu.nvidia.com"),
        "{}",
        plan.out
    );
}

fn without_crds_the_way_to_an_installation_is_pointed_out(plugin: &Plugin) {
    let run = plugin.expect(&["status"], 1);
    assert!(
        run.err.contains("not installed") && run.err.contains("preflight"),
        "{}",
        run.err
    );
}

/// Two cohorts; `reed-1` and `reed-2` held by the device plugin, `reed-3` on its way to DRA with a trainer in the way.
async fn a_fleet(cluster: &TestCluster) {
    let admin = cluster.admin();
    let intent: AcceleratorCluster = serde_json::from_value(json!({
        "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorCluster", "metadata": {"name": "cluster"},
        "spec": {"cohorts": [
            {"name": "marsh-plugin", "vendor": "NVIDIA", "owner": "DevicePlugin", "nodeSelector": {"matchLabels": {"bank": "left"}}},
            {"name": "marsh-dra", "vendor": "NVIDIA", "owner": "DRA", "nodeSelector": {"matchLabels": {"bank": "right"}}},
        ]}}))
    .unwrap();
    Api::all(admin.clone())
        .create(&PostParams::default(), &intent)
        .await
        .unwrap();
    for name in ["freehold-system", "freehold-operands", "ml"] {
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        Api::all(admin.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
    }
    for (name, bank, owner, cohort, step) in [
        ("reed-1", "left", "DevicePlugin", "marsh-plugin", "Held"),
        ("reed-2", "left", "DevicePlugin", "marsh-plugin", "Held"),
        ("reed-3", "right", "DevicePlugin", "marsh-dra", "Drain"),
    ] {
        let node: Node =
            serde_json::from_value(json!({"metadata": {"name": name, "labels": {"bank": bank}}}))
                .unwrap();
        let node = Api::all(admin.clone())
            .create(&PostParams::default(), &node)
            .await
            .unwrap();
        let record: AcceleratorNode = serde_json::from_value(json!({
            "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorNode", "metadata": {"name": name},
            "spec": {"nodeUID": node.metadata.uid, "nvidia": {"cohort": cohort, "owner": owner, "term": 2}}}))
        .unwrap();
        Api::all(admin.clone())
            .create(&PostParams::default(), &record)
            .await
            .unwrap();
        report(cluster, &node).await;
        tell(cluster, name, &json!({"cohort": cohort, "owner": owner, "step": step, "since": "2026-11-30T12:00:00Z"})).await;
    }
    tell(
        cluster,
        "reed-3",
        &json!({"reason": "ConsumersRemain", "message": "Pod ml/fit-0 (UID 7) uses extended resources of NVIDIA on this node",
            "nextStep": "Wait for the workloads on <node> to end."}),
    )
    .await;
}

/// Reports eight GPUs, as the agent does, on a node whose kubelet is new enough for either owner.
async fn report(cluster: &TestCluster, node: &Node) {
    let name = node.metadata.name.as_deref().unwrap();
    let info = json!({"architecture": "amd64", "bootID": "boot-1", "containerRuntimeVersion": "containerd://2.1.0",
        "kernelVersion": "6.12.0", "kubeProxyVersion": "", "kubeletVersion": "v1.34.2", "machineID": "m",
        "operatingSystem": "linux", "osImage": "test", "systemUUID": "s"});
    Api::<Node>::all(cluster.admin())
        .patch_status(
            name,
            &PatchParams::default(),
            &Patch::Merge(json!({"status": {"nodeInfo": info}})),
        )
        .await
        .unwrap();
    let part = json!({"observedTerm": 2, "pciDevices": 8, "inUse": {"devicePlugin": 0, "dra": 0},
        "inventory": {"driverVersion": "580.65.06", "devices": 8, "models": [{"name": "NVIDIA H100 80GB HBM3", "count": 8}]}});
    let report = json!({"nodeUID": node.metadata.uid, "bootID": "boot-1", "agentVersion": "0.1.0", "nvidia": part});
    Api::<AcceleratorNode>::all(cluster.admin())
        .patch_status(
            name,
            &PatchParams::default(),
            &Patch::Merge(json!({"status": {"report": report}})),
        )
        .await
        .unwrap();
}

/// Publishes a tenure, as the controller does.
async fn tell(cluster: &TestCluster, node: &str, tenure: &Value) {
    let patch = json!({"status": {"tenures": {"nvidia": tenure}}});
    Api::<AcceleratorNode>::all(cluster.admin())
        .patch_status(node, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

/// Publishes that the controller has looked at the resource.
async fn observe(cluster: &TestCluster, generation: i64, ready: &str) {
    let patch = json!({"status": {"observedGeneration": generation, "nodes":
        {"matched": 3, "excluded": 0, "owned": 3, "ready": 2, "migrating": 0, "waiting": 1, "blocked": 0, "conflicted": 0},
        "conditions": [{"type": "Ready", "status": ready, "reason": "Told", "message": "told by the test", "lastTransitionTime": "2026-11-30T12:00:00Z"}]}});
    Api::<AcceleratorCluster>::all(cluster.admin())
        .patch_status("cluster", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

async fn renew_lease(cluster: &TestCluster) {
    let lease: Lease = serde_json::from_value(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "freehold-operator"},
        "spec": {"holderIdentity": "replica-1", "leaseDurationSeconds": 3600, "renewTime": jiff::Timestamp::now().to_string()}}))
    .unwrap();
    Api::<Lease>::namespaced(cluster.admin(), "freehold-system")
        .patch(
            "freehold-operator",
            &PatchParams::apply("test").force(),
            &Patch::Apply(lease),
        )
        .await
        .unwrap();
}

async fn status_sums_up_and_exits_accordingly(cluster: &TestCluster, plugin: &Plugin) {
    let unheard = plugin.expect(&["status"], 1);
    assert!(
        unheard
            .out
            .contains("has not reported on this resource yet"),
        "{}",
        unheard.out
    );

    observe(cluster, 1, "False").await;
    let orphaned = plugin.expect(&["status"], 1);
    assert!(
        orphaned.out.contains("No controller holds the lease"),
        "{}",
        orphaned.out
    );

    renew_lease(cluster).await;
    let waiting = plugin.expect(&["status"], 4);
    assert!(
        waiting
            .out
            .starts_with("Under way: 1 waiting, 2 of 3 nodes ready."),
        "{}",
        waiting.out
    );
    assert!(
        waiting
            .out
            .contains("ConsumersRemain (FH402): 1 node in marsh-dra"),
        "{}",
        waiting.out
    );
    assert!(
        waiting
            .out
            .contains("Wait for the workloads on reed-3 to end."),
        "{}",
        waiting.out
    );
    assert!(
        !waiting.out.contains('\u{1b}'),
        "no colour without a terminal: {}",
        waiting.out
    );
    assert!(waiting.err.is_empty(), "{}", waiting.err);
    let coloured = plugin.expect(&["status", "--color", "always"], 4);
    assert!(coloured.out.contains('\u{1b}'), "{}", coloured.out);

    let json = plugin.expect(&["status", "-o", "json"], 4).json();
    assert_eq!(
        (&json["schemaVersion"], &json["kind"]),
        (&json!("cli.freehold.dev/v1"), &json!("Status"))
    );
    assert_eq!(json["nodes"].as_array().map(Vec::len), Some(3));
    let yaml = plugin.expect(&["status", "-o", "yaml"], 4);
    assert!(
        yaml.out.contains("schemaVersion: cli.freehold.dev/v1"),
        "{}",
        yaml.out
    );

    let left = plugin.expect(&["status", "-l", "bank=left"], 4);
    assert!(
        left.out.contains("all 2 nodes are owned"),
        "the cluster's own condition is False still: {}",
        left.out
    );
    observe(cluster, 1, "True").await;
    plugin.expect(&["status", "-l", "bank=left"], 0);
    let selector = plugin.expect(&["status", "-l", "bank=left,,"], 2);
    assert!(selector.err.contains("--selector"), "{}", selector.err);
    let lines = plugin.expect(
        &[
            "status",
            "--grouping=false",
            "--no-headers",
            "--status-selector",
            "waiting",
        ],
        4,
    );
    assert!(
        lines.out.contains("reed-3")
            && !lines.out.contains("reed-1")
            && !lines.out.contains("COHORT"),
        "{}",
        lines.out
    );

    tell(cluster, "reed-2", &json!({"step": "Hold", "reason": "ForeignOwner", "message": "somebody else", "nextStep": "Decide."})).await;
    let conflicted = plugin.expect(&["status"], 3);
    assert!(
        conflicted
            .out
            .starts_with("Not ready: 1 claimed by two parties"),
        "{}",
        conflicted.out
    );
    tell(
        cluster,
        "reed-2",
        &json!({"step": "Held", "reason": null, "message": null, "nextStep": null}),
    )
    .await;
}

fn explain_tells_one_node(plugin: &Plugin) {
    let waiting = plugin.expect(&["explain", "reed-3"], 4);
    for part in [
        "DevicePlugin now, DRA wanted by cohort marsh-dra",
        "ConsumersRemain (FH402)",
        "By itself",
        "By hand",
        "Evidence",
    ] {
        assert!(
            waiting.out.contains(part),
            "{part:?} is missing: {}",
            waiting.out
        );
    }
    assert!(
        !waiting.out.contains("Unreadable"),
        "an administrator reads everything: {}",
        waiting.out
    );
    let held = plugin
        .expect(&["explain", "reed-1", "-o", "json"], 0)
        .json();
    assert_eq!(held["stories"][0]["step"], "Held");
    assert_eq!(held["evidence"]["orders"]["nvidia"]["term"], 2);
    let absent = plugin.expect(&["explain", "reed-9"], 1);
    assert!(absent.err.contains("reed-9"), "{}", absent.err);
}

async fn who_may_read_little_is_told_what_is_missing(cluster: &TestCluster, programs: &Programs) {
    cluster
        .apply_yaml(
            r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: onlooker}
rules:
- {apiGroups: [freehold.dev], resources: [acceleratorclusters, acceleratornodes], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: onlooker}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: onlooker}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: wanda}]
",
        )
        .await
        .unwrap();
    let onlooker = Plugin {
        program: programs.cli.clone(),
        kubeconfig: cluster.kubeconfig_for("wanda", None).unwrap(),
    };
    let status = onlooker.expect(&["status"], 4);
    assert!(
        status.out.contains("its lease is unreadable (forbidden"),
        "{}",
        status.out
    );
    let explained = onlooker.expect(&["explain", "reed-3"], 4);
    assert!(
        explained.out.contains("Unreadable") && explained.out.contains("pods: forbidden"),
        "{}",
        explained.out
    );

    let stranger = Plugin {
        program: programs.cli.clone(),
        kubeconfig: cluster.kubeconfig_for("nobody", None).unwrap(),
    };
    let refused = stranger.expect(&["status"], 1);
    assert!(
        refused
            .err
            .contains("cannot read AcceleratorClusters: forbidden"),
        "{}",
        refused.err
    );
}

impl Plugin {
    /// Starts `watch` and waits until it has told where things stand.
    async fn watching(&self) -> Watching {
        let mut child = tokio::process::Command::new(&self.program)
            .args(["watch", "--timeout", "2m"])
            .env("KUBECONFIG", &self.kubeconfig)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the plugin starts");
        let out = BufReader::new(child.stdout.take().expect("stdout")).lines();
        let mut watching = Watching { child, out };
        let first = watching.until("Under way").await;
        assert!(first.contains("reed-1"), "everything is told once: {first}");
        watching
    }
}

/// A running `watch`.
struct Watching {
    child: tokio::process::Child,
    out: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Watching {
    /// What it tells until a line holds `part`.
    async fn until(&mut self, part: &str) -> String {
        let mut told = String::new();
        while let Some(line) = self.out.next_line().await.expect("a line") {
            told.push_str(&line);
            told.push('\n');
            if line.contains(part) {
                return told;
            }
        }
        panic!("watch ended before it told {part:?}: {told}");
    }

    /// Waits for the end: exit code, what was told since the start, and stderr.
    async fn end(mut self) -> (Option<i32>, String, String) {
        let mut told = String::new();
        while let Some(line) = self.out.next_line().await.expect("a line") {
            told.push_str(&line);
            told.push('\n');
        }
        let output = self.child.wait_with_output().await.expect("an end");
        (
            output.status.code(),
            told,
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    }
}

/// A terminal of 12 rows by `script`, which every Debian has.
fn on_a_terminal_there_are_bars_that_fit_it(plugin: &Plugin) {
    let command = format!(
        "stty rows 12 cols 120; {} watch --patience 1s",
        plugin.program.display()
    );
    let terminal = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("KUBECONFIG", &plugin.kubeconfig)
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .expect("script runs");
    let screen = String::from_utf8_lossy(&terminal.stdout);
    assert_eq!(terminal.status.code(), Some(4), "{screen}");
    for part in [
        "marsh-plugin",
        "2/2 DevicePlugin",
        "0/1 DRA, 1 waiting",
        "… reed-3  Drain",
    ] {
        assert!(screen.contains(part), "{part:?} is missing: {screen}");
    }
    // The final state stays in the scrollback, below what was drawn over.
    let last = screen
        .rfind("Under way: 1 waiting, 2 of 3 nodes ready.")
        .expect("the last word");
    assert!(
        screen[last..].contains("ConsumersRemain (FH402): 1 node in marsh-dra"),
        "{screen}"
    );
    assert!(
        !screen.contains("\u{1b}[?25l") || screen.contains("\u{1b}[?25h"),
        "the cursor stays hidden: {screen}"
    );
}

async fn watch_follows_until_nothing_is_left_to_follow(cluster: &TestCluster, plugin: &Plugin) {
    let patient = plugin.expect(&["watch", "--patience", "1s"], 4);
    assert!(
        patient.out.contains(
            "reed-3 NVIDIA (marsh-dra): Drain under DevicePlugin: ConsumersRemain (FH402)"
        ),
        "{}",
        patient.out
    );
    let late = plugin.expect(&["watch", "--timeout", "1s"], 124);
    assert!(
        late.err.contains("last seen: Under way: 1 waiting") && late.err.contains("--timeout"),
        "{}",
        late.err
    );

    on_a_terminal_there_are_bars_that_fit_it(plugin);
    let interrupted = plugin.watching().await;
    let pid = interrupted.child.id().expect("a process").to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .expect("kill runs")
            .success()
    );
    let (code, _, err) = interrupted.end().await;
    assert_eq!(code, Some(130), "{err}");
    assert!(err.contains("interrupted; last seen: Under way"), "{err}");

    let mut watching = plugin.watching().await;
    tell(cluster, "reed-3", &json!({"owner": null, "step": "Vacate", "reason": null, "message": null, "nextStep": null})).await;
    let vacating = watching.until("→ reed-3 NVIDIA (marsh-dra): Vacate").await;
    tell(cluster, "reed-3", &json!({"owner": "DRA", "step": "Held"})).await;
    let (code, told, err) = watching.end().await;
    let told = vacating + &told;
    assert_eq!(code, Some(0), "{told}{err}");
    for part in [
        "✓ reed-3 NVIDIA (marsh-dra): Held under DRA",
        "Ready: all 3 nodes",
    ] {
        assert!(told.contains(part), "{part:?} is missing: {told}");
    }
    assert!(!told.contains("reed-1"), "only changes are told: {told}");
}

/// Labels as the controller would have set them; there is no admission policy yet that keeps the test from it.
async fn own(cluster: &TestCluster, node: &str, owner: &str, cohort: &str) {
    let prefix = "freehold.node-restriction.kubernetes.io";
    let patch = json!({"metadata": {"labels": {format!("{prefix}/nvidia-owner"): owner, format!("{prefix}/nvidia-cohort"): cohort}}});
    Api::<Node>::all(cluster.admin())
        .patch(node, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

async fn plan_tells_what_would_change(cluster: &TestCluster, plugin: &Plugin) {
    own(cluster, "reed-1", "device-plugin", "marsh-plugin").await;
    own(cluster, "reed-2", "device-plugin", "marsh-plugin").await;
    own(cluster, "reed-3", "device-plugin", "marsh-plugin").await;
    let trainer: Pod = serde_json::from_value(json!({"metadata": {"name": "fit-0", "namespace": "ml"}, "spec": {"nodeName": "reed-3",
        "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "registry.example.com/fit:v1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}))
    .unwrap();
    // Without the controller manager there is no service account by itself.
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    Api::namespaced(cluster.admin(), "ml")
        .create(&PostParams::default(), &account)
        .await
        .unwrap();
    Api::namespaced(cluster.admin(), "ml")
        .create(&PostParams::default(), &trainer)
        .await
        .unwrap();

    let plan = plugin.expect(&["plan"], 0);
    assert!(
        plan.out.starts_with("Changes: 1 handover; 2 as wanted."),
        "{}",
        plan.out
    );
    let json = plugin
        .expect(&["plan", "--exit-code", "-o", "json"], 3)
        .json();
    let moves = json["moves"].as_array().unwrap();
    assert_eq!(moves.len(), 1, "{json}");
    assert_eq!(
        (
            &moves[0]["node"],
            &moves[0]["from"],
            &moves[0]["to"],
            &moves[0]["wave"]
        ),
        (
            &json!("reed-3"),
            &json!("DevicePlugin"),
            &json!("DRA"),
            &json!(1)
        )
    );
    assert_eq!(moves[0]["consumers"][0]["name"], "ml/fit-0");
    assert_eq!(
        moves[0]["blockers"],
        Value::Null,
        "nothing but the trainer is in the way: {json}"
    );

    let file = cluster.folder().join("intent.yaml");
    let intent = "apiVersion: freehold.dev/v1alpha1\nkind: AcceleratorCluster\nmetadata: {name: cluster}\nspec:\n  cohorts:\n  - {name: marsh-dra, vendor: NVIDIA, owner: DRA, nodeSelector: {matchExpressions: [{key: bank, operator: Exists}]}}\n  rollout: {maxUnavailable: 2, canary: {nodes: 0}}\n";
    std::fs::write(&file, intent).unwrap();
    let file = file.display().to_string();
    let overlaid = plugin.expect(&["plan", "-f", &file], 0);
    assert!(
        overlaid
            .out
            .starts_with("Changes: 3 handovers; 0 as wanted."),
        "{}",
        overlaid.out
    );
    std::fs::write(&file, intent.replace("owner: DRA", "owner: dra")).unwrap();
    let wrong = plugin.expect(&["plan", "-f", &file], 2);
    assert!(
        wrong.err.contains("intent.yaml") && wrong.err.contains("dra"),
        "{}",
        wrong.err
    );
    let absent = plugin.expect(&["plan", "-f", "/nowhere.yaml"], 2);
    assert!(absent.err.contains("/nowhere.yaml"), "{}", absent.err);
}

async fn smoke_prints_what_the_api_server_takes(cluster: &TestCluster, plugin: &Plugin) {
    let image = "registry.example.com/check@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let manifest = plugin.expect(&["smoke", "marsh-dra", "--image", image, "-n", "ml"], 0);
    assert!(manifest.err.is_empty(), "{}", manifest.err);
    cluster.apply_yaml(&manifest.out).await.unwrap();
    let job: Job = Api::namespaced(cluster.admin(), "ml")
        .get("marsh-dra-smoke")
        .await
        .unwrap();
    assert_eq!(job.spec.unwrap().suspend, Some(true));
    let template: ResourceClaimTemplate = Api::namespaced(cluster.admin(), "ml")
        .get("marsh-dra-smoke")
        .await
        .unwrap();
    assert_eq!(
        template.spec.spec.devices.unwrap().requests.unwrap().len(),
        1
    );

    let tagged = plugin.expect(
        &[
            "smoke",
            "marsh-plugin",
            "--image",
            "registry.example.com/check:v1",
        ],
        0,
    );
    assert!(
        tagged.err.contains("digest") && tagged.out.contains("nvidia.com/gpu: 1"),
        "{}{}",
        tagged.err,
        tagged.out
    );
    plugin.expect(&["smoke", "marsh-plugin"], 2);
    let unknown = plugin.expect(&["smoke", "fen", "--image", image], 2);
    assert!(unknown.err.contains("marsh-plugin"), "{}", unknown.err);
    for cohort in [
        "gpu-plugin",
        "gpu-dra",
        "a100-mig",
        "gpu-shared",
        "trn2-dra",
        "neuron-plugin",
    ] {
        let manifest = plugin.expect(
            &[
                "smoke",
                cohort,
                "--image",
                image,
                "-f",
                &sample(),
                "-n",
                "ml",
            ],
            0,
        );
        cluster.apply_yaml(&manifest.out).await.unwrap();
    }
}

/// The outcome of one check in the answer.
fn outcome(answer: &Value, id: &str) -> String {
    let finding = answer["findings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|finding| finding["id"] == id);
    finding.unwrap_or_else(|| panic!("{id} is missing: {answer}"))["outcome"]
        .as_str()
        .unwrap()
        .to_owned()
}

async fn half_an_installation_is_told_from_a_whole_one(cluster: &TestCluster, plugin: &Plugin) {
    let half = plugin.expect(&["preflight", "-o", "json"], 3).json();
    for (id, expected) in [
        ("FH1101", "Pass"),
        ("FH1102", "Pass"),
        ("FH1104", "Fail"),
        ("FH1105", "Fail"),
        ("FH1201", "Pass"),
        ("FH1204", "Pass"),
    ] {
        assert_eq!(outcome(&half, id), expected, "{id}: {half}");
    }

    install::install(cluster).await.unwrap();
    let whole = plugin.expect(&["preflight"], 0);
    assert!(whole.out.contains("All is in order"), "{}", whole.out);

    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(cluster.admin());
    bindings
        .delete("freehold-node-marks", &DeleteParams::default())
        .await
        .unwrap();
    let roles = Api::<ClusterRole>::all(cluster.admin());
    roles
        .patch(
            "freehold-agent",
            &PatchParams::default(),
            &Patch::Merge(json!({"rules": []})),
        )
        .await
        .unwrap();
    let rival: DaemonSet = serde_json::from_value(json!({"metadata": {"name": "plugin", "namespace": "ml"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "containers": [{"name": "c", "image": "mirror.example.com/nvidia/k8s-device-plugin:v0.17.0"}],
            "volumes": [{"name": "d", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]}}}}))
    .unwrap();
    Api::namespaced(cluster.admin(), "ml")
        .create(&PostParams::default(), &rival)
        .await
        .unwrap();
    let allocatable = json!({"status": {"allocatable": {"nvidia.com/gpu": "8"}, "capacity": {"nvidia.com/gpu": "8"}}});
    let node: Node =
        serde_json::from_value(json!({"metadata": {"name": "reed-4", "labels": {"bank": "left"}}}))
            .unwrap();
    let nodes = Api::<Node>::all(cluster.admin());
    nodes.create(&PostParams::default(), &node).await.unwrap();
    nodes
        .patch_status(
            "reed-4",
            &PatchParams::default(),
            &Patch::Merge(allocatable),
        )
        .await
        .unwrap();
    let broken = plugin.expect(&["preflight"], 3);
    for part in [
        "ValidatingAdmissionPolicyBinding freehold-node-marks: it does not exist",
        "ServiceAccount freehold-operands/freehold-agent: it may not get acceleratornodes.freehold.dev",
        "DaemonSet ml/plugin: it is a NVIDIA device plugin",
        "Node reed-4: NVIDIA devices are handed out by a device plugin that is not Freehold's",
    ] {
        assert!(
            broken.out.contains(part),
            "{part:?} is missing: {}",
            broken.out
        );
    }
    let file = cluster.folder().join("refused.yaml");
    std::fs::write(&file, "apiVersion: freehold.dev/v1alpha1\nkind: AcceleratorCluster\nmetadata: {name: cluster}\nspec: {cohorts: [{name: Fen, vendor: NVIDIA, owner: DRA, nodeSelector: {matchLabels: {a: b}}}]}\n").unwrap();
    let refused = plugin.expect(&["preflight", "-f", &file.display().to_string()], 2);
    assert!(refused.err.contains("Fen"), "{}", refused.err);
}
