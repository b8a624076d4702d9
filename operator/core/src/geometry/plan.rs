//! From what a GPU carries to what it is to carry, disturbing as little as can be.
//!
//! Instances that stay keep their processes, their UUIDs and their place. So the plan keeps as many as it can: all busy ones
//! (they must not be destroyed; where the wanted instances cannot be had otherwise, the answer is [`Refusal::Blocked`]), then as
//! many of the others as there is room for. What is destroyed is exactly the rest, and what is created has an explicit place:
//! left to itself a driver scatters small instances so that large ones no longer fit.
//!
//! Plans are made per GPU, by that GPU's own table: two GPUs of one node can offer one name under different IDs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::solve::{Impossible, MAX_TRIES, place};
use super::{Instance, Placement, Profile, Request};
use crate::blocker::{MAX_MESSAGE, bounded};
use crate::report::MigProfileCount;

/// Media suffix of profiles that take all media engines. Beside one only [`NO_MEDIA`] profiles can be created (NVML 13.3,
/// `nvml.h`: `NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME`).
const ALL_MEDIA: &str = "+me.all";
/// Media suffix of profiles without media engines.
const NO_MEDIA: &str = "-me";
/// Sets of instances to keep that are looked at before the best one so far has to do. Boards carry at most 7 instances today,
/// which have 128 sets.
const MAX_KEPT_SETS: usize = 4096;

/// What to do on one GPU. Destroying comes first; creation can go in any order, since every place is explicit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Instances that stay, by ID.
    pub keep: Vec<Instance>,
    /// Instances that go, by ID. None of them is busy.
    pub destroy: Vec<Instance>,
    /// Instances to make: profile ID and place, by place.
    pub create: Vec<(u32, Placement)>,
}

impl Plan {
    /// Whether the GPU carries what is wanted already.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.destroy.is_empty() && self.create.is_empty()
    }
}

/// Why there is no plan. Both say it in a sentence of at most 512 characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The board cannot have these instances, whatever is destroyed: a proof, with the board's own list of profiles. (A table so
    /// broken that [`MAX_TRIES`] placements decide nothing is refused too, in other words.)
    Infeasible(String),
    /// It could, but not while these instances are in use.
    Blocked {
        /// In words.
        message: String,
        /// The busy instances in the way, by ID.
        instances: Vec<Instance>,
    },
}

impl Refusal {
    /// In words, at most 512 characters.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::Infeasible(message) | Self::Blocked { message, .. } => message,
        }
    }
}

/// Plans one GPU. `profiles` is what its driver offers, `live` what exists, and `wanted` what it is to carry, by literal names
/// or [symbolic requests](Request), in any order; names that mean one profile add up. Nothing wanted: everything goes.
///
/// # Errors
/// See [`Refusal`].
pub fn plan(
    gpu: u32,
    profiles: &[Profile],
    live: &[Instance],
    wanted: &[MigProfileCount],
) -> Result<Plan, Refusal> {
    let ask = Ask::of(gpu, profiles, wanted)?;
    ask.is_possible()?;
    ask.with_least_change(live)
}

/// Whether an empty GPU with these profiles can carry these instances.
///
/// # Errors
/// The proof that it cannot, in a sentence of at most 512 characters.
pub fn feasible(gpu: u32, profiles: &[Profile], wanted: &[MigProfileCount]) -> Result<(), String> {
    let proof = |refusal: Refusal| refusal.message().to_owned();
    Ask::of(gpu, profiles, wanted)
        .and_then(|ask| ask.is_possible())
        .map_err(proof)
}

/// What is asked of one GPU, by the rows of its table.
struct Ask<'a> {
    gpu: u32,
    profiles: &'a [Profile],
    /// Index into `profiles` → count above 0.
    rows: BTreeMap<usize, u32>,
}

impl<'a> Ask<'a> {
    fn of(gpu: u32, profiles: &'a [Profile], wanted: &[MigProfileCount]) -> Result<Self, Refusal> {
        let mut ask = Self {
            gpu,
            profiles,
            rows: BTreeMap::new(),
        };
        let mut unknown: Vec<&str> = Vec::new();
        for MigProfileCount { profile, count } in wanted {
            let row = profile
                .parse::<Request>()
                .ok()
                .and_then(|request| request.resolve(profiles))
                .and_then(|row| profiles.iter().position(|other| other == row));
            match (row, u32::try_from(*count).unwrap_or(0)) {
                (_, 0) => {}
                (Some(row), count) => {
                    let sum = ask.rows.entry(row).or_insert(0);
                    *sum = sum.saturating_add(count);
                }
                (None, _) => unknown.push(profile),
            }
        }
        unknown.sort_unstable();
        match unknown.first() {
            Some(name) => Err(ask.infeasible(name, "this board has no such profile")),
            None => Ok(ask),
        }
    }

