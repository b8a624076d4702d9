//! What people see: status of the cluster and of each node, and events on transitions.

pub(crate) mod cluster;
pub(crate) mod events;
pub(crate) mod node;

use freehold_core::summary::{self, Truth};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Puts a condition together; its transition time moves only when its status does.
pub(crate) fn condition(
    new: summary::Condition,
    before: &[Condition],
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    let status = match new.status {
        Truth::True => "True",
        Truth::False => "False",
        Truth::Unknown => "Unknown",
    };
    let since = before
        .iter()
        .find(|old| old.type_ == new.kind && old.status == status)
        .map_or_else(
            || Time(whole_seconds(now)),
            |old| old.last_transition_time.clone(),
        );
    Condition {
        type_: new.kind.to_owned(),
        status: status.to_owned(),
        reason: new.reason.to_owned(),
        message: new.message,
        observed_generation: generation,
        last_transition_time: since,
    }
}

/// The API keeps whole seconds; anything finer would come back different and be written again for ever.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Seconds since the epoch as the API's time.
pub(crate) fn time(seconds: i64) -> Time {
    Time(Timestamp::from_second(seconds).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use freehold_core::summary::{Condition, Truth};
    use jiff::Timestamp;

    use super::condition;

    fn new(status: Truth, reason: &'static str) -> Condition {
        Condition {
            kind: "Ready",
            status,
            reason,
            message: String::new(),
        }
    }

    #[test]
    fn the_transition_time_moves_only_when_the_status_flips() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let first = condition(new(Truth::False, "Migrating"), &[], Some(1), at(10));
        let same = condition(
            new(Truth::False, "Blocked"),
            std::slice::from_ref(&first),
            Some(2),
            at(20),
        );
        assert_eq!(
            (same.last_transition_time.clone(), same.observed_generation),
            (first.last_transition_time, Some(2))
        );
        let flipped = condition(
            new(Truth::True, "AllReady"),
            std::slice::from_ref(&same),
            Some(2),
            at(30),
        );
        assert_eq!(flipped.last_transition_time.0, at(30));
    }
}
