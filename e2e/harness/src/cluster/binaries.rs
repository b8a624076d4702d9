//! Kubernetes' and etcd's binaries, built from Go modules once and kept under the target folder.

use std::{
    env,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use super::release::Release;

/// Moves binaries and run folders out of `target/testcluster`, for instance to share one build between checkouts.
pub const FOLDER_VARIABLE: &str = "FREEHOLD_TESTCLUSTER_DIR";

const PACKAGES: [(&str, &str); 6] = [
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    (
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
    ),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
];

/// Packages that hold a binary's own version; without them `/version` says v0.0.0-master.
const VERSION_PACKAGES: [&str; 2] = [
    "k8s.io/component-base/version",
    "k8s.io/client-go/pkg/version",
];

/// Built binaries of one release.
#[derive(Clone, Debug)]
pub struct Binaries {
    folder: PathBuf,
    version: String,
}

impl Binaries {
    /// Builds what is missing. Only the first build of a release compiles for minutes; afterwards Go's own cache answers, and
    /// once linked nothing is done at all. Parallel callers, in this process and in others, wait for one build.
    ///
    /// # Errors
    /// When Go is missing or the build fails.
    pub fn ensure(release: Release) -> Result<Self> {
        let version = release.version()?;
        let root = folder()?;
        let binaries = Self {
            folder: root.join(&version),
            version,
        };
        let stamp = binaries.folder.join("stamp");
        let wanted = binaries.stamp(release)?;
        if read_or_empty(&stamp)? == wanted {
            return Ok(binaries);
        }

        fs::create_dir_all(&binaries.folder)
            .with_context(|| format!("creating {}", binaries.folder.display()))?;
        let lock = File::create(root.join(format!("{}.lock", binaries.version)))?;
        lock.lock()
            .context("waiting for another process that builds the test cluster")?;
        if read_or_empty(&stamp)? == wanted {
            return Ok(binaries);
        }
        binaries.build(release)?;
        fs::write(&stamp, wanted)?;
        Ok(binaries)
    }

    fn build(&self, release: Release) -> Result<()> {
        let started = Instant::now();
        say(&format!(
            "building Kubernetes {} and etcd for tests into {} (the first time takes minutes)",
            self.version,
            self.folder.display()
        ));
        for (name, package) in PACKAGES {
            say(&format!("  {name}"));
            let target = self.folder.join(format!("{name}.new"));
            let output = Command::new("go")
                .args([
                    "build",
                    "-buildvcs=false",
                    "-trimpath",
                    "-ldflags",
                    &self.linker_flags(release),
                    "-o",
                ])
                .arg(&target)
                .arg(package)
                .current_dir(release.module())
                .stdin(Stdio::null())
                .output()
                .context("running go: the test cluster needs Go 1.26")?;
            if !output.status.success() {
                bail!(
                    "go build {package} failed:\n{}",
                    String::from_utf8_lossy(&output.stderr)
                );
            }
            // A running cluster of an earlier build keeps its file.
            fs::rename(&target, self.path(name))?;
        }
        say(&format!(
            "built in {:.0} s",
            started.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    fn linker_flags(&self, release: Release) -> String {
        let mut flags = String::from("-s -w");
        for package in VERSION_PACKAGES {
            flags += &format!(
                " -X {package}.gitVersion={} -X {package}.gitMajor=1",
                self.version
            );
            flags += &format!(" -X {package}.gitMinor={}", release.minor());
        }
        flags
    }

    /// Everything that decides what is built.
    fn stamp(&self, release: Release) -> Result<String> {
        let mut hash = Sha256::new();
        for file in ["go.mod", "go.sum"] {
            let path = release.module().join(file);
            hash.update(fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
        }
        hash.update(self.linker_flags(release));
        hash.update(PACKAGES.concat_names());
        Ok(hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect())
    }

    /// Version such as `v1.36.3`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Path of one binary, e.g. `kubelet`.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

trait ConcatNames {
    fn concat_names(&self) -> String;
}

impl ConcatNames for [(&str, &str)] {
    fn concat_names(&self) -> String {
        self.iter()
            .map(|(name, package)| format!("{name}={package};"))
            .collect()
    }
}

/// `target/testcluster`, or what [`FOLDER_VARIABLE`] names. Always absolute.
pub(super) fn folder() -> Result<PathBuf> {
    let folder = match (
        env::var_os(FOLDER_VARIABLE),
        env::var_os("CARGO_TARGET_DIR"),
    ) {
        (Some(folder), _) => PathBuf::from(folder),
        (None, Some(target)) => PathBuf::from(target).join("testcluster"),
        (None, None) => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/testcluster"),
    };
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder.canonicalize()?)
}

fn read_or_empty(path: &Path) -> Result<String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

/// Straight to stderr: the test runner captures `eprintln!`, and nobody should wonder for minutes what a test is doing.
fn say(line: &str) {
    // Nothing depends on the line.
    let _ = writeln!(io::stderr(), "{line}");
}