    /// The rules on counts and media engines, and a search on the empty GPU.
    fn is_possible(&self) -> Result<(), Refusal> {
        for (profile, count) in self.wanted() {
            if count > u32::from(profile.max) {
                let why = format!(
                    "the board carries at most {} of {}",
                    profile.max, profile.name
                );
                return Err(self.infeasible(&self.listed(), &why));
            }
        }
        let all_media = self
            .wanted()
            .find(|(profile, _)| profile.suffix() == ALL_MEDIA);
        if let Some((all_media, _)) = all_media
            && let Some((other, _)) = self
                .wanted()
                .find(|(profile, _)| *profile != all_media && profile.suffix() != NO_MEDIA)
        {
            let why = format!(
                "{} takes all media engines, so that only profiles ending in {NO_MEDIA} fit beside it, not {}",
                all_media.name, other.name
            );
            return Err(self.infeasible(&self.listed(), &why));
        }
        match place(self.profiles, 0, &self.rows, &mut { MAX_TRIES }) {
            Ok(_) => Ok(()),
            Err(Impossible::NoArrangement) => {
                Err(self.infeasible(&self.listed(), &self.no_arrangement()))
            }
            Err(Impossible::Undecided) => Err(self.infeasible(
                &self.listed(),
                &format!("no arrangement was found in {MAX_TRIES} tries"),
            )),
        }
    }

    /// Why no arrangement exists, as a sum where a sum shows it.
    fn no_arrangement(&self) -> String {
        let needed: u32 = self
            .wanted()
            .map(|(profile, count)| u32::from(profile.size) * count)
            .sum();
        let units = super::units(self.profiles);
        if needed > u32::from(units) {
            format!("together they need {needed} memory units of the board's {units}")
        } else {
            let starts: Vec<String> = self
                .wanted()
                .map(|(profile, _)| {
                    let starts: Vec<String> =
                        profile.starts.iter().map(ToString::to_string).collect();
                    format!(
                        "{} covers {} from {}",
                        profile.name,
                        profile.size,
                        starts.join("/")
                    )
                })
                .collect();
            format!(
                "no arrangement on the board's {units} memory units exists ({})",
                starts.join(", ")
            )
        }
    }

    fn with_least_change(&self, live: &[Instance]) -> Result<Plan, Refusal> {
        let kept = self.best_kept(live);
        let (mut keep, gone): (Vec<Instance>, Vec<Instance>) = {
            let (keep, gone): (Vec<_>, Vec<_>) = live
                .iter()
                .enumerate()
                .partition(|(index, _)| kept.set.contains(index));
            let instances = |part: Vec<(usize, &Instance)>| {
                part.into_iter()
                    .map(|(_, instance)| instance.clone())
                    .collect()
            };
            (instances(keep), instances(gone))
        };
        let (mut busy, mut destroy): (Vec<Instance>, Vec<Instance>) =
            gone.into_iter().partition(|instance| instance.busy);
        busy.sort();
        if !busy.is_empty() {
            return Err(self.blocked(busy));
        }
        keep.sort();
        destroy.sort();
        let mut create = kept.create;
        create.sort_by_key(|&(profile, placement)| (placement, profile));
        Ok(Plan {
            keep,
            destroy,
            create,
        })
    }

    /// The set of live instances to keep: most busy ones first, then most instances, then most memory, then the lowest places.
    fn best_kept(&self, live: &[Instance]) -> Kept {
        let mut candidates: Vec<Candidate> = live
            .iter()
            .enumerate()
            .filter_map(|(index, instance)| self.candidate(index, instance))
            .collect();
        // The order of the driver's list decides nothing.
        candidates.sort_by_key(|candidate| {
            let Candidate {
                busy,
                placement,
                row,
                index,
                ..
            } = *candidate;
            (
                Reverse(busy),
                placement,
                row,
                live.get(index).map(|instance| instance.id),
            )
        });
        let mut sets = vec![KeptSet::default()];
        for candidate in &candidates {
            let with: Vec<KeptSet> = sets
                .iter()
                .filter_map(|set| set.with(candidate, &self.rows))
                .collect();
            sets.extend(with);
            sets.sort_by_key(KeptSet::rank);
            sets.truncate(MAX_KEPT_SETS);
        }
        let mut tries = MAX_TRIES;
        for set in &sets {
            let mut rest = self.rows.clone();
            for (row, count) in &set.rows {
                if let Some(left) = rest.get_mut(row) {
                    *left = left.saturating_sub(*count);
                }
            }
            if let Ok(create) = place(self.profiles, set.occupied, &rest, &mut tries) {
                return Kept {
                    set: set.members.clone(),
                    create,
                };
            }
        }
        // Not reached while the bounds hold: the empty set is among them and was found possible.
        Kept {
            set: Vec::new(),
            create: place(self.profiles, 0, &self.rows, &mut { MAX_TRIES }).unwrap_or_default(),
        }
    }

