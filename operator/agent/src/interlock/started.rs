//! The mark that tells the startup probe "lock and word are held".
//!
//! The mark lies in the pod and may outlive its maker: a killed container, or a reboot, leaves it behind. So it names the
//! process that made it, by boot, PID and start time, and counts only while that process lives.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Makes the mark for this process.
///
/// # Errors
/// When it cannot be written.
pub fn put(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let (Some(directory), Some(name)) = (
        path.parent(),
        path.file_name().and_then(|name| name.to_str()),
    ) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not the path of a file",
        ));
    };
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    super::replace(directory, name, &identity(std::process::id())?)
}

/// Removes the mark, if there is one.
///
/// # Errors
/// When it is there and cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether the mark is there and its maker alive.
#[must_use]
pub fn is_valid(path: &Path) -> bool {
    let Ok(mark) = fs::read_to_string(path) else {
        return false;
    };
    let pid = mark
        .split_whitespace()
        .next()
        .and_then(|pid| pid.parse().ok());
    pid.is_some_and(|pid| identity(pid).is_ok_and(|alive| alive == mark))
}

/// Beside the mark: that this pod's operand was let in, and in which boot. Never removed, and gone with the pod.
fn entry(mark: &Path) -> PathBuf {
    let mut name = mark.as_os_str().to_owned();
    name.push(".entry");
    name.into()
}

/// Notes that the operand of this pod may start in this boot, before it is let in.
///
/// # Errors
/// When it cannot be written.
pub fn let_in(mark: &Path, boot_id: &str) -> io::Result<()> {
    let entry = entry(mark);
    if let Some(directory) = entry.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(entry, boot_id)
}

/// Whether the operand of this pod was let in during this boot. It may be running since: a kubelet starts an ended sidecar
/// again and leaves the containers beside it alone.
#[must_use]
pub fn was_let_in(mark: &Path, boot_id: &str) -> bool {
    !boot_id.is_empty() && fs::read_to_string(entry(mark)).is_ok_and(|entry| entry == boot_id)
}

/// PID, start time in clock ticks since boot, and boot ID of a living process.
fn identity(pid: u32) -> io::Result<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    // The second field is the program's name in parentheses, which may hold anything; start time is field 22 (proc(5)).
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = after_name.split_whitespace();
    match (fields.next(), fields.nth(18)) {
        // A killed process whose parent has not asked for it yet has a start time too.
        (Some(state), Some(start)) if !matches!(state, "Z" | "X") => {
            Ok(format!("{pid} {start} {boot}"))
        }
        _ => Err(io::Error::new(io::ErrorKind::NotFound, "no living process")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_counts_while_its_maker_lives() {
        let root = tempfile::tempdir().unwrap();
        let mark = root.path().join("run/held");
        assert!(!is_valid(&mark));
        put(&mark).unwrap();
        assert!(is_valid(&mark));
        remove(&mark).unwrap();
        remove(&mark).unwrap();
        assert!(!is_valid(&mark));
    }

    #[test]
    fn an_entry_holds_for_its_boot_and_outlives_the_mark() {
        let root = tempfile::tempdir().unwrap();
        let mark = root.path().join("run/held");
        assert!(!was_let_in(&mark, "boot-1"));
        let_in(&mark, "boot-1").unwrap();
        put(&mark).unwrap();
        remove(&mark).unwrap();
        assert!(was_let_in(&mark, "boot-1"));
        assert!(!was_let_in(&mark, "boot-2") && !was_let_in(&mark, ""));
    }

    #[test]
    fn a_mark_left_behind_does_not_count() {
        let root = tempfile::tempdir().unwrap();
        let mark = root.path().join("held");
        put(&mark).unwrap();
        let real = fs::read_to_string(&mark).unwrap();
        let (pid, rest) = real.split_once(' ').unwrap();
        let (start, boot) = rest.split_once(' ').unwrap();
        for stale in [
            format!("{pid} {start}7 {boot}"),
            format!("{pid} {start} 00000000-0000-0000-0000-000000000000\n"),
            format!("4194305 {start} {boot}"),
            String::new(),
        ] {
            fs::write(&mark, &stale).unwrap();
            assert!(!is_valid(&mark), "{stale:?}");
        }
    }
}
