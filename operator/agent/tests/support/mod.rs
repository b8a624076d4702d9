//! Host trees and real agent processes for tests.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use freehold_agent::protocol::{Answer, Reading, Request};

/// Boot ID of every tree.
pub const BOOT: &str = "7d1f2c3b-aaaa-4bbb-8ccc-123456789abc";
/// Longest wait for something that a process must do by itself.
const PATIENCE: Duration = Duration::from_secs(20);

/// A host's files below a temporary root.
pub struct Tree {
    dir: tempfile::TempDir,
}

impl Tree {
    /// A host with a kernel, a PCI bus and a kubelet, and no accelerator.
    pub fn new() -> Self {
        Self::in_directory(&std::env::temp_dir())
    }

    /// As [`Tree::new`], in memory where the machine has a place for that: for tests with so many durable writes that a busy
    /// disk would take minutes.
    pub fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() {
            Self::in_directory(memory)
        } else {
            Self::new()
        }
    }

    fn in_directory(directory: &Path) -> Self {
        let tree = Self {
            dir: tempfile::tempdir_in(directory).unwrap(),
        };
        tree.file("/proc/sys/kernel/random/boot_id", &format!("{BOOT}\n"));
        tree.pci("0000:00:05.0", "0x8086", "0x1237", "0x060000");
        for dir in ["pods", "plugins", "plugins_registry", "device-plugins"] {
            tree.dir(&format!("/var/lib/kubelet/{dir}"));
        }
        tree
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    pub fn dir(&self, path: &str) {
        fs::create_dir_all(self.at(path)).unwrap();
    }

    /// Writes a file the way kubelets and drivers do: beside, then renamed over.
    pub fn file(&self, path: &str, content: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let draft = path.with_extension("draft");
        fs::write(&draft, content).unwrap();
        fs::rename(draft, path).unwrap();
    }

    pub fn remove(&self, path: &str) {
        let path = self.at(path);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }

    pub fn pci(&self, address: &str, vendor: &str, device: &str, class: &str) {
        let directory = format!("/sys/bus/pci/devices/{address}");
        for (name, value) in [("vendor", vendor), ("device", device), ("class", class)] {
            self.file(&format!("{directory}/{name}"), &format!("{value}\n"));
        }
    }

    /// `count` NVIDIA GPUs with a driver of this version.
    pub fn gpus(&self, count: u32, model: &str, driver: &str) {
        self.file(
            "/proc/driver/nvidia/version",
            &format!("NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Wed Sep 20 09:35:17 UTC 2023\nGCC version:  gcc 12\n"),
        );
        for minor in 0..count {
            let address = format!("0000:{:02x}:00.0", 0x40 + minor);
            self.pci(&address, "0x10de", "0x2330", "0x030200");
            self.file(
                &format!("/proc/driver/nvidia/gpus/{address}/information"),
                &format!("Model: \t\t {model}\nIRQ:   \t\t 180\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n"),
            );
        }
    }

    /// `count` Neuron devices with a driver of this version.
    pub fn neurons(
        &self,
        count: u32,
        device_name: &str,
        cores: u32,
        driver: &str,
        instance_type: &str,
    ) {
        self.file("/sys/module/neuron/version", driver);
        self.file(
            "/sys/devices/virtual/dmi/id/product_name",
            &format!("{instance_type}\n"),
        );
        for index in 0..count {
            self.pci(
                &format!("0000:{:02x}:1f.0", 0x80 + index),
                "0x1d0f",
                "0x7364",
                "0x088000",
            );
            let directory = format!("/sys/devices/virtual/neuron_device/neuron{index}");
            self.file(&format!("{directory}/core_count"), &cores.to_string());
            self.file(
                &format!("{directory}/info/architecture/device_name"),
                &format!("{device_name}\n"),
            );
        }
    }

    /// The device manager's checkpoint: `(pod UID, resource)`.
    pub fn plugin_checkpoint(&self, entries: &[(&str, &str)]) {
        let entries: Vec<_> = entries
            .iter()
            .map(|(pod, resource)| {
                serde_json::json!({"PodUID": pod, "ContainerName": "main", "ResourceName": resource,
                    "DeviceIDs": {"-1": ["GPU-1"]}, "AllocResp": "CgA="})
            })
            .collect();
        let entries = if entries.is_empty() {
            serde_json::Value::Null
        } else {
            entries.into()
        };
        let data = serde_json::json!({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1});
        self.file(
            "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
            &data.to_string(),
        );
    }

    /// The kubelet's DRA state below a root: `(claim UID, name, driver)`, in namespace `lab`.
    pub fn dra_state(&self, root: &str, claims: &[(&str, &str, &str)]) {
        let claims: Vec<_> = claims
            .iter()
            .map(|(uid, name, driver)| {
                serde_json::json!({"ClaimUID": uid, "ClaimName": name, "Namespace": "lab", "PodUIDs": {"p": {}},
                    "DriverState": {*driver: {"Devices": [{"PoolName": "n", "DeviceName": "d", "ShareID": null,
                    "RequestNames": ["r"], "CDIDeviceIDs": ["x"]}]}}})
            })
            .collect();
        let data = serde_json::json!({"kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
            "ClaimInfoStateList": claims});
        let file = serde_json::json!({"Data": data.to_string(), "Checksum": 1});
        self.file(&format!("{root}/dra_manager_state"), &file.to_string());
    }

    /// Puts an owner word in force by hand.
    pub fn word(&self, vendor: &str, word: &str) {
        self.file(
            &format!("/var/lib/freehold/{vendor}/owner"),
            &format!("{word}\n"),
        );
    }

    pub fn read_word(&self, vendor: &str) -> Option<String> {
        fs::read_to_string(self.at(&format!("/var/lib/freehold/{vendor}/owner"))).ok()
    }
}

