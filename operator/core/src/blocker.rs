//! Why a node is not (yet) what its cohort wants: a closed list of reasons, each with an ID, a kind and the next human step.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a reason counts in a cohort's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Not ours to own: listed, never an error.
    Excluded,
    /// Time or workloads will resolve it.
    Waiting,
    /// A person must act.
    Blocked,
    /// Two parties claim the node.
    Conflicted,
}

impl Kind {
    /// As it is printed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Excluded => "Excluded",
            Self::Waiting => "Waiting",
            Self::Blocked => "Blocked",
            Self::Conflicted => "Conflicted",
        }
    }
}

/// Everything about a reason is said once, here: a new reason cannot lack its ID, kind or next step.
macro_rules! reasons {
    ($( $(#[doc = $doc:literal])* $name:ident $id:literal $kind:ident $next:literal )*) => {
        /// A named reason. CamelCase in the API; the ID never changes its meaning and is never used again.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum Reason {
            $( $(#[doc = $doc])* $name, )*
        }

        impl Reason {
            /// All of them, in the order of the table.
            pub const ALL: &[Self] = &[$( Self::$name, )*];

            /// The form used in the API, in conditions and as a metric label.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => stringify!($name), )* }
            }

            /// Stable ID, for people who search and for documents that outlive a name.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self { $( Self::$name => $id, )* }
            }

            /// What it means, in a sentence or two.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $( Self::$name => concat!($($doc),*).trim(), )* }
            }

            /// How it counts.
            #[must_use]
            pub const fn kind(self) -> Kind {
                match self { $( Self::$name => Kind::$kind, )* }
            }

            /// What a person does next; one to three sentences, at most 512 characters.
            #[must_use]
            pub const fn next_step(self) -> &'static str {
                match self { $( Self::$name => $next, )* }
            }
        }
    };
}

