//! Settings of a fleet of simulated nodes.

use std::path::PathBuf;
use std::time::Duration;

/// Settings.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// Factor on every duration that a kubelet or an operand takes: 1.0 is as slow as measured on a real node, 0.1 ten times
    /// faster. Heartbeats are not scaled.
    pub scale: f64,
    /// The `freehold-agent` binary. Without one, pods that need it stay in ContainerCreating with a message that says so.
    pub agent: Option<PathBuf>,
    /// Where trees and logs go; a directory that is removed at the end when absent. Keep it short: sockets lie below it.
    pub directory: Option<PathBuf>,
    /// Where the processes in pods find the API server, when not at the cluster's own address.
    pub server: Option<String>,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            scale: 0.1,
            agent: None,
            directory: None,
            server: None,
        }
    }
}

/// Durations on a real node (kubelet 1.36.3, NVIDIA's operands), before scaling.
pub mod real {
    use std::time::Duration;

    /// A plugin registers until allocatable is set: the kubelet sends its status every 10 s; 6–8 s were seen either way.
    pub const STATUS_SYNC: Duration = Duration::from_secs(7);
    /// A plugin is gone until capacity, too, becomes 0.
    pub const CAPACITY_KEPT: Duration = Duration::from_secs(303);
    /// A DRA driver disconnects until the kubelet wipes its slices.
    pub const SLICES_KEPT: Duration = Duration::from_secs(30);
    /// A DRA driver is registered until its slices are there.
    pub const PUBLISH: Duration = Duration::from_secs(2);
    /// A device plugin starts until it has registered.
    pub const REGISTER: Duration = Duration::from_secs(1);
    /// A container is asked for until it runs.
    pub const CONTAINER_START: Duration = Duration::from_millis(800);
    /// A well-behaved container gets SIGTERM until it is gone.
    pub const CONTAINER_STOP: Duration = Duration::from_millis(500);
    /// Shortest grace of the kubelet: a force-deleted pod's container that ignores SIGTERM lives this long.
    pub const MINIMUM_GRACE: Duration = Duration::from_secs(2);
    /// Pod directory and cgroup outlive the last process.
    pub const CLEANUP: Duration = Duration::from_millis(900);
    /// Between two tries to prepare or unprepare claims.
    pub const CLAIM_RETRY: Duration = Duration::from_secs(11);
    /// Between two looks at claims whose pods are gone.
    pub const RECONCILE: Duration = Duration::from_secs(60);
    /// Between two tries to mount volumes.
    pub const MOUNT_RETRY: Duration = Duration::from_secs(2);
    /// First wait of a container that crashed twice; doubled each time.
    pub const CRASH_BACKOFF: Duration = Duration::from_secs(10);
    /// Longest wait of a container that keeps crashing.
    pub const MAX_CRASH_BACKOFF: Duration = Duration::from_secs(300);
    /// A live DRA driver notices that the kubelet wiped its slices.
    pub const REPUBLISH: Duration = Duration::from_secs(1);
}

/// Between two renewals of a node's Lease: a real kubelet's, never scaled since the node lifecycle controller's clock is real.
pub const LEASE_RENEWAL: Duration = Duration::from_secs(10);
/// Duration written into the Lease, in seconds.
pub const LEASE_SECONDS: i32 = 40;
/// Between two reports of an unchanged node status.
pub const STATUS_HEARTBEAT: Duration = Duration::from_secs(300);

/// Scales durations.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    scale: f64,
}

impl Clock {
    /// A clock with this factor. Factors that are no positive number count as 1.
    #[must_use]
    pub fn new(scale: f64) -> Self {
        Self {
            scale: if scale.is_finite() && scale > 0.0 {
                scale
            } else {
                1.0
            },
        }
    }

    /// A duration of a real node as it is here.
    #[must_use]
    pub fn scaled(self, duration: Duration) -> Duration {
        duration.mul_f64(self.scale)
    }

    /// Waits for a duration of a real node.
    pub async fn sleep(self, duration: Duration) {
        tokio::time::sleep(self.scaled(duration)).await;
    }
}
