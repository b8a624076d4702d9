//! A proxy in front of the real API server that loses requests and replies at chosen writes, and makes bad weather.
//!
//! It never invents a state that the API server could not show: what it answers by itself are refusals, and what it forwards is
//! forwarded whole. Whoever speaks through it keeps its own identity; the proxy has none.
//!
//! *Writes* are requests that change what is stored. Leases and events are not counted: they decide nothing, and their number
//! depends on the clock.

mod request;
mod serve;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::TestCluster;
pub use request::{Kind, Request};

/// What befalls a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It never arrives; the connection is cut.
    NeverArrives,
    /// It arrives and is carried out; the connection is cut before the reply.
    LostReply,
    /// It is carried out and answered, and no write after it arrives any more, until [`Faultline::calm`]: whoever wrote is to be
    /// killed meanwhile.
    LastOfAll,
}

/// Which writes, counted from the moment that this is set. Writes that do not depend on one another come in another order every
/// time, so that those of a kind are counted by themselves: a kind is what [`Request`] shows, such as `PATCH nodes/rack-3`.
#[derive(Clone, Debug)]
pub enum Strike {
    /// Of all together, this one; the first is 1.
    At(usize),
    /// Of one kind, this one.
    Of(String, usize),
    /// Of every kind, this one.
    OfEach(usize),
}

impl Strike {
    /// Whether the last of these is meant.
    fn hits(&self, writes: &[Request]) -> bool {
        let Some(kind) = writes.last().map(Request::to_string) else {
            return false;
        };
        let of_its_kind = || {
            writes
                .iter()
                .filter(|write| write.to_string() == kind)
                .count()
        };
        match self {
            Self::At(at) => writes.len() == *at,
            Self::Of(wanted, nth) => kind == *wanted && of_its_kind() == *nth,
            Self::OfEach(nth) => of_its_kind() == *nth,
        }
    }
}

/// What every request of a kind meets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Weather {
    /// Nothing unusual.
    #[default]
    Clear,
    /// Nobody is there: connections are cut as soon as they are made.
    Unreachable,
    /// An answer of the proxy's own.
    Answer {
        /// Which requests.
        to: Vec<Kind>,
        /// HTTP status, e.g. 429.
        status: u16,
        /// `reason` of the Status object, e.g. `TooManyRequests`.
        reason: &'static str,
    },
}

/// A running proxy; it ends when dropped.
pub struct Faultline {
    url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What the proxy's connections share.
struct Shared {
    upstream: kube::Client,
    plan: Mutex<Plan>,
    /// Told with every request and every stroke, so that whoever waits looks again.
    changed: watch::Sender<u64>,
    /// Connections made before the last change are cut.
    cut: watch::Sender<u64>,
}

#[derive(Default)]
struct Plan {
    strike: Option<(Strike, Fault)>,
    /// Writes since the strike was set.
    writes: Vec<Request>,
    struck: Vec<(usize, Request)>,
    /// After a [`Fault::LastOfAll`].
    closed: bool,
    weather: Weather,
    /// Every request since [`Faultline::forget`].
    requests: Vec<Request>,
}

impl Shared {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.changed.send_modify(|version| *version += 1);
    }
}

impl Faultline {
    /// Starts one in front of a cluster's API server.
    ///
    /// # Errors
    /// When it cannot listen or has no certificate.
    pub async fn start(cluster: &TestCluster) -> Result<Self> {
        let certificate = cluster.serving_certificate("faultline")?;
        let listener = tokio::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("https://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            upstream: cluster.client_without_login()?,
            plan: Mutex::default(),
            changed: watch::Sender::new(0),
            cut: watch::Sender::new(0),
        });
        let acceptor = serve::acceptor(&certificate)?;
        let task = tokio::spawn(serve::listen(listener, acceptor, Arc::clone(&shared)));
        Ok(Self { url, shared, task })
    }

    /// Its address, in place of the API server's.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Strikes writes from now on, in place of what was set before.
    pub fn strike(&self, strike: Strike, fault: Fault) {
        let mut plan = self.shared.plan();
        plan.strike = Some((strike, fault));
        plan.writes.clear();
        plan.struck.clear();
    }

    /// Strikes no more. Writes that were held back never arrive: whoever sent them is gone.
    pub fn calm(&self) {
        let mut plan = self.shared.plan();
        plan.strike = None;
        let held = std::mem::take(&mut plan.closed);
        drop(plan);
        if held {
            self.cut();
        }
    }

    /// The first write that was struck, once there is one, with its ordinal.
    ///
    /// # Errors
    /// When the proxy has ended.
    pub async fn struck(&self) -> Result<(usize, Request)> {
        let mut changes = self.shared.changed.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(first) = self.shared.plan().struck.first() {
                return Ok(first.clone());
            }
            changes.changed().await.context("the proxy has ended")?;
        }
    }

    /// All writes that were struck, with their ordinals.
    #[must_use]
    pub fn all_struck(&self) -> Vec<(usize, Request)> {
        self.shared.plan().struck.clone()
    }

    /// The writes since the strike was set, struck or not.
    #[must_use]
    pub fn writes(&self) -> Vec<Request> {
        self.shared.plan().writes.clone()
    }

    /// Changes the weather; connections that are open are cut.
    pub fn weather(&self, weather: Weather) {
        self.shared.plan().weather = weather;
        self.cut();
    }

    /// Forgets the requests seen so far.
    pub fn forget(&self) {
        self.shared.plan().requests.clear();
    }

    /// Every request since then, however it was answered.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.plan().requests.clone()
    }

    fn cut(&self) {
        self.shared.cut.send_modify(|version| *version += 1);
    }
}

impl Drop for Faultline {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}
