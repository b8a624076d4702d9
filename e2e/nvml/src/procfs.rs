//! What the kernel driver shows of the state below a host's root.
//!
//! `/proc/driver/nvidia/capabilities/gpu<minor>/mig/gi<N>/ci<M>/access`, `/proc/driver/nvidia-caps/mig-minors`, and the line
//! in `/proc/devices`: formats as the driver writes them (NVIDIA/nvidia-container-toolkit `internal/nvcaps`).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::state::{Gpu, State};

/// Major number of the capabilities' device nodes.
const MAJOR: u32 = 235;
/// Compute instances for each GPU instance that the driver reserves minors for, and the GPU instance's own.
const MINORS_OF_INSTANCE: u32 = 9;
/// 15 GPU instances.
const MINORS_OF_GPU: u32 = 15 * MINORS_OF_INSTANCE;
/// `config` and `monitor` come first.
const FIRST_MINOR: u32 = 3;

/// Makes the files say what the state says.
pub fn follow(state: &State) -> io::Result<()> {
    let Some(root) = &state.host_root else {
        return Ok(());
    };
    let capabilities = root.join("proc/driver/nvidia/capabilities");
    keep(&capabilities.join("mig/config"), &access(1))?;
    keep(&capabilities.join("mig/monitor"), &access(2))?;
    devices(root)?;
    let mut minors = String::from("config 1\nmonitor 2\n");
    for gpu in &state.gpus {
        let directory = capabilities.join(format!("gpu{}/mig", gpu.minor));
        fs::create_dir_all(&directory)?;
        show(gpu, &directory)?;
        for instance in 0..15 {
            let minor = minor_of(gpu.minor, instance);
            minors += &format!("gpu{}/gi{instance}/access {minor}\n", gpu.minor);
            for compute in 0..8 {
                let minor = minor + 1 + compute;
                minors += &format!("gpu{}/gi{instance}/ci{compute}/access {minor}\n", gpu.minor);
            }
        }
    }
    keep(&root.join("proc/driver/nvidia-caps/mig-minors"), &minors)
}

fn show(gpu: &Gpu, directory: &Path) -> io::Result<()> {
    let mut wanted = BTreeSet::new();
    for instance in &gpu.instances {
        let minor = minor_of(gpu.minor, instance.id);
        let name = format!("gi{}", instance.id);
        let below = directory.join(&name);
        fs::create_dir_all(&below)?;
        keep(&below.join("access"), &access(minor))?;
        let mut computes = BTreeSet::from(["access".to_owned()]);
        for compute in &instance.compute {
            let name = format!("ci{}", compute.id);
            fs::create_dir_all(below.join(&name))?;
            keep(
                &below.join(&name).join("access"),
                &access(minor + 1 + compute.id),
            )?;
            computes.insert(name);
        }
        retain(&below, &computes)?;
        wanted.insert(name);
    }
    retain(directory, &wanted)
}

fn retain(directory: &Path, wanted: &BTreeSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if !wanted.contains(&*entry.file_name().to_string_lossy()) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn devices(root: &Path) -> io::Result<()> {
    let path = root.join("proc/devices");
    let text = fs::read_to_string(&path).unwrap_or_default();
    if text.contains("nvidia-caps\n") {
        return Ok(());
    }
    keep(
        &path,
        &format!(
            "Character devices:\n  1 mem\n195 nvidia\n{MAJOR} nvidia-caps\n\nBlock devices:\n259 blkext\n"
        ),
    )
}

const fn minor_of(gpu: u32, instance: u32) -> u32 {
    FIRST_MINOR + gpu * MINORS_OF_GPU + instance * MINORS_OF_INSTANCE
}

fn access(minor: u32) -> String {
    format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
}

fn keep(path: &Path, text: &str) -> io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let draft = path.with_extension("draft");
    fs::write(&draft, text)?;
    fs::rename(draft, path)
}
