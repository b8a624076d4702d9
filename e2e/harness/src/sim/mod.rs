//! Simulated nodes: what a kubelet, its device-plugin and DRA managers and the vendors' operands do on the API and on the
//! host, without containers. The control plane (scheduler, DaemonSet and garbage-collecting controllers, admission) is the
//! real one, and so are the `freehold-agent` processes that run on the simulated hosts.

pub mod checkpoint;
pub mod devices;
pub mod node_object;
pub mod shapes;
pub mod tree;

pub use shapes::{Board, MigInstance, MigProfile, NeuronFamily, Shape, profiles_of};
pub use tree::{CDI, DEVICE_PLUGINS, Tree};
