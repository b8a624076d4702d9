//! NVIDIA settings of a cohort.

use std::collections::{BTreeMap, BTreeSet};

use freehold_core::geometry::Request;
use freehold_core::intent::{self, DraTraits, Layout, MigLayout, Sharing};
use freehold_core::report::MigProfileCount;
use freehold_core::vendor::Owner;

use super::check::{Checker, quoted};
use super::cohort::VendorPart;
use super::{HostPath, NvidiaDevicePlugin, NvidiaDra, Operand, PluginConfig};
use crate::{
    ConfigRef, DevicePlugin, Dra, ExtendedResourceName, Mig, MigStrategy, Mps, Nvidia,
    SharedResource, TimeSlicing,
};

/// The only resource that the plugin shares through MPS (k8s-device-plugin 0.20.0).
const GPU_RESOURCE: &str = "nvidia.com/gpu";
/// Most replicas of one device; the schema's bound.
const MAX_REPLICAS: u32 = 1024;
/// Most instances of one profile; the schema's bound.
const MAX_INSTANCES: u32 = 64;
/// Longest name of a profile; the schema's bound.
const MAX_PROFILE: usize = 32;
/// Gates of the driver 0.5.0, without those of ComputeDomains, which Freehold does not run.
const GATES: [&str; 9] = [
    "TimeSlicingSettings",
    "MPSSupport",
    "PassthroughSupport",
    "DynamicMIG",
    "NVMLDeviceHealthCheck",
    "DeviceMetadata",
    "DRAListTypeAttributes",
    "FabricManagerPartitioning",
    "ConsumableShares",
];
/// Gates that exclude each other: the driver refuses to start, or claims fail to prepare (driver 0.5.0 and its documentation).
const GATE_CONFLICTS: [(&str, &str); 6] = [
    ("DynamicMIG", "PassthroughSupport"),
    ("DynamicMIG", "NVMLDeviceHealthCheck"),
    ("DynamicMIG", "MPSSupport"),
    ("PassthroughSupport", "NVMLDeviceHealthCheck"),
    ("MPSSupport", "NVMLDeviceHealthCheck"),
    ("MPSSupport", "ConsumableShares"),
];

/// The settings of a cohort that gives none: the schema's defaults.
fn defaults() -> Nvidia {
    Nvidia {
        driver_root: "/".into(),
        runtime_class_name: None,
        accept_unknown_driver: false,
        device_plugin: None,
        dra: None,
        mig: None,
    }
}

pub(super) fn parse(
    checker: &mut Checker,
    at: &str,
    owner: Owner,
    raw: Option<&Nvidia>,
) -> VendorPart {
    let defaults = defaults();
    let Nvidia {
        driver_root,
        runtime_class_name,
        accept_unknown_driver,
        device_plugin,
        dra,
        mig,
    } = raw.unwrap_or(&defaults);
    let driver_root = checker.host_path(&format!("{at}.driverRoot"), driver_root);
    let runtime_class = runtime_class_name
        .as_ref()
        .map(|name| checker.dns_subdomain(&format!("{at}.runtimeClassName"), name));
    let layout = mig.as_ref().map(|Mig { layouts }| {
        if layouts.is_empty() {
            checker.problem(format!("{at}.mig.layouts"), "no layout", "at least one");
        }
        Layout::Mig(
            layouts
                .iter()
                .enumerate()
                .map(|(index, layout)| {
                    mig_layout(checker, &format!("{at}.mig.layouts[{index}]"), layout)
                })
                .collect(),
        )
    });
    let mut part = match owner {
        Owner::DevicePlugin => {
            if dra.is_some() {
                checker.problem(
                    format!("{at}.dra"),
                    "settings of the DRA driver",
                    "none while owner is DevicePlugin",
                );
            }
            device_plugin_part(
                checker,
                at,
                driver_root,
                runtime_class,
                device_plugin.as_ref(),
                layout.as_ref(),
            )
        }
        Owner::Dra => {
            if device_plugin.is_some() {
                checker.problem(
                    format!("{at}.devicePlugin"),
                    "settings of the device plugin",
                    "none while owner is DRA",
                );
            }
            if runtime_class.is_some() {
                let expected =
                    "none while owner is DRA: the DRA driver injects devices through CDI";
                checker.problem(format!("{at}.runtimeClassName"), "a RuntimeClass", expected);
            }
            dra_part(checker, at, driver_root, dra.as_ref(), layout.is_some())
        }
    };
    part.layout = layout;
    part.accept_unknown_driver = *accept_unknown_driver;
    part
}