reasons! {
    // 1xx: not ours to own.
    /// The provider hands out this node's devices itself, or no pod can be placed there (EKS Auto Mode, Fargate, …).
    ExcludedByProvider "FH101" Excluded
        "Nothing, if that is what you want. To keep the list clean, exclude such nodes in the cohort's nodeSelector (for example eks.amazonaws.com/compute-type NotIn [auto]). If Freehold owns the node already, it keeps it: take the node out of the cohort to have it released in order, or correct the label."
    /// The node matches a cohort, but its host has no device of the vendor.
    NoHardware "FH102" Excluded
        "Nothing, if the node has no such devices. If it should have some, look on the host (lspci -d 10de: for NVIDIA, lspci -d 1d0f: for Neuron): a device missing there is a matter of hardware or of the instance type. If none is wrong, narrow the cohort's nodeSelector."

    // 2xx: what a node or cluster must have first.
    /// Devices are on the PCI bus, but no driver serves them.
    DriverMissing "FH201" Blocked
        "Install or load the vendor's kernel driver on the host (check with: lsmod | grep -E 'nvidia|neuron', and nvidia-smi or neuron-ls). With a containerised driver, set nvidia.driverRoot. The node goes on by itself once the agent sees the driver."
    /// The driver is older than the owner needs.
    DriverTooOld "FH202" Blocked
        "Upgrade the vendor's driver on this host, or put the node into a cohort with owner DevicePlugin, which needs less."
    /// A version that a floor is held against cannot be read.
    VersionUnknown "FH203" Blocked
        "Find out why the version cannot be read: cat /proc/driver/nvidia/version or /sys/module/neuron/version on the host, kubectl get node -o wide for the kubelet. If you know that an NVIDIA driver is new enough, set nvidia.acceptUnknownDriver: true in the cohort."
    /// The node's kubelet is older than the owner needs.
    KubeletTooOld "FH204" Blocked
        "Upgrade the kubelet of this node (a newer node image), or put the node into a cohort with owner DevicePlugin."
    /// The API server is older than the owner needs.
    ControlPlaneTooOld "FH205" Blocked
        "Upgrade the control plane, or set owner: DevicePlugin (or nvidia.dra.extendedResourceName: Omit, if that is what the message names) in the cohort until then."
    /// `resource.k8s.io/v1` is not served.
    DraApiUnavailable "FH206" Blocked
        "Check with: kubectl api-resources --api-group=resource.k8s.io. Freehold needs version v1 (Kubernetes 1.34; it can be switched off with --runtime-config). Cohorts with owner DevicePlugin are not affected; the others go on by themselves once v1 is served."
    /// A taint keeps the operand away.
    UntoleratedTaint "FH207" Blocked
        "Add a toleration for the taint to the cohort (spec.cohorts[].tolerations), or remove the taint: kubectl taint node <node> <key>-"
    /// The RuntimeClass that the operand needs does not exist.
    RuntimeClassMissing "FH208" Blocked
        "Create the RuntimeClass (kubectl get runtimeclass) with a handler that containerd or CRI-O knows on these hosts, or change nvidia.runtimeClassName in the cohort."
    /// The ConfigMap, or its key, that the cohort names does not exist.
    ConfigNotFound "FH209" Blocked
        "Create the ConfigMap with this key in namespace freehold-operands, or correct nvidia.devicePlugin.config in the cohort. The running plugins keep their configuration until then."
    /// `nvidia.com/mps.capable=true` on a node whose cohort did not ask for MPS.
    UnexpectedMps "FH210" Blocked
        "Find out who runs MPS here before you remove the label: kubectl get pods -A --field-selector spec.nodeName=<node> | grep -i mps. To have Freehold run MPS, set nvidia.devicePlugin.mps in the cohort; if nobody uses MPS: kubectl label node <node> nvidia.com/mps.capable-"
    /// No report from the node's agent, or one that is void.
    AgentSilent "FH211" Waiting
        "If it stays: kubectl -n freehold-operands get pods -l freehold.dev/component=agent -o wide --field-selector spec.nodeName=<node>, then the logs of that pod. No pod at all means that the node takes none (kubectl describe node <node>)."
    /// The agent could not read a record, so it cannot attest.
    AttestationUnknown "FH212" Blocked
        "See what could not be read: kubectl get acceleratornode <node> -o jsonpath='{.status.report.errors}'. Usually the kubelet's root directory is another one (kubeletRootDir in the cohort) or a record is damaged; a restart of the kubelet writes it anew."
    /// The node is not Ready (kubelet silent).
    NodeNotReady "FH213" Waiting
        "Bring the node back (kubectl describe node <node>), or delete the Node object if the machine is gone for good. Freehold keeps everything as it is meanwhile."
    /// The node was replaced under the same name; starting over.
    NodeReplaced "FH214" Waiting
        "Nothing: the record of the old machine is replaced and the new one is taken in like any new node."
    /// The node's shaper, which makes layouts, has not said yet what it finds.
    ShaperSilent "FH215" Waiting
        "If it stays: kubectl -n freehold-operands get pods -l freehold.dev/component=shaper -o wide --field-selector spec.nodeName=<node>, then the logs of that pod. Nothing changes on the node meanwhile."

    // 3xx: two parties.
    /// Two cohorts of one vendor claim this node.
    CohortOverlap "FH301" Conflicted
        "Make the nodeSelectors disjoint, or change this node's labels, so that one cohort is left: kubectl get node <node> --show-labels. Until then the node keeps what it has."
    /// Somebody else hands out, or is set up to hand out, this vendor's devices here.
    ForeignOwner "FH302" Conflicted
        "Decide who owns the node. To have Freehold own it, keep the other party away from this node (its nodeSelector, nvidia.com/gpu.deploy.* labels, or an uninstall) and let its workloads end; otherwise take the node out of the cohort. Freehold touches nothing here meanwhile."
    /// A device plugin of the host itself stays active under a DRA cohort.
    HostPluginActive "FH303" Blocked
        "Switch the device plugin of the host image off (Bottlerocket: settings.kubelet-device-plugins; managed images: choose one without a plugin), reboot or restart the kubelet, or set owner: DevicePlugin for these nodes."
    /// Two owners advertise this vendor's devices at once.
    DualAdvertisement "FH304" Conflicted
        "Treat as urgent: pods may share a device without knowing. Cordon the node, find the second advertiser (kubectl get resourceslices --field-selector spec.nodeName=<node>; kubectl get node <node> -o jsonpath='{.status.allocatable}'), and remove the one that Freehold does not run."
    /// Somebody else keeps changing our labels on this node.
    LabelContention "FH305" Conflicted
        "Stop the other writer; kubectl get node <node> --show-managed-fields -o yaml names its field manager. Freehold holds off in growing intervals and does not fight."
    /// An object with the name we need exists and is not ours.
    NameTaken "FH306" Conflicted
        "Look who made the object (kubectl get … -o yaml: ownerReferences, managedFields). Remove or rename it, or rename the cohort or size; Freehold never takes over what it did not make."

    // 4xx: consumers have to leave.
    /// Holders on the node itself.
    DevicesInUse "FH401" Waiting
        "Wait for the workloads to end. If their pods are gone from the API already, their processes are not: look on the host. Never restart or remove the operand by hand; a DRA holder needs its driver to let go."
    /// Pods or claims, as the API sees them, still use the devices.
    ConsumersRemain "FH402" Waiting
        "Wait for the workloads to end, delete them, or set rollout.drain.policy: Evict. To keep the old owner, take the change back: the node is unfenced at once."
    /// Consumers that a DaemonSet brings back; they never drain.
    DaemonSetConsumer "FH403" Blocked
        "Keep the DaemonSet off this node for the handover (its nodeSelector or a removed toleration), or delete it; its pods are made again whatever is evicted."
    /// A PodDisruptionBudget refuses an eviction.
    DisruptionBudget "FH404" Waiting
        "Scale the workload up elsewhere or relax its PodDisruptionBudget (kubectl get pdb -A). Freehold goes on asking and never deletes past a budget."
    /// A claim with a deletion timestamp that does not go.
    StuckClaim "FH405" Blocked
        "Never remove the claim's finalizer: the device would be handed out twice. Let its pod end, and see that the DRA driver's pod runs on the node that the claim is allocated from; the driver has to unprepare it. docs/runbooks/stuck-claim.md has the procedure."
    /// The drain took longer than the policy allows.
    DrainTimeout "FH406" Blocked
        "End the workloads that the message names, or raise rollout.drain.timeout. With policy Evict the node serves its old owner again until the next try, which comes after growing rests or with any change of the AcceleratorCluster; with Wait it stays fenced. To keep the old owner for good, take the change back."

    // 5xx: the old owner has to go, the new one has to come.
    /// The old operand's pod does not end.
    OperandLingers "FH501" Blocked
        "kubectl -n freehold-operands describe pod <pod>. Never force the deletion: a process that lives on would be a second owner. If the kubelet is gone for good, delete the Node object."
    /// Slices or allocatable resources of the old owner do not go.
    AdvertisementLingers "FH502" Blocked
        "If no pod of that owner runs on the node, the kubelet has not noticed: restart the kubelet. If one does, it is not Freehold's: find it with kubectl get pods -A --field-selector spec.nodeName=<node>."
    /// A socket of the old owner is still there.
    SocketLingers "FH503" Blocked
        "Something still serves the socket, or left it behind: look on the host with ss -xlp and in the directory that the message names. Remove the file only when no process serves it."
    /// The owner word on the node is not yet what was ordered.
    WordPending "FH504" Waiting
        "If it stays, something holds the node's lock: an operand that still lives, or an agent that does not run. See the agent's pod on this node and the sidecars' logs (container interlock) of operand pods."
    /// The operand's pod does not run.
    OperandNotRunning "FH505" Blocked
        "kubectl -n freehold-operands get pods -l freehold.dev/component=operand --field-selector spec.nodeName=<node>, then describe and logs. No pod at all: kubectl -n freehold-operands describe daemonset <name>. A wait in Init is the sidecar (another owner holds the lock) or the driver (not loaded)."

    // 6xx: what is advertised.
    /// What is advertised differs from inventory × layout (× replicas).
    AdvertisementMismatch "FH601" Blocked
        "Compare the two numbers in the message. Fewer than expected: a device is unhealthy (the operand's log names it). Other names: the configuration in force is not the cohort's. Changed by hand (MIG, LNC): restore it, or change the cohort."
    /// What was advertised went away though the operand runs.
    AdvertisementLost "FH602" Blocked
        "Delete the operand's pod that the message names, once: its DaemonSet makes it anew. If that does not help, restart the kubelet on the node; if that does not either, look for a driver or device fault in the host's kernel log (NVIDIA: Xid, Neuron: NEURON_HW_ERR)."

    // 7xx: geometry.
    /// The node's geometry differs from the wanted layout.
    LayoutMismatch "FH701" Blocked
        "See the layout as read back: kubectl get acceleratornode <node> -o jsonpath='{.status.report.nvidia.layout}'. Set nvidia.mig.layouts in the cohort to have Freehold make it, choose a migStrategy that can advertise what is there, or change it on the host."
    /// The wanted layout cannot be had on this hardware.
    LayoutInfeasible "FH702" Blocked
        "Choose profiles that this board has and that fit together: the message lists them, and kubectl freehold plan -f FILE draws what an edit comes to. A share (1g.1/8) means the same on every board. Nodes with other boards belong in a cohort of their own."
    /// The Logical NeuronCore setting cannot be changed on this instance type.
    LncNotConfigurable "FH703" Blocked
        "Remove neuron.logicalNeuronCore from the cohort (only Trn2 and Trn3 have the setting), or narrow the cohort's nodeSelector to trn2 and trn3 instance types."
    /// A device model whose geometry (MIG profiles, NeuronCores) is neither known nor told by the host.
    UnknownGeometry "FH704" Blocked
        "Install a driver that knows the device, so that it tells its geometry itself; Freehold does not guess. Where a layout is wanted, the logs of the node's shaper in namespace freehold-operands say what it could not read. Without a layout, and under DRA, the node can be owned as it is."
    /// A mode change is pending until the host restarts. Freehold never reboots a host.
    RebootRequired "FH705" Blocked
        "Drain and reboot the node, or reset its GPUs (nvidia-smi --gpu-reset), when it suits you. The node goes on by itself after it has come back."

    /// The node's shaper could not make the layout.
    LayoutFailed "FH706" Blocked
        "The message holds the shaper's or the driver's words; the former geometry was restored where it could be. See the logs of the node's shaper (kubectl -n freehold-operands logs -l freehold.dev/component=shaper --prefix). It tries again by itself."
    /// The ordered layout is being made, or made anew after a restart of the host.
    LayoutPending "FH707" Waiting
        "Nothing: the node's shaper is at it, and the operand starts when the layout is verified. If it stays, see the logs of that node's shaper in namespace freehold-operands."

    // 8xx: pace.
    /// Waiting for a place in the rollout budget.
    BudgetExhausted "FH801" Waiting
        "Nothing: the node's turn comes. To go faster, raise rollout.maxUnavailable (cluster-wide and in the cohort) or shorten rollout.canary.soak."
    /// The rollout is paused.
    Paused "FH802" Waiting
        "Set rollout.paused: false when handovers may start again. Those under way finish meanwhile."
    /// A mass change was held back.
    MassChange "FH803" Blocked
        "Check whether you meant it: a changed selector, or node labels that vanished. If it is meant, confirm it with the command in the message; otherwise put selector or labels back, and nothing happens."
    /// A node of the cohort failed after its change; no other one starts.
    RolloutHalted "FH804" Waiting
        "Repair the node that the message names (see its own reason), or change the cohort again; the roll goes on by itself. A node that cannot be repaired soon can be taken out of the cohort."

    // 9xx: the cluster as a whole.
    /// The installed CRD is older than this operator.
    CrdOutdated "FH901" Blocked
        "Apply the CRDs of this release: kubectl apply --server-side -f crds/. They only add to what is there."
    /// The API server refuses an object that Freehold keeps.
    ObjectRefused "FH902" Blocked
        "The message holds the API server's words. A selector that is no valid CEL, a quota or another admission policy are the usual causes; correct the field, or allow the object."
}

