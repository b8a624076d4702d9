//! Requests and what the API server answers.

use http::{Method, Request};
use kube::Client;
use serde_json::Value;

/// Nodes.
pub const NODES: &str = "/api/v1/nodes";
/// ResourceSlices.
pub const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// What came back.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was done.
    Done,
    /// HTTP status and message.
    Refused(u16, String),
}

/// What should come back.
#[derive(Clone, Copy, Debug)]
pub enum Expect {
    /// It is done.
    Done,
    /// 403 from RBAC: `cannot <this>`.
    NotAllowed(&'static str),
    /// 403 from the policy of this name, with a message that holds this text.
    Policy(&'static str, &'static str),
    /// 403 from one of these policies: several refuse, and the API server tells of the one that was asked first.
    OneOf(&'static [&'static str]),
    /// 403 from NodeRestriction.
    NodeRestriction,
}

/// One row of a table.
pub struct Attempt {
    pub what: &'static str,
    pub request: Request<Vec<u8>>,
    pub expect: Expect,
}

/// A row.
pub const fn attempt(what: &'static str, request: Request<Vec<u8>>, expect: Expect) -> Attempt {
    Attempt {
        what,
        request,
        expect,
    }
}

/// Makes every attempt, in order, and then tells of all that went otherwise than expected.
pub async fn try_all(client: &Client, attempts: Vec<Attempt>) {
    let mut surprises = Vec::new();
    for Attempt {
        what,
        request,
        expect,
    } in attempts
    {
        let answer = match ask(client, request).await {
            Ok(_) => Answer::Done,
            Err(answer) => answer,
        };
        let as_expected = match (&answer, expect) {
            (Answer::Done, Expect::Done) => true,
            (Answer::Refused(403, message), Expect::NotAllowed(what)) => {
                message.contains(&format!("cannot {what}"))
            }
            (Answer::Refused(403, message), Expect::Policy(policy, text)) => {
                message.contains(&format!("ValidatingAdmissionPolicy '{policy}'"))
                    && message.contains(text)
            }
            (Answer::Refused(403, message), Expect::OneOf(policies)) => policies
                .iter()
                .any(|policy| message.contains(&format!("ValidatingAdmissionPolicy '{policy}'"))),
            (Answer::Refused(403, message), Expect::NodeRestriction) => {
                message.contains("is not allowed to modify labels")
            }
            (Answer::Done | Answer::Refused(..), _) => false,
        };
        if !as_expected {
            surprises.push(format!(
                "{what}\n  expected {expect:?}\n  got      {answer:?}"
            ));
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

/// Sends a request.
pub async fn ask(client: &Client, request: Request<Vec<u8>>) -> Result<Value, Answer> {
    match client.request::<Value>(request).await {
        Ok(value) => Ok(value),
        Err(kube::Error::Api(status)) => Err(Answer::Refused(status.code, status.message.clone())),
        Err(other) => panic!("no answer from the API server: {other}"),
    }
}

/// GET.
pub fn get(path: &str) -> Request<Vec<u8>> {
    request(Method::GET, path, "application/json", None)
}

/// POST.
pub fn create(path: &str, body: &Value) -> Request<Vec<u8>> {
    request(Method::POST, path, "application/json", Some(body))
}

/// PUT.
pub fn replace(path: &str, body: &Value) -> Request<Vec<u8>> {
    request(Method::PUT, path, "application/json", Some(body))
}

/// Merge patch.
pub fn merge(path: &str, body: &Value) -> Request<Vec<u8>> {
    request(
        Method::PATCH,
        path,
        "application/merge-patch+json",
        Some(body),
    )
}

/// Server-side apply.
pub fn apply(path: &str, body: &Value) -> Request<Vec<u8>> {
    let path = format!("{path}?fieldManager=thief&force=true");
    request(
        Method::PATCH,
        &path,
        "application/apply-patch+yaml",
        Some(body),
    )
}

/// DELETE, of an object or of a collection.
pub fn delete(path: &str) -> Request<Vec<u8>> {
    request(Method::DELETE, path, "application/json", None)
}

fn request(method: Method, path: &str, content: &str, body: Option<&Value>) -> Request<Vec<u8>> {
    let body = body
        .map(|body| serde_json::to_vec(body).unwrap())
        .unwrap_or_default();
    Request::builder()
        .method(method)
        .uri(path)
        .header("Content-Type", content)
        .body(body)
        .unwrap()
}
