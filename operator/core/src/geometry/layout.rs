//! A cohort's MIG layout on the GPUs of one node.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::request::split_suffix;
use super::{Board, Profile, Request, Share};
use crate::intent::MigLayout;
use crate::report::{MigProfileCount, ShapingOutcome, VendorReport};

/// A layout names a GPU that the node does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchGpu {
    /// The minor number named.
    pub minor: u32,
    /// Minor numbers of the node's GPUs, as far as they are known.
    pub gpus: BTreeSet<u32>,
}

impl NoSuchGpu {
    /// How many GPUs there are, with their minor numbers unless these count from 0: `2 (minor 1, 6)`.
    #[must_use]
    pub fn others(&self) -> String {
        let gpus = &self.gpus;
        if (0..).zip(gpus).all(|(index, gpu)| index == *gpu) {
            return gpus.len().to_string();
        }
        let minors: Vec<String> = gpus.iter().map(ToString::to_string).collect();
        format!("{} (minor {})", gpus.len(), minors.join(", "))
    }
}

impl fmt::Display for NoSuchGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {}, but this node has {}", self.minor, self.others())
    }
}

/// What each GPU is to carry, by minor number; GPUs that are to have MIG off are absent. Later entries win where two name one
/// GPU. Requests are resolved to the literal names of the GPU's own table, and those that mean one profile add up; where the
/// report has no table but the shaper's word that its order is in force, to the names of the instances that are there. Otherwise
/// they stay as they were written.
///
/// # Errors
/// An entry names a GPU beyond those of the node.
pub fn wanted_on(
    layouts: &[MigLayout],
    part: &VendorReport,
) -> Result<BTreeMap<u32, Vec<MigProfileCount>>, NoSuchGpu> {
    let gpus = minors(part);
    let mut wanted = BTreeMap::new();
    for layout in layouts {
        for &minor in layout.gpus.as_ref().unwrap_or(&gpus) {
            if !gpus.contains(&minor) && !may_exist(minor, &gpus, part) {
                return Err(NoSuchGpu { minor, gpus });
            }
            wanted.insert(minor, &layout.instances);
        }
    }
    Ok(wanted
        .into_iter()
        .map(|(minor, instances)| {
            let profiles = profiles_of(&part.layout.boards, minor).unwrap_or_default();
            if profiles.is_empty() && is_in_force(part) {
                return (minor, by_what_is_there(part, minor, instances));
            }
            let named = |key: &str| {
                let request = key.parse::<Request>().ok()?;
                Some(request.resolve(profiles)?.name.clone())
            };
            (minor, literal(named, instances))
        })
        .filter(|(_, instances)| !instances.is_empty())
        .collect())
}

/// The table of a GPU, or `None` when none is known.
#[must_use]
pub fn profiles_of(boards: &[Board], gpu: u32) -> Option<&[Profile]> {
    boards
        .iter()
        .find(|board| board.gpus.contains(&gpu))
        .map(|board| board.profiles.as_slice())
}

/// Minor numbers of the node's GPUs: those that the shaper names or that have instances, and where it names fewer than the driver serves, the lowest
/// others.
#[must_use]
pub fn minors(part: &VendorReport) -> BTreeSet<u32> {
    let devices = count(part.inventory.devices);
    let boards = &part.layout.boards;
    let mut gpus: BTreeSet<u32> = boards.iter().flat_map(|board| board.gpus.clone()).collect();
    // Where the tables had no room: these are there for certain.
    gpus.extend(
        part.layout
            .mig
            .keys()
            .filter_map(|gpu| gpu.parse::<u32>().ok()),
    );
    for minor in 0.. {
        if gpus.len() >= devices {
            break;
        }
        gpus.insert(minor);
    }
    gpus
}

/// Whether a GPU that is in no known table may be there all the same: minor numbers have gaps where a GPU fell off the bus.
fn may_exist(minor: u32, gpus: &BTreeSet<u32>, part: &VendorReport) -> bool {
    let named: usize = part
        .layout
        .boards
        .iter()
        .map(|board| board.gpus.len())
        .sum();
    let all_named = named > 0 && named >= count(part.inventory.devices);
    !all_named && (minor as usize) < gpus.len().max(count(part.pci_devices))
}

/// Requests by the literal names that they have, sorted, equal ones added up.
fn literal(
    named: impl Fn(&str) -> Option<String>,
    instances: &[MigProfileCount],
) -> Vec<MigProfileCount> {
    let mut sum = BTreeMap::<String, i32>::new();
    for MigProfileCount { profile, count } in instances.iter().filter(|one| one.count > 0) {
        let total = sum
            .entry(named(profile).unwrap_or_else(|| profile.clone()))
            .or_default();
        *total = total.saturating_add(*count);
    }
    sum.into_iter()
        .map(|(profile, count)| MigProfileCount { profile, count })
        .collect()
}

