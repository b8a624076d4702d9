//! Which changes on the host are worth a write, and how soon.
//!
//! An answer to a term is always the whole reading, written at once; nothing here can hold one up. This is about what changes
//! between answers. Pods come and go on a busy node all day, and nobody waits to hear of it: a fleet whose agents wrote each
//! time would write without end. While the controller has asked and the answer was not the hoped-for one, it waits for just
//! such a change.

use std::time::{Duration, Instant};

use freehold_api::AcceleratorNode;
use freehold_core::report::{NodeReport, VendorReport};
use freehold_core::tenure::Step;
use freehold_core::vendor::{Owner, PerVendor, Vendor};

/// How long a figure for people, who uses the devices, may be out of date while nobody has asked. Five thousand nodes that change
/// all the time write 17 times a second then.
const AT_LEISURE: Duration = Duration::from_secs(300);
/// The same while the controller waits for the last holder to go: who is left is named to people.
const WHILE_ASKED: Duration = Duration::from_secs(30);
/// A question counts as open for so long although the status says that the node rests: the status follows a little later.
const STATUS_LAG: Duration = Duration::from_secs(60);

/// How soon a reading that differs from what was said is to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Haste {
    /// With the next report that there is another reason for: the owner in force shows itself on the host, which the API tells
    /// better by what is advertised.
    Along,
    /// Once it has differed for minutes.
    AtLeisure,
    /// Once it has differed for some seconds.
    Soon,
    /// At once.
    Now,
}

impl Haste {
    /// How long it must have differed; `None` for ever.
    #[must_use]
    pub const fn after(self) -> Option<Duration> {
        match self {
            Self::Along => None,
            Self::AtLeisure => Some(AT_LEISURE),
            Self::Soon => Some(WHILE_ASKED),
            Self::Now => Some(Duration::ZERO),
        }
    }
}

/// How soon `read` is to be said where `said` is what was said last and `asked` tells for which vendors a question is open.
#[must_use]
pub fn haste(said: &NodeReport, read: &NodeReport, asked: PerVendor<bool>) -> Haste {
    let mut rest = read.clone();
    let mut most = Haste::Along;
    for vendor in Vendor::ALL {
        let (Some(said), Some(read)) = (said.vendor(vendor), read.vendor(vendor)) else {
            continue;
        };
        most = most.max(of_vendor(said, read, *asked.get(vendor)));
        if let Some(part) = rest.vendor_mut(vendor) {
            overlook(said, part);
        }
    }
    if rest == *said { most } else { Haste::Now }
}

/// Takes from what was said everything that [`of_vendor`] judges.
fn overlook(said: &VendorReport, part: &mut VendorReport) {
    part.in_use.device_plugin = said.in_use.device_plugin;
    part.in_use.dra = said.in_use.dra;
    part.in_use.holders.clone_from(&said.in_use.holders);
    part.plugin_sockets.clone_from(&said.plugin_sockets);
    part.dra_registered = said.dra_registered;
}

fn of_vendor(said: &VendorReport, read: &VendorReport, asked: bool) -> Haste {
    let trace = |owner: Owner, differs: bool, gone: bool| {
        if !differs {
            Haste::Along
        } else if read.word != Some(owner) {
            // A stranger, or the last trace of an owner that has left.
            Haste::Now
        } else if !gone {
            Haste::Along
        } else if asked {
            Haste::Now
        } else {
            // It restarts, most likely.
            Haste::AtLeisure
        }
    };
    let sockets = trace(
        Owner::DevicePlugin,
        said.plugin_sockets != read.plugin_sockets,
        read.plugin_sockets.is_empty(),
    );
    let registration = trace(
        Owner::Dra,
        said.dra_registered != read.dra_registered,
        !read.dra_registered,
    );
    let (before, now) = (&said.in_use, &read.in_use);
    let turned = |before: i32, now: i32| (before == 0) != (now == 0);
    let users = if (before.device_plugin, before.dra, &before.holders)
        == (now.device_plugin, now.dra, &now.holders)
    {
        Haste::Along
    } else if !asked {
        Haste::AtLeisure
    } else if turned(before.device_plugin, now.device_plugin) || turned(before.dra, now.dra) {
        Haste::Now
    } else {
        Haste::Soon
    };
    sockets.max(registration).max(users)
}

/// Whether the controller may be waiting for a change on this host, for one vendor.
///
/// It asks by raising the term, and says in the status that the node is on its way. Losing count, as after a restart, costs a
/// write or some minutes, never an answer.
#[derive(Clone, Copy, Debug, Default)]
struct Question {
    seen: Option<(i64, Stage)>,
    asked: Option<Instant>,
}

/// What the status says about a tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing is under way.
    Rests,
    /// It keeps what it has until something else is settled.
    Stands,
    /// It is on its way.
    Moves,
}

impl Question {
    fn look(&mut self, term: i64, answered: bool, stage: Stage, now: Instant) {
        match self.seen {
            None if stage == Stage::Moves || !answered => self.asked = Some(now),
            None => {}
            Some((before, _)) if term > before => self.asked = Some(now),
            Some((_, before)) if before != Stage::Rests && stage == Stage::Rests => {
                self.asked = None;
            }
            Some(_) => {}
        }
        self.seen = Some((term, stage));
    }

