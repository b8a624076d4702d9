//! The reporter against a real API server, with the installation's own permissions and policies.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what fails here fails a test"
)]

mod support;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use freehold_agent::interlock::lock::Lock;
use freehold_api::AcceleratorNode;
use freehold_core::names;
use freehold_core::report::NodeReport;
use freehold_core::vendor::Owner;
use freehold_e2e::cluster::{Component, Filter, Options, TestCluster, eventually};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use support::{Agent, BOOT, Tree, cpu_ticks, is_release, resident_kib};

const NODE: &str = "rack-9-host-4";
const OTHER: &str = "rack-9-host-5";
const CLAIM: &str = "0b5d8d2e-6a0c-4a5e-9d8b-1f2a3b4c5d6e";
const LIMIT: Duration = Duration::from_secs(30);

/// A cluster, one host in it, and its agent.
struct Site {
    cluster: TestCluster,
    tree: Tree,
    /// As the controller, which alone may give orders.
    api: Api<AcceleratorNode>,
    kubeconfig: PathBuf,
    token: PathBuf,
}

impl Site {
    async fn new() -> Self {
        let cluster = TestCluster::start(Options::named("agent-report").unwrap().api_server_only())
            .await
            .unwrap();
        let top = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let files = ["namespaces", "agent-rbac", "controller-rbac"]
            .map(|name| format!("config/install/{name}.yaml"));
        for file in files
            .into_iter()
            .chain(["crds/freehold.dev_acceleratornodes.yaml".to_owned()])
        {
            cluster
                .apply_yaml(&std::fs::read_to_string(top.join(file)).unwrap())
                .await
                .unwrap();
        }
        cluster
            .apply_dir(top.join("config/install/policies"))
            .await
            .unwrap();
        for node in [NODE, OTHER] {
            let pod = format!("agent-{node}");
            let objects = format!(
                "
apiVersion: v1
kind: Node
metadata: {{name: {node}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {pod}, namespace: {namespace}}}
spec: {{nodeName: {node}, serviceAccountName: {account}, containers: [{{name: main, image: registry.example.com/a:v1}}]}}
",
                namespace = names::OPERAND_NAMESPACE,
                account = names::AGENT_SERVICE_ACCOUNT,
            );
            cluster.apply_yaml(&objects).await.unwrap();
        }
        let tree = Tree::new();
        tree.dir("/run");
        tree.gpus(2, "NVIDIA H200", "570.86.15");
        let token = tree.at("/run/token");
        let controller = (names::SYSTEM_NAMESPACE, names::CONTROLLER_SERVICE_ACCOUNT);
        let controller = cluster
            .service_account_token(controller.0, controller.1, None)
            .await
            .unwrap();
        let site = Self {
            api: Api::all(cluster.client_for_token(&controller).unwrap()),
            kubeconfig: cluster
                .kubeconfig_with_token("nobody", "not-a-token")
                .unwrap(),
            cluster,
            tree,
            token,
        };
        site.write_token(NODE).await;
        site
    }

    async fn write_token(&self, node: &str) {
        let (namespace, account) = (names::OPERAND_NAMESPACE, names::AGENT_SERVICE_ACCOUNT);
        let pod = format!("agent-{node}");
        let token = self
            .cluster
            .service_account_token(namespace, account, Some(&pod))
            .await
            .unwrap();
        self.tree.file("/run/token", &token);
    }

    fn witness(&self) -> Agent {
        let (root, socket) = (
            self.tree.root().to_str().unwrap(),
            self.tree.at("/run/w.sock"),
        );
        Agent::start(&[
            "witness",
            "--host-root",
            root,
            "--socket",
            socket.to_str().unwrap(),
        ])
    }

    fn reporter(&self, poll: &str) -> Agent {
        let (socket, token) = (self.tree.at("/run/w.sock"), self.token.to_str().unwrap());
        let arguments = [
            "report",
            "--node-name",
            NODE,
            "--socket",
            socket.to_str().unwrap(),
            "--token-file",
            token,
            "--poll",
            poll,
        ];
        Agent::start_with(
            &arguments,
            &[("KUBECONFIG", self.kubeconfig.to_str().unwrap())],
        )
    }

