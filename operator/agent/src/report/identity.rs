//! Which node this is: said by the API server, in the claims of the agent's own token.
//!
//! A name can be given wrongly, and a node can return under its old name; the UID in a token that is bound to this pod
//! cannot. So without that claim there is no report. The signature is not checked here: the API server checks it with every
//! request, and nobody else is told anything.

use std::path::PathBuf;

use serde::Deserialize;

/// Where the kubelet puts the token.
pub const DEFAULT_TOKEN_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// This node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// UID of the Node object that the pod was bound to.
    pub node_uid: String,
}

/// Why it is not known.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// No token.
    #[error("{0}: {1}")]
    NoToken(PathBuf, #[source] std::io::Error),
    /// Not a token with claims that can be read.
    #[error("{0}: not a service account token: {1}")]
    NotAToken(PathBuf, String),
    /// A token without the claim.
    #[error(
        "{0}: the token names no node (claim kubernetes.io.node with name and uid); it must be bound to this pod, and the API server must be 1.30 or newer"
    )]
    NoNode(PathBuf),
    /// Somebody else's token.
    #[error("{file}: the token is for node {token}, and --node-name is {given}")]
    OtherNode {
        /// The token.
        file: PathBuf,
        /// Node in it.
        token: String,
        /// Node given.
        given: String,
    },
}

#[derive(Deserialize)]
struct Claims {
    #[serde(rename = "kubernetes.io")]
    kubernetes: Option<Kubernetes>,
}

#[derive(Deserialize)]
struct Kubernetes {
    node: Option<Node>,
}

#[derive(Deserialize)]
struct Node {
    name: String,
    uid: String,
}

/// Reads the token anew, since the kubelet rotates it, and holds it against the node's name.
///
/// # Errors
/// See [`IdentityError`]. Nothing may be reported then.
pub fn read(file: &std::path::Path, node_name: &str) -> Result<Identity, IdentityError> {
    let token = std::fs::read_to_string(file)
        .map_err(|error| IdentityError::NoToken(file.to_owned(), error))?;
    let not_a_token = |why: String| IdentityError::NotAToken(file.to_owned(), why);
    let payload = token
        .trim()
        .split('.')
        .nth(1)
        .ok_or_else(|| not_a_token("no payload".into()))?;
    let payload =
        base64url(payload).ok_or_else(|| not_a_token("the payload is not base64url".into()))?;
    let claims: Claims =
        serde_json::from_slice(&payload).map_err(|error| not_a_token(error.to_string()))?;
    let node = claims
        .kubernetes
        .and_then(|kubernetes| kubernetes.node)
        .filter(|node| !node.uid.is_empty());
    let node = node.ok_or_else(|| IdentityError::NoNode(file.to_owned()))?;
    if node.name != node_name {
        return Err(IdentityError::OtherNode {
            file: file.to_owned(),
            token: node.name,
            given: node_name.to_owned(),
        });
    }
    Ok(Identity { node_uid: node.uid })
}

/// RFC 4648 section 5, without padding, as JSON Web Tokens have it.
fn base64url(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut bits, mut count) = (0_u32, 0_u32);
    for char in text.trim_end_matches('=').bytes() {
        let value = match char {
            b'A'..=b'Z' => char - b'A',
            b'a'..=b'z' => char - b'a' + 26,
            b'0'..=b'9' => char - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `{"kubernetes.io":{"namespace":"ns","node":{"name":"worker-7","uid":"uid-ü"}}}`
    const BOUND: &str = "eyJrdWJlcm5ldGVzLmlvIjp7Im5hbWVzcGFjZSI6Im5zIiwibm9kZSI6eyJuYW1lIjoid29ya2VyLTciLCJ1aWQiOiJ1aWQtw7wifX19";
    /// `{"kubernetes.io":{"namespace":"ns"}}`
    const UNBOUND: &str = "eyJrdWJlcm5ldGVzLmlvIjp7Im5hbWVzcGFjZSI6Im5zIn19";

    fn identity(payload: &str, node: &str) -> Result<Identity, IdentityError> {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("token");
        std::fs::write(&file, format!("aGVhZA.{payload}.c2ln\n")).unwrap();
        read(&file, node)
    }

    #[test]
    fn the_uid_comes_from_the_token() {
        assert_eq!(
            identity(BOUND, "worker-7").unwrap(),
            Identity {
                node_uid: "uid-ü".into()
            }
        );
    }

    #[test]
    fn a_token_of_another_node_or_of_none_reports_nothing() {
        assert!(matches!(
            identity(BOUND, "worker-8"),
            Err(IdentityError::OtherNode { .. })
        ));
        assert!(matches!(
            identity(UNBOUND, "worker-7"),
            Err(IdentityError::NoNode(_))
        ));
        assert!(matches!(
            identity("!", "worker-7"),
            Err(IdentityError::NotAToken(..))
        ));
        assert!(
            matches!(identity("e30", "worker-7"), Err(IdentityError::NoNode(_))),
            "an empty set of claims"
        );
        assert!(matches!(
            read(std::path::Path::new("/nonexistent"), "worker-7"),
            Err(IdentityError::NoToken(..))
        ));
    }
}
