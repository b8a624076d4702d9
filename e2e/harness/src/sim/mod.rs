//! Simulated nodes: what a kubelet, its device-plugin and DRA managers and the vendors' operands do on the API and on the
//! host, without containers. The control plane (scheduler, DaemonSet and garbage-collecting controllers, admission) is the
//! real one, and so are the `freehold-agent` processes that run on the simulated hosts.
//!
//! Start with [`Fleet::start`]; [`Fleet::node`] gives a [`NodeHandle`] for faults and conditions.

mod allocation;
mod board;
pub mod checkpoint;
mod claims;
mod container;
pub mod devices;
mod fleet;
mod handle;
mod keeper;
mod node;
pub mod node_object;
mod operands;
mod options;
mod pod;
mod process;
mod shapes;
mod slices;
mod state;
mod tree;
mod volumes;

pub use container::{EXIT_CODE, IGNORES_SIGTERM, RUN_FOR};
pub use fleet::{Fleet, is_ready};
pub use handle::{NodeHandle, wait_for};
pub use node::Observer;
pub use options::{Clock, FleetOptions};
pub use shapes::{Board, MigInstance, MigProfile, NeuronFamily, Shape, profiles_of};
pub use state::{Driver, Faults, Plugin, PluginOwner, State};
pub use tree::{CDI, DEVICE_PLUGINS, Tree};
