//! The interlock: the node itself refuses a second owner.
//!
//! In one directory per vendor, `/var/lib/freehold/<vendor>/`, lie
//! - `lock`: locked (`flock`) by the sidecar of the one operand pod that may run, for as long as the pod lives;
//! - `owner`: the owner word, `device-plugin` or `dra` and a newline; absent while nobody may run;
//! - `order`: which order put the word there, so that an older one, late from a forgotten agent, is refused;
//! - `layout` and `shaped`, where the node's geometry was ordered: see [`crate::shape`].
//!
//! An operand starts only while its sidecar holds the lock *and* the word is its own ([`hold`]); the word changes only while
//! the changer holds the lock ([`order`]), that is, while no operand is alive. The lock dies with its process, whatever kills
//! it; the word survives reboots, so that operands come back without the controller.

pub mod hold;
pub mod lock;
pub mod order;
pub mod started;
pub mod word;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Replaces a file so that a reader, or a crash at any point, finds the old content or the new, whole.
pub(crate) fn replace(directory: &Path, name: &str, content: &str) -> io::Result<()> {
    let draft = directory.join(format!(".{name}.new"));
    let written = (|| {
        let mut file = File::create(&draft)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, directory.join(name))?;
        File::open(directory)?.sync_all()
    })();
    if written.is_err() {
        // The draft is of no use to anybody; that it may be gone already is no news.
        let _ = fs::remove_file(&draft);
    }
    written
}
