//! The way to the witness.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::protocol::{self, Answer, MessageError, Reading, Request};

/// How long an answer may take. A reading takes some milliseconds; a busy host, a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no reading.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Nobody is there.
    #[error("{0}: {1}")]
    Connect(PathBuf, #[source] io::Error),
    /// The conversation broke.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The witness did not accept the question.
    #[error("it refused: {0}")]
    Refused(String),
    /// No answer.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Timeout,
}

/// Somebody who reads the host when asked.
pub trait Link {
    /// Asks for a reading that begins now.
    fn observe(&self, request: &Request) -> impl Future<Output = Result<Reading, LinkError>>;
}

/// The witness at the other end of a socket.
#[derive(Clone, Debug)]
pub struct Socket(pub PathBuf);

impl Link for Socket {
    async fn observe(&self, request: &Request) -> Result<Reading, LinkError> {
        let conversation = async {
            let stream = UnixStream::connect(&self.0)
                .await
                .map_err(|error| LinkError::Connect(self.0.clone(), error))?;
            let (from, mut to) = stream.into_split();
            to.write_all(&protocol::line(request)?)
                .await
                .map_err(MessageError::Io)?;
            match protocol::receive(BufReader::new(from)).await? {
                Answer::Reading(reading) => Ok(*reading),
                Answer::Refused(why) => Err(LinkError::Refused(why)),
            }
        };
        timeout(PATIENCE, conversation)
            .await
            .unwrap_or(Err(LinkError::Timeout))
    }
}

/// A witness in this process.
impl Link for crate::reading::Witness {
    async fn observe(&self, request: &Request) -> Result<Reading, LinkError> {
        Ok(Self::observe(self, request))
    }
}
