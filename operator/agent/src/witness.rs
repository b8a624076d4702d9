//! Serves readings of the host on a Unix socket.

use std::future::Future;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use crate::protocol::{self, Answer, MessageError, Request};
use crate::reading::Witness;

/// How long a client may take to ask and to take its answer. It is a process of the same pod.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most conversations at once. There is one client; more is a defect, and memory is bounded all the same.
const MAX_CONVERSATIONS: usize = 8;

/// Why the socket cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another witness does.
    #[error("{0}: another process serves this socket")]
    InUse(String),
    /// Something else has the name.
    #[error("{0}: exists and is not a socket; remove it or choose another --socket")]
    NotASocket(String),
    /// The system says no.
    #[error("{0}: {1}")]
    Io(String, #[source] io::Error),
}

/// Serves until `stop` resolves, then removes the socket. Must run on a [`tokio::task::LocalSet`].
///
/// # Errors
/// When the socket cannot be made.
pub async fn serve(
    witness: Witness,
    socket: &Path,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let listener = listen(socket)?;
    let witness = Rc::new(witness);
    let places = std::sync::Arc::new(tokio::sync::Semaphore::new(MAX_CONVERSATIONS));
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = async {
                let place = places.clone().acquire_owned().await;
                (listener.accept().await, place)
            } => accepted,
        };
        match accepted {
            (Ok((stream, _)), place) => {
                let witness = Rc::clone(&witness);
                tokio::task::spawn_local(async move {
                    let _place = place;
                    if let Err(error) = converse(&witness, stream).await {
                        tracing::warn!(%error, "a conversation failed");
                    }
                });
            }
            (Err(error), _) => {
                tracing::warn!(%error, "a client could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    // Left behind, it would be replaced by the next witness; gone, it tells the client more.
    let _ = std::fs::remove_file(socket);
    Ok(())
}

/// One request, one answer.
async fn converse(witness: &Witness, stream: UnixStream) -> Result<(), MessageError> {
    let (from, mut to) = stream.into_split();
    let late = || io::Error::new(io::ErrorKind::TimedOut, "the client took too long");
    let request = timeout(PATIENCE, protocol::receive::<Request>(BufReader::new(from)))
        .await
        .map_err(|_| late())?;
    let answer = match request {
        Ok(request) => Answer::Reading(Box::new(witness.observe(&request))),
        Err(MessageError::Io(error)) => return Err(error.into()),
        Err(error @ (MessageError::Endless(_) | MessageError::Json(_))) => {
            Answer::Refused(error.to_string())
        }
    };
    let line = protocol::line(&answer)?;
    timeout(PATIENCE, to.write_all(&line))
        .await
        .map_err(|_| late())??;
    Ok(())
}

/// Makes the socket. One that a killed witness left behind is replaced; one that is served is not.
fn listen(socket: &Path) -> Result<UnixListener, ServeError> {
    let name = || socket.display().to_string();
    let io_error = |error| ServeError::Io(name(), error);
    if let Ok(found) = std::fs::symlink_metadata(socket) {
        if !found.file_type().is_socket() {
            return Err(ServeError::NotASocket(name()));
        }
        if std::os::unix::net::UnixStream::connect(socket).is_ok() {
            return Err(ServeError::InUse(name()));
        }
        std::fs::remove_file(socket).map_err(io_error)?;
    }
    let listener = UnixListener::bind(socket).map_err(io_error)?;
    // The client runs as another user; the directory is the pod's own.
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666)).map_err(io_error)?;
    Ok(listener)
}
