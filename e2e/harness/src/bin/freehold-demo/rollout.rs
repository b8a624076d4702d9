//! The rollout as it happens: a bar for each cohort on a terminal, a line for each change elsewhere.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use freehold_api::{AcceleratorCluster, AcceleratorNode};
use freehold_core::names;
use freehold_core::tenure::Step;
use freehold_core::vendor::Vendor;
use freehold_e2e::cluster::TestCluster;
use freehold_e2e::sample_fleet::{Member, Outcome};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use super::{ROLLOUT_LIMIT, say};

/// Between two looks; people see changes at this pace as happening at once.
const INTERVAL: Duration = Duration::from_millis(200);

/// Watches until every node is where it should be.
pub(super) async fn watch(cluster: &TestCluster, fleet: &[Member], terminal: bool) -> Result<()> {
    let nodes = Api::<AcceleratorNode>::all(cluster.admin());
    let clusters = Api::<AcceleratorCluster>::all(cluster.admin());
    let mut view = View::new(terminal);
    let deadline = Instant::now() + ROLLOUT_LIMIT;
    loop {
        let records = nodes.list(&ListParams::default()).await?.items;
        let object = clusters.get(names::SINGLETON).await?;
        view.show(&object, &records);
        let missing: Vec<String> = fleet
            .iter()
            .filter_map(|member| missing(member, &records))
            .collect();
        if missing.is_empty() && reported(&object, fleet) {
            view.finish();
            return Ok(());
        }
        if Instant::now() > deadline {
            view.finish();
            bail!(
                "after {ROLLOUT_LIMIT:?} these nodes are not where they should be:\n  {}",
                missing.join("\n  ")
            );
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The cluster's own numbers say so too.
fn reported(cluster: &AcceleratorCluster, fleet: &[Member]) -> bool {
    let held = fleet
        .iter()
        .filter(|member| matches!(member.outcome, Outcome::Held(..)))
        .count();
    cluster
        .status
        .as_ref()
        .is_some_and(|status| usize::try_from(status.nodes.ready) == Ok(held))
}

fn missing(member: &Member, records: &[AcceleratorNode]) -> Option<String> {
    let (vendor, wanted) = match &member.outcome {
        Outcome::Held(vendor, owner) => (*vendor, format!("held by {owner}")),
        Outcome::Left(vendor, reason) => (*vendor, format!("left alone: {}", reason.name())),
    };
    let record = records
        .iter()
        .find(|record| record.name_any() == member.name);
    let tenure = record
        .and_then(|record| record.status.as_ref())
        .and_then(|status| status.tenures.vendor(vendor));
    let right = tenure.is_some_and(|tenure| match &member.outcome {
        Outcome::Held(_, owner) => {
            tenure.step == Step::Held && tenure.owner == Some(*owner) && tenure.reason.is_none()
        }
        Outcome::Left(_, reason) => tenure.reason == Some(*reason),
    });
    let found = tenure.map_or_else(
        || "nothing known yet".to_owned(),
        |tenure| {
            format!(
                "{:?} {}",
                tenure.step,
                tenure.message.as_deref().unwrap_or_default()
            )
        },
    );
    (!right).then(|| format!("{}: wanted {wanted}, found {found}", member.name))
}

struct View {
    terminal: bool,
    bars: MultiProgress,
    cohorts: BTreeMap<String, ProgressBar>,
    told: BTreeMap<String, String>,
}

impl View {
    fn new(terminal: bool) -> Self {
        Self {
            terminal,
            bars: MultiProgress::new(),
            cohorts: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    fn show(&mut self, cluster: &AcceleratorCluster, records: &[AcceleratorNode]) {
        if self.terminal {
            self.draw(cluster);
        }
        for record in records {
            for vendor in Vendor::ALL {
                let Some(tenure) = record
                    .status
                    .as_ref()
                    .and_then(|status| status.tenures.vendor(vendor))
                else {
                    continue;
                };
                let owner = tenure
                    .owner
                    .map_or_else(String::new, |owner| format!(" by {owner}"));
                let why = tenure
                    .reason
                    .map_or_else(String::new, |reason| format!(" ({})", reason.name()));
                self.tell(
                    &record.name_any(),
                    format!("{vendor} {:?}{owner}{why}", tenure.step),
                );
            }
        }
    }

    fn tell(&mut self, node: &str, line: String) {
        if self.told.get(node) == Some(&line) {
            return;
        }
        let text = format!("  {node:<16} {line}");
        if self.terminal {
            // Above the bars; a terminal that refuses a line still shows the bars.
            let _ = self.bars.println(text);
        } else {
            say(&text);
        }
        self.told.insert(node.to_owned(), line);
    }

    fn draw(&mut self, cluster: &AcceleratorCluster) {
        for cohort in cluster.status.iter().flat_map(|status| &status.cohorts) {
            let bar = self.cohorts.entry(cohort.name.clone()).or_insert_with(|| {
                let style = ProgressStyle::with_template(
                    "  {prefix:<16} {bar:24.cyan/dim} {pos}/{len} ready  {msg}",
                )
                .unwrap_or_else(|_| ProgressStyle::default_bar());
                self.bars.add(
                    ProgressBar::new(0)
                        .with_style(style)
                        .with_prefix(cohort.name.clone()),
                )
            });
            let nodes = &cohort.nodes;
            bar.set_length(u64::try_from(nodes.matched - nodes.excluded).unwrap_or(0));
            bar.set_position(u64::try_from(nodes.ready).unwrap_or(0));
            bar.set_message(format!("{} by {}", cohort.vendor, cohort.owner));
        }
    }

    fn finish(&self) {
        for bar in self.cohorts.values() {
            bar.abandon();
        }
    }
}