    fn is_open(&self, now: Instant) -> bool {
        let rests = self.seen.is_none_or(|(_, stage)| stage == Stage::Rests);
        self.asked
            .is_some_and(|at| !rests || now.saturating_duration_since(at) < STATUS_LAG)
    }
}

/// The questions about one AcceleratorNode.
#[derive(Clone, Debug, Default)]
pub struct Questions {
    uid: Option<String>,
    vendors: PerVendor<Question>,
}

impl Questions {
    /// Looks at the object as it is now.
    pub fn look(&mut self, object: &AcceleratorNode, now: Instant) {
        if self.uid != object.metadata.uid {
            *self = Self {
                uid: object.metadata.uid.clone(),
                ..Self::default()
            };
        }
        let status = object.status.as_ref();
        for vendor in Vendor::ALL {
            let Some(order) = object.spec.vendor(vendor) else {
                *self.vendors.get_mut(vendor) = Question::default();
                continue;
            };
            let answered = status
                .and_then(|status| status.report.as_ref()?.vendor(vendor))
                .is_some_and(|part| part.observed_term == order.term);
            let stage = status
                .and_then(|status| status.tenures.vendor(vendor))
                .map_or(Stage::Rests, |tenure| stage(tenure.step));
            self.vendors
                .get_mut(vendor)
                .look(order.term, answered, stage, now);
        }
    }

    /// For which vendors one is open.
    #[must_use]
    pub fn open(&self, now: Instant) -> PerVendor<bool> {
        PerVendor::from_fn(|vendor| self.vendors.get(vendor).is_open(now))
    }
}

