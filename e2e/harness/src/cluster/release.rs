//! Which Kubernetes.

use std::{env, fs, path::PathBuf};

use anyhow::{Context as _, Result, bail};

/// A release of Kubernetes that the harness can build, each with its own Go module under `e2e/cluster`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Release {
    /// The oldest release that serves `resource.k8s.io/v1`.
    V1_34,
    /// The release that everything is tested on.
    V1_36,
}

/// Names the release for a whole run of the tests: `1.34` or `1.36`.
pub const RELEASE_VARIABLE: &str = "FREEHOLD_KUBERNETES_VERSION";

impl Release {
    /// The release that [`RELEASE_VARIABLE`] names, else 1.36.
    ///
    /// # Errors
    /// When the variable names a release that is not built here.
    pub fn from_env() -> Result<Self> {
        match env::var(RELEASE_VARIABLE).as_deref() {
            Err(_) | Ok("" | "1.36") => Ok(Self::V1_36),
            Ok("1.34") => Ok(Self::V1_34),
            Ok(other) => {
                bail!("{RELEASE_VARIABLE} is {other:?}; the harness can build 1.34 and 1.36")
            }
        }
    }

    /// Major and minor number.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1_34 => "1.34",
            Self::V1_36 => "1.36",
        }
    }

    /// Minor number.
    #[must_use]
    pub const fn minor(self) -> u32 {
        match self {
            Self::V1_34 => 34,
            Self::V1_36 => 36,
        }
    }

    /// Folder of the Go module.
    pub(super) fn module(self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../cluster")
            .join(self.name())
    }

    /// Full version such as `v1.36.3`: what the Go module requires, so that it stands in one place.
    pub(super) fn version(self) -> Result<String> {
        let path = self.module().join("go.mod");
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        text.lines()
            .find_map(|line| {
                line.trim()
                    .strip_prefix("k8s.io/kubernetes ")?
                    .split_whitespace()
                    .next()
                    .map(Into::into)
            })
            .with_context(|| format!("{} requires no k8s.io/kubernetes", path.display()))
    }
}
