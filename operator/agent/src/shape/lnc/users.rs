//! Processes that have a Neuron device open, as far as this process may see.

use std::fs;

use crate::host::Host;

/// Most processes that are named.
const MAX_NAMED: usize = 3;

/// `process 4711 (python)` for each, a few at most. The open files of processes with other credentials can only be seen with a
/// privilege that this process gives up, so an empty answer proves nothing, and any other is true.
pub(super) fn of_devices(host: &Host) -> Vec<String> {
    let processes = host.names("/proc").ok().flatten().unwrap_or_default();
    processes
        .iter()
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|process| has_device_open(host, process))
        .take(MAX_NAMED)
        .map(|process| {
            let name = host.text(&format!("/proc/{process}/comm")).ok().flatten();
            format!("process {process} ({})", name.unwrap_or_default())
        })
        .collect()
}

fn has_device_open(host: &Host, process: &str) -> bool {
    // Gone meanwhile, or not ours to see.
    let Ok(files) = fs::read_dir(host.at(&format!("/proc/{process}/fd"))) else {
        return false;
    };
    files.flatten().any(|file| {
        fs::read_link(file.path()).is_ok_and(|target| {
            target
                .to_str()
                .and_then(|target| target.strip_prefix("/dev/neuron"))
                .is_some_and(|number| {
                    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
                })
        })
    })
}