impl Reason {
    /// Anchor of the reason's section in the documentation.
    #[must_use]
    pub fn anchor(self) -> String {
        format!("docs/reasons.md#{}", self.id().to_ascii_lowercase())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Longest [`Blocker::message`], in characters, as the schema has it.
pub const MAX_MESSAGE: usize = 512;

/// A reason on one node (or on none, for cluster-wide ones), with what was found and what to do.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Blocker {
    /// Why.
    pub reason: Reason,
    /// The object concerned, e.g. `Pod ml/trainer-0`, with what was found and what was expected. Deterministic: no elapsed
    /// times, no counters that move by themselves. At most 512 characters.
    #[schemars(length(max = 512))]
    pub message: String,
}

impl Blocker {
    /// A blocker whose message is cut to [`MAX_MESSAGE`].
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: bounded(message.into(), MAX_MESSAGE),
        }
    }
}

/// Cuts a text to so many characters (at least one), the last of which is `…` where something was cut.
#[must_use]
pub fn bounded(mut text: String, characters: usize) -> String {
    if let Some((cut, _)) = text.char_indices().nth(characters) {
        let keep = text
            .get(..cut)
            .and_then(|kept| kept.char_indices().next_back())
            .map_or(0, |(last, _)| last);
        text.truncate(keep);
        text.push('…');
    }
    text
}

