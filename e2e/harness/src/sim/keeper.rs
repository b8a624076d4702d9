//! Ends the agents' processes with the fleet, also when the harness is killed and no destructor runs.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::Context as _;

/// A shell that waits for the end of a pipe whose other end only the harness holds. Then it ends its process group, which all
/// agents have joined, and removes the directory unless the last line it had read was `keep`.
const SCRIPT: &str = r#"word=
while read -r line; do word=$line; done
trap '' TERM
kill -TERM 0
sleep 1
[ "$word" = keep ] || rm -rf -- "$1"
kill -KILL 0"#;

/// One per fleet: the leader of the agents' process group.
#[derive(Debug)]
pub struct Keeper {
    group: i32,
    // Taken, and thereby closed, before the shell is waited for.
    pipe: Option<ChildStdin>,
    shell: Child,
}

impl Keeper {
    /// Starts it. With `remove`, the directory goes when the fleet does.
    ///
    /// # Errors
    /// When no shell can be started.
    pub fn start(directory: &Path, remove: bool) -> anyhow::Result<Self> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("start the shell that ends the agents with the fleet")?;
        let group = i32::try_from(shell.id()).context("process ids are positive")?;
        let mut keeper = Self {
            group,
            pipe: shell.stdin.take(),
            shell,
        };
        if !remove {
            keeper.keep_directory();
        }
        Ok(keeper)
    }

    /// The process group that agents join.
    #[must_use]
    pub const fn group(&self) -> i32 {
        self.group
    }

    /// Leaves the directory where it is.
    pub fn keep_directory(&mut self) {
        // A few bytes into an empty pipe never block.
        if let Some(Err(error)) = self.pipe.as_mut().map(|pipe| pipe.write_all(b"keep\n")) {
            tracing::warn!(%error, "tell the keeper to keep the fleet's directory");
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // It ends by killing its own group, a second later at most.
        self.shell.wait().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(group: i32) -> Child {
        Command::new("sleep")
            .arg("600")
            .process_group(group)
            .spawn()
            .unwrap()
    }

    #[test]
    fn processes_and_directory_go_when_the_pipe_closes_as_it_does_when_the_harness_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), "x").unwrap();
        let keeper = Keeper::start(directory.path(), true).unwrap();
        let mut sleeper = sleeper(keeper.group());
        assert!(sleeper.try_wait().unwrap().is_none());
        drop(keeper);
        assert!(!sleeper.wait().unwrap().success());
        assert!(!directory.path().exists());
    }

    #[test]
    fn a_directory_that_is_wanted_later_stays() {
        let directory = tempfile::tempdir().unwrap();
        for remove in [true, false] {
            let mut keeper = Keeper::start(directory.path(), remove).unwrap();
            keeper.keep_directory();
            drop(keeper);
            assert!(directory.path().exists());
        }
    }
}
