//! `watch`: lines, bars, patience, limits and interrupts.

use std::process::{Command, Stdio};

use freehold_e2e::cluster::TestCluster;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::fleet::tell;
use crate::plugin::Plugin;
impl Plugin {
    /// Starts `watch` and waits until it has told where things stand.
    async fn watching(&self) -> Watching {
        let mut child = tokio::process::Command::new(&self.program)
            .args(["watch", "--timeout", "2m"])
            .env("KUBECONFIG", &self.kubeconfig)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the plugin starts");
        let out = BufReader::new(child.stdout.take().expect("stdout")).lines();
        let mut watching = Watching { child, out };
        let first = watching.until("Under way").await;
        assert!(first.contains("reed-1"), "everything is told once: {first}");
        watching
    }
}

/// A running `watch`.
pub(super) struct Watching {
    child: tokio::process::Child,
    out: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Watching {
    /// What it tells until a line holds `part`.
    async fn until(&mut self, part: &str) -> String {
        let mut told = String::new();
        while let Some(line) = self.out.next_line().await.expect("a line") {
            told.push_str(&line);
            told.push('\n');
            if line.contains(part) {
                return told;
            }
        }
        panic!("watch ended before it told {part:?}: {told}");
    }

    /// Waits for the end: exit code, what was told since the start, and stderr.
    async fn end(mut self) -> (Option<i32>, String, String) {
        let mut told = String::new();
        while let Some(line) = self.out.next_line().await.expect("a line") {
            told.push_str(&line);
            told.push('\n');
        }
        let output = self.child.wait_with_output().await.expect("an end");
        (
            output.status.code(),
            told,
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    }
}

/// A terminal of 12 rows by `script`, which every Debian has.
pub(super) fn on_a_terminal_there_are_bars_that_fit_it(plugin: &Plugin) {
    let command = format!(
        "stty rows 12 cols 120; {} watch --patience 1s",
        plugin.program.display()
    );
    let terminal = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("KUBECONFIG", &plugin.kubeconfig)
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .expect("script runs");
    let screen = String::from_utf8_lossy(&terminal.stdout);
    assert_eq!(terminal.status.code(), Some(4), "{screen}");
    for part in [
        "marsh-plugin",
        "2/2 DevicePlugin",
        "0/1 DRA, 1 waiting",
        "… reed-3  Drain",
    ] {
        assert!(screen.contains(part), "{part:?} is missing: {screen}");
    }
    // The final state stays in the scrollback, below what was drawn over.
    let last = screen
        .rfind("Under way: 1 waiting, 2 of 3 nodes ready.")
        .expect("the last word");
    assert!(
        screen[last..].contains("ConsumersRemain (FH402): 1 node in marsh-dra"),
        "{screen}"
    );
    assert!(
        !screen.contains("\u{1b}[?25l") || screen.contains("\u{1b}[?25h"),
        "the cursor stays hidden: {screen}"
    );
}

pub(super) async fn watch_follows_until_nothing_is_left_to_follow(
    cluster: &TestCluster,
    plugin: &Plugin,
) {
    let patient = plugin.expect(&["watch", "--patience", "1s"], 4);
    assert!(
        patient.out.contains(
            "reed-3 NVIDIA (marsh-dra): Drain under DevicePlugin: ConsumersRemain (FH402)"
        ),
        "{}",
        patient.out
    );
    let late = plugin.expect(&["watch", "--timeout", "1s"], 124);
    assert!(
        late.err.contains("last seen: Under way: 1 waiting") && late.err.contains("--timeout"),
        "{}",
        late.err
    );

    on_a_terminal_there_are_bars_that_fit_it(plugin);
    let interrupted = plugin.watching().await;
    let pid = interrupted.child.id().expect("a process").to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .expect("kill runs")
            .success()
    );
    let (code, _, err) = interrupted.end().await;
    assert_eq!(code, Some(130), "{err}");
    assert!(err.contains("interrupted; last seen: Under way"), "{err}");

    let mut watching = plugin.watching().await;
    tell(cluster, "reed-3", &json!({"owner": null, "step": "Vacate", "reason": null, "message": null, "nextStep": null})).await;
    let vacating = watching.until("→ reed-3 NVIDIA (marsh-dra): Vacate").await;
    tell(cluster, "reed-3", &json!({"owner": "DRA", "step": "Held"})).await;
    let (code, told, err) = watching.end().await;
    let told = vacating + &told;
    assert_eq!(code, Some(0), "{told}{err}");
    for part in [
        "✓ reed-3 NVIDIA (marsh-dra): Held under DRA",
        "Ready: all 3 nodes",
    ] {
        assert!(told.contains(part), "{part:?} is missing: {told}");
    }
    assert!(!told.contains("reed-1"), "only changes are told: {told}");
}