fn is_in_force(part: &VendorReport) -> bool {
    part.layout
        .shaping
        .as_ref()
        .is_some_and(|shaping| shaping.outcome == ShapingOutcome::InForce)
}

/// Names symbolic requests after the instances that the shaper made for them. Of requests with equal compute slices and suffix
/// the one for more memory has the larger instances.
fn by_what_is_there(
    part: &VendorReport,
    gpu: u32,
    instances: &[MigProfileCount],
) -> Vec<MigProfileCount> {
    let there = part.layout.mig.get(&gpu.to_string());
    let there = there.into_iter().flatten().map(|one| one.profile.as_str());
    let there: Vec<Size<'_>> = there.filter_map(Size::of).collect();
    let shares: Vec<Share> = instances
        .iter()
        .filter(|one| one.count > 0)
        .filter_map(|one| share(&one.profile))
        .collect();
    let named = |key: &str| {
        let asked = share(key)?;
        let alike = |other: &&Share| other.slices == asked.slices && other.suffix == asked.suffix;
        let smaller: BTreeSet<(u32, u32)> = shares
            .iter()
            .filter(alike)
            .map(Share::in_lowest_terms)
            .collect();
        let mut found: Vec<&Size<'_>> = there
            .iter()
            .filter(|size| size.slices == asked.slices && size.suffix == asked.suffix)
            .collect();
        found.sort_by_key(|size| size.gigabytes);
        // One too many or too few, and which is which cannot be told.
        if found.len() != smaller.len() {
            return None;
        }
        let (part, whole) = asked.in_lowest_terms();
        let rank = smaller.iter().filter(|(p, w)| p * whole < part * w).count();
        found.get(rank).map(|size| size.name.to_owned())
    };
    literal(named, instances)
}

fn share(key: &str) -> Option<Share> {
    match key.parse().ok()? {
        Request::Symbolic(share) => Some(share),
        Request::Literal(_) => None,
    }
}

/// What a literal name says of its size.
struct Size<'a> {
    name: &'a str,
    slices: u8,
    gigabytes: u32,
    suffix: &'a str,
}

impl<'a> Size<'a> {
    fn of(name: &'a str) -> Option<Self> {
        let (base, suffix) = split_suffix(name);
        let (slices, memory) = base.split_once("g.")?;
        Some(Self {
            name,
            slices: slices.parse().ok()?,
            gigabytes: memory.strip_suffix("gb")?.parse().ok()?,
            suffix,
        })
    }
}

