//! The device manager's checkpoint, `kubelet_internal_checkpoint` (kubelet 1.20 and later).

use std::collections::{BTreeMap, BTreeSet};

use freehold_core::vendor::Vendor;
use serde::Deserialize;

/// Pods that the checkpoint ties to devices of our vendors. Pods that ended stay in it until the next allocation.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// Vendors by pod UID.
    pub pods: BTreeMap<String, BTreeSet<Vendor>>,
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "Data")]
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    /// The kubelet writes `null` for none; a file without the key is not this format.
    #[serde(rename = "PodDeviceEntries", deserialize_with = "Option::deserialize")]
    entries: Option<Vec<Entry>>,
}

/// One container's devices of one resource. The plugin's answer beside it may be tens of KiB and is skipped.
#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    #[serde(rename = "ResourceName")]
    resource: String,
}

/// Parses the checkpoint.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse(bytes: &[u8]) -> Result<Entries, String> {
    let file: File = serde_json::from_slice(bytes)
        .map_err(|error| format!("not a device manager checkpoint: {error}"))?;
    let mut found = Entries::default();
    for entry in file.data.entries.unwrap_or_default() {
        let Some(vendor) = Vendor::ALL
            .into_iter()
            .find(|vendor| vendor.owns_resource(&entry.resource))
        else {
            continue;
        };
        // The UID becomes part of a path.
        if entry.pod_uid.is_empty()
            || !entry
                .pod_uid
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        {
            return Err(format!(
                "not a device manager checkpoint: pod UID {:?}",
                entry.pod_uid
            ));
        }
        found.pods.entry(entry.pod_uid).or_default().insert(vendor);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_told_apart_by_resource_and_others_are_left_alone() {
        let text = r#"{"Data":{"PodDeviceEntries":[
            {"PodUID":"p-1","ContainerName":"c","ResourceName":"nvidia.com/mig-1g.5gb","DeviceIDs":{"-1":["MIG-a"]},"AllocResp":"CgA="},
            {"PodUID":"p-1","ContainerName":"d","ResourceName":"nvidia.com/gpu","DeviceIDs":{"0":["GPU-a"]},"AllocResp":null},
            {"PodUID":"p-2","ContainerName":"c","ResourceName":"aws.amazon.com/neuroncore","DeviceIDs":{"-1":["0"]},"AllocResp":""},
            {"PodUID":"p-3","ContainerName":"c","ResourceName":"vpc.amazonaws.com/efa","DeviceIDs":{"-1":["e"]},"AllocResp":""}],
            "RegisteredDevices":{"nvidia.com/gpu":["GPU-a"]}},"Checksum":1234}"#;
        let pods = parse(text.as_bytes()).unwrap().pods;
        assert_eq!(pods.keys().collect::<Vec<_>>(), ["p-1", "p-2"]);
        assert_eq!(pods["p-1"], BTreeSet::from([Vendor::Nvidia]));
        assert_eq!(pods["p-2"], BTreeSet::from([Vendor::Neuron]));
    }

    #[test]
    fn null_entries_mean_none() {
        let text = br#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}"#;
        assert_eq!(parse(text).unwrap(), Entries::default());
    }

    #[test]
    fn what_is_not_a_checkpoint_is_never_an_empty_one() {
        for text in [
            "",
            "{}",
            "null",
            "[]",
            r#"{"Data":{}}"#,
            r#"{"Data":{"PodDeviceEntries":[{"PodUID":"p"}]}}"#,
            r#"{"Data":{"Pod"#,
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_pod_uid_cannot_lead_out_of_its_directory() {
        let text =
            br#"{"Data":{"PodDeviceEntries":[{"PodUID":"../x","ResourceName":"nvidia.com/gpu"}]}}"#;
        assert!(parse(text).unwrap_err().contains("../x"));
    }
}
