//! Writes both CRDs into the folder named by the first argument.

use std::{env, fs, io, path::PathBuf};

fn main() -> io::Result<()> {
    let folder = PathBuf::from(env::args_os().nth(1).unwrap_or_else(|| "crds".into()));
    fs::create_dir_all(&folder)?;
    for (file, yaml) in freehold_api::crd_files().map_err(io::Error::other)? {
        fs::write(folder.join(file), yaml)?;
    }
    Ok(())
}
