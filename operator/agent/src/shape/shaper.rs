//! The shaper: looks when something changed, shapes when it may, says what came of it.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use freehold_core::intent::Layout;
use freehold_core::report::{Shaping, ShapingOutcome};
use freehold_core::vendor::Vendor;
use tokio::time::Instant;

use super::engine::{Engine, Seen};
use super::order::{self, LAYOUT_FILE, Taken};
use super::shaped::{self, Shaped};
use super::watch::{self, Stamp};
use crate::host::Host;
use crate::interlock::lock::Lock;

/// How often files are looked at. An ordered node is out of service while it waits for this, and a look is some system calls.
const POLL: Duration = Duration::from_millis(500);
/// First pause before a round that did not end well is tried again.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Longest pause: somebody repairs the node meanwhile and wants to see it come back.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// Longest pause while an operand or a process holds the devices: they go without a sign that could be waited for.
const LONGEST_BUSY: Duration = Duration::from_secs(10);
/// Held by a living shaper: a second one, as while a pod is replaced, waits.
pub(super) const SHAPER_LOCK: &str = "shaper";

/// One vendor's shaper.
pub struct Shaper {
    /// Whose devices.
    pub vendor: Vendor,
    /// The vendor's directory on the host.
    pub directory: PathBuf,
    /// The host, for its boot ID and for what the devices look like without a driver session.
    pub host: Host,
    /// The devices.
    pub engine: Box<dyn Engine>,
}

impl fmt::Debug for Shaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shaper")
            .field("vendor", &self.vendor)
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