/// A running agent process with what it said so far. Killed when dropped.
pub struct Agent {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Agent {
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    pub fn start_with(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(program());
        command
            .args(arguments)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        for stream in [
            Box::new(child.stdout.take().unwrap()) as Box<dyn std::io::Read + Send>,
            Box::new(child.stderr.take().unwrap()),
        ] {
            let said = Arc::clone(&said);
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    said.lock().unwrap().push(line);
                }
            });
        }
        Self { child, said }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    /// Waits until a line contains this.
    pub fn says(&self, text: &str) {
        eventually(
            || self.said().iter().any(|line| line.contains(text)),
            || format!("{text:?} in {:#?}", self.said()),
        );
    }

    pub fn signal(&self, name: &str) {
        assert!(
            Command::new("kill")
                .args(["-s", name, &self.pid().to_string()])
                .status()
                .unwrap()
                .success()
        );
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the end; the exit code, `None` when killed by a signal.
    pub fn ends(&mut self) -> Option<i32> {
        let mut status = None;
        eventually(
            || {
                status = self.child.try_wait().unwrap();
                status.is_some()
            },
            || "the process ends".to_owned(),
        );
        status.unwrap().code()
    }

    /// Asks it to stop, and says how long that took.
    pub fn stops(&mut self) -> Duration {
        let since = Instant::now();
        self.signal("TERM");
        assert_eq!(self.ends(), Some(0), "{:#?}", self.said());
        since.elapsed()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program under test: this build's, or the one that `FREEHOLD_AGENT` names, such as a release build.
pub fn program() -> PathBuf {
    std::env::var_os("FREEHOLD_AGENT").map_or_else(
        || env!("CARGO_BIN_EXE_freehold-agent").into(),
        PathBuf::from,
    )
}

/// Whether memory is worth judging: a debug build is several times as large as what ships.
pub fn is_release() -> bool {
    std::env::var_os("FREEHOLD_AGENT").is_some() || !cfg!(debug_assertions)
}

/// Resident memory of a process, in KiB.
pub fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

/// Processor time that a process has used, in clock ticks of 10 ms.
pub fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().unwrap())
        .sum()
}

/// Waits for a condition; fails with what was expected.
pub fn eventually(mut holds: impl FnMut() -> bool, what: impl Fn() -> String) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(
            Instant::now() < until,
            "did not happen within {PATIENCE:?}: {}",
            what()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends one line to a witness, and returns its answer as it came.
pub fn send(socket: &Path, line: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(line).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Asks a witness.
pub fn ask(socket: &Path, request: &Request) -> Reading {
    let line = freehold_agent::protocol::line(request).unwrap();
    match serde_json::from_str(&send(socket, &line)).unwrap() {
        Answer::Reading(reading) => *reading,
        Answer::Refused(why) => panic!("refused: {why}"),
    }
}