const fn stage(step: Step) -> Stage {
    match step {
        Step::None | Step::Held => Stage::Rests,
        Step::Hold => Stage::Stands,
        Step::Discover
        | Step::Fence
        | Step::Drain
        | Step::Attest
        | Step::Revoke
        | Step::Vacate
        | Step::Reshape
        | Step::HandWord
        | Step::Grant
        | Step::Verify
        | Step::Unfence => Stage::Moves,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ASKED: PerVendor<bool> = PerVendor {
        nvidia: true,
        neuron: false,
    };
    const NOBODY: PerVendor<bool> = PerVendor {
        nvidia: false,
        neuron: false,
    };

    /// Answered term 7, the device plugin in force and there, two pods at work.
    fn said() -> NodeReport {
        let mut part = VendorReport {
            observed_term: 7,
            word: Some(Owner::DevicePlugin),
            word_term: 7,
            plugin_sockets: vec!["nvidia-gpu.sock".into()],
            ..VendorReport::default()
        };
        part.in_use.device_plugin = 2;
        part.in_use.holders = vec!["pod a".into(), "pod b".into()];
        NodeReport {
            nvidia: Some(part),
            ..NodeReport::default()
        }
    }

    fn read(change: impl FnOnce(&mut VendorReport)) -> NodeReport {
        let mut report = said();
        change(report.nvidia.as_mut().unwrap());
        report
    }

    #[test]
    fn answers_words_and_troubles_are_said_at_once() {
        let changes: [fn(&mut VendorReport); 6] = [
            |part| part.observed_term = 8,
            |part| part.word = None,
            |part| part.word_term = 0,
            |part| part.in_use.unknown = true,
            |part| part.inventory.devices = 3,
            |part| part.layout.mig_enabled_gpus = 1,
        ];
        for (at, change) in changes.into_iter().enumerate() {
            assert_eq!(haste(&said(), &read(change), NOBODY), Haste::Now, "{at}");
        }
        let mut rebooted = said();
        rebooted.boot_id = "another".into();
        let mut troubled = said();
        troubled.errors = vec!["/a: b".into()];
        let mut gone = said();
        gone.nvidia = None;
        for report in [rebooted, troubled, gone] {
            assert_eq!(haste(&said(), &report, NOBODY), Haste::Now);
        }
        // An answer goes out at once whatever else changed with it.
        let busier = read(|part| {
            part.observed_term = 8;
            part.in_use.device_plugin = 3;
        });
        assert_eq!(haste(&said(), &busier, NOBODY), Haste::Now);
    }

    #[test]
    fn pods_that_come_and_go_are_said_at_leisure_unless_somebody_asked() {
        let one_left = read(|part| part.in_use.device_plugin = 1);
        let none_left = read(|part| {
            part.in_use.device_plugin = 0;
            part.in_use.holders.clear();
        });
        let others = read(|part| part.in_use.holders = vec!["pod c".into()]);
        for report in [&one_left, &none_left, &others] {
            assert_eq!(
                haste(&said(), report, NOBODY),
                Haste::AtLeisure,
                "{report:?}"
            );
        }
        assert_eq!(haste(&said(), &none_left, ASKED), Haste::Now);
        assert_eq!(haste(&none_left, &said(), ASKED), Haste::Now, "a late one");
        for report in [&one_left, &others] {
            assert_eq!(haste(&said(), report, ASKED), Haste::Soon, "{report:?}");
        }
        let claimed = read(|part| part.in_use.dra = 1);
        assert_eq!(haste(&said(), &claimed, ASKED), Haste::Now, "another kind");
    }

    #[test]
    fn the_owner_in_force_comes_without_a_write_and_leaves_with_one_where_it_was_asked_to() {
        let away = read(|part| part.plugin_sockets.clear());
        assert_eq!(haste(&away, &said(), ASKED), Haste::Along, "it is back");
        assert_eq!(haste(&said(), &away, NOBODY), Haste::AtLeisure, "a restart");
        assert_eq!(haste(&said(), &away, ASKED), Haste::Now);
        let one_of_two = read(|part| part.plugin_sockets.push("nvidia-mig.sock".into()));
        assert_eq!(haste(&one_of_two, &said(), ASKED), Haste::Along);
    }

    #[test]
    fn a_stranger_on_the_host_is_said_at_once_when_it_comes_and_when_it_goes() {
        let stranger = read(|part| part.dra_registered = true);
        assert_eq!(haste(&said(), &stranger, NOBODY), Haste::Now);
        assert_eq!(haste(&stranger, &said(), NOBODY), Haste::Now);
        let unowned = |sockets: &[&str]| {
            read(|part| {
                part.word = None;
                part.plugin_sockets = sockets.iter().map(|name| (*name).to_owned()).collect();
            })
        };
        assert_eq!(
            haste(&unowned(&[]), &unowned(&["nvidia-gpu.sock"]), NOBODY),
            Haste::Now
        );
    }

    fn object(uid: &str, term: i64, answered: i64, step: Option<&str>) -> AcceleratorNode {
        let tenures =
            step.map(|step| json!({"nvidia": {"step": step, "since": "2026-01-01T00:00:00Z"}}));
        let report = NodeReport {
            nvidia: Some(VendorReport {
                observed_term: answered,
                ..VendorReport::default()
            }),
            ..NodeReport::default()
        };
        serde_json::from_value(json!({
            "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorNode",
            "metadata": {"name": "rack-3", "uid": uid},
            "spec": {"nodeUID": "uid-1", "nvidia": {"term": term}},
            "status": {"tenures": tenures.unwrap_or_else(|| json!({})), "report": report},
        }))
        .unwrap()
    }

    #[test]
    fn a_question_is_open_from_the_raised_term_until_the_node_rests_again() {
        let now = Instant::now();
        let later = now + STATUS_LAG * 2;
        let mut questions = Questions::default();
        let mut open = |object: AcceleratorNode, at: Instant| {
            questions.look(&object, at);
            questions.open(at).nvidia
        };
        assert!(!open(object("a", 2, 2, Some("Held")), now));
        assert!(
            !open(object("a", 2, 2, Some("Drain")), now),
            "consumers are the API's to see; the agent is asked when they are gone"
        );
        assert!(open(object("a", 4, 2, Some("Drain")), now));
        assert!(open(object("a", 4, 4, Some("Drain")), later));
        assert!(open(object("a", 4, 4, Some("Hold")), later), "a conflict");
        assert!(open(object("a", 4, 4, Some("Vacate")), later), "and on");
        assert!(!open(object("a", 4, 4, Some("Held")), later));
    }

    #[test]
    fn of_two_hastes_the_greater_counts() {
        let mut both = read(|part| part.in_use.device_plugin = 1);
        both.neuron = Some(VendorReport::default());
        let mut before = said();
        before.neuron = Some(VendorReport {
            plugin_sockets: vec!["neuron.sock".into()],
            ..VendorReport::default()
        });
        assert_eq!(haste(&before, &both, NOBODY), Haste::Now);
        assert!(Haste::Soon.after() < Haste::AtLeisure.after());
    }

    #[test]
    fn a_question_that_no_status_tells_of_is_open_for_a_while() {
        let now = Instant::now();
        let mut questions = Questions::default();
        questions.look(&object("a", 2, 2, Some("Held")), now);
        questions.look(&object("a", 4, 2, Some("Held")), now);
        assert!(questions.open(now).nvidia);
        assert!(!questions.open(now + STATUS_LAG).nvidia);
    }

    #[test]
    fn after_a_restart_whatever_is_under_way_counts_as_asked() {
        let now = Instant::now();
        for (object, expected) in [
            (object("a", 4, 4, Some("Vacate")), true),
            (object("a", 4, 2, Some("Held")), true),
            (object("a", 4, 4, Some("Held")), false),
            (object("a", 4, 4, Some("Hold")), false),
            (object("a", 1, 1, None), false),
        ] {
            let mut questions = Questions::default();
            questions.look(&object, now);
            assert_eq!(questions.open(now).nvidia, expected, "{object:?}");
        }
    }

    #[test]
    fn a_successor_of_the_object_is_looked_at_afresh() {
        let now = Instant::now();
        let mut questions = Questions::default();
        questions.look(&object("a", 9, 9, Some("Drain")), now);
        assert!(questions.open(now).nvidia);
        questions.look(&object("b", 1, 1, Some("Held")), now);
        assert!(!questions.open(now).nvidia);
    }
}
