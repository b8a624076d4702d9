//! The committed CRDs are the generated ones.

use std::{collections::BTreeSet, fs, path::Path};

#[test]
fn the_crds_folder_is_what_the_types_generate() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crds");
    let generated = freehold_api::crd_files().unwrap();
    for (file, yaml) in &generated {
        let committed = fs::read_to_string(folder.join(file)).unwrap_or_default();
        let line = committed
            .lines()
            .zip(yaml.lines())
            .position(|(committed, generated)| committed != generated);
        assert!(
            committed == *yaml,
            "crds/{file} differs from the types of operator/api, first in line {}; run `make generate`",
            line.unwrap_or_else(|| committed.lines().count().min(yaml.lines().count())) + 1,
        );
    }

    let names: BTreeSet<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "kustomization.yaml")
        .collect();
    let expected = generated
        .iter()
        .map(|(file, _)| (*file).to_owned())
        .collect();
    assert_eq!(
        names, expected,
        "crds/ holds something that nothing generates"
    );
}
