//! Reads from the API server itself, for the steps that no cache may decide: revoke, grant and what goes with them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freehold_api::AcceleratorNode;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::sync::Notify;

use super::consumers::SlimClaim;
use super::slim::{SlimNode, SlimPod};

/// What was just read about one node.
#[derive(Clone, Debug)]
pub(crate) struct FreshView {
    /// The Node; `None` when it is gone.
    pub(crate) node: Option<SlimNode>,
    /// The AcceleratorNode; `None` when there is none.
    pub(crate) record: Option<AcceleratorNode>,
    /// Every pod bound to the node, of any namespace. Read after the two above.
    pub(crate) pods: Vec<SlimPod>,
    /// Every claim of the cluster that is allocated, read after the two above.
    pub(crate) claims: Arc<Vec<SlimClaim>>,
}

/// Reads nodes freshly.
#[derive(Clone)]
pub(crate) struct Reader {
    client: Client,
    claims: Arc<ClaimReader>,
    dra_api: bool,
}

impl Reader {
    pub(crate) fn new(client: Client, dra_api: bool) -> Self {
        let claims = Arc::new(ClaimReader {
            client: client.clone(),
            state: Mutex::default(),
            done: Notify::new(),
        });
        Self {
            client,
            claims,
            dra_api,
        }
    }

    /// Reads everything about one node, consumers last: one that comes later than the Node was read is still seen.
    ///
    /// `permit` is given back before claims are waited for: those are listed once for all who wait.
    pub(crate) async fn read(&self, name: &str, permit: impl Send) -> kube::Result<FreshView> {
        let node = Api::<SlimNode>::all(self.client.clone())
            .get_opt(name)
            .await?;
        let record = Api::<AcceleratorNode>::all(self.client.clone())
            .get_opt(name)
            .await?;
        let pods = list_all(
            &Api::<SlimPod>::all(self.client.clone()),
            &format!("spec.nodeName={name}"),
        )
        .await?;
        drop(permit);
        let claims = if self.dra_api {
            self.claims.list().await?
        } else {
            Arc::default()
        };
        Ok(FreshView {
            node,
            record,
            pods,
            claims,
        })
    }
}

/// Claims cannot be selected by the node they are allocated on, so they are listed as a whole, once for all who ask while a
/// list is under way: each is given a list that *began* after it asked.
struct ClaimReader {
    client: Client,
    state: Mutex<ClaimState>,
    done: Notify,
}

#[derive(Default)]
struct ClaimState {
    started: u64,
    finished: u64,
    result: Arc<Vec<SlimClaim>>,
}

impl ClaimReader {
    /// Never held across an await.
    fn state(&self) -> MutexGuard<'_, ClaimState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn list(&self) -> kube::Result<Arc<Vec<SlimClaim>>> {
        let wanted = self.state().started + 1;
        loop {
            let woken = self.done.notified();
            match self.turn(wanted) {
                Turn::Done(claims) => return Ok(claims),
                Turn::Wait => woken.await,
                Turn::List(number) => {
                    let guard = ListGuard {
                        reader: self,
                        number,
                    };
                    let mut claims =
                        list_all(&Api::<SlimClaim>::all(self.client.clone()), "").await?;
                    claims.retain(|claim| claim.status.allocation.is_some());
                    guard.finish(Arc::new(claims));
                }
            }
        }
    }

    fn turn(&self, wanted: u64) -> Turn {
        let mut state = self.state();
        if state.finished >= wanted {
            Turn::Done(state.result.clone())
        } else if state.started == state.finished {
            state.started += 1;
            Turn::List(state.started)
        } else {
            Turn::Wait
        }
    }
}

/// What one who asks for claims does next.
enum Turn {
    /// Takes a list that began late enough.
    Done(Arc<Vec<SlimClaim>>),
    /// Lists, on behalf of all who wait.
    List(u64),
    /// Waits for the list under way.
    Wait,
}

/// Marks a list as over, also when it failed or its task was dropped, so that nobody waits for it for ever.
struct ListGuard<'a> {
    reader: &'a ClaimReader,
    number: u64,
}

impl ListGuard<'_> {
    fn finish(self, claims: Arc<Vec<SlimClaim>>) {
        let mut state = self.reader.state();
        state.finished = self.number;
        state.result = claims;
    }
}

impl Drop for ListGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.reader.state();
        if state.finished < self.number {
            // It failed: whoever waits starts one of its own.
            state.started = state.finished;
        }
        drop(state);
        self.reader.done.notify_waiters();
    }
}

/// Pages keep the peak of memory down; a list without resourceVersion is as fresh as a read from etcd.
async fn list_all<K>(api: &Api<K>, fields: &str) -> kube::Result<Vec<K>>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut params = ListParams::default().limit(500);
    if !fields.is_empty() {
        params = params.fields(fields);
    }
    let mut all = Vec::new();
    loop {
        let page = api.list(&params).await?;
        all.extend(page.items);
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => params = params.continue_token(&token),
            _ => return Ok(all),
        }
    }
}
