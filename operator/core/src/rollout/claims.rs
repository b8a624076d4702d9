//! Places in the budget, claimed before a fence goes up.
//!
//! Who is under way is read off the nodes, and two controllers that both believe they lead, or one that was restarted while a
//! fence was on its way to the API server, would each find a place free. A read cannot close that, however fresh: the write
//! that it did not see may land later. So a place is claimed first, by a guarded write to the one object that all controllers
//! share (`status.starting` of the AcceleratorCluster):
//!
//! 1. A claim names a node **and the version of it** that the fence will be written on. A fence goes up on an owned node only
//!    under a claim for the version that its write carries, so a claim is good for at most one fence, and once the node has
//!    another version no fence can come of it any more.
//! 2. Claims are made on a version of the AcceleratorCluster, and the nodes that are fenced are listed from the API server
//!    *after* that version was known. What counts is: fenced nodes, claims not yet spent, and those that are asked for.
//! 3. A claim is dropped only when its node is seen with another version, or not at all.
//!
//! Whoever claims on a version of the AcceleratorCluster therefore sees every place that was taken before it, as a claim or as
//! a fence, and two who claim on the same version exclude each other. The model of two controllers and two nodes beside this
//! crate visits every state of it; each of the three rules has a twin there without it.

use std::collections::BTreeSet;

use super::{Rules, Stage, Standing, admit};
use crate::vendor::Vendor;

/// Claims that may be open at once: more nodes than this do not start in one moment, whatever the budget. Keeps the status
/// small.
pub const MAX_CLAIMS: usize = 64;

/// A place for one handover.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// Node.
    pub node: String,
    /// Vendor whose fence will go up.
    pub vendor: Vendor,
    /// `metadata.resourceVersion` of the Node that the fence will be written on.
    pub version: String,
}

impl Claim {
    /// Whether a Node that is known with this version shows that the claim is spent, or void. A cache may be behind the claim,
    /// so only a later version counts; a version that is no number tells nothing.
    #[must_use]
    pub fn is_spent(&self, known_version: &str) -> bool {
        match (known_version.parse::<u64>(), self.version.parse::<u64>()) {
            (Ok(known), Ok(claimed)) => known > claimed,
            (Err(_), _) | (_, Err(_)) => false,
        }
    }

    /// The tenure that it is for.
    #[must_use]
    pub fn tenure(&self) -> (String, Vendor) {
        (self.node.clone(), self.vendor)
    }
}

/// Which of the places that are asked for may be claimed. `open` are the claims in force, without those that are spent;
/// `fenced` the tenures that were just seen behind a fence.
#[must_use]
pub fn claim(
    rules: &Rules<'_>,
    standings: &[Standing],
    open: &[Claim],
    fenced: &BTreeSet<(String, Vendor)>,
    asked: &[Claim],
) -> Vec<Claim> {
    // A claim in force for another version of the same node is a later one: whoever asks lags behind it, and a fence may yet
    // come of it. (A model without this line is over budget in 25 steps.)
    let asked: Vec<&Claim> = asked
        .iter()
        .filter(|claim| !open.iter().any(|open| open.tenure() == claim.tenure()))
        .collect();
    let asking: BTreeSet<(String, Vendor)> = asked.iter().map(|claim| claim.tenure()).collect();
    let taken: BTreeSet<(String, Vendor)> = open
        .iter()
        .map(Claim::tenure)
        .chain(fenced.iter().cloned())
        .filter(|tenure| !asking.contains(tenure))
        .collect();
    let mut seen: Vec<Standing> = standings.to_vec();
    for standing in &mut seen {
        let tenure = (standing.node.clone(), standing.vendor);
        if asking.contains(&tenure) {
            standing.stage = Stage::AsksHandover;
        } else if matches!(standing.stage, Stage::AsksHandover | Stage::AsksRestart)
            && !taken.contains(&tenure)
        {
            // Whoever asks was admitted already. One that waits, though for longer, must not have it refused: it would be
            // admitted next and be refused for the other's sake, and so on without end.
            standing.stage = Stage::Still;
        } else if taken.contains(&tenure) {
            standing.stage = match standing.stage {
                // Fenced nodes that do not move are counted by their own rule.
                kept @ (Stage::UnderWay | Stage::Stuck | Stage::Failed(_)) => kept,
                Stage::Unowned
                | Stage::Settled
                | Stage::Still
                | Stage::AsksHandover
                | Stage::AsksRestart
                | Stage::Verifying => Stage::UnderWay,
            };
        }
    }
    // Whoever is taken and not known yet holds a place all the same.
    for (node, vendor) in &taken {
        let known = |standing: &Standing| standing.node == *node && standing.vendor == *vendor;
        if !seen.iter().any(known) {
            seen.push(Standing {
                node: node.clone(),
                vendor: *vendor,
                cohort: None,
                stage: Stage::UnderWay,
                since_s: rules.now_s,
            });
        }
    }
    let admission = admit(rules, &seen);
    let starts: BTreeSet<(&str, Vendor)> = admission.starts().collect();
    let left = MAX_CLAIMS.saturating_sub(open.len());
    asked
        .into_iter()
        .filter(|claim| starts.contains(&(claim.node.as_str(), claim.vendor)))
        .take(left)
        .cloned()
        .collect()
}
