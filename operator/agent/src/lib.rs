//! The node side of Freehold: one binary, `freehold-agent`, with a subcommand for each privilege.
//!
//! - [`witness`] reads the host and keeps the owner word. It runs as UID 0 without capabilities, holds no credential and
//!   speaks to nobody but the socket it serves ([`protocol`]).
//! - [`report`] holds the credential and nothing else: it watches this node's `AcceleratorNode`, asks the witness, and writes
//!   `status.report` when something changed.
//! - [`interlock`] is the sidecar of every operand pod: the operand starts only while its sidecar holds the node's lock for
//!   the vendor and the owner word is its own.
//! - [`shape`] makes the node's geometry what was ordered, where a cohort orders one. It alone may touch the devices, and speaks
//!   to nobody.
//!
//! Everything the witness reads hangs below a host root ([`host::Host`]), so that the same code runs on a real node and on a
//! tree of files. What such a tree holds is what a node holds:
//!
//! | path | what |
//! |---|---|
//! | `/proc/sys/kernel/random/boot_id` | boot ID |
//! | `/proc/driver/nvidia/{version,gpus/*/information,capabilities/gpu<minor>/mig/gi*/ci*}` | NVIDIA driver, GPUs, MIG devices |
//! | `/sys/bus/pci/devices/*/{vendor,device,class}` | devices with or without a driver |
//! | `/sys/module/{nvidia,neuron}/version` | driver versions |
//! | `/sys/devices/virtual/neuron_device/neuron<N>/` | Neuron devices |
//! | `/sys/devices/virtual/dmi/id/product_name` | instance type |
//! | `/opt/aws/neuron/logical_nc_config` | Logical NeuronCore setting; absent means the family's default |
//! | `<kubelet root>/pods/<uid>/`, `<kubelet root>/dra_manager_state` | pods and prepared claims |
//! | `<kubelet root>/plugins/<driver>/checkpoint.json`, `<kubelet root>/plugins_registry/` | the DRA driver's own record, registrations |
//! | `/var/lib/kubelet/device-plugins/` | plugin sockets and the device manager's checkpoint, wherever the kubelet root is |
//! | `/var/run/cdi/` | per-claim CDI files |
//! | `/sys/fs/cgroup/` | pod cgroups, v1 or v2 |
//! | `/var/lib/freehold/<vendor>/{lock,owner,order}` | the interlock |
//! | `/var/lib/freehold/<vendor>/{layout,shaped}` | the ordered geometry, and what the shaper says to it |
//!
//! A kubelet root counts as one only where it has a `pods` directory; with none at all, and without the device-plugin
//! directory, "nothing is in use" would be a guess and is not said.
#![forbid(unsafe_code)]

pub mod cli;
pub mod host;
pub mod interlock;
pub mod kubelet;
pub mod protocol;
pub mod reading;
pub mod report;
pub mod shape;
pub mod witness;
