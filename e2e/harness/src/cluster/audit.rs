//! What was asked of the API server, by whom.

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;

use super::eventually;

/// From an answer to its line in the log.
const FLUSH_LIMIT: Duration = Duration::from_secs(30);

/// The audit log of a cluster.
#[derive(Clone)]
pub struct AuditLog {
    path: PathBuf,
    client: Client,
}

/// A position in the log: everything answered before it was taken lies before it.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

/// One request, as the API server saw it. Field names are those of `audit.k8s.io/v1`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// `create`, `update`, `patch`, `delete`, `deletecollection`; also `get`, `list`, `watch` where those are recorded.
    pub verb: String,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// Who asked.
    pub user: AuditUser,
    /// With which program.
    #[serde(default)]
    pub user_agent: String,
    /// About what; absent for non-resource paths.
    pub object_ref: Option<ObjectRef>,
    /// How it was answered.
    pub response_status: Option<ResponseStatus>,
    /// When it came.
    pub request_received_timestamp: Timestamp,
    /// When it was answered.
    pub stage_timestamp: Timestamp,
}

/// Who asked.
#[derive(Clone, Debug, Deserialize)]
pub struct AuditUser {
    /// E.g. `system:serviceaccount:freehold-operands:freehold-agent`.
    #[serde(default)]
    pub username: String,
    /// Claims such as `authentication.kubernetes.io/node-name`.
    #[serde(default)]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// About what.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    /// Plural, e.g. `nodes`.
    pub resource: String,
    /// E.g. `status`.
    pub subresource: String,
    /// API group, empty for the core.
    pub api_group: String,
    /// Namespace, empty for cluster-scoped ones.
    pub namespace: String,
    /// Name; empty for a create whose name is only in the body.
    pub name: String,
}

/// How it was answered.
#[derive(Clone, Debug, Deserialize)]
pub struct ResponseStatus {
    /// HTTP status.
    #[serde(default)]
    pub code: u16,
}

impl AuditEvent {
    /// Whether it changed, or tried to change, something that is stored.
    #[must_use]
    pub fn is_write(&self) -> bool {
        let writes = ["create", "update", "patch", "delete", "deletecollection"]
            .contains(&self.verb.as_str());
        // Reviews and token requests are questions in the form of a create.
        let question = self.object_ref.as_ref().is_some_and(|object| {
            object.resource.ends_with("reviews")
                || (object.resource == "serviceaccounts" && object.subresource == "token")
        });
        writes && !question && !self.request_uri.contains("dryRun=")
    }

    /// Whether the API server did what was asked.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.response_status
            .as_ref()
            .is_some_and(|status| status.code < 400)
    }

    /// `nodes`, `nodes/status`, `leases.coordination.k8s.io`: as RBAC and kubectl write it.
    #[must_use]
    pub fn resource(&self) -> String {
        let Some(object) = &self.object_ref else {
            return self.request_uri.clone();
        };
        let group = if object.api_group.is_empty() {
            String::new()
        } else {
            format!(".{}", object.api_group)
        };
        let subresource = if object.subresource.is_empty() {
            String::new()
        } else {
            format!("/{}", object.subresource)
        };
        format!("{}{group}{subresource}", object.resource)
    }

    /// Name of the object, as far as the request named it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.object_ref
            .as_ref()
            .map_or("", |object| object.name.as_str())
    }
}

/// Which requests to look at; the default is all of them.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    users: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<String>,
    not_resources: Vec<String>,
    names: Vec<String>,
    only_successful: bool,
}

impl Filter {
    /// All requests.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Only of this user (or, called again, also of that one).
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.users.push(user.into());
        self
    }

    /// Only of this service account (or also of that one).
    #[must_use]
    pub fn service_account(self, namespace: &str, name: &str) -> Self {
        self.user(format!("system:serviceaccount:{namespace}:{name}"))
    }

    /// Only this verb (or also that one).
    #[must_use]
    pub fn verb(mut self, verb: impl Into<String>) -> Self {
        self.verbs.push(verb.into());
        self
    }

    /// Only this resource, written as [`AuditEvent::resource`] does (or also that one).
    #[must_use]
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resources.push(resource.into());
        self
    }

    /// Not this resource.
    #[must_use]
    pub fn without_resource(mut self, resource: impl Into<String>) -> Self {
        self.not_resources.push(resource.into());
        self
    }

    /// Not the Leases that prove liveness of nodes and leaders.
    #[must_use]
    pub fn without_leases(self) -> Self {
        self.without_resource("leases.coordination.k8s.io")
    }

    /// Only about objects of this name (or also of that one).
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// Only what the API server did, not what it refused.
    #[must_use]
    pub const fn successful(mut self) -> Self {
        self.only_successful = true;
        self
    }

    fn matches(&self, event: &AuditEvent) -> bool {
        let one_of = |wanted: &[String], value: &str| {
            wanted.is_empty() || wanted.iter().any(|one| one == value)
        };
        let resource = event.resource();
        one_of(&self.users, &event.user.username)
            && one_of(&self.verbs, &event.verb)
            && one_of(&self.resources, &resource)
            && !self.not_resources.contains(&resource)
            && one_of(&self.names, event.name())
            && (!self.only_successful || event.succeeded())
    }
}