/// Why a round came to nothing: not the devices' state, which is told in the file, but the files themselves.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    /// Nobody could tell in which boot anything was found.
    #[error(transparent)]
    Boot(#[from] crate::host::ReadError),
    /// Nothing is shaped on a guess.
    #[error("the ordered layout in {0}: {1}")]
    Order(PathBuf, #[source] std::io::Error),
    /// Nothing is shaped that cannot be told.
    #[error("what was found cannot be written in {0}: {1}")]
    Write(PathBuf, #[source] std::io::Error),
}

impl Shaper {
    /// Runs until `stop` resolves. A round that is under way then is finished: the engine leaves nothing half done.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let mut said = String::new();
        let mut turn = None;
        let mut known: Option<Stamp> = None;
        let mut known_file = None;
        let mut retry = Retry::new();
        loop {
            if turn.is_none() {
                turn = match Lock::try_take_named(&self.directory, SHAPER_LOCK) {
                    Ok(Some(lock)) => Some(lock),
                    Ok(None) => {
                        say(&mut said, "waiting: another shaper of this node is at work");
                        None
                    }
                    Err(error) => {
                        let at = self.directory.display();
                        say(&mut said, &format!("waiting: the directory {at}: {error}"));
                        None
                    }
                };
            }
            if turn.is_some() {
                // Taken before the round, so that what changes during it is looked at afterwards.
                let file = watch::identity(&self.directory.join(LAYOUT_FILE));
                let stamp = Stamp::take(&self.host, self.vendor, &self.directory);
                if known.as_ref() != Some(&stamp) {
                    retry = Retry::new();
                }
                if known.as_ref() != Some(&stamp) || retry.is_due() {
                    match self.round() {
                        Ok(shaping) => {
                            say(&mut said, &words(self.vendor, &shaping));
                            retry.after(shaping.outcome);
                        }
                        Err(error) => {
                            say(
                                &mut said,
                                &format!("not shaping {}: {error}", self.vendor.key()),
                            );
                            retry.after(ShapingOutcome::Failed);
                        }
                    }
                    known = Some(stamp);
                } else if known_file.as_ref() != Some(&file)
                    && let Err(error) = self.restate()
                {
                    say(&mut said, &error.to_string());
                }
                known_file = Some(file);
            }
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = tokio::time::sleep(POLL) => {}
            }
        }
        println!("shaper of {} ends", self.vendor.key());
    }

    /// Names the newest order as the one that is answered, where it asks for what was answered before. Without a look.
    fn restate(&self) -> Result<(), RoundError> {
        let order = order::read(&self.directory)
            .map_err(|error| RoundError::Order(self.directory.clone(), error))?;
        // One that cannot be read is written anew by the next round.
        let Ok(Some(said)) = shaped::read(&self.directory) else {
            return Ok(());
        };
        let asks_the_same = order.as_ref().and_then(|order| order.layout.as_ref()) == said.layout();
        if said.order == order || !asks_the_same {
            return Ok(());
        }
        let shaped = Shaped { order, ..said };
        shaped::write(&self.directory, &shaped)
            .map_err(|error| RoundError::Write(self.directory.clone(), error))
    }

    /// Looks, shapes if that is worth it and allowed, and writes what came of it.
    fn round(&mut self) -> Result<Shaping, RoundError> {
        let boot_id = self.host.boot_id()?;
        let taken = order::read_taken(&self.directory)
            .map_err(|error| RoundError::Order(self.directory.clone(), error))?;
        // One that cannot be read is no reason to keep silent.
        let said = shaped::read(&self.directory).ok().flatten();
        let round = Round {
            boot_id,
            said,
            taken,
        };
        let seen = self.engine.look(round.wanted());
        if seen.shaping.outcome != ShapingOutcome::Working {
            return self.tell(&round, seen, false);
        }
        let may_change = round
            .taken
            .as_ref()
            .is_some_and(|taken| taken.may_change(&round.boot_id, round.used_leave()));
        let lock = match Lock::try_take(&self.directory) {
            Ok(Some(lock)) if may_change => lock,
            Ok(Some(_)) => {
                let why = "it is changed once nothing is in use";
                let seen = differing(seen, ShapingOutcome::Busy, why);
                return self.tell(&round, seen, true);
            }
            Ok(None) => {
                let why = "an operand of this node holds the lock";
                let seen = differing(seen, ShapingOutcome::Busy, why);
                return self.tell(&round, seen, !may_change);
            }
            Err(error) => {
                let why = format!("the lock in {}: {error}", self.directory.display());
                let seen = differing(seen, ShapingOutcome::Failed, &why);
                return self.tell(&round, seen, false);
            }
        };
        // Said before the first change: whatever becomes of this process, nobody takes the geometry for verified then. Where as
        // much is said already, a retry is no news.
        if !round.is_denied() {
            self.tell(&round, seen, false)?;
        }
        let seen = match round.wanted() {
            Some(wanted) => self.engine.shape(wanted),
            None => self.engine.settle(),
        };
        let told = self.tell(&round, seen, false);
        // Held until here: an operand that starts now finds what was told.
        drop(lock);
        told
    }

    /// Writes what was found, if that is news.
    fn tell(&self, round: &Round, seen: Seen, awaits_leave: bool) -> Result<Shaping, RoundError> {
        let leave = round.taken.as_ref().map(|taken| taken.leave);
        let used_leave = leave
            .filter(|_| seen.is_in_force())
            .or_else(|| round.used_leave());
        let order = round.taken.as_ref().map(|taken| taken.order.clone());
        let shaped = Shaped {
            used_leave,
            awaits_leave,
            ..Shaped::new(round.boot_id.clone(), order, seen)
        };
        let said = shaped::read(&self.directory).ok().flatten();
        if !said.is_some_and(|said| said.says_what(&shaped)) {
            shaped::write(&self.directory, &shaped)
                .map_err(|error| RoundError::Write(self.directory.clone(), error))?;
        }
        Ok(shaped.shaping)
    }
}

/// What a round begins with.
#[derive(Debug)]
struct Round {
    boot_id: String,
    /// What was said last.
    said: Option<Shaped>,
    taken: Option<Taken>,
}

impl Round {
    fn wanted(&self) -> Option<&Layout> {
        self.taken.as_ref()?.order.layout.as_ref()
    }

    /// What was said in this boot.
    fn said(&self) -> Option<&Shaped> {
        self.said
            .as_ref()
            .filter(|said| said.boot_id == self.boot_id)
    }

    /// The leave under which an ordered layout was in force in this boot.
    fn used_leave(&self) -> Option<u64> {
        self.said()?.used_leave
    }

    /// Whether it is said that this order is not in force.
    fn is_denied(&self) -> bool {
        let order = self.taken.as_ref().map(|taken| &taken.order);
        self.said().is_some_and(|said| {
            said.order.as_ref() == order && said.shaping.outcome != ShapingOutcome::InForce
        })
    }
}

