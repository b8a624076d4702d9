//! The files in which the kubelet and the DRA drivers remember who holds which device, byte for byte as they write them,
//! checksums included, so that readers which verify them can be tested too.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One entry of `device-plugins/kubelet_internal_checkpoint`: devices given to one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct PodDevices {
    /// Pod.
    #[serde(rename = "PodUID")]
    pub pod_uid: String,
    /// Container.
    pub container_name: String,
    /// Extended resource.
    pub resource_name: String,
    /// Device ids by NUMA node; -1 where the plugin names none.
    #[serde(rename = "DeviceIDs")]
    pub device_ids: BTreeMap<String, Vec<String>>,
    /// The plugin's answer, base64.
    pub alloc_resp: String,
}

/// The whole of `kubelet_internal_checkpoint` as JSON.
///
/// # Errors
/// None in practice: strings always serialize.
pub fn device_manager(
    entries: &[PodDevices],
    registered: &BTreeMap<String, Vec<String>>,
) -> serde_json::Result<String> {
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct Data<'a> {
        pod_device_entries: Option<&'a [PodDevices]>,
        registered_devices: &'a BTreeMap<String, Vec<String>>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct File<'a> {
        data: Data<'a>,
        checksum: u32,
    }
    let data = Data {
        pod_device_entries: (!entries.is_empty()).then_some(entries),
        registered_devices: registered,
    };
    serde_json::to_string(&File {
        checksum: fnv32a(dump(entries, registered).as_bytes()),
        data,
    })
}

/// How the kubelet prints the data for its checksum (spew's `%#v` of Go's types).
fn dump(entries: &[PodDevices], registered: &BTreeMap<String, Vec<String>>) -> String {
    let map = |map: &BTreeMap<String, Vec<String>>| {
        let parts: Vec<_> = map
            .iter()
            .map(|(key, ids)| format!("{key}:[{}]", ids.join(" ")))
            .collect();
        format!("map[{}]", parts.join(" "))
    };
    let entry = |entry: &PodDevices| {
        let response: Vec<_> = decode_base64(&entry.alloc_resp)
            .iter()
            .map(u8::to_string)
            .collect();
        format!(
            "{{PodUID:(string){} ContainerName:(string){} ResourceName:(string){} DeviceIDs:(checkpoint.DevicesPerNUMA){} \
             AllocResp:([]uint8)[{}]}}",
            entry.pod_uid,
            entry.container_name,
            entry.resource_name,
            map(&entry.device_ids),
            response.join(" ")
        )
    };
    let list = if entries.is_empty() {
        "<nil>".to_owned()
    } else {
        format!(
            "[{}]",
            entries.iter().map(entry).collect::<Vec<_>>().join(" ")
        )
    };
    format!(
        "(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){list} RegisteredDevices:(map[string][]string){}}}",
        map(registered)
    )
}

/// One claim in `dra_manager_state`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ClaimInfo {
    /// Claim.
    #[serde(rename = "ClaimUID")]
    pub claim_uid: String,
    /// Its name.
    pub claim_name: String,
    /// Its namespace.
    pub namespace: String,
    /// Pods on this node that use it.
    #[serde(rename = "PodUIDs")]
    pub pod_uids: BTreeMap<String, Empty>,
    /// By driver.
    pub driver_state: BTreeMap<String, DriverState>,
}

/// Go's `struct{}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// Devices of one driver in one claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DriverState {
    /// Devices.
    pub devices: Vec<PreparedDevice>,
}

/// A prepared device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct PreparedDevice {
    /// Pool.
    pub pool_name: String,
    /// Device.
    pub device_name: String,
    /// Share of a device with consumable capacity.
    #[serde(rename = "ShareID")]
    pub share_id: Option<String>,
    /// Requests of the claim.
    pub request_names: Vec<String>,
    /// CDI names.
    #[serde(rename = "CDIDeviceIDs")]
    pub cdi_device_ids: Vec<String>,
}

/// The whole of `dra_manager_state` as JSON.
///
/// # Errors
/// None in practice: strings always serialize.
pub fn dra_manager(claims: &[ClaimInfo]) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Data<'a> {
        kind: &'static str,
        #[serde(rename = "apiVersion")]
        api_version: &'static str,
        #[serde(rename = "ClaimInfoStateList")]
        claims: &'a [ClaimInfo],
    }
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct File {
        data: String,
        checksum: u32,
    }
    let data = Data {
        kind: "DRACheckpoint",
        api_version: "checkpoint.dra.kubelet.k8s.io/v1",
        claims,
    };
    let data = serde_json::to_string(&data)?;
    serde_json::to_string(&File {
        checksum: crc32(data.as_bytes()),
        data,
    })
}