/// A count that the schema bounds below at 0.
fn count(number: i32) -> usize {
    usize::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::published_board;

    fn instances(wanted: &[(&str, i32)]) -> Vec<MigProfileCount> {
        wanted
            .iter()
            .map(|&(profile, count)| MigProfileCount {
                profile: profile.into(),
                count,
            })
            .collect()
    }

    fn entry(gpus: Option<&[u32]>, wanted: &[(&str, i32)]) -> MigLayout {
        MigLayout {
            gpus: gpus.map(|gpus| gpus.iter().copied().collect()),
            instances: instances(wanted),
        }
    }

    fn node(devices: i32, boards: &[(&str, &[u32])]) -> VendorReport {
        let mut part = VendorReport {
            pci_devices: devices,
            ..VendorReport::default()
        };
        part.inventory.devices = devices;
        part.layout.boards = boards
            .iter()
            .map(|&(board, gpus)| Board {
                gpus: gpus.to_vec(),
                profiles: published_board(board).expect(board).profiles(),
            })
            .collect();
        part
    }

    #[test]
    fn one_request_gets_the_name_that_each_gpu_has_for_it() {
        let part = node(3, &[("H100-80", &[0, 2]), ("GB200-189", &[1])]);
        let layouts = [entry(None, &[("3g.1/2", 1), ("1g.1/8+me", 1)])];
        let wanted = wanted_on(&layouts, &part).expect("three GPUs");
        assert_eq!(wanted[&0], instances(&[("1g.10gb+me", 1), ("3g.40gb", 1)]));
        assert_eq!(wanted[&1], instances(&[("1g.24gb+me", 1), ("3g.95gb", 1)]));
        assert_eq!(wanted[&2], wanted[&0]);
    }

    #[test]
    fn two_keys_that_mean_one_profile_add_up() {
        let part = node(1, &[("H100-80", &[0])]);
        let layouts = [entry(None, &[("1g.1/8", 2), ("1g.10gb", 3)])];
        let wanted = wanted_on(&layouts, &part).expect("one GPU");
        assert_eq!(wanted[&0], instances(&[("1g.10gb", 5)]));
    }

    #[test]
    fn a_later_entry_wins_and_an_empty_one_means_off() {
        let layouts = [
            entry(None, &[("3g.40gb", 2)]),
            entry(Some(&[0]), &[]),
            entry(Some(&[1]), &[("7g.80gb", 1)]),
        ];
        let wanted = wanted_on(&layouts, &node(3, &[])).expect("three GPUs");
        assert_eq!(wanted.keys().copied().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(wanted[&1], instances(&[("7g.80gb", 1)]));
    }

    #[test]
    fn what_no_table_resolves_stays_as_written() {
        let layouts = [entry(None, &[("1g.1/8", 7)])];
        for part in [node(1, &[]), node(1, &[("RTX-PRO-6000", &[0])])] {
            let wanted = wanted_on(&layouts, &part).expect("one GPU");
            assert_eq!(wanted[&0], instances(&[("1g.1/8", 7)]));
        }
    }

    /// A layout in force whose table had no room in the report.
    fn in_force(there: &[(&str, i32)]) -> VendorReport {
        let mut part = node(1, &[]);
        part.layout.mig = [("0".to_owned(), instances(there))].into();
        part.layout.shaping = Some(crate::report::Shaping {
            outcome: ShapingOutcome::InForce,
            message: None,
        });
        part
    }

    #[test]
    fn without_a_table_a_layout_in_force_is_named_after_the_instances_that_are_there() {
        let part = in_force(&[
            ("1g.12gb", 2),
            ("1g.12gb+me", 1),
            ("1g.24gb", 1),
            ("2g.24gb", 1),
        ]);
        let layouts = [entry(
            None,
            &[
                ("1g.1/4", 1),
                ("1g.1/8", 1),
                ("1g.2/16", 1),
                ("1g.1/8+me", 1),
                ("2g.1/4", 1),
            ],
        )];
        let wanted = wanted_on(&layouts, &part).expect("one GPU");
        assert_eq!(
            wanted[&0],
            instances(&[
                ("1g.12gb", 2),
                ("1g.12gb+me", 1),
                ("1g.24gb", 1),
                ("2g.24gb", 1)
            ])
        );
    }

    #[test]
    fn what_the_instances_do_not_tell_apart_stays_as_written() {
        let two_sizes = in_force(&[("1g.12gb", 2), ("1g.24gb", 1)]);
        let mut not_verified = in_force(&[("1g.12gb", 7)]);
        not_verified.layout.shaping = None;
        let layouts = [entry(None, &[("1g.1/8", 7)])];
        for part in [two_sizes, not_verified] {
            let wanted = wanted_on(&layouts, &part).expect("one GPU");
            assert_eq!(wanted[&0], instances(&[("1g.1/8", 7)]));
        }
    }

    #[test]
    fn gpus_with_instances_are_there_whatever_else_is_known() {
        let mut part = node(2, &[]);
        part.layout.mig = [("1", &[("7g.80gb", 1)]), ("6", &[("7g.80gb", 1)])]
            .map(|(gpu, there)| (gpu.to_owned(), instances(there)))
            .into();
        assert_eq!(minors(&part), [1, 6].into());
    }

    #[test]
    fn all_gpus_are_those_that_the_shaper_names() {
        let part = node(2, &[("H100-80", &[1, 6])]);
        assert_eq!(minors(&part), [1, 6].into());
        assert_eq!(minors(&node(3, &[("H100-80", &[1])])), [0, 1, 2].into());
        assert_eq!(minors(&node(2, &[])), [0, 1].into());
    }

    #[test]
    fn a_gpu_that_is_not_there_is_named_with_those_that_are() {
        let layouts = [entry(Some(&[0]), &[("7g.80gb", 1)])];
        let gone =
            wanted_on(&layouts, &node(2, &[("H100-80", &[1, 6])])).expect_err("minor 1 and 6");
        assert_eq!(gone.to_string(), "GPU 0, but this node has 2 (minor 1, 6)");
        let layouts = [entry(Some(&[4]), &[("7g.80gb", 1)])];
        let gone = wanted_on(&layouts, &node(4, &[])).expect_err("minor 0 to 3");
        assert_eq!(gone.to_string(), "GPU 4, but this node has 4");
        let mut fallen = node(4, &[]);
        fallen.pci_devices = 5;
        assert!(
            wanted_on(&layouts, &fallen).is_ok(),
            "minor numbers have gaps"
        );
    }
}
