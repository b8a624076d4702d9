//! Shaping: the node's geometry made what was ordered, and kept so.
//!
//! One process of its own does it, the *shaper*: the only one of ours that may touch the devices. It speaks to nobody. It and the
//! witness meet in the vendor's directory of the interlock, `/var/lib/freehold/<vendor>/`, over two files:
//! - `layout`: what was ordered, written by the witness from the `AcceleratorNode` ([`order`]);
//! - `shaped`: what the shaper found and did, written by the shaper ([`shaped`]) and told onward by the witness ([`told`]).
//!
//! The shaper ([`shaper`]) changes the geometry only while it holds the interlock's lock, that is, while no operand is alive. Where
//! a layout is wanted, an operand starts only when it is verified in this boot: the interlock's sidecar asks [`gate`]. So a node
//! whose geometry was lost in a reboot brings its operand back by itself, and never with the wrong devices.
//!
//! | module | is |
//! |---|---|
//! | [`engine`] | the seam between the shaper and the devices |
//! | [`lnc`] | the engine for Neuron devices: the Logical NeuronCore setting |
//! | [`mig`] | the engine for NVIDIA devices: MIG mode and instances |
//! | [`order`], [`shaped`] | the two files |
//! | [`gate`] | whether an operand may start |
//! | [`told`], `bounds` | what a reading says about all this, and what of it fits there |
//! | [`shaper`], [`watch`] | the process, and what wakes it |

mod bounds;
pub mod engine;
pub mod gate;
pub mod lnc;
pub mod mig;
pub mod order;
pub mod shaped;
pub mod shaper;
pub mod told;
pub mod watch;

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use serde::de::DeserializeOwned;

/// Largest file that is read: eight GPUs of different kinds, all cut small, come to some 20 KiB.
const MAX_BYTES: u64 = 256 << 10;

/// Reads one of the two files; `None` when it is not there.
fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("larger than {MAX_BYTES} bytes"),
        ));
    }
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Replaces one of the two files, whole and durably.
fn write_json(directory: &Path, name: &str, content: &impl serde::Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string(content).map_err(io::Error::other)?;
    text.push('\n');
    crate::interlock::replace(directory, name, &text)
}
