//! What NVML does: MIG's semantics on the state, without a line of C.

use crate::board::{Architecture, Row};
use crate::state::{ComputeInstance, Gpu, GpuInstance, ModeChange};

/// NVML's return codes, as far as the fake gives them.
pub mod code {
    pub const INVALID_ARGUMENT: u32 = 2;
    pub const NOT_SUPPORTED: u32 = 3;
    pub const NO_PERMISSION: u32 = 4;
    pub const NOT_FOUND: u32 = 6;
    pub const INSUFFICIENT_SIZE: u32 = 7;
    pub const DRIVER_NOT_LOADED: u32 = 9;
    pub const GPU_IS_LOST: u32 = 15;
    pub const RESET_REQUIRED: u32 = 16;
    pub const OPERATING_SYSTEM: u32 = 17;
    pub const IN_USE: u32 = 19;
    pub const INSUFFICIENT_RESOURCES: u32 = 23;
    pub const ARGUMENT_VERSION_MISMATCH: u32 = 25;
}

/// Highest GPU instance ID that the kernel driver has capabilities for.
const LAST_INSTANCE: u32 = 14;

/// Sets the mode; answers the activation status.
pub fn set_mode(gpu: &mut Gpu, on: bool) -> u32 {
    gpu.pending = on;
    if gpu.mig == on {
        return 0;
    }
    if gpu.unseen_client || !gpu.processes.is_empty() || !gpu.instances.is_empty() {
        // Hopper and later have no pending state: what was not done is not kept either.
        if gpu.board.table().architecture != Architecture::Ampere {
            gpu.pending = gpu.mig;
        }
        return code::IN_USE;
    }
    match gpu.mode_change {
        ModeChange::Works => {
            gpu.mig = on;
            0
        }
        ModeChange::Waits => 0,
        ModeChange::NeedsReboot => code::RESET_REQUIRED,
        ModeChange::NotSupported => code::NOT_SUPPORTED,
    }
}

/// Makes a GPU instance, at `start` or where the driver likes; answers its ID.
pub fn create_instance(gpu: &mut Gpu, profile: u32, start: Option<u32>) -> Result<u32, u32> {
    if !gpu.mig {
        return Err(code::NOT_SUPPORTED);
    }
    let table = gpu.board.table();
    let row = table.row(profile).ok_or(code::INVALID_ARGUMENT)?;
    if start.is_some_and(|start| !row.starts.contains(&start)) {
        return Err(code::INVALID_ARGUMENT);
    }
    let all_media = |name: &str| name.ends_with("+me.all");
    let no_media = |name: &str| name.ends_with("-me");
    let clashes = gpu.instances.iter().any(|instance| {
        table.row(instance.profile).is_some_and(|other| {
            (all_media(&row.name) && !no_media(&other.name))
                || (all_media(&other.name) && !no_media(&row.name))
        })
    });
    let count = gpu
        .instances
        .iter()
        .filter(|instance| instance.profile == profile)
        .count();
    if clashes || count >= row.max as usize {
        return Err(code::INSUFFICIENT_RESOURCES);
    }
    let free = |start: u32| {
        gpu.instances.iter().all(|instance| {
            start + row.size <= instance.start || instance.start + instance.size <= start
        })
    };
    // Left to itself the driver takes the highest start that is free, which scatters small instances over both halves: on
    // an A100, profiles 19, 19, 14 and 9 in this order do not fit, though 9, 19, 14 and 19 do (MIG user guide).
    let start = match start {
        Some(start) => Some(start).filter(|start| free(*start)),
        None => row.starts.iter().rev().copied().find(|start| free(*start)),
    }
    .ok_or(code::INSUFFICIENT_RESOURCES)?;
    let id = free_id(gpu, row, table.units).ok_or(code::INSUFFICIENT_RESOURCES)?;
    let size = row.size;
    gpu.instances.push(GpuInstance {
        id,
        profile,
        start,
        size,
        compute: Vec::new(),
        held: false,
    });
    Ok(id)
}

/// The driver numbers by size: the whole GPU is 0, halves begin at 1, quarters at 3, the rest at 7.
fn free_id(gpu: &Gpu, row: &Row, units: u32) -> Option<u32> {
    let first = match row.size {
        size if size == units => 0,
        size if size * 2 >= units => 1,
        size if size * 4 >= units => 3,
        _ => 7,
    };
    (first..=LAST_INSTANCE)
        .chain(0..first)
        .find(|id| gpu.instances.iter().all(|instance| instance.id != *id))
}

/// Destroys a GPU instance.
pub fn destroy_instance(gpu: &mut Gpu, id: u32) -> Result<(), u32> {
    let instance = instance(gpu, id)?;
    if instance.held || !instance.compute.is_empty() || is_busy(gpu, id) {
        return Err(code::IN_USE);
    }
    gpu.instances.retain(|instance| instance.id != id);
    Ok(())
}

/// Makes a compute instance; answers its ID.
pub fn create_compute(gpu: &mut Gpu, id: u32, profile: u32) -> Result<u32, u32> {
    let table = gpu.board.table();
    let instance = gpu
        .instances
        .iter_mut()
        .find(|instance| instance.id == id)
        .ok_or(code::NOT_FOUND)?;
    let row = table.row(instance.profile).ok_or(code::INVALID_ARGUMENT)?;
    let compute = table
        .compute
        .iter()
        .find(|compute| compute.id == profile && compute.slices <= row.slices)
        .ok_or(code::INVALID_ARGUMENT)?;
    let taken: u32 = instance.compute.iter().map(|compute| compute.slices).sum();
    if taken + compute.slices > row.slices {
        return Err(code::INSUFFICIENT_RESOURCES);
    }
    let free = (0..row.slices)
        .find(|id| instance.compute.iter().all(|compute| compute.id != *id))
        .ok_or(code::INSUFFICIENT_RESOURCES)?;
    instance.compute.push(ComputeInstance {
        id: free,
        profile,
        slices: compute.slices,
    });
    Ok(free)
}

