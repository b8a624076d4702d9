//! `kubectl freehold` against a real API server: what it prints, and how it exits. The controller's part is written by the test.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy.toml frees only functions marked as tests"
)]

mod fleet;
mod plan;
mod plugin;
mod preflight;
mod smoke;
mod status;
mod watch;

use freehold_e2e::cluster::{Options, TestCluster};
use freehold_e2e::install::{Programs, repository};

use plugin::Plugin;

#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_tells_a_cluster_from_bare_to_installed() {
    let programs = Programs::build().unwrap();
    let options = Options::named("cli").unwrap().api_server_only();
    let cluster = TestCluster::start(options).await.unwrap();
    let plugin = Plugin {
        program: programs.cli.clone(),
        kubeconfig: cluster.kubeconfig_admin(),
    };

    status::wrong_usage_says_what_is_wrong(&plugin);
    status::without_crds_the_way_to_an_installation_is_pointed_out(&plugin);
    preflight::a_bare_cluster_is_ready_for_an_installation_and_can_be_planned_for(&plugin);

    cluster.apply_dir(repository().join("crds")).await.unwrap();
    let absent = plugin.expect(&["status"], 1);
    assert!(
        absent.err.contains("no AcceleratorCluster"),
        "{}",
        absent.err
    );
    assert!(absent.out.is_empty(), "data only on stdout: {}", absent.out);

    fleet::a_fleet(&cluster).await;
    status::status_sums_up_and_exits_accordingly(&cluster, &plugin).await;
    status::explain_tells_one_node(&plugin);
    status::who_may_read_little_is_told_what_is_missing(&cluster, &programs).await;
    plan::plan_tells_what_would_change(&cluster, &plugin).await;
    watch::watch_follows_until_nothing_is_left_to_follow(&cluster, &plugin).await;
    smoke::smoke_prints_what_the_api_server_takes(&cluster, &plugin).await;

    preflight::half_an_installation_is_told_from_a_whole_one(&cluster, &plugin).await;
    cluster.stop().unwrap();
}
