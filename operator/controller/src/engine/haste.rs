//! How soon a change of a tenure is told in the node's status.
//!
//! A handover takes seven orders and three answers of the agent. A status for each of its ten steps would double that, and each
//! comes with two events. So what people have to know is told soon: that a node leaves its owner, what stands in the way, where
//! it comes to rest. The steps in between, which follow one another by themselves, are told only when one of them takes long.

use freehold_api::TenureStatus;
use freehold_core::blocker::{Kind, Reason};
use freehold_core::summary::TenureOutcome;
use freehold_core::tenure::Step;

/// How soon, in rests (`--status-rest-ms`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Haste {
    /// It is another state of affairs.
    Soon,
    /// The same with other words, such as the next of many consumers. Consumers are read no more often than this.
    Words,
    /// A handover goes on, and nobody has to do anything. The longest that a step takes by itself is 30 s, after which the
    /// kubelet removes the slices of a driver that has left.
    Passing,
}

impl Haste {
    /// Of what is so now, where this was told last.
    pub(super) fn of(outcome: &TenureOutcome, told: Option<&TenureStatus>) -> Self {
        let Some(told) = told else {
            return Self::Soon;
        };
        let why = outcome.why().map(|blocker| blocker.reason);
        if why.is_none()
            && is_under_way(outcome.step)
            && is_under_way(told.step)
            && told.reason.is_none_or(waits)
        {
            return Self::Passing;
        }
        let same = (told.step, told.reason, told.owner, &told.cohort)
            == (outcome.step, why, outcome.owner, &outcome.cohort);
        if same { Self::Words } else { Self::Soon }
    }

    pub(super) const fn rests(self) -> u32 {
        match self {
            Self::Soon => 1,
            Self::Words => 10,
            Self::Passing => 40,
        }
    }
}

/// Whether it goes away by itself.
const fn waits(reason: Reason) -> bool {
    match reason.kind() {
        Kind::Waiting => true,
        Kind::Excluded | Kind::Blocked | Kind::Conflicted => false,
    }
}

/// Whether a node is on its way from one owner to the next.
const fn is_under_way(step: Step) -> bool {
    match step {
        Step::Fence
        | Step::Drain
        | Step::Attest
        | Step::Revoke
        | Step::Vacate
        | Step::Reshape
        | Step::HandWord
        | Step::Grant
        | Step::Verify
        | Step::Unfence => true,
        Step::None | Step::Discover | Step::Held | Step::Hold => false,
    }
}

#[cfg(test)]
mod tests {
    use freehold_core::blocker::Blocker;
    use freehold_core::vendor::{Owner, Vendor};

    use super::*;
    use crate::publish::time;

    fn outcome(step: Step, owner: Option<Owner>, why: Option<(Reason, &str)>) -> TenureOutcome {
        TenureOutcome {
            node: "rack-7".into(),
            vendor: Vendor::Neuron,
            matched: true,
            cohort: Some("amber".into()),
            owner,
            excluded: None,
            step,
            blocker: why.map(|(reason, message)| Blocker {
                reason,
                message: message.into(),
            }),
            since_s: 4711,
        }
    }

    fn told(outcome: &TenureOutcome) -> TenureStatus {
        TenureStatus {
            cohort: outcome.cohort.clone(),
            owner: outcome.owner,
            step: outcome.step,
            since: time(outcome.since_s),
            reason: outcome.why().map(|blocker| blocker.reason),
            message: outcome.why().map(|blocker| blocker.message.clone()),
            next_step: None,
        }
    }

    const PLUGIN: Option<Owner> = Some(Owner::DevicePlugin);

    #[test]
    fn what_people_have_to_know_is_told_soon() {
        let waits = |reason| Some((reason, "pod a/b"));
        let held = outcome(Step::Held, PLUGIN, None);
        let drain = outcome(Step::Drain, PLUGIN, None);
        let waiting = outcome(Step::Drain, PLUGIN, waits(Reason::ConsumersRemain));
        let overdue = outcome(Step::Drain, PLUGIN, waits(Reason::DrainTimeout));
        let vacate = outcome(Step::Vacate, None, None);
        let lingering = outcome(Step::Vacate, None, waits(Reason::OperandLingers));
        let granted = outcome(Step::Held, Some(Owner::Dra), None);
        for (before, now) in [
            (&held, &drain),
            (&held, &waiting),
            (&drain, &waiting),
            (&waiting, &overdue),
            (&waiting, &lingering),
            (&waiting, &granted),
            (&vacate, &granted),
            (&granted, &held),
        ] {
            assert_eq!(
                Haste::of(now, Some(&told(before))),
                Haste::Soon,
                "{before:?} to {now:?}"
            );
        }
        assert_eq!(Haste::of(&held, None), Haste::Soon, "nothing was told yet");
    }

    #[test]
    fn steps_that_follow_by_themselves_are_told_when_they_take_long() {
        let waiting = outcome(
            Step::Drain,
            PLUGIN,
            Some((Reason::ConsumersRemain, "pod a/b")),
        );
        let drain = outcome(Step::Drain, PLUGIN, None);
        let vacate = outcome(Step::Vacate, None, None);
        for before in [&waiting, &drain] {
            assert_eq!(
                Haste::of(&vacate, Some(&told(before))),
                Haste::Passing,
                "{before:?}"
            );
        }
        assert!(Haste::Passing.rests() > 30, "as the kubelet takes 30 s");
    }

    #[test]
    fn that_what_a_person_had_to_act_on_is_over_is_told_soon() {
        let blocked = outcome(
            Step::Drain,
            PLUGIN,
            Some((Reason::AttestationUnknown, "/var/lib/x")),
        );
        let vacate = outcome(Step::Vacate, None, None);
        assert_eq!(Haste::of(&vacate, Some(&told(&blocked))), Haste::Soon);
    }

    #[test]
    fn other_words_for_the_same_are_told_less_often() {
        let first = outcome(
            Step::Drain,
            PLUGIN,
            Some((Reason::ConsumersRemain, "pod a/b")),
        );
        let next = outcome(
            Step::Drain,
            PLUGIN,
            Some((Reason::ConsumersRemain, "pod c/d")),
        );
        assert_eq!(Haste::of(&next, Some(&told(&first))), Haste::Words);
    }
}