/// Cuts a text to so many bytes, between characters, and ends it with `…` where something was cut.
#[must_use]
pub fn bounded_bytes(mut text: String, bytes: usize) -> String {
    const ELLIPSIS: char = '…';
    if text.len() > bytes {
        let mut keep = bytes.saturating_sub(ELLIPSIS.len_utf8());
        while !text.is_char_boundary(keep) {
            keep -= 1;
        }
        text.truncate(keep);
        text.push(ELLIPSIS);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_are_unique_and_say_their_kind_of_trouble() {
        let ids: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.id()).collect();
        assert_eq!(ids.len(), Reason::ALL.len(), "an ID is used twice");
        for id in ids {
            let number: u32 = id
                .strip_prefix("FH")
                .and_then(|number| number.parse().ok())
                .unwrap_or(0);
            assert!((101..1000).contains(&number), "{id}");
        }
    }

    #[test]
    fn names_are_those_of_the_api() {
        for reason in Reason::ALL {
            assert_eq!(
                serde_json::to_value(reason).expect("a reason is a string"),
                reason.name()
            );
        }
    }

    #[test]
    fn every_next_step_fits_the_status_and_tells_what_to_do() {
        for reason in Reason::ALL {
            let step = reason.next_step();
            assert!(
                (20..=512).contains(&step.chars().count()),
                "{reason}: {} characters",
                step.chars().count()
            );
            assert!(
                step.ends_with(['.', '-', '>']) && !step.contains('\n'),
                "{reason}: {step}"
            );
        }
    }

    #[test]
    fn what_time_resolves_is_waiting_and_what_two_parties_claim_is_conflicted() {
        for (reason, kind) in [
            (Reason::NoHardware, Kind::Excluded),
            (Reason::ConsumersRemain, Kind::Waiting),
            (Reason::AgentSilent, Kind::Waiting),
            (Reason::DriverTooOld, Kind::Blocked),
            (Reason::StuckClaim, Kind::Blocked),
            (Reason::CohortOverlap, Kind::Conflicted),
            (Reason::ForeignOwner, Kind::Conflicted),
        ] {
            assert_eq!(reason.kind(), kind, "{reason}");
        }
    }

    #[test]
    fn a_long_message_is_cut_between_characters_and_says_so() {
        assert_eq!(bounded("äöü".into(), 3), "äöü");
        assert_eq!(bounded("äöüß".into(), 3), "äö…");
        let blocker = Blocker::new(Reason::NoHardware, "ü".repeat(2000));
        assert_eq!(blocker.message.chars().count(), MAX_MESSAGE);
    }

    proptest! {
        #[test]
        fn bounding_keeps_short_texts_and_never_exceeds_the_limit(text in "\\PC{0,40}", limit in 1usize..50) {
            let cut = bounded(text.clone(), limit);
            prop_assert!(cut.chars().count() <= limit);
            if text.chars().count() <= limit {
                prop_assert_eq!(cut, text);
            }
        }

        #[test]
        fn bounding_by_bytes_does_the_same(text in "\\PC{0,40}", limit in 3usize..80) {
            let cut = bounded_bytes(text.clone(), limit);
            prop_assert!(cut.len() <= limit);
            prop_assert_eq!(cut == text, text.len() <= limit);
        }
    }
}