fn device_plugin_part(
    checker: &mut Checker,
    at: &str,
    driver_root: HostPath,
    runtime_class: Option<String>,
    raw: Option<&DevicePlugin>,
    layout: Option<&Layout>,
) -> VendorPart {
    let defaults = DevicePlugin::default();
    let DevicePlugin {
        mig_strategy,
        device_list_strategy,
        device_id_strategy,
        fail_on_init_error,
        compat_with_cpu_manager,
        time_slicing,
        mps,
        config,
    } = raw.unwrap_or(&defaults);
    let at_plugin = format!("{at}.devicePlugin");
    let mig_strategy = match mig_strategy {
        MigStrategy::None => intent::MigStrategy::None,
        MigStrategy::Single => intent::MigStrategy::Single,
        MigStrategy::Mixed => intent::MigStrategy::Mixed,
    };
    check_mig(checker, at, mig_strategy, layout);
    if device_list_strategy.is_empty() {
        checker.problem(
            format!("{at_plugin}.deviceListStrategy"),
            "no strategy",
            "at least one",
        );
    }
    let given = [
        ("timeSlicing", time_slicing.is_some()),
        ("mps", mps.is_some()),
        ("config", config.is_some()),
    ];
    let given: Vec<&str> = given
        .into_iter()
        .filter_map(|(name, given)| given.then_some(name))
        .collect();
    if given.len() > 1 {
        checker.problem(
            &at_plugin,
            given.join(" and "),
            "one of timeSlicing, mps and config: the plugin honours one sharing configuration",
        );
    }
    let config = if let Some(raw) = time_slicing {
        parse_time_slicing(
            checker,
            &format!("{at_plugin}.timeSlicing"),
            raw,
            mig_strategy,
        )
    } else if let Some(Mps {
        rename_by_default,
        replicas,
    }) = mps
    {
        if mig_strategy != intent::MigStrategy::None {
            checker.problem(
                format!("{at_plugin}.mps"),
                "MPS with MIG",
                "migStrategy: None, or no mps: the plugin refuses MPS on MIG devices",
            );
        }
        let replicas = checker.count(
            &format!("{at_plugin}.mps.replicas"),
            *replicas,
            2,
            MAX_REPLICAS,
        );
        PluginConfig::Mps {
            rename: *rename_by_default,
            replicas,
        }
    } else if let Some(ConfigRef { name, key }) = config {
        PluginConfig::User {
            config_map: checker.dns_subdomain(&format!("{at_plugin}.config.name"), name),
            key: checker.config_map_key(&format!("{at_plugin}.config.key"), key),
        }
    } else {
        PluginConfig::None
    };
    let (sharing, config_map, mps) = match &config {
        PluginConfig::None => (Sharing::Exclusive, None, false),
        PluginConfig::TimeSlicing {
            rename,
            fail_requests_greater_than_one: _,
            replicas,
        } => (
            Sharing::TimeSlicing {
                rename: *rename,
                replicas: replicas.clone(),
            },
            None,
            false,
        ),
        PluginConfig::Mps { rename, replicas } => {
            let replicas = BTreeMap::from([(GPU_RESOURCE.to_owned(), *replicas)]);
            (
                Sharing::Mps {
                    rename: *rename,
                    replicas,
                },
                None,
                true,
            )
        }
        PluginConfig::User { config_map, key } => (
            Sharing::UserConfig,
            Some((config_map.clone(), key.clone())),
            false,
        ),
    };
    VendorPart {
        operand: Operand::NvidiaDevicePlugin(NvidiaDevicePlugin {
            driver_root,
            runtime_class: runtime_class.clone(),
            mig_strategy,
            device_list_strategy: device_list_strategy.clone(),
            device_id_strategy: *device_id_strategy,
            fail_on_init_error: *fail_on_init_error,
            compat_with_cpu_manager: *compat_with_cpu_manager,
            config,
        }),
        sharing,
        mig_strategy: Some(mig_strategy),
        layout: None,
        runtime_class,
        config_map,
        mps,
        accept_unknown_driver: false,
        dra: DraTraits::default(),
    }
}

fn check_mig(
    checker: &mut Checker,
    at: &str,
    strategy: intent::MigStrategy,
    layout: Option<&Layout>,
) {
    let Some(Layout::Mig(layouts)) = layout else {
        return;
    };
    match strategy {
        intent::MigStrategy::None => {
            let expected = "none with migStrategy None: instances would be made that nobody hands out; set Single or Mixed";
            checker.problem(format!("{at}.mig"), "MIG layouts", expected);
        }
        intent::MigStrategy::Single => {
            let profiles: BTreeSet<&str> = layouts
                .iter()
                .flat_map(|layout| &layout.instances)
                .map(|instance| instance.profile.as_str())
                .collect();
            if profiles.len() > 1 {
                let found = profiles.into_iter().collect::<Vec<_>>().join(", ");
                checker.problem(
                    format!("{at}.mig.layouts"),
                    found,
                    "one and the same profile everywhere with migStrategy Single; or Mixed",
                );
            }
        }
        intent::MigStrategy::Mixed => {}
    }
}

