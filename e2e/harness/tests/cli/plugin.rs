//! Running the plugin as a user does.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// How a run ended.
pub(super) struct Run {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

impl Run {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| {
            panic!("no JSON ({error}) in {:?}; stderr: {}", self.out, self.err)
        })
    }
}

/// The plugin with a kubeconfig.
pub(super) struct Plugin {
    pub(super) program: PathBuf,
    pub(super) kubeconfig: PathBuf,
}

impl Plugin {
    fn run(&self, arguments: &[&str]) -> Run {
        let output = Command::new(&self.program)
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env_remove("NO_COLOR")
            .output()
            .expect("the plugin runs");
        Run {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub(super) fn expect(&self, arguments: &[&str], code: i32) -> Run {
        let run = self.run(arguments);
        assert_eq!(
            run.code, code,
            "{arguments:?}\nstdout: {}\nstderr: {}",
            run.out, run.err
        );
        run
    }
}
