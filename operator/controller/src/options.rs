//! Command-line options. Every one has a default that suits a cluster; tests shorten the clocks.

use std::net::SocketAddr;

use clap::Args;

/// Options of `freehold-operator run`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Image of the agent and of the interlock sidecar in every operand pod.
    #[arg(long, env = "FREEHOLD_AGENT_IMAGE", default_value = freehold_core::catalogue::AGENT_IMAGE)]
    pub agent_image: String,
    /// Secrets in the operand namespace to pull that image with.
    #[arg(
        long = "agent-image-pull-secret",
        env = "FREEHOLD_AGENT_IMAGE_PULL_SECRETS",
        value_delimiter = ','
    )]
    pub agent_image_pull_secrets: Vec<String>,
    /// Name of this replica in the lease; the pod's name.
    #[arg(long, env = "POD_NAME", default_value = "freehold-operator")]
    pub identity: String,
    /// Address of /healthz, /readyz and /metrics.
    #[arg(long, default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,
    /// Writes under way at once. Sixteen keep an API server of two cores busy without crowding others out.
    #[arg(long, default_value_t = 16)]
    pub concurrency: usize,
    /// Seconds that a fence must be seen before it counts, for schedulers that had not seen the taint.
    #[arg(long, default_value_t = 5)]
    pub settle_seconds: u64,
    /// Seconds that an advertisement must hold before it counts.
    #[arg(long, default_value_t = 3)]
    pub stable_seconds: u64,
    /// Seconds after which a step that does not move is reported as a blocker.
    #[arg(long, default_value_t = 300)]
    pub patience_seconds: u64,
    /// Seconds that a lease is held without renewal. It is renewed half that time before it ends.
    #[arg(long, default_value_t = 60)]
    pub lease_seconds: u64,
    /// Milliseconds that a node's state must rest before its status is written, so that a quick way through several steps
    /// costs one write. A step of a handover that nothing holds up is told after forty times that, and other words for the same
    /// reason after ten times that.
    #[arg(long, default_value_t = 1000)]
    pub status_rest_ms: u64,
    /// Seconds that a watch may fail without a break before this replica says that it is not ready, since what it knows may be
    /// that old.
    #[arg(long, default_value_t = 120)]
    pub cache_age_seconds: u64,
    /// List with pages instead of streaming the initial list, for API servers that refuse the latter.
    #[arg(long)]
    pub paged_lists: bool,
}