/// A claim in the NVIDIA DRA driver's own checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DriverClaim {
    /// `PrepareStarted` or `PrepareCompleted`.
    pub checkpoint_state: String,
    /// The claim's status; only its allocation matters.
    pub status: Value,
    /// Devices, in the driver's own groups.
    pub prepared_devices: Value,
    /// Name, until completed: completed entries hold none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Namespace, likewise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// State that a claim reaches once prepared.
pub const PREPARE_COMPLETED: &str = "PrepareCompleted";

/// The driver's checkpoint (`plugins/gpu.nvidia.com/checkpoint.json`), format v2 with the v1 form beside it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DriverState2 {
    checksum: u32,
    /// Claims by UID.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prepared_claims: BTreeMap<String, DriverClaim>,
    /// Boot that the claims belong to. After another boot they are void.
    #[serde(
        rename = "nodeBootID",
        default,
        skip_serializing_if = "String::is_empty"
    )]
    pub node_boot_id: String,
}

/// The driver's checkpoint as JSON.
///
/// # Errors
/// When a value does not serialize, which is a defect.
pub fn dra_driver(state: &DriverState2) -> serde_json::Result<String> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct ClaimV1<'a> {
        status: &'a Value,
        prepared_devices: &'a Value,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct V1<'a> {
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        prepared_claims: BTreeMap<&'a str, ClaimV1<'a>>,
    }
    #[derive(Serialize)]
    struct V1View<'a> {
        checksum: u32,
        v1: &'a V1<'a>,
    }
    #[derive(Serialize)]
    struct File<'a> {
        version: &'static str,
        checksum: u32,
        v1: &'a V1<'a>,
        v2: &'a DriverState2,
    }
    let completed = state
        .prepared_claims
        .iter()
        .filter(|(_, claim)| claim.checkpoint_state == PREPARE_COMPLETED);
    let v1 = V1 {
        prepared_claims: completed
            .map(|(uid, claim)| {
                (
                    uid.as_str(),
                    ClaimV1 {
                        status: &claim.status,
                        prepared_devices: &claim.prepared_devices,
                    },
                )
            })
            .collect(),
    };
    let checksum = bytes_checksum(&serde_json::to_string(&V1View {
        checksum: 0,
        v1: &v1,
    })?);
    let mut v2 = DriverState2 {
        checksum: 0,
        ..state.clone()
    };
    v2.checksum = bytes_checksum(&serde_json::to_string(&v2)?);
    serde_json::to_string(&File {
        version: "v2",
        checksum,
        v1: &v1,
        v2: &v2,
    })
}

/// Reads the driver's checkpoint back.
///
/// # Errors
/// When it is not JSON of that form or its checksum does not fit: the driver then refuses to start.
pub fn read_dra_driver(text: &str) -> anyhow::Result<DriverState2> {
    #[derive(Deserialize)]
    struct File {
        v2: DriverState2,
    }
    let File { v2 } = serde_json::from_str(text)?;
    let expected = bytes_checksum(&serde_json::to_string(&DriverState2 {
        checksum: 0,
        ..v2.clone()
    })?);
    anyhow::ensure!(
        v2.checksum == expected,
        "checkpoint is corrupt: checksum {}, expected {expected}",
        v2.checksum
    );
    Ok(v2)
}

/// Checksum of a Go byte slice as the checkpoint manager computes it.
fn bytes_checksum(text: &str) -> u32 {
    let bytes: Vec<_> = text.bytes().map(|byte| byte.to_string()).collect();
    fnv32a(format!("([]uint8)[{}]", bytes.join(" ")).as_bytes())
}

/// FNV-1a, 32 bits.
fn fnv32a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// CRC-32 (IEEE).
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 {
                (crc >> 1) ^ 0xedb8_8320
            } else {
                crc >> 1
            }
        })
    };
    !bytes.iter().fold(!0, step)
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Standard base64 with padding.
#[must_use]
pub fn encode_base64(bytes: &[u8]) -> String {
    let digit = |value: u32| char::from(BASE64.get(value as usize & 63).copied().unwrap_or(b'A'));
    let group = |chunk: &[u8]| {
        let value = (0..3).fold(0, |value, at| {
            value << 8 | u32::from(chunk.get(at).copied().unwrap_or(0))
        });
        let text: String = [18, 12, 6, 0]
            .into_iter()
            .take(chunk.len() + 1)
            .map(|shift| digit(value >> shift))
            .collect();
        format!("{text:=<4}")
    };
    bytes.chunks(3).map(group).collect()
}

