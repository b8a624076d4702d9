//! Prepared claims: the kubelet's `dra_manager_state`, NVIDIA's driver's own checkpoint, and per-claim CDI files.

use std::collections::{BTreeMap, BTreeSet};

use freehold_core::vendor::Vendor;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Claims by UID, with `namespace/name` where the record tells it.
pub type ByUid = BTreeMap<String, Option<String>>;

/// A claim in the kubelet's state.
#[derive(Debug, PartialEq, Eq)]
pub struct Claim {
    /// UID.
    pub uid: String,
    /// `namespace/name`.
    pub name: Option<String>,
    /// Vendors whose allocating driver serves it.
    pub vendors: BTreeSet<Vendor>,
}

#[derive(Deserialize)]
struct StateFile {
    #[serde(rename = "Data")]
    data: String,
}

#[derive(Deserialize)]
struct State {
    kind: String,
    #[serde(
        rename = "ClaimInfoStateList",
        deserialize_with = "Option::deserialize"
    )]
    claims: Option<Vec<ClaimState>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ClaimState {
    #[serde(rename = "ClaimUID")]
    claim_uid: String,
    claim_name: String,
    namespace: String,
    /// Written before the first prepare call, one key for every driver in the allocation.
    driver_state: BTreeMap<String, IgnoredAny>,
}

/// Parses `dra_manager_state` (kubelet 1.32 and later): JSON as a string inside JSON.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse_kubelet(bytes: &[u8]) -> Result<Vec<Claim>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("not a DRA manager state: {error}");
    let file: StateFile = serde_json::from_slice(bytes).map_err(|error| wrong(&error))?;
    let state: State = serde_json::from_str(&file.data).map_err(|error| wrong(&error))?;
    if state.kind != "DRACheckpoint" {
        return Err(wrong(&format_args!("kind {:?}", state.kind)));
    }
    let claims = state
        .claims
        .unwrap_or_default()
        .into_iter()
        .map(|claim| Claim {
            uid: claim.claim_uid,
            name: Some(format!("{}/{}", claim.namespace, claim.claim_name)),
            vendors: claim
                .driver_state
                .keys()
                .filter_map(|driver| Vendor::of_dra_driver(driver))
                .collect(),
        });
    Ok(claims.filter(|claim| !claim.vendors.is_empty()).collect())
}

/// The checkpoint of NVIDIA's driver holds its content once for each version that may read it.
#[derive(Deserialize)]
struct DriverFile {
    v1: Option<DriverVersion>,
    v2: Option<DriverVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DriverVersion {
    #[serde(default)]
    prepared_claims: BTreeMap<String, PreparedClaim>,
    #[serde(default, rename = "nodeBootID")]
    node_boot_id: String,
}

/// Claims whose preparation began or was completed. Completed ones carry no name.
#[derive(Deserialize)]
struct PreparedClaim {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
}

/// Parses `plugins/gpu.nvidia.com/checkpoint.json` (driver 25.x, 0.4 and 0.5). A checkpoint of an earlier boot is void: what
/// it lists did not survive, and the driver drops it when it starts.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse_nvidia(bytes: &[u8], boot_id: &str) -> Result<ByUid, String> {
    let wrong =
        |error: &dyn std::fmt::Display| format!("not a checkpoint of gpu.nvidia.com: {error}");
    let file: DriverFile = serde_json::from_slice(bytes).map_err(|error| wrong(&error))?;
    let Some(newest) = file.v2.or(file.v1) else {
        return Err(wrong(&"neither a v1 nor a v2 part"));
    };
    if !newest.node_boot_id.is_empty() && !boot_id.is_empty() && newest.node_boot_id != boot_id {
        return Ok(ByUid::new());
    }
    let claims = newest.prepared_claims.into_iter();
    Ok(claims
        .map(|(uid, claim)| {
            (
                uid,
                (!claim.name.is_empty()).then(|| format!("{}/{}", claim.namespace, claim.name)),
            )
        })
        .collect())
}