    async fn node_uid(&self, name: &str) -> String {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.cluster.admin());
        nodes.get(name).await.unwrap().metadata.uid.unwrap()
    }

    async fn create(&self, spec: Value) {
        let object = AcceleratorNode::new(NODE, serde_json::from_value(spec).unwrap());
        self.api
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
    }

    /// A merge into the spec.
    async fn order(&self, spec: Value) {
        self.api
            .patch(
                NODE,
                &PatchParams::default(),
                &Patch::Merge(json!({"spec": spec})),
            )
            .await
            .unwrap();
    }

    /// Waits for a report that pleases, and returns it.
    async fn report(&self, what: &str, pleases: impl Fn(&NodeReport) -> bool) -> NodeReport {
        let found = eventually(what, LIMIT, async || {
            let report = self
                .api
                .get(NODE)
                .await?
                .status
                .and_then(|status| status.report);
            Ok(report.filter(|report| pleases(report)))
        });
        match found.await {
            Ok(report) => report,
            Err(error) => panic!(
                "{error:#}; last: {:#?}",
                self.api.get(NODE).await.unwrap().status
            ),
        }
    }

    /// Waits for the answer to a term of NVIDIA's.
    async fn answer(&self, term: i64) -> NodeReport {
        self.report(&format!("an answer to term {term}"), |report| {
            report
                .nvidia
                .as_ref()
                .is_some_and(|part| part.observed_term == term)
        })
        .await
    }

    fn agent_writes() -> Filter {
        Filter::all().service_account(names::OPERAND_NAMESPACE, names::AGENT_SERVICE_ACCOUNT)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reporter_tells_a_real_api_server_what_its_host_says() {
    let site = Site::new().await;
    let node_uid = site.node_uid(NODE).await;

    let mut reporter = an_unreachable_api_server_ends_nobody(&site).await;
    let mut witness = site.witness();
    the_first_report_answers_the_first_term(&site, &node_uid).await;
    at_rest_nothing_is_written_and_little_is_used(&site, &reporter, &witness).await;
    holders_are_reported_when_they_come_and_when_they_go(&site).await;
    the_word_is_handed_only_while_no_operand_is_alive(&site).await;
    another_writer_of_the_status_is_no_obstacle(&site).await;
    a_reboot_shows(&site).await;
    a_silent_witness_voids_the_attestation(&site, &mut witness).await;
    pods_that_come_and_go_on_a_node_at_rest_cost_no_write(&site).await;
    assert!(reporter.stops() < Duration::from_secs(2));

    a_raised_term_is_answered_at_once(&site).await;
    a_deleted_object_is_answered_again_when_it_returns(&site, &node_uid).await;
    orders_for_a_predecessor_of_this_node_are_not_carried_out(&site).await;
    another_node_s_token_reports_nothing(&site).await;
    site.cluster.stop().unwrap();
}

async fn an_unreachable_api_server_ends_nobody(site: &Site) -> Agent {
    site.cluster
        .stop_component(Component::ApiServer)
        .await
        .unwrap();
    let mut reporter = site.reporter("200ms");
    reporter.says("the watch failed");
    // Several tries, and still one process that said it once.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(reporter.is_running(), "{:#?}", reporter.said());
    assert!(
        reporter.said().len() <= 2,
        "said once for each change: {:#?}",
        reporter.said()
    );
    site.cluster
        .start_component(Component::ApiServer)
        .await
        .unwrap();
    reporter
}

async fn the_first_report_answers_the_first_term(site: &Site, node_uid: &str) {
    site.create(json!({"nodeUID": node_uid, "nvidia": {"term": 1}}))
        .await;
    let report = site.answer(1).await;
    assert_eq!(
        (report.node_uid.as_str(), report.boot_id.as_str()),
        (node_uid, BOOT)
    );
    let part = report.nvidia.unwrap();
    assert!(part.in_use.is_idle());
    assert_eq!((part.word, part.word_term), (None, 0));
    assert_eq!((part.pci_devices, part.inventory.devices), (2, 2));
    assert_eq!(report.neuron, None, "neither hardware nor order");
    assert_eq!(report.errors, Vec::<String>::new());
}

async fn at_rest_nothing_is_written_and_little_is_used(
    site: &Site,
    reporter: &Agent,
    witness: &Agent,
) {
    const SECONDS: u64 = 5;
    /// The agent pod's share of a node: both containers together.
    const MOST_KIB: u64 = 16 << 10;
    let audit = site.cluster.audit();
    let mark = audit.mark().await.unwrap();
    let before = [reporter, witness].map(|agent| cpu_ticks(agent.pid()));
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let requests = audit
        .requests_since(mark, &Site::agent_writes())
        .await
        .unwrap();
    let counts = requests.by_user_verb_resource();
    assert!(
        requests.events.iter().all(|event| event.verb == "watch"),
        "25 polls, and nothing but the watch: {counts:?}"
    );
    let mut sum = 0;
    for ((name, agent), before) in [("report", reporter), ("witness", witness)]
        .into_iter()
        .zip(before)
    {
        let (memory, ticks) = (resident_kib(agent.pid()), cpu_ticks(agent.pid()) - before);
        println!(
            "{name}: {memory} KiB RSS, {} ms of processor time a second at 5 polls a second",
            ticks * 10 / SECONDS
        );
        sum += memory;
    }
    println!("the agent pod: {sum} KiB RSS");
    assert!(!is_release() || sum <= MOST_KIB, "{sum} KiB");
}

async fn holders_are_reported_when_they_come_and_when_they_go(site: &Site) {
    site.tree
        .dra_state("/var/lib/kubelet", &[(CLAIM, "train", "gpu.nvidia.com")]);
    let used = site
        .report("a holder", |report| {
            report
                .nvidia
                .as_ref()
                .is_some_and(|part| part.in_use.dra == 1)
        })
        .await;
    assert_eq!(used.nvidia.unwrap().in_use.holders, ["claim lab/train"]);
    site.tree.dra_state("/var/lib/kubelet", &[]);
    site.report("no holder", |report| {
        report
            .nvidia
            .as_ref()
            .is_some_and(|part| part.in_use.is_idle())
    })
    .await;
}

/// The controller has what it asked for and says so; a claim comes and goes, and comes again.
async fn pods_that_come_and_go_on_a_node_at_rest_cost_no_write(site: &Site) {
    const POLLS: Duration = Duration::from_secs(1);
    let verifies = json!({"status": {"tenures": {"nvidia": {"step": "Verify", "since": "2026-01-01T00:00:00Z"}}}});
    let rests = json!({"status": {"tenures": {"nvidia": {"step": "Held", "since": "2026-01-01T00:00:00Z"}}}});
    for status in [verifies, rests] {
        site.api
            .patch_status(NODE, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
        tokio::time::sleep(POLLS).await;
    }
    let mark = site.cluster.audit().mark().await.unwrap();
    for claims in [
        &[(CLAIM, "train", "gpu.nvidia.com")][..],
        &[],
        &[(CLAIM, "eval", "gpu.nvidia.com")],
    ] {
        site.tree.dra_state("/var/lib/kubelet", claims);
        tokio::time::sleep(POLLS).await;
    }
    let audit = site.cluster.audit();
    let writes = audit
        .writes_since(mark, &Site::agent_writes())
        .await
        .unwrap();
    assert_eq!(writes.count(), 0, "{writes}");

    // Whoever asks is told all of it at once.
    site.order(json!({"nvidia": {"term": 4}})).await;
    let used = site.answer(4).await.nvidia.unwrap().in_use;
    assert_eq!(
        (used.dra, used.holders),
        (1, vec!["claim lab/eval".to_owned()])
    );
    site.tree.dra_state("/var/lib/kubelet", &[]);
    let freed = |report: &NodeReport| {
        report
            .nvidia
            .as_ref()
            .is_some_and(|part| part.in_use.is_idle())
    };
    site.report("and then that it is gone", freed).await;
}

async fn the_word_is_handed_only_while_no_operand_is_alive(site: &Site) {
    site.order(json!({"nvidia": {"term": 2, "owner": "DevicePlugin", "cohort": "blue"}}))
        .await;
    let report = site.answer(2).await.nvidia.unwrap();
    assert_eq!(
        (report.word, report.word_term),
        (Some(Owner::DevicePlugin), 2)
    );
    assert_eq!(site.tree.read_word("nvidia").unwrap(), "device-plugin\n");

    let operand = Lock::try_take(&site.tree.at("/var/lib/freehold/nvidia"))
        .unwrap()
        .unwrap();
    site.order(json!({"nvidia": {"term": 3, "owner": "DRA", "cohort": "green"}}))
        .await;
    let report = site.answer(3).await;
    let part = report.nvidia.unwrap();
    assert_eq!(
        (part.word, part.word_term),
        (Some(Owner::DevicePlugin), 0),
        "not confirmed for this term"
    );
    assert_eq!(
        report.errors,
        [
            "owner word of NVIDIA: ordered dra, in force device-plugin: an operand of this node holds the lock"
        ]
    );
    drop(operand);
    let confirmed = |report: &NodeReport| {
        report
            .nvidia
            .as_ref()
            .is_some_and(|part| (part.word, part.word_term) == (Some(Owner::Dra), 3))
    };
    let report = site.report("the word, asked for again", confirmed).await;
    assert_eq!(report.errors, Vec::<String>::new());
}

async fn another_writer_of_the_status_is_no_obstacle(site: &Site) {
    for round in 0..10 {
        let step = json!({"tenures": {"nvidia": {"step": "Held", "since": format!("2026-01-01T00:00:{round:02}Z")}}});
        site.api
            .patch_status(
                NODE,
                &PatchParams::default(),
                &Patch::Merge(json!({"status": step})),
            )
            .await
            .unwrap();
        site.tree.file(
            &format!("/var/lib/kubelet/device-plugins/nvidia-{round}.sock"),
            "",
        );
    }
    let report = site
        .report("eight sockets", |report| {
            report
                .nvidia
                .as_ref()
                .is_some_and(|part| part.plugin_sockets.len() == 8)
        })
        .await;
    assert_eq!(report.nvidia.unwrap().plugin_sockets[0], "nvidia-0.sock");
    let tenures = site.api.get(NODE).await.unwrap().status.unwrap().tenures;
    assert_eq!(
        tenures.nvidia.unwrap().since.0.to_string(),
        "2026-01-01T00:00:09Z",
        "what the controller wrote is untouched"
    );
    for round in 0..10 {
        site.tree.remove(&format!(
            "/var/lib/kubelet/device-plugins/nvidia-{round}.sock"
        ));
    }
    site.report("no socket", |report| {
        report
            .nvidia
            .as_ref()
            .is_some_and(|part| part.plugin_sockets.is_empty())
    })
    .await;
}

async fn a_reboot_shows(site: &Site) {
    site.tree.file(
        "/proc/sys/kernel/random/boot_id",
        "b007b007-0000-4000-8000-000000000002\n",
    );
    let report = site
        .report("the new boot", |report| {
            report.boot_id.starts_with("b007b007")
        })
        .await;
    assert_eq!(report.nvidia.unwrap().observed_term, 3);
}

async fn a_silent_witness_voids_the_attestation(site: &Site, witness: &mut Agent) {
    witness.signal("KILL");
    witness.ends();
    let report = site
        .report("doubt", |report| {
            report
                .nvidia
                .as_ref()
                .is_some_and(|part| part.in_use.unknown)
        })
        .await;
    assert!(
        report.errors[0].starts_with("the witness does not answer: "),
        "{:?}",
        report.errors
    );
    assert_eq!(
        report.nvidia.unwrap().observed_term,
        3,
        "no new term is answered blindly"
    );
    *witness = site.witness();
    let report = site
        .report("certainty", |report| {
            report
                .nvidia
                .as_ref()
                .is_some_and(|part| !part.in_use.unknown)
        })
        .await;
    assert_eq!(report.errors, Vec::<String>::new());
}

async fn a_raised_term_is_answered_at_once(site: &Site) {
    // With an hour between polls, only the watch can bring the order.
    let mut reporter = site.reporter("1h");
    let mark = site.cluster.audit().mark().await.unwrap();
    site.order(json!({"nvidia": {"term": 5}})).await;
    site.answer(5).await;
    let asked = Instant::now();
    for term in 6..11 {
        site.order(json!({"nvidia": {"term": term}})).await;
        site.answer(term).await;
    }
    let each = asked.elapsed() / 5;
    println!("a raised term is answered after {} ms", each.as_millis());
    assert!(each < Duration::from_secs(2), "{each:?}");
    let writes = site
        .cluster
        .audit()
        .writes_since(mark, &Site::agent_writes())
        .await
        .unwrap();
    assert_eq!(
        writes.count(),
        6,
        "one write for each term: {:?}",
        writes.by_user_verb_resource()
    );
    assert!(reporter.stops() < Duration::from_secs(2));
}

async fn a_deleted_object_is_answered_again_when_it_returns(site: &Site, node_uid: &str) {
    let mut reporter = site.reporter("1h");
    Api::<AcceleratorNode>::all(site.cluster.admin())
        .delete(NODE, &DeleteParams::default())
        .await
        .unwrap();
    the_first_report_of_a_new_object(site, node_uid).await;
    assert!(reporter.stops() < Duration::from_secs(2));
}

async fn the_first_report_of_a_new_object(site: &Site, node_uid: &str) {
    site.create(json!({"nodeUID": node_uid, "nvidia": {"term": 1, "owner": "DevicePlugin"}, "neuron": {"term": 7}})).await;
    let report = site.answer(1).await;
    let part = report.nvidia.unwrap();
    assert_eq!(
        (part.word, part.word_term),
        (Some(Owner::DevicePlugin), 1),
        "terms start anew with the object"
    );
    let neuron = report.neuron.unwrap();
    assert_eq!(
        (neuron.observed_term, neuron.pci_devices),
        (7, 0),
        "an order is answered where there is nothing, too"
    );
}

async fn orders_for_a_predecessor_of_this_node_are_not_carried_out(site: &Site) {
    let mut reporter = site.reporter("200ms");
    site.order(
        json!({"nodeUID": "the-uid-of-an-earlier-node", "nvidia": {"term": 2, "owner": "DRA"}}),
    )
    .await;
    let report = site.answer(2).await;
    assert_eq!(
        report.node_uid,
        site.node_uid(NODE).await,
        "the report says whose it is"
    );
    let part = report.nvidia.unwrap();
    assert_eq!((part.word, part.word_term), (Some(Owner::DevicePlugin), 0));
    assert_eq!(site.tree.read_word("nvidia").unwrap(), "device-plugin\n");
    assert!(reporter.stops() < Duration::from_secs(2));
}

async fn another_node_s_token_reports_nothing(site: &Site) {
    site.write_token(OTHER).await;
    let mark = site.cluster.audit().mark().await.unwrap();
    let mut reporter = site.reporter("200ms");
    reporter.says(&format!(
        "the token is for node {OTHER}, and --node-name is {NODE}"
    ));
    site.order(json!({"nvidia": {"term": 3}})).await;
    // The kubelet rotates the token; now it is the right one, and the same process goes on.
    site.write_token(NODE).await;
    let writes = site
        .cluster
        .audit()
        .writes_since(mark, &Site::agent_writes())
        .await
        .unwrap();
    assert!(
        writes.events.iter().all(|event| event.name() == NODE),
        "{:?}",
        writes.by_user_verb_resource()
    );
    assert!(reporter.is_running());
    assert!(reporter.stops() < Duration::from_secs(2));
}
