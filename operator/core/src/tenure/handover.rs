//! A fenced node that carries an owner label: on its way out of one tenure, or just into one.

use super::change::{Change, change, current};
use super::step::standstill;
use super::unmet::{Unmet, blocker};
use super::{
    Decision, Facts, NodeWrite, RecordFacts, RecordWrite, Step, Want, advert, consumers, held,
    proofs, raise, shaping,
};
use crate::blocker::{Blocker, Reason};
use crate::intent::DrainPolicy;
use crate::report::ShapingOutcome;
use crate::vendor::Owner;

pub(super) fn step(facts: &Facts, record: &RecordFacts, owner: Owner, fence: i64) -> Decision {
    if let Some(decision) = standstill(facts) {
        return decision;
    }
    let wanted = match &facts.want {
        Want::Owner(target) => match change(&current(facts, owner, target), target) {
            kept @ (Change::None | Change::Restart) => Some((target, kept)),
            Change::Reshape | Change::Handover => None,
        },
        Want::Nothing | Want::Hold(_) => None,
    };
    if record.term < fence
        && wanted.is_none()
        && let Err(unmet) = empty(facts)
    {
        let waits = let_unprepare(facts, record, owner, unmet.decide(facts, Step::Drain));
        if overdue(facts, &waits).is_none() {
            return waits;
        }
        // To be given up; the term first, as below. It is the same drain still.
        if let Some(mut decision) = raise::catch_up(facts, record, fence) {
            (decision.step, decision.blocker) = (Step::Drain, waits.blocker);
            return decision;
        }
    }
    // Even when the mind has changed: a fence comes down only after the term has reached its value, so that the value is
    // never used again.
    if let Some(decision) = raise::catch_up(facts, record, fence) {
        return decision;
    }
    match (record.term == fence, wanted) {
        (true, None) => drain(facts, record, owner),
        // A change of mind before revoke: everything is as it was.
        (true, Some(_)) => Decision::at(Step::Unfence).write(NodeWrite::Unfence),
        // Granted to somebody who is no longer wanted, or only to let claims be unprepared: drain (again).
        (false, None) => raise::fence(facts, record, Step::Fence),
        (false, Some(_)) if record.owner != Some(owner) => raise::fence(facts, record, Step::Fence),
        (false, Some((target, Change::Restart))) => held::renew(facts, target),
        (false, Some((target, _))) => match advert::verified_and_stable(facts, target) {
            Ok(()) => Decision::at(Step::Unfence).write(NodeWrite::Unfence),
            Err(unmet) => unmet.decide(facts, Step::Verify),
        },
    }
}

/// Nobody whom the API knows uses the devices. The agent is asked only then: asked earlier, it could but name those who are
/// still there, and would have to answer once more when they are gone. Nobody is evicted before the fence has settled, since a
/// scheduler that has not seen it would bind the successor here again.
fn empty(facts: &Facts) -> Result<(), Unmet> {
    match consumers::gone(facts, false) {
        Err(Unmet::Consumers {
            blocker,
            evict: Some(_),
        }) if unsettled_s(facts) > 0 => Err(Unmet::Consumers {
            blocker,
            evict: None,
        }),
        answer => answer,
    }
}

/// How much longer schedulers are given to see the fence.
const fn unsettled_s(facts: &Facts) -> u64 {
    facts
        .timing
        .settle_s
        .saturating_sub(facts.timing.fence_seen_s)
}

/// Drain, attest, revoke: consumers first, so that people see the names of pods rather than of holders.
fn drain(facts: &Facts, record: &RecordFacts, owner: Owner) -> Decision {
    let settle = unsettled_s(facts);
    if settle > 0 {
        return Unmet::Time(settle).decide(facts, Step::Drain);
    }
    if let Err(unmet) = consumers::gone(facts, false) {
        let waiting = unmet.decide(facts, Step::Drain);
        return give_up(facts, let_unprepare(facts, record, owner, waiting));
    }
    if let Err(unmet) = proofs::attested(facts, record) {
        let waiting = unmet.decide(facts, Step::Attest);
        return give_up(facts, let_unprepare(facts, record, owner, waiting));
    }
    Decision::at(Step::Revoke).write_fresh(facts, NodeWrite::Revoke)
}

/// Claims end only when their driver unprepares them, and a driver that waits for a layout which does not come never starts. So
/// behind the fence, where nobody new is let in, the layout is withdrawn, and it starts on the geometry as it is.
fn let_unprepare(
    facts: &Facts,
    record: &RecordFacts,
    owner: Owner,
    mut waiting: Decision,
) -> Decision {
    let claims =
        proofs::dra_holders(facts) || facts.consumers.iter().flatten().any(consumers::is_dra);
    let runs = facts
        .operands
        .iter()
        .any(|pod| pod.owner == owner && pod.ready && !pod.terminating);
    let barred = owner == Owner::Dra && shaping::bars_operands(facts, record);
    if !(barred && claims) || runs || waiting.needs_fresh {
        return waiting;
    }
    // A layout is made anew after every boot; that is worth some patience.
    let left_s = if shaping::outcome(facts) == Some(ShapingOutcome::Working) {
        facts.timing.patience_s.saturating_sub(facts.timing.step_s)
    } else {
        0
    };
    if left_s > 0 {
        waiting.wake_s = Some(waiting.wake_s.map_or(left_s, |wake_s| wake_s.min(left_s)));
        return waiting;
    }
    waiting.write = None;
    waiting.write_fresh(facts, RecordWrite::Layout { layout: None })
}

/// Past its deadline a drain by eviction is given up: nothing was taken from the owner yet, and a node that waits behind its
/// fence for a consumer that nobody may evict serves nobody. Decided on fresh reads, as whoever asks has them.
fn give_up(facts: &Facts, decision: Decision) -> Decision {
    let Some(why) = overdue(facts, &decision) else {
        return decision;
    };
    let deadline = facts.timing.drain_timeout_s;
    let message = format!(
        "{}; {deadline} s were not enough, so the node stays with its owner. It is tried again later, or at once with the next \
         change of the AcceleratorCluster",
        why.message
    );
    Decision::at(decision.step)
        .because(blocker(Reason::DrainTimeout, message))
        .write(NodeWrite::Unfence)
}

/// What a drain that is to be given up still waits for.
fn overdue<'a>(facts: &Facts, decision: &'a Decision) -> Option<&'a Blocker> {
    let evicts = match facts.drain {
        DrainPolicy::Evict => true,
        DrainPolicy::Wait => false,
    };
    decision.blocker.as_ref().filter(|_| {
        evicts
            && facts.fresh
            && !facts.tearing_down
            && facts.timing.step_s >= facts.timing.drain_timeout_s
    })
}