fn parse_time_slicing(
    checker: &mut Checker,
    at: &str,
    raw: &TimeSlicing,
    strategy: intent::MigStrategy,
) -> PluginConfig {
    let TimeSlicing {
        rename_by_default,
        fail_requests_greater_than_one,
        resources,
    } = raw;
    if resources.is_empty() {
        checker.problem(format!("{at}.resources"), "no resource", "at least one");
    }
    checker.unique(
        &format!("{at}.resources"),
        resources.iter().map(|resource| resource.name.as_str()),
    );
    let mut by_name = BTreeMap::new();
    for SharedResource { name, replicas } in resources {
        let field = format!("{at}.resources[{name}]");
        let profile = name.strip_prefix("nvidia.com/mig-");
        if name != GPU_RESOURCE
            && !profile.is_some_and(|profile| profile.starts_with(|c: char| c.is_ascii_digit()))
        {
            let expected = "nvidia.com/gpu or nvidia.com/mig-<profile>, as the plugin advertises it before renaming";
            checker.problem(format!("{field}.name"), quoted(name), expected);
        } else if profile.is_some() && strategy != intent::MigStrategy::Mixed {
            let expected =
                "nvidia.com/gpu: only migStrategy Mixed advertises nvidia.com/mig-<profile>";
            checker.problem(format!("{field}.name"), quoted(name), expected);
        }
        by_name.insert(
            name.clone(),
            checker.count(&format!("{field}.replicas"), *replicas, 2, MAX_REPLICAS),
        );
    }
    PluginConfig::TimeSlicing {
        rename: *rename_by_default,
        fail_requests_greater_than_one: *fail_requests_greater_than_one,
        replicas: by_name,
    }
}

fn dra_part(
    checker: &mut Checker,
    at: &str,
    driver_root: HostPath,
    raw: Option<&Dra>,
    has_layout: bool,
) -> VendorPart {
    let defaults = Dra::default();
    // The class that carries the name is shared by all cohorts, so the class itself is decided over all of them.
    let Dra {
        extended_resource_name,
        feature_gates,
    } = raw.unwrap_or(&defaults);
    let field = format!("{at}.dra.featureGates");
    let on = |gate: &str| feature_gates.get(gate).copied().unwrap_or_default();
    for gate in feature_gates
        .keys()
        .filter(|gate| !GATES.contains(&gate.as_str()))
    {
        checker.problem(&field, quoted(gate), format!("one of {}", GATES.join(", ")));
    }
    for (one, other) in GATE_CONFLICTS
        .into_iter()
        .filter(|(one, other)| on(one) && on(other))
    {
        checker.problem(
            &field,
            format!("{one} and {other}"),
            "at most one of them: they exclude each other",
        );
    }
    if on("DeviceMetadata") && !on("PassthroughSupport") {
        checker.problem(
            &field,
            "DeviceMetadata",
            "PassthroughSupport as well: the driver refuses to start without it",
        );
    }
    if on("DynamicMIG") && has_layout {
        let expected = "either mig.layouts or DynamicMIG: the driver would destroy the instances that the layout makes";
        checker.problem(&field, "DynamicMIG with mig.layouts", expected);
    }
    VendorPart {
        operand: Operand::NvidiaDra(NvidiaDra {
            driver_root,
            feature_gates: feature_gates.clone(),
        }),
        sharing: Sharing::Exclusive,
        mig_strategy: None,
        layout: None,
        runtime_class: None,
        config_map: None,
        mps: false,
        accept_unknown_driver: false,
        dra: DraTraits {
            open_device_list: on("DynamicMIG") || on("PassthroughSupport"),
            publishes_extended_resource: *extended_resource_name == ExtendedResourceName::Publish,
        },
    }
}

fn mig_layout(checker: &mut Checker, at: &str, raw: &crate::MigLayout) -> MigLayout {
    let crate::MigLayout { gpus, instances } = raw;
    if instances.is_empty() {
        checker.problem(
            format!("{at}.instances"),
            "no profile",
            "at least one; to leave MIG off, name no layout for the GPU",
        );
    }
    let instances = instances
        .iter()
        .map(|(profile, count)| {
            let field = format!("{at}.instances[{profile}]");
            if profile.len() > MAX_PROFILE || profile.parse::<Request>().is_err() {
                checker.problem(
                    &field,
                    quoted(profile),
                    "a MIG profile as the driver prints it, e.g. 1g.10gb or 1g.10gb+me, or its share of the board, e.g. 1g.1/8 or 3g.1/2+me",
                );
            }
            checker.count(&field, *count, 1, MAX_INSTANCES);
            MigProfileCount {
                profile: profile.clone(),
                count: *count,
            }
        })
        .collect();
    MigLayout {
        gpus: gpu_minors(checker, &format!("{at}.gpus"), gpus),
        instances,
    }
}

/// `All` or minor numbers.
fn gpu_minors(checker: &mut Checker, field: &str, text: &str) -> Option<BTreeSet<u32>> {
    if text == "All" {
        return None;
    }
    let minor = |part: &str| {
        part.parse()
            .ok()
            .filter(|_| part.chars().all(|c| c.is_ascii_digit()))
    };
    let minors: Option<BTreeSet<u32>> = text.split(',').map(minor).collect();
    if minors.is_none() {
        checker.problem(
            field,
            quoted(text),
            "All, or GPU minor numbers separated by commas, e.g. 0,1,6",
        );
    }
    Some(minors.unwrap_or_default())
}