/// Requests that a filter let through, in the order of their answers.
#[derive(Clone, Debug)]
pub struct Writes {
    /// The requests.
    pub events: Vec<AuditEvent>,
}

impl Writes {
    /// How many.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.events.len()
    }

    /// How many by whatever distinguishes them.
    pub fn count_by<K: Ord>(&self, key: impl Fn(&AuditEvent) -> K) -> BTreeMap<K, usize> {
        let mut counts = BTreeMap::new();
        for event in &self.events {
            *counts.entry(key(event)).or_insert(0) += 1;
        }
        counts
    }

    /// How many by user, verb and resource.
    #[must_use]
    pub fn by_user_verb_resource(&self) -> BTreeMap<(String, String, String), usize> {
        self.count_by(|event| {
            (
                event.user.username.clone(),
                event.verb.clone(),
                event.resource(),
            )
        })
    }
}

/// One line per user, verb and resource, for the text of a failing assertion.
impl fmt::Display for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((user, verb, resource), count) in self.by_user_verb_resource() {
            writeln!(f, "{count:>6}  {verb} {resource} by {user}")?;
        }
        Ok(())
    }
}

impl AuditLog {
    pub(super) const fn new(path: PathBuf, client: Client) -> Self {
        Self { path, client }
    }

    /// Where the log is.
    #[must_use]
    pub const fn path(&self) -> &PathBuf {
        &self.path
    }

    /// The present end of the log, once everything answered until now is in it: a question of our own is asked and looked for.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn mark(&self) -> Result<Mark> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let token = format!(
            "audit-mark-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let before = self.length()?;
        let request = http::Request::post(format!(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews?fieldManager={token}"
        ))
        .header("Content-Type", "application/json")
        .body(
            br#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#.to_vec(),
        )?;
        self.client
            .request_text(request)
            .await
            .context("marking the audit log")?;
        let needle = format!("{token}\"");
        eventually("the audit log to catch up", FLUSH_LIMIT, async || {
            let text = self.read(before, u64::MAX)?;
            let mut offset = before;
            for line in text
                .split_inclusive('\n')
                .filter(|line| line.ends_with('\n'))
            {
                offset += line.len() as u64;
                if line.contains(&needle) {
                    return Ok(Some(Mark(offset)));
                }
            }
            Ok(None)
        })
        .await
    }

    /// Writes after `since` that the filter lets through. Waits until everything answered until now is in the log.
    ///
    /// # Errors
    /// When the API server does not answer or the log cannot be read.
    pub async fn writes_since(&self, since: Mark, filter: &Filter) -> Result<Writes> {
        let mut requests = self.requests_since(since, filter).await?;
        requests.events.retain(AuditEvent::is_write);
        Ok(requests)
    }

    /// Requests of every kind after `since`; reads among them only in a cluster with
    /// [`AuditScope::Everything`](super::AuditScope::Everything).
    ///
    /// # Errors
    /// When the API server does not answer or the log cannot be read.
    pub async fn requests_since(&self, since: Mark, filter: &Filter) -> Result<Writes> {
        let until = self.mark().await?;
        let mut events = Vec::new();
        for line in self.read(since.0, until.0)?.lines() {
            let event: AuditEvent =
                serde_json::from_str(line).with_context(|| format!("in the audit log: {line}"))?;
            if !event.request_uri.contains("fieldManager=audit-mark-") && filter.matches(&event) {
                events.push(event);
            }
        }
        Ok(Writes { events })
    }

    fn length(&self) -> Result<u64> {
        Ok(std::fs::metadata(&self.path)
            .with_context(|| format!("reading {}", self.path.display()))?
            .len())
    }

    fn read(&self, from: u64, until: u64) -> Result<String> {
        let mut file =
            File::open(&self.path).with_context(|| format!("reading {}", self.path.display()))?;
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(until.saturating_sub(from))
            .read_to_end(&mut bytes)?;
        // A line that is being written may end within a character; whole lines never do.
        let whole = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        bytes.truncate(whole);
        Ok(String::from_utf8(bytes)?)
    }
}
