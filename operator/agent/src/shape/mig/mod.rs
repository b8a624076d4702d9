//! The engine for NVIDIA devices: MIG mode and instances, through NVML.
//!
//! Every GPU is planned before any is touched: what cannot be had, or is in use, changes nothing anywhere. Then each GPU goes its
//! own way, on record in a `journal`: mode, away with what is not wanted, what is missing at explicit places, read back. One that
//! goes wrong is taken back to what it was; a lost one, or one whose mode waits for a reset, is named, and the others go on.
//! Nothing here resets a GPU or restarts a host.
//!
//! | module | is |
//! |---|---|
//! | `machine` | what is there |
//! | `aim` | where each GPU is to go |
//! | `change` | one GPU brought there, or back |
//! | `journal` | what is under way, on disk |
//! | `nodes` | device nodes of instances |
//! | `trouble`, `users` | why not, and who is in the way, in words |
//!
//! NVML is opened for a look and closed after it: an open session keeps others from resetting a GPU.

mod aim;
mod change;
mod journal;
mod machine;
mod nodes;
mod trouble;
mod users;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use freehold_core::intent::{Layout, MigLayout};
use freehold_core::report::{Shaping, ShapingOutcome};
use freehold_nvml::Session;

use self::aim::{Geometry, aim, missing, wanted};
use self::change::{Maker, Stop};
use self::journal::{Change, JOURNAL_FILE, Journal};
use self::machine::{Gpu, Machine, survey};
use self::trouble::{Trouble, shaping};
use super::engine::{Engine, Seen};
use crate::host::Host;

/// Most GPUs whose difference is told one by one.
const MAX_TOLD: usize = 3;

/// Makes MIG instances.
#[derive(Debug)]
pub struct Mig {
    host: Host,
    /// NVML: a file, or the root of a driver installation.
    library: PathBuf,
    /// The vendor's directory, for the journal.
    directory: PathBuf,
    /// GPUs, by UUID, whose mode waits for somebody, and for what: asking the driver once more would not help.
    waiting: BTreeMap<String, Trouble>,
    /// Why device nodes are missing, if they are.
    nodes: Option<String>,
}

impl Mig {
    /// On this host, with this driver library and the vendor's directory.
    #[must_use]
    pub fn new(host: Host, library: &Path, directory: &Path) -> Self {
        Self {
            host,
            library: library.to_owned(),
            directory: directory.to_owned(),
            waiting: BTreeMap::new(),
            nodes: None,
        }
    }

    fn open(&self) -> Result<Session, Trouble> {
        Session::open(&self.library).map_err(|error| Trouble::refused("NVML", &error, String::new))
    }

    fn survey(session: &Session) -> Result<Machine, Trouble> {
        survey(session).map_err(|error| Trouble::refused("NVML", &error, String::new))
    }

    fn journal(&self) -> Result<Journal, Trouble> {
        let boot_id = self
            .host
            .boot_id()
            .map_err(|error| Trouble::Failed(error.to_string()))?;
        Journal::read(&self.directory, &boot_id).map_err(|error| self.journal_trouble(&error))
    }

    /// What is on record as begun and not settled, in words.
    fn broken_off(&self) -> Result<Option<String>, Trouble> {
        let journal = self.journal()?;
        let changes = journal.changes().iter();
        let gpus: Vec<String> = changes.map(|change| change.gpu.to_string()).collect();
        let words = format!("a change of GPU {} was broken off", gpus.join(", "));
        Ok(Some(words).filter(|_| !gpus.is_empty()))
    }

    fn journal_trouble(&self, error: &std::io::Error) -> Trouble {
        let file = self.directory.join(JOURNAL_FILE);
        Trouble::Failed(format!("{}: {error}", file.display()))
    }

    fn try_look(&self, layout: Option<&Layout>) -> Result<Seen, Trouble> {
        let session = self.open()?;
        let machine = Self::survey(&session)?;
        let broken_off = self.broken_off()?;
        if let Some(message) = broken_off {
            return Ok(seen(&machine, working(message)));
        }
        let Some(layout) = layout else {
            return Ok(seen(&machine, idle()));
        };
        let shaping = self.standing(&machine, of_mig(layout)?);
        Ok(seen(&machine, shaping))
    }

    /// How the machine stands to a layout.
    fn standing(&self, machine: &Machine, layouts: &[MigLayout]) -> Shaping {
        let Aims {
            changes,
            refusals,
            others,
        } = self.aims(machine, layouts);
        if let Some(refused) = shaping(refusals) {
            return refused;
        }
        if !changes.is_empty() {
            return working(differing(machine, layouts, &changes));
        }
        shaping(others).unwrap_or_else(|| Shaping {
            outcome: ShapingOutcome::InForce,
            message: self.nodes.clone(),
        })
    }