fn decode_base64(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .bytes()
        .filter_map(|byte| BASE64.iter().position(|digit| *digit == byte))
        .filter_map(|at| at.try_into().ok())
        .collect();
    let group = |chunk: &[u32]| {
        let value = (0..4).fold(0, |value, at| {
            value << 6 | chunk.get(at).copied().unwrap_or(0)
        });
        value
            .to_be_bytes()
            .into_iter()
            .skip(1)
            .take(chunk.len().saturating_sub(1))
            .collect::<Vec<_>>()
    };
    digits.chunks(4).flat_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // The expected texts were printed by Kubernetes 1.36.3's own packages.

    #[test]
    fn an_empty_device_checkpoint_is_what_the_kubelet_writes() {
        let text = device_manager(&[], &BTreeMap::new()).unwrap();
        assert_eq!(
            text,
            r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}"#
        );
    }

    #[test]
    fn device_checkpoint_entries_and_checksum_are_what_the_kubelet_writes() {
        let entry = |ids: &[(&str, &[&str])]| PodDevices {
            pod_uid: "u1".into(),
            container_name: "main".into(),
            resource_name: "example.com/gpu".into(),
            device_ids: ids
                .iter()
                .map(|(numa, ids)| ((*numa).into(), ids.iter().map(|id| (*id).into()).collect()))
                .collect(),
            alloc_resp: encode_base64(b"hi!"),
        };
        let registered = BTreeMap::from([
            ("a.b/c".to_owned(), vec![]),
            (
                "example.com/gpu".to_owned(),
                vec!["GPU-a".into(), "GPU-b".into()],
            ),
        ]);
        let text = device_manager(&[entry(&[("-1", &["GPU-b", "GPU-a"])])], &registered).unwrap();
        assert_eq!(
            text,
            r#"{"Data":{"PodDeviceEntries":[{"PodUID":"u1","ContainerName":"main","ResourceName":"example.com/gpu","DeviceIDs":{"-1":["GPU-b","GPU-a"]},"AllocResp":"aGkh"}],"RegisteredDevices":{"a.b/c":[],"example.com/gpu":["GPU-a","GPU-b"]}},"Checksum":2430229925}"#
        );
    }

    #[test]
    fn claim_state_and_checksum_are_what_the_kubelet_writes() {
        let claim = ClaimInfo {
            claim_uid: "c1".into(),
            claim_name: "n".into(),
            namespace: "ns".into(),
            pod_uids: BTreeMap::from([("u1".into(), Empty {})]),
            driver_state: BTreeMap::from([(
                "drv.example.com".into(),
                DriverState {
                    devices: vec![PreparedDevice {
                        pool_name: "p".into(),
                        device_name: "d".into(),
                        share_id: None,
                        request_names: vec!["r".into()],
                        cdi_device_ids: vec!["k/x=y".into()],
                    }],
                },
            )]),
        };
        assert_eq!(
            dra_manager(&[claim]).unwrap(),
            r#"{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[{\"ClaimUID\":\"c1\",\"ClaimName\":\"n\",\"Namespace\":\"ns\",\"PodUIDs\":{\"u1\":{}},\"DriverState\":{\"drv.example.com\":{\"Devices\":[{\"PoolName\":\"p\",\"DeviceName\":\"d\",\"ShareID\":null,\"RequestNames\":[\"r\"],\"CDIDeviceIDs\":[\"k/x=y\"]}]}}}]}","Checksum":2205436742}"#
        );
        assert!(
            dra_manager(&[])
                .unwrap()
                .ends_with("\"Checksum\":2361995144}")
        );
    }

    #[test]
    fn a_driver_checkpoint_reads_back_and_a_changed_byte_is_noticed() {
        let claim = DriverClaim {
            checkpoint_state: PREPARE_COMPLETED.into(),
            status: serde_json::json!({"allocation": {}}),
            prepared_devices: serde_json::json!([]),
            name: String::new(),
            namespace: String::new(),
        };
        let state = DriverState2 {
            prepared_claims: BTreeMap::from([("c7".into(), claim)]),
            node_boot_id: "boot-7".into(),
            ..DriverState2::default()
        };
        let text = dra_driver(&state).unwrap();
        assert_eq!(
            read_dra_driver(&text).unwrap().prepared_claims,
            state.prepared_claims
        );
        let corrupt = text.replace("boot-7", "boot-8");
        assert!(
            read_dra_driver(&corrupt)
                .unwrap_err()
                .to_string()
                .contains("corrupt")
        );
    }

    #[test]
    fn base64_survives_a_round_trip_at_every_length() {
        for text in ["", "a", "ab", "abc", "abcd"] {
            assert_eq!(
                decode_base64(&encode_base64(text.as_bytes())),
                text.as_bytes()
            );
        }
    }
}