/// Destroys a compute instance.
pub fn destroy_compute(gpu: &mut Gpu, id: u32, compute: u32) -> Result<(), u32> {
    if is_busy(gpu, id) {
        return Err(code::IN_USE);
    }
    let instance = gpu
        .instances
        .iter_mut()
        .find(|instance| instance.id == id)
        .ok_or(code::NOT_FOUND)?;
    let before = instance.compute.len();
    instance.compute.retain(|other| other.id != compute);
    if instance.compute.len() == before {
        return Err(code::NOT_FOUND);
    }
    Ok(())
}

/// A GPU instance.
pub fn instance(gpu: &Gpu, id: u32) -> Result<&GpuInstance, u32> {
    gpu.instances
        .iter()
        .find(|instance| instance.id == id)
        .ok_or(code::NOT_FOUND)
}

fn is_busy(gpu: &Gpu, id: u32) -> bool {
    gpu.processes
        .iter()
        .any(|process| process.instance == Some(id))
}

/// A reset of one GPU, as nobody's program here ever does it: the pending mode takes effect, instances are gone.
pub fn reset(gpu: &mut Gpu) {
    gpu.mig = gpu.pending;
    gpu.instances.clear();
    gpu.processes.clear();
    gpu.unseen_client = false;
    gpu.lost = false;
}

/// What a reboot leaves: the mode on Ampere, whose boards keep it themselves, and nothing on what came later.
pub fn reboot(gpu: &mut Gpu) {
    if gpu.board.table().architecture != Architecture::Ampere {
        gpu.pending = false;
    }
    reset(gpu);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Board;
    use crate::fixture::gpu;

    fn enabled(board: Board) -> Gpu {
        let mut gpu = gpu(board, 0);
        assert_eq!(set_mode(&mut gpu, true), 0);
        assert!(gpu.mig);
        gpu
    }

    fn starts(gpu: &Gpu) -> Vec<u32> {
        gpu.instances
            .iter()
            .map(|instance| instance.start)
            .collect()
    }

    #[test]
    fn left_to_itself_the_driver_scatters_small_instances() {
        let mut a100 = enabled(Board::A100x40);
        for profile in [19, 19, 14] {
            create_instance(&mut a100, profile, None).unwrap();
        }
        assert_eq!(
            create_instance(&mut a100, 9, None),
            Err(code::INSUFFICIENT_RESOURCES)
        );
        let mut a100 = enabled(Board::A100x40);
        for profile in [9, 19, 14, 19] {
            create_instance(&mut a100, profile, None).unwrap();
        }
        assert_eq!(starts(&a100), [4, 3, 0, 2]);
    }

    #[test]
    fn a_place_is_offered_and_free_or_it_is_refused() {
        let mut h100 = enabled(Board::H100);
        assert_eq!(
            create_instance(&mut h100, 9, Some(2)),
            Err(code::INVALID_ARGUMENT)
        );
        create_instance(&mut h100, 9, Some(4)).unwrap();
        assert_eq!(
            create_instance(&mut h100, 19, Some(6)),
            Err(code::INSUFFICIENT_RESOURCES)
        );
        assert_eq!(
            create_instance(&mut h100, 2, None),
            Err(code::INVALID_ARGUMENT),
            "a kind is no ID"
        );
        let mut off = gpu(Board::H100, 0);
        assert_eq!(
            create_instance(&mut off, 19, None),
            Err(code::NOT_SUPPORTED)
        );
    }

    #[test]
    fn compute_instances_go_before_their_gpu_instance_and_users_before_both() {
        let mut h100 = enabled(Board::H100);
        let gi = create_instance(&mut h100, 14, Some(4)).unwrap();
        assert_eq!(
            create_compute(&mut h100, gi, 3),
            Err(code::INVALID_ARGUMENT)
        );
        let ci = create_compute(&mut h100, gi, 1).unwrap();
        assert_eq!(
            create_compute(&mut h100, gi, 0),
            Err(code::INSUFFICIENT_RESOURCES)
        );
        assert_eq!(destroy_instance(&mut h100, gi), Err(code::IN_USE));
        h100.processes.push(crate::state::Process {
            pid: 4242,
            instance: Some(gi),
        });
        assert_eq!(destroy_compute(&mut h100, gi, ci), Err(code::IN_USE));
        h100.processes.clear();
        destroy_compute(&mut h100, gi, ci).unwrap();
        destroy_instance(&mut h100, gi).unwrap();
        assert_eq!(destroy_instance(&mut h100, gi), Err(code::NOT_FOUND));
    }

    #[test]
    fn a_mode_may_wait_and_a_reboot_forgets_it_where_the_board_does_not_keep_it() {
        let mut a100 = gpu(Board::A100x40, 0);
        a100.mode_change = ModeChange::Waits;
        assert_eq!(set_mode(&mut a100, true), 0);
        assert!(!a100.mig && a100.pending);
        reset(&mut a100);
        assert!(a100.mig);
        create_instance(&mut a100, 0, None).unwrap();
        reboot(&mut a100);
        assert!(a100.mig && a100.instances.is_empty());

        let mut h100 = enabled(Board::H100);
        reboot(&mut h100);
        assert!(!h100.mig && !h100.pending);
        h100.unseen_client = true;
        assert_eq!(set_mode(&mut h100, true), code::IN_USE);
        assert!(!h100.mig && !h100.pending);
    }
}