    fn aims(&self, machine: &Machine, layouts: &[MigLayout]) -> Aims {
        let mut aims = Aims {
            changes: Vec::new(),
            refusals: Vec::new(),
            others: machine.unreadable.clone(),
        };
        let mut troubles: Vec<Trouble> = missing(layouts, machine).into_iter().collect();
        for gpu in &machine.gpus {
            match aim(gpu, wanted(layouts, gpu.minor), &machine.driver, &self.host) {
                Ok(None) => {}
                Ok(Some(after)) => match self.waits(gpu, &after) {
                    Some(trouble) => troubles.push(trouble.clone()),
                    None => aims.changes.push(Change {
                        uuid: gpu.uuid.clone(),
                        gpu: gpu.minor,
                        before: Geometry::of(gpu),
                        after,
                    }),
                },
                Err(trouble) => troubles.push(trouble),
            }
        }
        for trouble in troubles {
            match trouble {
                Trouble::Infeasible(_) | Trouble::Busy(_) => aims.refusals.push(trouble),
                Trouble::Failed(_) | Trouble::RebootRequired(_) | Trouble::ResetRequired(_) => {
                    aims.others.push(trouble);
                }
            }
        }
        aims
    }

    /// What a GPU waits for, if its mode was asked for already and is pending since.
    fn waits(&self, gpu: &Gpu, after: &Geometry) -> Option<&Trouble> {
        let mode = gpu.mode?;
        let is_pending = mode.current != after.mig && mode.pending == after.mig;
        self.waiting.get(&gpu.uuid).filter(|_| is_pending)
    }

    fn try_shape(&mut self, layout: &Layout) -> Result<Seen, Trouble> {
        let layouts = of_mig(layout)?;
        let session = self.open()?;
        let machine = Self::survey(&session)?;
        let mut journal = self.journal()?;
        let aims = self.aims(&machine, layouts);
        let done = if aims.refusals.is_empty() {
            if !aims.changes.is_empty() {
                journal
                    .begin(&aims.changes)
                    .map_err(|error| self.journal_trouble(&error))?;
            }
            self.go(&session, &aims.changes, &mut journal)?
        } else {
            self.take_back(&session, &machine, &journal)
        };
        // What else is on record is where it was to go already, or off the bus and with it whatever it carried.
        journal
            .settle(|uuid| !done.unsettled.contains(uuid))
            .map_err(|error| self.journal_trouble(&error))?;
        self.nodes = nodes::ensure(&self.host)
            .err()
            .map(|error| format!("device nodes are missing: {error}"));
        let machine = Self::survey(&session)?;
        let mut troubles = aims.refusals;
        troubles.extend(done.troubles);
        let found = self.standing(&machine, layouts);
        if troubles.is_empty() && found.outcome == ShapingOutcome::Working {
            let message = found.message.unwrap_or_default();
            let sentence = format!("every call succeeded, and yet {message}");
            return Ok(seen(&machine, failed(sentence)));
        }
        troubles.extend(aims.others);
        Ok(seen(&machine, shaping(troubles).unwrap_or(found)))
    }

    fn try_settle(&mut self) -> Result<Seen, Trouble> {
        let session = self.open()?;
        let machine = Self::survey(&session)?;
        let mut journal = self.journal()?;
        let done = self.take_back(&session, &machine, &journal);
        journal
            .settle(|uuid| !done.unsettled.contains(uuid))
            .map_err(|error| self.journal_trouble(&error))?;
        self.nodes = nodes::ensure(&self.host)
            .err()
            .map(|error| format!("device nodes are missing: {error}"));
        let machine = Self::survey(&session)?;
        Ok(seen(&machine, shaping(done.troubles).unwrap_or_else(idle)))
    }

    /// Brings GPUs forward, one after the other; those that break on the way go back.
    fn go(
        &mut self,
        session: &Session,
        changes: &[Change],
        journal: &mut Journal,
    ) -> Result<Done, Trouble> {
        let mut done = Done::default();
        for change in changes {
            let maker = self.maker(session, change);
            let stop = maker.make(&change.after).err();
            let trouble = match stop {
                None => None,
                Some(Stop::Waits(trouble)) => Some((trouble, true)),
                Some(Stop::Broke(trouble)) => {
                    let before = journal.before(&change.uuid).unwrap_or(&change.before);
                    let (told, is_settled) = restored(&maker, before);
                    if !is_settled {
                        done.unsettled.insert(change.uuid.clone());
                    }
                    Some((trouble.and(&told), false))
                }
            };
            self.waiting.remove(&change.uuid);
            if let Some((trouble, waits)) = trouble {
                if waits {
                    self.waiting.insert(change.uuid.clone(), trouble.clone());
                }
                done.troubles.push(trouble);
            }
            if !done.unsettled.contains(&change.uuid) {
                journal
                    .settle(|uuid| uuid == change.uuid)
                    .map_err(|error| self.journal_trouble(&error))?;
            }
        }
        Ok(done)
    }