/// The claim UID in the name of a per-claim CDI file of the vendor's driver, such as `k8s.gpu.nvidia.com-claim_<uid>.yaml`.
#[must_use]
pub fn uid_in_cdi_name(name: &str, vendor: Vendor) -> Option<&str> {
    const UID: usize = 36;
    let (before, after) = name.split_once(vendor.dra_driver())?;
    // `xgpu.nvidia.com` is somebody else.
    if before.ends_with(|char: char| char.is_ascii_alphanumeric() || char == '-') {
        return None;
    }
    let stem = after
        .strip_suffix(".yaml")
        .or_else(|| after.strip_suffix(".json"))?;
    let uid = stem.get(stem.len().checked_sub(UID)?..)?;
    let is_uid = uid.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    is_uid.then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0b5d8d2e-6a0c-4a5e-9d8b-1f2a3b4c5d6e";

    fn state(claims: &str) -> Vec<u8> {
        let data = format!(
            r#"{{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":{claims}}}"#
        );
        serde_json::to_vec(&serde_json::json!({"Data": data, "Checksum": 77})).unwrap()
    }

    #[test]
    fn the_kubelet_s_claims_are_told_apart_by_driver() {
        let claims = parse_kubelet(&state(&format!(
            r#"[{{"ClaimUID":"{UID}","ClaimName":"train","Namespace":"ml","PodUIDs":{{"p":{{}}}},"DriverState":{{"gpu.nvidia.com":
                {{"Devices":[{{"PoolName":"n","DeviceName":"gpu-0","ShareID":null,"RequestNames":["r"],"CDIDeviceIDs":["x"]}}]}}}}}},
               {{"ClaimUID":"u-2","ClaimName":"imex","Namespace":"ml","PodUIDs":{{}},"DriverState":{{"compute-domain.nvidia.com":{{"Devices":null}}}}}}]"#
        )))
        .unwrap();
        let expected = Claim {
            uid: UID.into(),
            name: Some("ml/train".into()),
            vendors: BTreeSet::from([Vendor::Nvidia]),
        };
        assert_eq!(claims, [expected], "compute domains allocate no devices");
        assert!(parse_kubelet(&state("null")).unwrap().is_empty());
        assert!(parse_kubelet(&state("[]")).unwrap().is_empty());
    }

    #[test]
    fn a_state_that_is_not_understood_is_never_an_empty_one() {
        let older = br#"{"version":"v1","entries":[{"claimUID":"u"}],"checksum":1}"#.to_vec();
        let other_kind = serde_json::to_vec(
            &serde_json::json!({"Data": r#"{"kind":"X","ClaimInfoStateList":[]}"#}),
        )
        .unwrap();
        let torn = state("[]")[..40].to_vec();
        for bytes in [
            older,
            other_kind,
            torn,
            Vec::new(),
            b"{}".to_vec(),
            state(r#"[{"ClaimUID":"u"}]"#),
        ] {
            assert!(
                parse_kubelet(&bytes).is_err(),
                "{}",
                String::from_utf8_lossy(&bytes)
            );
        }
    }

    #[test]
    fn a_driver_s_claims_count_from_the_moment_preparation_began() {
        let text = format!(
            r#"{{"version":"v2","checksum":5,"v1":{{"preparedClaims":{{"{UID}":{{"status":{{}}}}}}}},
                "v2":{{"checksum":6,"nodeBootID":"boot-a","preparedClaims":{{
                  "{UID}":{{"checkpointState":"PrepareCompleted","status":{{}},"preparedDevices":[]}},
                  "u-2":{{"checkpointState":"PrepareStarted","name":"late","namespace":"ml"}}}}}}}}"#
        );
        let claims = parse_nvidia(text.as_bytes(), "boot-a").unwrap();
        assert_eq!(
            claims,
            ByUid::from([(UID.into(), None), ("u-2".into(), Some("ml/late".into()))])
        );
    }

    #[test]
    fn a_driver_s_record_of_an_earlier_boot_holds_nothing() {
        let text = br#"{"checksum":5,"v2":{"checksum":6,"nodeBootID":"boot-a","preparedClaims":{"u-1":{}}}}"#;
        assert!(parse_nvidia(text, "boot-b").unwrap().is_empty());
        assert_eq!(parse_nvidia(text, "boot-a").unwrap().len(), 1);
        let without_boot_id = br#"{"checksum":5,"v1":{"preparedClaims":{"u-1":{}}}}"#;
        assert_eq!(
            parse_nvidia(without_boot_id, "boot-b").unwrap().len(),
            1,
            "an old record without a boot ID counts"
        );
    }

    #[test]
    fn a_driver_s_record_that_is_not_understood_is_never_an_empty_one() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"checksum":1}"#,
            r#"{"v1":{"preparedClaims":[]}}"#,
            r#"{"v2":{"prepared"#,
        ] {
            assert!(parse_nvidia(text.as_bytes(), "b").is_err(), "{text}");
        }
        assert!(
            parse_nvidia(br#"{"checksum":1,"v1":{}}"#, "b")
                .unwrap()
                .is_empty(),
            "a driver that prepared nothing yet"
        );
    }

    #[test]
    fn cdi_files_name_their_claim_and_their_driver() {
        let name = format!("k8s.gpu.nvidia.com-claim_{UID}.yaml");
        assert_eq!(uid_in_cdi_name(&name, Vendor::Nvidia), Some(UID));
        assert_eq!(uid_in_cdi_name(&name, Vendor::Neuron), None);
        assert_eq!(
            uid_in_cdi_name(
                &format!("k8s.neuron.aws.com-claim_{UID}.json"),
                Vendor::Neuron
            ),
            Some(UID)
        );
        for other in [
            format!("k8s.compute-domain.nvidia.com-claim_{UID}.yaml"),
            format!("k8s.mygpu.nvidia.com-claim_{UID}.yaml"),
            format!("k8s.gpu.nvidia.com-claim_{UID}.yaml.tmp"),
            "k8s.gpu.nvidia.com-device_base.yaml".into(),
            "k8s.device-plugin.nvidia.com-gpu.json".into(),
            "nvidia.yaml".into(),
        ] {
            assert_eq!(uid_in_cdi_name(&other, Vendor::Nvidia), None, "{other}");
        }
    }
}
