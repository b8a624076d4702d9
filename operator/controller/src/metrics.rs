//! Metrics, in bounded label sets, with counters that start at zero.

use std::sync::atomic::AtomicI64;

use freehold_core::blocker::Reason;
use freehold_core::tenure::Step;
use freehold_core::vendor::Vendor;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Labels of node gauges.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct NodeLabels {
    pub(crate) vendor: &'static str,
    pub(crate) owner: &'static str,
    pub(crate) step: String,
}

/// Label of blocker gauges.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ReasonLabel {
    pub(crate) reason: String,
}

/// Labels of write counters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct WriteLabels {
    /// `node`, `record`, `pod`, `object`, `node_status`, `cluster_status`, `event`.
    pub(crate) target: &'static str,
    /// `ok` or a category of failure.
    pub(crate) result: &'static str,
}

/// Label of watch counters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct KindLabel {
    pub(crate) kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// Everything that is measured.
#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) nodes: Family<NodeLabels, Gauge>,
    pub(crate) blocked: Family<ReasonLabel, Gauge>,
    pub(crate) writes: Family<WriteLabels, Counter>,
    pub(crate) watch_failures: Family<KindLabel, Counter>,
    pub(crate) leading: Gauge<i64, AtomicI64>,
    /// Seconds from complete evidence (a cached decision to write) to the guarded write's answer.
    pub(crate) write_seconds: Histogram,
}

/// Targets of writes, to start their counters at zero.
const TARGETS: [&str; 7] = [
    "node",
    "record",
    "pod",
    "object",
    "node_status",
    "cluster_status",
    "event",
];

impl Metrics {
    /// Makes and registers them.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            nodes: Family::default(),
            blocked: Family::default(),
            writes: Family::default(),
            watch_failures: Family::default(),
            leading: Gauge::default(),
            write_seconds: Histogram::new([
                0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0,
            ]),
        };
        for target in TARGETS {
            metrics
                .writes
                .get_or_create(&WriteLabels {
                    target,
                    result: "ok",
                })
                .inc_by(0);
        }
        let build = Family::<BuildLabels, Gauge>::default();
        build
            .get_or_create(&BuildLabels {
                version: env!("CARGO_PKG_VERSION"),
            })
            .set(1);
        registry.register(
            "freehold_build_info",
            "The version that runs; always 1",
            build,
        );
        registry.register(
            "freehold_nodes",
            "Nodes by vendor, owner and step of their tenure",
            metrics.nodes.clone(),
        );
        registry.register(
            "freehold_blocked_nodes",
            "Nodes by the reason that they do not go on",
            metrics.blocked.clone(),
        );
        registry.register(
            "freehold_writes",
            "Writes to the API server by target and result",
            metrics.writes.clone(),
        );
        registry.register(
            "freehold_watch_failures",
            "Failed or broken watches by kind",
            metrics.watch_failures.clone(),
        );
        registry.register(
            "freehold_leading",
            "1 while this replica leads",
            metrics.leading.clone(),
        );
        registry.register_with_unit(
            "freehold_write_duration",
            "From a decision to the answer of its guarded write",
            Unit::Seconds,
            metrics.write_seconds.clone(),
        );
        metrics
    }

    /// Counts a write.
    pub(crate) fn wrote(&self, target: &'static str, result: &'static str) {
        self.writes
            .get_or_create(&WriteLabels { target, result })
            .inc();
    }

    /// Replaces the node gauges: series of states that no node is in disappear.
    pub(crate) fn set_nodes(
        &self,
        nodes: impl Iterator<Item = (Vendor, &'static str, Step, Option<Reason>)>,
    ) {
        self.nodes.clear();
        self.blocked.clear();
        for (vendor, owner, step, reason) in nodes {
            self.nodes
                .get_or_create(&NodeLabels {
                    vendor: vendor.key(),
                    owner,
                    step: format!("{step:?}"),
                })
                .inc();
            if let Some(reason) = reason {
                self.blocked
                    .get_or_create(&ReasonLabel {
                        reason: format!("{reason:?}"),
                    })
                    .inc();
            }
        }
    }
}

/// The registry in text form.
///
/// # Errors
/// When it cannot be written as text, which is a defect.
pub(crate) fn text(registry: &Registry) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    Ok(text)
}
