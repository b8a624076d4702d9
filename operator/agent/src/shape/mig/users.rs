//! Who uses a device, in words.

use crate::host::Host;

/// Most processes that are named.
const MAX_NAMED: usize = 3;
/// Length of a pod's UID.
const UID: usize = 36;

/// `process 4711 (python, pod 8c1e…)` for each, a few at most.
pub fn named(host: &Host, pids: &[u32]) -> String {
    if pids.is_empty() {
        return "in use by somebody whom the driver does not list (a monitoring agent, a persistence daemon, a leaked handle)".to_owned();
    }
    let mut named: Vec<String> = pids
        .iter()
        .take(MAX_NAMED)
        .map(|pid| {
            let text = |file: &str| host.text(&format!("/proc/{pid}/{file}")).ok().flatten();
            let program = text("comm").unwrap_or_default();
            let pod = text("cgroup").as_deref().and_then(pod);
            let pod = pod.map(|uid| format!("pod {uid}"));
            let known: Vec<String> = [Some(program).filter(|name| !name.is_empty()), pod]
                .into_iter()
                .flatten()
                .collect();
            if known.is_empty() {
                format!("process {pid}")
            } else {
                format!("process {pid} ({})", known.join(", "))
            }
        })
        .collect();
    if pids.len() > MAX_NAMED {
        named.push(format!("{} more", pids.len() - MAX_NAMED));
    }
    format!("in use by {}", named.join(", "))
}

/// The pod that a process belongs to, by its cgroup: `pod<uid>`, in systemd's slices with `_` for `-`.
fn pod(cgroup: &str) -> Option<String> {
    cgroup.match_indices("pod").find_map(|(at, _)| {
        let uid = cgroup.get(at + 3..at + 3 + UID)?.replace('_', "-");
        let is_uid = uid.bytes().zip(0..).all(|(byte, at)| {
            if matches!(at, 8 | 13 | 18 | 23) {
                byte == b'-'
            } else {
                byte.is_ascii_hexdigit()
            }
        });
        is_uid.then_some(uid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_by_program_and_pod() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        let put = |pid: u32, file: &str, text: &str| {
            let directory = root.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join(file), text).unwrap();
        };
        put(11, "comm", "python\n");
        put(
            11,
            "cgroup",
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0c9f3b1e_7a43_4d16_9a5e_0123456789ab.slice/cri-1.scope\n",
        );
        put(
            12,
            "cgroup",
            "0::/kubepods/besteffort/pod1c9f3b1e-7a43-4d16-9a5e-0123456789ab/c\n",
        );
        put(13, "cgroup", "0::/system.slice/podman-1.service\n");
        assert_eq!(
            named(&host, &[11, 12, 13, 14, 15]),
            "in use by process 11 (python, pod 0c9f3b1e-7a43-4d16-9a5e-0123456789ab), \
             process 12 (pod 1c9f3b1e-7a43-4d16-9a5e-0123456789ab), process 13, 2 more"
        );
        assert!(named(&host, &[]).contains("does not list"));
    }
}