    fn candidate(&self, index: usize, instance: &Instance) -> Option<Candidate> {
        let row = self
            .profiles
            .iter()
            .position(|profile| profile.id == instance.profile)?;
        self.rows.contains_key(&row).then_some(())?;
        Some(Candidate {
            index,
            row,
            busy: instance.busy,
            placement: instance.placement,
            mask: instance.placement.mask()?,
        })
    }

    fn wanted(&self) -> impl Iterator<Item = (&'a Profile, u32)> {
        self.rows
            .iter()
            .filter_map(|(&row, &count)| Some((self.profiles.get(row)?, count)))
    }

    /// `2×3g.40gb + 1×2g.20gb`, by name.
    fn listed(&self) -> String {
        let mut parts: Vec<(&str, u32)> = self
            .wanted()
            .map(|(profile, count)| (profile.name.as_str(), count))
            .collect();
        parts.sort_unstable();
        let parts: Vec<String> = parts
            .into_iter()
            .map(|(name, count)| format!("{count}×{name}"))
            .collect();
        if parts.is_empty() {
            "no instance".into()
        } else {
            parts.join(" + ")
        }
    }

    fn infeasible(&self, asked: &str, why: &str) -> Refusal {
        let Self { gpu, profiles, .. } = self;
        Refusal::Infeasible(bounded(
            format!(
                "GPU {gpu} cannot carry {asked}: {why}; it offers {}",
                offered(profiles)
            ),
            MAX_MESSAGE,
        ))
    }

    fn blocked(&self, instances: Vec<Instance>) -> Refusal {
        let names: Vec<String> = instances
            .iter()
            .map(|instance| self.name(instance))
            .collect();
        Refusal::Blocked {
            message: bounded(
                format!(
                    "GPU {} cannot be changed to {} while in use: {} would have to go",
                    self.gpu,
                    self.listed(),
                    names.join(", ")
                ),
                MAX_MESSAGE,
            ),
            instances,
        }
    }

    /// `instance 7 (1g.10gb at 3)`.
    fn name(&self, instance: &Instance) -> String {
        let profile = self
            .profiles
            .iter()
            .find(|profile| profile.id == instance.profile)
            .map_or_else(
                || format!("profile {}", instance.profile),
                |profile| profile.name.clone(),
            );
        format!(
            "instance {} ({profile} at {})",
            instance.id, instance.placement.start
        )
    }
}

/// A board's list of profiles with their highest counts, by memory, then name: `1g.10gb ×7, …, 7g.80gb ×1`.
#[must_use]
pub fn offered(profiles: &[Profile]) -> String {
    let mut rows: Vec<&Profile> = profiles.iter().collect();
    rows.sort_by_key(|profile| (profile.size, profile.slices, &profile.name));
    let rows: Vec<String> = rows
        .into_iter()
        .map(|profile| format!("{} ×{}", profile.name, profile.max))
        .collect();
    if rows.is_empty() {
        "no MIG profile".into()
    } else {
        rows.join(", ")
    }
}

/// A live instance that is wanted, too.
struct Candidate {
    /// Index into the live instances.
    index: usize,
    row: usize,
    busy: bool,
    placement: Placement,
    mask: u64,
}

struct Kept {
    /// Indices into the live instances.
    set: Vec<usize>,
    create: Vec<(u32, Placement)>,
}

#[derive(Clone, Default)]
struct KeptSet {
    members: Vec<usize>,
    places: Vec<Placement>,
    rows: BTreeMap<usize, u32>,
    busy: usize,
    occupied: u64,
}

impl KeptSet {
    /// The set with one more, if that many are wanted and nothing overlaps.
    fn with(&self, candidate: &Candidate, wanted: &BTreeMap<usize, u32>) -> Option<Self> {
        let Candidate {
            index,
            row,
            busy,
            placement,
            mask,
        } = candidate;
        let count = self.rows.get(row).copied().unwrap_or(0) + 1;
        if mask & self.occupied != 0 || wanted.get(row).is_none_or(|&wanted| count > wanted) {
            return None;
        }
        let mut set = self.clone();
        set.members.push(*index);
        set.places.push(*placement);
        set.rows.insert(*row, count);
        set.busy += usize::from(*busy);
        set.occupied |= mask;
        Some(set)
    }

    /// Best first.
    fn rank(&self) -> impl Ord + use<> {
        let units = self.occupied.count_ones();
        let mut places = self.places.clone();
        places.sort_unstable();
        (
            Reverse(self.busy),
            Reverse(self.members.len()),
            Reverse(units),
            places,
        )
    }
}

#[cfg(test)]
mod tests;