/// A geometry that differs and cannot be changed now.
fn differing(seen: Seen, outcome: ShapingOutcome, why: &str) -> Seen {
    let found = seen.shaping.message.as_deref().unwrap_or_default();
    let colon = if found.is_empty() { "" } else { ": " };
    let shaping = Shaping {
        outcome,
        message: Some(format!("the geometry differs, and {why}{colon}{found}")),
    };
    Seen { shaping, ..seen }
}

/// When a round is tried again although nothing changed.
#[derive(Debug)]
struct Retry {
    tries: u32,
    due: Option<Instant>,
}

impl Retry {
    const fn new() -> Self {
        Self {
            tries: 0,
            due: None,
        }
    }

    fn is_due(&self) -> bool {
        self.due.is_some_and(|due| due <= Instant::now())
    }

    fn after(&mut self, outcome: ShapingOutcome) {
        let longest = match outcome {
            // Only another order or other hardware can change these, and either is seen.
            ShapingOutcome::Idle | ShapingOutcome::InForce | ShapingOutcome::Infeasible => {
                *self = Self::new();
                return;
            }
            ShapingOutcome::Working | ShapingOutcome::Busy => LONGEST_BUSY,
            ShapingOutcome::ResetRequired
            | ShapingOutcome::RebootRequired
            | ShapingOutcome::Failed => LONGEST_RETRY,
        };
        let pause = FIRST_RETRY
            .saturating_mul(1 << self.tries.min(6))
            .min(longest);
        self.tries = self.tries.saturating_add(1);
        self.due = Some(Instant::now() + pause);
    }
}

/// Says a line on stdout, once for each change.
fn say(said: &mut String, line: &str) {
    if said != line {
        println!("{line}");
        line.clone_into(said);
    }
}

