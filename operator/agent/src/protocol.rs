//! What the witness and its one client say to each other: one request and one answer for each connection, each a line of
//! JSON.

use freehold_core::report::VendorReport;
use freehold_core::vendor::PerVendor;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};

use crate::interlock::order::{Order, Outcome};
use crate::shape::order::LayoutOrder;

/// Where the socket is unless told otherwise: in a volume that only the agent pod's own containers share.
pub const DEFAULT_SOCKET: &str = "/run/freehold/witness.sock";
/// Longest message in bytes, newline included. A reading of both vendors with every list full is below 16 KiB.
pub const MAX_MESSAGE: usize = 64 << 10;

/// Asks for a reading that begins after the request arrived, and after these orders were tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Request {
    /// At most one for each vendor.
    #[serde(default)]
    pub orders: Vec<Order>,
    /// Layouts to make, for each vendor that the spec speaks of.
    #[serde(default)]
    pub layouts: PerVendor<Option<LayoutOrder>>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Answer {
    /// What was read.
    Reading(Box<Reading>),
    /// Why nothing was.
    Refused(String),
}

/// One look at the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reading {
    /// Kernel boot ID; empty when it cannot be read.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// NVIDIA's part.
    pub nvidia: Part,
    /// Neuron's part.
    pub neuron: Part,
    /// What could not be read, each with its path.
    pub errors: Vec<String>,
}

impl Reading {
    /// Both parts.
    #[must_use]
    pub fn parts(self) -> PerVendor<Part> {
        PerVendor {
            nvidia: self.nvidia,
            neuron: self.neuron,
        }
    }
}

/// One vendor's part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Part {
    /// The host has a device, driver, record, socket or owner word of the vendor.
    pub present: bool,
    /// What was read. The terms are 0: the witness knows none.
    pub report: VendorReport,
    /// What became of the order, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Outcome>,
    /// What became of the order about its geometry, if there was one. Taken is not made: see the report for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout_order: Option<Outcome>,
}

/// A message that is not one.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The connection broke.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It ended before the newline, or none came within [`MAX_MESSAGE`].
    #[error("a message without end: {0} bytes and no newline")]
    Endless(usize),
    /// It is not of this protocol.
    #[error("not a message of this protocol: {0}")]
    Json(#[from] serde_json::Error),
}

/// Reads one message.
///
/// # Errors
/// See [`MessageError`].
pub async fn receive<T: serde::de::DeserializeOwned>(
    from: impl AsyncBufRead + Unpin,
) -> Result<T, MessageError> {
    let mut line = Vec::new();
    from.take(MAX_MESSAGE as u64)
        .read_until(b'\n', &mut line)
        .await?;
    if line.last() != Some(&b'\n') {
        return Err(MessageError::Endless(line.len()));
    }
    Ok(serde_json::from_slice(&line)?)
}

/// A message with its newline.
///
/// # Errors
/// When it cannot be written as JSON or is longer than [`MAX_MESSAGE`].
pub fn line(message: &impl Serialize) -> Result<Vec<u8>, MessageError> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    if line.len() > MAX_MESSAGE {
        return Err(MessageError::Endless(line.len()));
    }
    Ok(line)
}
