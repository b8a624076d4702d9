//! A process that cannot outlive the test.

use std::{
    fs::File,
    io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The shell becomes the program; beside it, in the same process group, waits a reader of a pipe whose other end only the
/// harness holds. However the harness ends (also by SIGKILL, when no destructor runs), the pipe closes and the group dies.
const LIFELINE: &str = r#"exec 3<&0 </dev/null
{ read -r _ <&3; kill -KILL 0; } >/dev/null 2>&1 &
exec "$@" 3<&-"#;

/// A running program with a log of its own.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    log: PathBuf,
    child: Child,
    /// Closed by drop.
    lifeline: Option<ChildStdin>,
}

impl Process {
    pub(crate) fn spawn(
        name: &str,
        program: &Path,
        arguments: &[String],
        folder: &Path,
    ) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log)?;
        let mut child = Command::new("/bin/sh")
            .args(["-c", LIFELINE, "sh"])
            .arg(program)
            .args(arguments)
            .current_dir(folder)
            // What the caller's shell says about clusters or proxies is not meant for this one.
            .env_remove("KUBECONFIG")
            .env("NO_PROXY", "127.0.0.1,localhost")
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        let lifeline = child.stdin.take();
        Ok(Self {
            name: name.to_owned(),
            log,
            child,
            lifeline,
        })
    }

    /// Process ID of the program.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails, with the end of the log, when the program is gone.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!(
                "{} ended with {status}; {}:\n{}",
                self.name,
                self.log.display(),
                self.tail()
            ),
        }
    }

    /// The last lines of the log.
    pub(crate) fn tail(&self) -> String {
        const LINES: usize = 15;
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines
            .get(lines.len().saturating_sub(LINES)..)
            .unwrap_or_default()
            .join("\n")
    }

    /// Stops the program's clock: it neither runs nor ends until [`resume`](Self::resume).
    pub(super) fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    pub(super) fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Asks it to end, waits at most for `patience`, and then ends it, as a kubelet does with a static pod.
    pub(crate) fn terminate(mut self, patience: Duration) -> Result<()> {
        self.signal(Signal::CONT)?;
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + patience;
        while self.child.try_wait()?.is_none() && Instant::now() < deadline {
            std::thread::sleep(super::wait::INTERVAL);
        }
        Ok(())
    }

    /// Ends it at once, as a crash does, and waits until it is gone.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        self.child.wait()?;
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(pid(&self.child)?, signal).with_context(|| format!("signalling {}", self.name))
    }
}

fn pid(child: &Child) -> io::Result<Pid> {
    Pid::from_raw(child.id().cast_signed()).ok_or_else(|| io::Error::other("process 0"))
}

impl Drop for Process {
    fn drop(&mut self) {
        // The group holds the reader of the pipe too. It may be gone already, and then there is nothing to do.
        if let Ok(pid) = pid(&self.child) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        self.lifeline = None;
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group_is_gone(group: u32) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        let group = Pid::from_raw(group.cast_signed()).unwrap();
        while rustix::process::test_kill_process_group(group).is_ok() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    #[test]
    fn dropping_a_process_ends_it_and_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let process = spawn_sleeper(folder.path());
        let group = process.child.id();
        drop(process);
        assert!(group_is_gone(group));
    }

    #[test]
    fn a_process_ends_when_the_pipe_closes_as_it_does_when_the_harness_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = spawn_sleeper(folder.path());
        process.lifeline = None;
        let status = process.child.wait().unwrap();
        assert!(!status.success());
        assert!(group_is_gone(process.child.id()));
    }

    #[test]
    fn a_paused_process_ends_too() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = spawn_sleeper(folder.path());
        process.pause().unwrap();
        process.lifeline = None;
        process.child.wait().unwrap();
        assert!(group_is_gone(process.child.id()));
    }

    #[test]
    fn a_program_that_fails_is_reported_with_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let arguments = ["-c".into(), "echo no such flag; exit 3".into()];
        let mut process =
            Process::spawn("sample", Path::new("/bin/sh"), &arguments, folder.path()).unwrap();
        process.child.wait().unwrap();
        let error = process.check().unwrap_err().to_string();
        assert!(
            error.contains("exit status: 3") && error.contains("no such flag"),
            "{error}"
        );
    }

    /// Returned once the shell has become the program, as every component has by the time it is ready.
    fn spawn_sleeper(folder: &Path) -> Process {
        let arguments = ["-c".into(), "echo up; sleep 600 & sleep 600".into()];
        let process = Process::spawn("sleeper", Path::new("/bin/sh"), &arguments, folder).unwrap();
        while process.tail() != "up" {
            std::thread::yield_now();
        }
        process
    }
}