    /// Takes GPUs back that a change was broken off on, since it cannot be finished now.
    fn take_back(&self, session: &Session, machine: &Machine, journal: &Journal) -> Done {
        let mut done = Done::default();
        for change in journal.changes() {
            if machine.gpus.iter().all(|gpu| gpu.uuid != change.uuid) {
                continue;
            }
            let (told, is_settled) = restored(&self.maker(session, change), &change.before);
            if !is_settled {
                done.troubles.push(Trouble::Failed(told));
                done.unsettled.insert(change.uuid.clone());
            }
        }
        done
    }

    const fn maker<'a>(&'a self, session: &'a Session, change: &'a Change) -> Maker<'a> {
        Maker {
            session,
            host: &self.host,
            uuid: change.uuid.as_str(),
            minor: change.gpu,
        }
    }
}

impl Engine for Mig {
    fn look(&mut self, wanted: Option<&Layout>) -> Seen {
        self.try_look(wanted).unwrap_or_else(nothing)
    }

    fn shape(&mut self, wanted: &Layout) -> Seen {
        self.try_shape(wanted).unwrap_or_else(nothing)
    }

    fn settle(&mut self) -> Seen {
        self.try_settle().unwrap_or_else(nothing)
    }
}

/// Where the GPUs are to go.
struct Aims {
    /// Those that are to change.
    changes: Vec<Change>,
    /// What forbids to touch any.
    refusals: Vec<Trouble>,
    /// What keeps some out, and the others may go on.
    others: Vec<Trouble>,
}

/// What became of changes.
#[derive(Default)]
struct Done {
    troubles: Vec<Trouble>,
    /// UUIDs of GPUs that are neither here nor there, and stay on record.
    unsettled: BTreeSet<String>,
}

/// Takes a GPU back; says how that went, and whether it is where it was.
fn restored(maker: &Maker<'_>, before: &Geometry) -> (String, bool) {
    match maker.make(before) {
        Ok(()) => ("what it carried before was restored".to_owned(), true),
        // The instances are back, or there are none to be.
        Err(Stop::Waits(trouble)) => (trouble.sentence().to_owned(), true),
        Err(Stop::Broke(trouble)) => {
            let found = survey(maker.session).ok();
            let gpu = found.as_ref().and_then(|machine| {
                let mut gpus = machine.gpus.iter();
                gpus.find(|gpu| gpu.uuid == maker.uuid)
            });
            let now = gpu.map_or_else(
                || "cannot be read".to_owned(),
                |gpu| format!("now {}", gpu.carries()),
            );
            let who = machine::name(maker.minor);
            let why = trouble.sentence();
            (
                format!("restoring what it carried failed too ({why}): {who} {now}"),
                false,
            )
        }
    }
}

fn of_mig(layout: &Layout) -> Result<&[MigLayout], Trouble> {
    match layout {
        Layout::Mig(layouts) => Ok(layouts),
        Layout::LogicalNeuronCore(_) => Err(Trouble::Infeasible(
            "a Logical NeuronCore setting was ordered, which NVIDIA devices do not have".to_owned(),
        )),
    }
}

/// What differs, GPUs that are alike together.
fn differing(machine: &Machine, layouts: &[MigLayout], changes: &[Change]) -> String {
    let mut alike: Vec<(String, Vec<String>)> = Vec::new();
    for gpu in &machine.gpus {
        if changes.iter().all(|change| change.uuid != gpu.uuid) {
            continue;
        }
        let ordered: Vec<String> = wanted(layouts, gpu.minor)
            .iter()
            .map(|count| format!("{}×{}", count.count, count.profile))
            .collect();
        let ordered = if ordered.is_empty() {
            "no MIG".to_owned()
        } else {
            ordered.join(" + ")
        };
        let differs = format!("{}, ordered is {ordered}", gpu.carries());
        let minor = gpu.minor.to_string();
        match alike.iter_mut().find(|(other, _)| *other == differs) {
            Some((_, gpus)) => gpus.push(minor),
            None => alike.push((differs, vec![minor])),
        }
    }
    let more = alike.len().saturating_sub(MAX_TOLD);
    let mut told: Vec<String> = alike
        .into_iter()
        .take(MAX_TOLD)
        .map(|(differs, gpus)| format!("GPU {} {differs}", gpus.join(", ")))
        .collect();
    if more > 0 {
        told.push(format!("{more} more differ"));
    }
    told.join("; ")
}

fn seen(machine: &Machine, shaping: Shaping) -> Seen {
    Seen {
        boards: machine.boards(),
        instances: machine.instances(),
        mig_enabled: machine.mig_enabled(),
        logical_neuron_core: None,
        shaping,
    }
}

fn nothing(trouble: Trouble) -> Seen {
    let sentence = trouble.sentence().to_owned();
    Seen::nothing(shaping(vec![trouble]).unwrap_or_else(|| failed(sentence)))
}

const fn idle() -> Shaping {
    Shaping {
        outcome: ShapingOutcome::Idle,
        message: None,
    }
}

const fn working(message: String) -> Shaping {
    Shaping {
        outcome: ShapingOutcome::Working,
        message: Some(message),
    }
}

const fn failed(message: String) -> Shaping {
    Shaping {
        outcome: ShapingOutcome::Failed,
        message: Some(message),
    }
}
