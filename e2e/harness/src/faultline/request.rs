//! What a request is, as far as faults care.

use std::fmt;
use std::time::Instant;

use http::{Method, Uri};

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Changes what is stored, and counts.
    Write,
    /// A Lease or an Event.
    Minor,
    /// A watch that goes on from a version.
    Resume,
    /// A list, or a watch that begins with one.
    List,
    /// Anything else: reads of single objects, discovery, questions in the form of a create.
    Read,
}

/// A request, as the proxy saw it.
#[derive(Clone, Debug)]
pub struct Request {
    /// What it is.
    pub kind: Kind,
    /// HTTP method.
    pub method: Method,
    /// Path without the query.
    pub path: String,
    /// Label and field selectors, as written in the query.
    pub selectors: Vec<String>,
    /// When it came.
    pub at: Instant,
}

impl Request {
    pub(super) fn new(method: &Method, uri: &Uri) -> Self {
        Self {
            kind: kind(method, uri),
            method: method.clone(),
            path: uri.path().to_owned(),
            selectors: pairs(uri)
                .filter(|(name, _)| ["labelSelector", "fieldSelector"].contains(name))
                .map(|(name, value)| format!("{name}={value}"))
                .collect(),
            at: Instant::now(),
        }
    }
}

/// E.g. `PATCH acceleratornodes/rack-3/status`, or `GET pods?labelSelector=app%3Dx`.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `/api/v1/...` and `/apis/<group>/<version>/...`.
        let parts: Vec<&str> = self
            .path
            .split('/')
            .filter(|part| !part.is_empty())
            .collect();
        let skip = if parts.first() == Some(&"api") { 2 } else { 3 };
        let rest = parts.get(skip..).unwrap_or_default().join("/");
        write!(f, "{} {rest}", self.method)?;
        match self.selectors.join("&") {
            none if none.is_empty() => Ok(()),
            selectors => write!(f, "?{selectors}"),
        }
    }
}

/// The query's names and values, as written.
fn pairs(uri: &Uri) -> impl Iterator<Item = (&str, &str)> {
    uri.query()
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='))
}

fn kind(method: &Method, uri: &Uri) -> Kind {
    let has = |name: &str, value: &str| pairs(uri).any(|pair| pair == (name, value));
    if *method == Method::GET {
        let watch = has("watch", "true");
        return if watch && !has("sendInitialEvents", "true") {
            Kind::Resume
        } else if watch || is_collection(uri.path()) {
            Kind::List
        } else {
            Kind::Read
        };
    }
    if [Method::HEAD, Method::OPTIONS].contains(method) {
        return Kind::Read;
    }
    let path = uri.path();
    let last = path.rsplit('/').next().unwrap_or_default();
    let question = *method == Method::POST && (last.ends_with("reviews") || last == "token");
    if question || pairs(uri).any(|(name, _)| name == "dryRun") {
        Kind::Read
    } else if path.starts_with("/apis/coordination.k8s.io/") || path.contains("/events") {
        Kind::Minor
    } else {
        Kind::Write
    }
}

/// Whether a path names a collection: with the group, version and namespace taken away, one part is left.
fn is_collection(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (["api", _, rest @ ..] | ["apis", _, _, rest @ ..]) = parts.as_slice() else {
        return false;
    };
    match rest {
        ["namespaces", _, rest @ ..] => rest.len() == 1,
        rest => rest.len() == 1,
    }
}