fn words(vendor: Vendor, shaping: &Shaping) -> String {
    let state = match shaping.outcome {
        ShapingOutcome::Idle => "no layout is ordered",
        ShapingOutcome::InForce => "the ordered layout is in force",
        ShapingOutcome::Working => "the ordered layout is being made",
        ShapingOutcome::Busy => "waiting: the devices are in use",
        ShapingOutcome::Infeasible => "the ordered layout cannot be had",
        ShapingOutcome::ResetRequired => "waiting for a GPU reset",
        ShapingOutcome::RebootRequired => "waiting for the host to restart",
        ShapingOutcome::Failed => "the ordered layout could not be made",
    };
    let message = shaping.message.as_deref().unwrap_or_default();
    let colon = if message.is_empty() { "" } else { ": " };
    format!("{}: {state}{colon}{message}", vendor.key())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::super::order::{LayoutOrder, Moment, give_leave, obey};
    use super::*;

    /// Devices of which only a number is known: the setting in force.
    #[derive(Debug, Default)]
    struct Devices {
        setting: u8,
        looks: u32,
        shapes: u32,
        refuse: Option<ShapingOutcome>,
        /// A change was broken off.
        halfway: bool,
        /// What the file said when the devices were touched.
        said_then: Option<ShapingOutcome>,
        locked_then: bool,
    }

    struct Numbered(Rc<RefCell<Devices>>, PathBuf);

    impl Numbered {
        fn seen(&self, wanted: Option<&Layout>) -> Seen {
            let devices = self.0.borrow();
            let outcome = match wanted {
                _ if devices.halfway => ShapingOutcome::Working,
                None => ShapingOutcome::Idle,
                Some(Layout::LogicalNeuronCore(wanted)) if *wanted == devices.setting => {
                    ShapingOutcome::InForce
                }
                Some(_) => ShapingOutcome::Working,
            };
            Seen::nothing(Shaping {
                outcome,
                message: None,
            })
        }
    }

    impl Engine for Numbered {
        fn look(&mut self, wanted: Option<&Layout>) -> Seen {
            self.0.borrow_mut().looks += 1;
            self.seen(wanted)
        }

        fn shape(&mut self, wanted: &Layout) -> Seen {
            let said = shaped::read(&self.1).unwrap().unwrap();
            let locked = Lock::try_take(&self.1).unwrap().is_none();
            let mut devices = self.0.borrow_mut();
            devices.shapes += 1;
            devices.said_then = Some(said.shaping.outcome);
            devices.locked_then = locked;
            if let Some(outcome) = devices.refuse {
                return Seen::nothing(Shaping {
                    outcome,
                    message: Some("as scripted".into()),
                });
            }
            let Layout::LogicalNeuronCore(value) = wanted else {
                panic!("only numbers are ordered here")
            };
            devices.setting = *value;
            devices.halfway = false;
            drop(devices);
            self.seen(Some(wanted))
        }

        fn settle(&mut self) -> Seen {
            assert!(Lock::try_take(&self.1).unwrap().is_none());
            self.0.borrow_mut().halfway = false;
            self.seen(None)
        }
    }

    struct Stage {
        root: tempfile::TempDir,
        devices: Rc<RefCell<Devices>>,
    }

    impl Stage {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let stage = Self {
                root,
                devices: Rc::default(),
            };
            stage.boot("boot-1");
            stage
        }

        fn boot(&self, id: &str) {
            let file = Host::new(self.root.path()).at(crate::host::BOOT_ID);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, format!("{id}\n")).unwrap();
        }

        fn directory(&self) -> PathBuf {
            self.root.path().join("state")
        }

        fn shaper(&self) -> Shaper {
            Shaper {
                vendor: Vendor::Neuron,
                directory: self.directory(),
                host: Host::new(self.root.path()),
                engine: Box::new(Numbered(self.devices.clone(), self.directory())),
            }
        }

        fn withdraw(&self, generation: i64, moment: Moment<'_>) {
            let order = LayoutOrder {
                object_uid: "an-1".into(),
                object_created: 0,
                generation,
                layout: None,
            };
            assert_eq!(
                obey(&self.directory(), &order, moment),
                crate::interlock::order::Outcome::InForce
            );
        }

        fn order(&self, lnc: u8, generation: i64) {
            let order = LayoutOrder {
                object_uid: "an-1".into(),
                object_created: 0,
                generation,
                layout: Some(Layout::LogicalNeuronCore(lnc)),
            };
            assert_eq!(
                obey(&self.directory(), &order, Moment::Idle),
                crate::interlock::order::Outcome::InForce
            );
        }

        fn said(&self) -> Shaped {
            shaped::read(&self.directory()).unwrap().unwrap()
        }

        async fn until(&self, outcome: ShapingOutcome) -> Shaped {
            let looked = tokio::time::timeout(Duration::from_secs(20), async {
                loop {
                    if let Ok(Some(said)) = shaped::read(&self.directory())
                        && said.shaping.outcome == outcome
                    {
                        return said;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
            looked
                .await
                .unwrap_or_else(|_| panic!("waited for {outcome:?}, found {:?}", self.said()))
        }
    }

    #[test]
    fn an_order_is_carried_out_under_the_lock_and_announced_before() {
        let stage = Stage::new();
        stage.order(1, 1);
        let shaping = stage.shaper().round().unwrap();
        assert_eq!(shaping.outcome, ShapingOutcome::InForce);
        let devices = stage.devices.borrow();
        assert_eq!(devices.said_then, Some(ShapingOutcome::Working));
        assert!(devices.locked_then, "no operand can start meanwhile");
        assert!(
            stage
                .said()
                .has_in_force(&Layout::LogicalNeuronCore(1), "boot-1")
        );
    }

    #[test]
    fn a_retry_that_ends_as_the_one_before_is_no_news() {
        let stage = Stage::new();
        stage.order(1, 1);
        stage.devices.borrow_mut().refuse = Some(ShapingOutcome::Failed);
        assert_eq!(
            stage.shaper().round().unwrap().outcome,
            ShapingOutcome::Failed
        );
        // A write through this link fails.
        std::os::unix::fs::symlink("/dev/full", stage.directory().join(".shaped.new")).unwrap();
        assert_eq!(
            stage.shaper().round().unwrap().outcome,
            ShapingOutcome::Failed
        );
        assert_eq!(stage.devices.borrow().shapes, 2);
        assert_eq!(
            stage.devices.borrow().said_then,
            Some(ShapingOutcome::Failed),
            "which is not a verified geometry either"
        );
    }

    #[test]
    fn while_an_operand_lives_nothing_is_touched_and_the_difference_is_told() {
        let stage = Stage::new();
        stage.order(1, 1);
        let operand = Lock::try_take(&stage.directory()).unwrap().unwrap();
        let shaping = stage.shaper().round().unwrap();
        assert_eq!(shaping.outcome, ShapingOutcome::Busy);
        assert_eq!(stage.devices.borrow().shapes, 0);
        drop(operand);
        assert_eq!(
            stage.shaper().round().unwrap().outcome,
            ShapingOutcome::InForce
        );
    }

    #[test]
    fn what_was_in_force_is_changed_back_only_with_another_leave_and_after_a_boot_without() {
        let stage = Stage::new();
        stage.order(1, 1);
        let mut shaper = stage.shaper();
        assert_eq!(shaper.round().unwrap().outcome, ShapingOutcome::InForce);
        // By hand, and then the operand ends: its workloads do not.
        stage.devices.borrow_mut().setting = 2;
        let operand = Lock::try_take(&stage.directory()).unwrap();
        assert_eq!(shaper.round().unwrap().outcome, ShapingOutcome::Busy);
        drop(operand);
        stage.order(1, 2);
        for mut shaper in [shaper, stage.shaper()] {
            assert_eq!(shaper.round().unwrap().outcome, ShapingOutcome::Busy);
        }
        let said = stage.said();
        assert!(said.awaits_leave && stage.devices.borrow().shapes == 1);
        assert!(give_leave(&stage.directory(), said.used_leave.unwrap()).unwrap());
        let shaping = stage.shaper().round().unwrap();
        assert_eq!(shaping.outcome, ShapingOutcome::InForce);
        assert!(!stage.said().awaits_leave);
        stage.boot("boot-2");
        stage.devices.borrow_mut().setting = 2;
        let shaping = stage.shaper().round().unwrap();
        assert_eq!(shaping.outcome, ShapingOutcome::InForce);
    }

    #[test]
    fn what_a_withdrawn_order_left_halfway_is_taken_back_once_nothing_is_in_use() {
        let stage = Stage::new();
        stage.order(1, 1);
        stage.devices.borrow_mut().halfway = true;
        stage.withdraw(2, Moment::Idle);
        assert_eq!(
            stage.shaper().round().unwrap().outcome,
            ShapingOutcome::Idle
        );
        assert!(!stage.devices.borrow().halfway);

        stage.order(1, 3);
        stage.devices.borrow_mut().halfway = true;
        stage.withdraw(4, Moment::InUse("boot-1"));
        assert_eq!(
            stage.shaper().round().unwrap().outcome,
            ShapingOutcome::Busy
        );
        assert!(stage.said().awaits_leave && stage.devices.borrow().halfway);
        assert!(give_leave(&stage.directory(), 0).unwrap());
        assert_eq!(
            stage.shaper().round().unwrap().outcome,
            ShapingOutcome::Idle
        );
        assert!(!stage.devices.borrow().halfway);
        assert_eq!(stage.devices.borrow().shapes, 0);
    }

    #[test]
    fn a_change_that_failed_is_tried_again_with_the_same_leave() {
        let stage = Stage::new();
        stage.devices.borrow_mut().refuse = Some(ShapingOutcome::Failed);
        stage.order(1, 1);
        for shapes in 1..=2 {
            let shaping = stage.shaper().round().unwrap();
            assert_eq!(shaping.outcome, ShapingOutcome::Failed);
            assert_eq!(stage.devices.borrow().shapes, shapes);
        }
    }

    #[test]
    fn a_geometry_in_force_is_verified_under_a_living_operand_and_written_once() {
        let stage = Stage::new();
        stage.devices.borrow_mut().setting = 2;
        stage.order(2, 1);
        let _operand = Lock::try_take(&stage.directory()).unwrap().unwrap();
        assert_eq!(
            stage.shaper().round().unwrap().outcome,
            ShapingOutcome::InForce
        );
        // A write through this link fails.
        std::os::unix::fs::symlink("/dev/full", stage.directory().join(".shaped.new")).unwrap();
        assert_eq!(
            stage.shaper().round().unwrap().outcome,
            ShapingOutcome::InForce
        );
        assert_eq!(stage.devices.borrow().shapes, 0);
    }

    #[test]
    fn nothing_is_shaped_that_cannot_be_told() {
        let stage = Stage::new();
        stage.order(1, 1);
        std::os::unix::fs::symlink("/dev/full", stage.directory().join(".shaped.new")).unwrap();
        let error = stage.shaper().round().unwrap_err().to_string();
        assert!(error.contains("No space left"), "{error}");
        assert_eq!(stage.devices.borrow().shapes, 0);
        assert!(
            Lock::try_take(&stage.directory()).unwrap().is_some(),
            "the lock is free again"
        );
    }

    #[test]
    fn a_damaged_order_is_no_order_to_clear_anything() {
        let stage = Stage::new();
        stage.order(1, 1);
        std::fs::write(stage.directory().join(order::LAYOUT_FILE), "{}").unwrap();
        assert!(stage.shaper().round().is_err());
        assert_eq!(stage.devices.borrow().looks, 0);
    }

    #[tokio::test]
    async fn it_follows_orders_and_reboots_and_rests_in_between() {
        let stage = Stage::new();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let running = stage.shaper().run(async {
            let _ = stopped.await;
        });
        let story = async {
            stage.until(ShapingOutcome::Idle).await;
            stage.order(1, 1);
            stage.until(ShapingOutcome::InForce).await;
            let looks = stage.devices.borrow().looks;
            tokio::time::sleep(POLL * 4).await;
            assert_eq!(
                stage.devices.borrow().looks,
                looks,
                "no driver session at rest"
            );
            stage.order(1, 2);
            let asked_again = tokio::time::timeout(Duration::from_secs(20), async {
                while stage.said().order.is_none_or(|order| order.generation != 2) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
            asked_again.await.unwrap();
            assert_eq!(
                stage.devices.borrow().looks,
                looks,
                "nor for another generation"
            );
            assert_eq!(
                stage.devices.borrow().shapes,
                1,
                "the geometry was as ordered"
            );
            stage.devices.borrow_mut().refuse = Some(ShapingOutcome::RebootRequired);
            stage.order(2, 3);
            let said = stage.until(ShapingOutcome::RebootRequired).await;
            assert_eq!(said.shaping.message.as_deref(), Some("as scripted"));
            stop.send(()).unwrap();
        };
        tokio::join!(running, story);
        // The host restarts: its setting is lost, the order is not.
        stage.boot("boot-2");
        *stage.devices.borrow_mut() = Devices::default();
        let shaping = stage.shaper().round().unwrap();
        assert_eq!(shaping.outcome, ShapingOutcome::InForce);
        assert!(
            stage
                .said()
                .has_in_force(&Layout::LogicalNeuronCore(2), "boot-2")
        );
    }

    #[tokio::test]
    async fn a_second_shaper_waits_for_the_first() {
        let stage = Stage::new();
        let first = Lock::try_take_named(&stage.directory(), SHAPER_LOCK)
            .unwrap()
            .unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let running = stage.shaper().run(async {
            let _ = stopped.await;
        });
        let story = async {
            tokio::time::sleep(POLL * 2).await;
            assert_eq!(stage.devices.borrow().looks, 0);
            drop(first);
            stage.until(ShapingOutcome::Idle).await;
            stop.send(()).unwrap();
        };
        tokio::join!(running, story);
    }

    #[test]
    fn pauses_grow_to_a_bound_and_what_is_settled_is_left_alone() {
        let mut retry = Retry::new();
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            let before = Instant::now();
            retry.after(ShapingOutcome::Failed);
            let pause = retry.due.unwrap() - before;
            let wanted = Duration::from_secs(seconds);
            assert!(
                pause >= wanted && pause < wanted + Duration::from_secs(1),
                "{pause:?}"
            );
        }
        retry.after(ShapingOutcome::Busy);
        assert!(retry.due.unwrap() <= Instant::now() + LONGEST_BUSY);
        retry.after(ShapingOutcome::InForce);
        assert_eq!(retry.due, None);
    }
}
