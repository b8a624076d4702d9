use super::*;
use crate::summary::TenureOutcome;
use crate::tenure::Step;

#[test]
fn a_stage_is_read_off_step_fence_and_reason() {
    let outcome =
        |owner: Option<Owner>, step: Step, reason: Option<Reason>, since_s: i64| TenureOutcome {
            node: "n".into(),
            vendor: Vendor::Nvidia,
            cohort: Some("amber".into()),
            matched: true,
            owner,
            excluded: None,
            step,
            blocker: reason.map(|reason| Blocker::new(reason, "found")),
            since_s,
        };
    let owned = Some(Owner::DevicePlugin);
    let recent = NOW - 10;
    for (outcome, fenced, expected) in [
        (
            outcome(None, Step::Discover, Some(Reason::AgentSilent), recent),
            false,
            Stage::Unowned,
        ),
        (
            outcome(None, Step::HandWord, None, recent),
            false,
            Stage::Unowned,
        ),
        (
            outcome(owned, Step::Verify, None, recent),
            false,
            Stage::Verifying,
        ),
        (
            outcome(owned, Step::Verify, Some(Reason::OperandNotRunning), recent),
            false,
            Stage::Failed(Reason::OperandNotRunning),
        ),
        (
            outcome(owned, Step::Held, None, recent),
            false,
            Stage::Settled,
        ),
        (
            outcome(owned, Step::Held, Some(Reason::BudgetExhausted), recent),
            false,
            Stage::AsksRestart,
        ),
        (
            outcome(owned, Step::Hold, Some(Reason::BudgetExhausted), recent),
            false,
            Stage::AsksHandover,
        ),
        (
            outcome(owned, Step::Hold, Some(Reason::MassChange), recent),
            false,
            Stage::AsksHandover,
        ),
        (
            outcome(owned, Step::Hold, Some(Reason::DriverTooOld), recent),
            false,
            Stage::Still,
        ),
        (
            outcome(owned, Step::Hold, Some(Reason::NodeNotReady), recent),
            false,
            Stage::Still,
        ),
        (
            outcome(owned, Step::Fence, None, recent),
            true,
            Stage::UnderWay,
        ),
        (
            outcome(owned, Step::Drain, Some(Reason::ConsumersRemain), recent),
            true,
            Stage::UnderWay,
        ),
        (
            outcome(
                owned,
                Step::Drain,
                Some(Reason::ConsumersRemain),
                NOW - 5000,
            ),
            true,
            Stage::Stuck,
        ),
        (
            outcome(owned, Step::Drain, Some(Reason::StuckClaim), recent),
            true,
            Stage::Stuck,
        ),
        (
            outcome(None, Step::Vacate, None, recent),
            true,
            Stage::UnderWay,
        ),
        (
            outcome(None, Step::Vacate, Some(Reason::OperandLingers), recent),
            true,
            Stage::Stuck,
        ),
        (
            outcome(None, Step::Reshape, Some(Reason::LayoutInfeasible), recent),
            true,
            Stage::Failed(Reason::LayoutInfeasible),
        ),
        (
            outcome(
                owned,
                Step::Verify,
                Some(Reason::AdvertisementMismatch),
                recent,
            ),
            true,
            Stage::Failed(Reason::AdvertisementMismatch),
        ),
        (
            outcome(owned, Step::Hold, Some(Reason::ForeignOwner), recent),
            true,
            Stage::Stuck,
        ),
    ] {
        assert_eq!(
            Standing::of(&outcome, fenced, NOW, 3600).stage,
            expected,
            "fenced {fenced}: {outcome:?}"
        );
    }
    let leaving = TenureOutcome {
        matched: false,
        ..outcome(owned, Step::Hold, Some(Reason::BudgetExhausted), recent)
    };
    assert_eq!(
        Standing::of(&leaving, false, NOW, 3600).cohort,
        None,
        "it belongs to no cohort any more"
    );
}
