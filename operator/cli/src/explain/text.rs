//! The explanation for people.

use freehold_api::VendorSpec;
use freehold_core::geometry;
use freehold_core::report::{LayoutReport, NodeReport, Shaping, ShapingOutcome, VendorReport};
use freehold_core::vendor::{Owner, Vendor};

use super::Explanation;
use super::evidence::{Evidence, NodeEvidence};
use super::story::Story;
use crate::age;
use crate::exit::Exit;
use crate::output::Look;
use crate::seen::{OurPod, Pool};

/// Width of the column of labels.
const LABEL: usize = 12;

pub(super) fn render(explanation: &Explanation, look: Look) -> String {
    let style = look.style;
    let mut page = Page {
        out: String::new(),
        look,
    };
    let sentence = &explanation.sentence;
    page.line(&match explanation.exit {
        Exit::Fine => style.good(sentence),
        Exit::Waiting | Exit::Undetermined => style.waiting(sentence),
        Exit::Findings | Exit::Usage | Exit::TimedOut | Exit::Interrupted => style.bad(sentence),
    });
    for note in &explanation.notes {
        page.line(note);
    }
    for story in &explanation.stories {
        page.heading(story.place.vendor.name());
        tell(&mut page, story, explanation);
    }
    page.heading("Evidence");
    show(&mut page, &explanation.evidence, explanation);
    page.out
}

struct Page {
    out: String,
    look: Look,
}

impl Page {
    fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn heading(&mut self, text: &str) {
        let text = self.look.style.bold(text);
        self.line("");
        self.line(&text);
    }

    fn field(&mut self, label: &str, value: &str) {
        self.line(&format!("  {label:<LABEL$} {value}"));
    }

    /// Several values under one label.
    fn fields(&mut self, label: &str, values: impl IntoIterator<Item = String>) {
        let mut label = label;
        for value in values {
            self.field(label, &value);
            label = "";
        }
    }
}

fn tell(page: &mut Page, story: &Story, explanation: &Explanation) {
    let place = &story.place;
    let now = place.owner.map_or("nobody", Owner::name);
    let owner = match (&place.cohort, story.wanted) {
        (Some(cohort), Some(wanted)) => format!("{now} now, {wanted} wanted by cohort {cohort}"),
        (Some(cohort), None) => {
            format!("{now} now, nobody wanted (cohort {cohort} is no longer there)")
        }
        (None, _) => format!("{now} now, nobody wanted"),
    };
    page.field("Owner", &owner);
    let since = place.since.map_or_else(String::new, |since| {
        format!(", for {}", age::since(since, explanation.now))
    });
    page.field(
        "Step",
        &place.step.map_or_else(
            || format!("not known{since}"),
            |step| format!("{step:?}{since}"),
        ),
    );
    if let (Some(reason), Some(id)) = (place.reason, place.id) {
        let why = format!("{} {reason:?} ({id})", place.health.glyph());
        let message = place.message.as_deref().unwrap_or_default();
        page.field(
            "Reason",
            &format!("{}: {message}", place.health.paint(page.look.style, &why)),
        );
    }
    page.fields("In the way", story.consumers.iter().cloned());
    page.field("By itself", story.by_itself);
    page.fields("By hand", story.by_hand.iter().cloned());
    page.fields("More", place.docs.iter().cloned());
}

fn show(page: &mut Page, evidence: &Evidence, explanation: &Explanation) {
    let mut unreadable = Vec::new();
    match &evidence.node {
        Ok(Some(node)) => show_node(page, node),
        Ok(None) => page.field("Node", "there is none"),
        Err(why) => unreadable.push(format!("Node: {why}")),
    }
    for vendor in Vendor::ALL {
        if let Some(order) = evidence.orders.get(vendor.key()) {
            page.field("Order", &ordered(vendor, order));
        }
    }
    match &evidence.report {
        None if evidence.orders.is_empty() => {}
        None => page.field("Report", "the agent has not reported yet"),
        Some(report) => show_report(page, report, evidence),
    }
    match &evidence.our_pods {
        Ok(pods) if pods.is_empty() => page.field("Our pods", "none on this node"),
        Ok(pods) => page.fields("Our pods", pods.iter().map(our_pod)),
        Err(why) => unreadable.push(format!("pods: {why}")),
    }
    match &evidence.pools {
        Ok(pools) if pools.is_empty() => page.field("Slices", "none for this node"),
        Ok(pools) => page.fields("Slices", pools.iter().map(pool)),
        Err(why) => unreadable.push(format!("ResourceSlices: {why}")),
    }
    match &evidence.consumers {
        Ok(consumers) if consumers.is_empty() => page.field("Consumers", "none"),
        Ok(consumers) => page.fields(
            "Consumers",
            consumers.iter().map(|consumer| {
                let set = consumer
                    .daemon_set
                    .as_ref()
                    .map_or_else(String::new, |set| {
                        format!(", brought back by DaemonSet {set}")
                    });
                let ending = if consumer.ending { ", ending" } else { "" };
                format!(
                    "{} {} ({}{ending}{set})",
                    consumer.vendor,
                    consumer.name,
                    singular(consumer.how)
                )
            }),
        ),
        Err(why) => unreadable.push(format!("consumers: {why}")),
    }
    match &evidence.events {
        Ok(events) if events.is_empty() => page.field("Events", "none of late"),
        Ok(events) => page.fields(
            "Events",
            events.iter().map(|event| {
                let age = event
                    .last_seen
                    .map_or_else(|| "?".to_owned(), |seen| age::since(seen, explanation.now));
                format!("{age} ago {} {}: {}", event.type_, event.reason, event.note)
            }),
        ),
        Err(why) => unreadable.push(format!("events: {why}")),
    }
    page.fields("Unreadable", unreadable);
}

/// `pods with …` → `pod with …`.
fn singular(how: &str) -> String {
    how.replacen("pods ", "pod ", 1)
        .replacen("claims ", "claim ", 1)
}

fn show_node(page: &mut Page, node: &NodeEvidence) {
    let ready = if node.ready { "Ready" } else { "not Ready" };
    page.field(
        "Node",
        &format!("{ready}, kubelet {}", or_dash(&node.kubelet_version)),
    );
    let prefix = freehold_core::names::NODE_LABEL_PREFIX;
    let labels: Vec<String> = node
        .our_labels
        .iter()
        .map(|(key, value)| format!("{}={value}", key.strip_prefix(prefix).unwrap_or(key)))
        .collect();
    page.field("Our labels", &or_none(&labels));
    page.field("Taints", &or_none(&node.taints));
    let allocatable: Vec<String> = node
        .allocatable
        .iter()
        .map(|(resource, count)| format!("{resource}={count}"))
        .collect();
    page.field("Allocatable", &or_none(&allocatable));
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

fn or_none(items: &[String]) -> String {
    if items.is_empty() {
        "none".to_owned()
    } else {
        items.join(", ")
    }
}

fn ordered(vendor: Vendor, order: &VendorSpec) -> String {
    let owner = order.owner.map_or_else(
        || "no owner word".to_owned(),
        |owner| format!("owner word {owner}"),
    );
    let cohort = order.cohort.as_ref().map_or_else(
        || "no cohort".to_owned(),
        |cohort| format!("cohort {cohort}"),
    );
    let layout = if order.layout.is_some() {
        ", a layout"
    } else {
        ""
    };
    format!("{vendor}: term {}, {cohort}, {owner}{layout}", order.term)
}

fn show_report(page: &mut Page, report: &NodeReport, evidence: &Evidence) {
    let mut void = String::new();
    if let Ok(Some(node)) = &evidence.node {
        if node.uid != report.node_uid {
            void = format!(", void: it is about Node UID {}", report.node_uid);
        } else if !node.boot_id.is_empty() && node.boot_id != report.boot_id {
            void = ", void: it was made before the host restarted".to_owned();
        }
    }
    page.field(
        "Report",
        &format!("by agent {}{void}", or_dash(&report.agent_version)),
    );
    for vendor in Vendor::ALL {
        if let Some(part) = report.vendor(vendor) {
            let order = evidence.orders.get(vendor.key());
            page.fields("", statements(vendor, part, order));
        }
    }
    page.fields("Host errors", report.errors.iter().cloned());
}

fn statements(vendor: Vendor, part: &VendorReport, order: Option<&VendorSpec>) -> Vec<String> {
    let inventory = &part.inventory;
    let models: Vec<String> = inventory
        .models
        .iter()
        .map(|model| {
            let memory = model
                .memory_mib
                .map_or_else(String::new, |memory| format!(" ({memory} MiB)"));
            format!("{} × {}{memory}", model.count, model.name)
        })
        .collect();
    let models = if models.is_empty() {
        format!("{} devices", inventory.devices)
    } else {
        models.join(", ")
    };
    let driver = match inventory.driver_version.as_deref() {
        None => "no driver".to_owned(),
        Some("") => "driver of unknown version".to_owned(),
        Some(version) => format!("driver {version}"),
    };
    let cores = match (inventory.physical_cores, inventory.logical_cores) {
        (Some(physical), Some(logical)) => {
            format!(", {logical} logical of {physical} physical cores")
        }
        (Some(cores), None) | (None, Some(cores)) => format!(", {cores} cores"),
        (None, None) => String::new(),
    };
    let host = part
        .instance_type
        .as_ref()
        .map_or_else(String::new, |instance| format!(", {instance}"));
    let answer = match order {
        Some(order) if order.term != part.observed_term => {
            format!(
                "answers term {}, term {} is asked for",
                part.observed_term, order.term
            )
        }
        Some(_) | None => format!("answers term {}", part.observed_term),
    };
    let word = part.word.map_or_else(
        || "no owner word".to_owned(),
        |word| format!("owner word {word} (term {})", part.word_term),
    );
    let traces = traces(part);
    let mut statements = vec![
        format!("{vendor}: {answer}"),
        format!(
            "{vendor}: {models}, {driver}, {} on the PCI bus{cores}{host}",
            part.pci_devices
        ),
        format!("{vendor}: {}", in_use(part)),
        format!("{vendor}: {}", [vec![word], traces].concat().join(", ")),
    ];
    let said = [layout(&part.layout), shaper(&part.layout)];
    let geometry = said.into_iter().flatten().chain(boards(&part.layout));
    statements.extend(geometry.map(|statement| format!("{vendor}: {statement}")));
    statements
}

/// What owners show of themselves on the host. That of the owner in force is reported with the next answer only, so that its
/// absence from a report says nothing.
fn traces(part: &VendorReport) -> Vec<String> {
    let mut traces = Vec::new();
    if !part.plugin_sockets.is_empty() {
        traces.push(format!("plugin sockets {}", part.plugin_sockets.join(", ")));
    } else if part.word != Some(Owner::DevicePlugin) {
        traces.push("no plugin socket".to_owned());
    }
    if part.dra_registered {
        traces.push("DRA driver registered".to_owned());
    } else if part.word != Some(Owner::Dra) {
        traces.push("no DRA driver registered".to_owned());
    }
    traces
}

fn in_use(part: &VendorReport) -> String {
    let in_use = &part.in_use;
    if in_use.is_idle() {
        return "nothing in use on the host".to_owned();
    }
    let mut parts = Vec::new();
    if in_use.device_plugin > 0 {
        parts.push(format!(
            "{} held through the device plugin",
            in_use.device_plugin
        ));
    }
    if in_use.dra > 0 {
        parts.push(format!("{} prepared by the DRA driver", in_use.dra));
    }
    if in_use.unknown {
        parts.push("not everything could be read, so nothing is attested".to_owned());
    }
    let holders = if in_use.holders.is_empty() {
        String::new()
    } else {
        format!(": {}", in_use.holders.join(", "))
    };
    format!("{}{holders}", parts.join(", "))
}

fn layout(layout: &LayoutReport) -> Option<String> {
    let mut parts = Vec::new();
    if layout.mig_enabled_gpus > 0 {
        parts.push(format!("MIG on for {} GPUs", layout.mig_enabled_gpus));
    }
    for (gpu, instances) in &layout.mig {
        let instances: Vec<String> = instances
            .iter()
            .map(|i| format!("{} × {}", i.count, i.profile))
            .collect();
        parts.push(format!("GPU {gpu}: {}", instances.join(", ")));
    }
    if let Some(value) = layout.logical_neuron_core {
        parts.push(format!("Logical NeuronCore setting {value}"));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn shaper(layout: &LayoutReport) -> Option<String> {
    let Shaping { outcome, message } = layout.shaping.as_ref()?;
    let what = match outcome {
        ShapingOutcome::Idle => "no layout is ordered",
        ShapingOutcome::InForce => "the ordered layout is in force",
        ShapingOutcome::Working => "the ordered layout is being made",
        ShapingOutcome::Busy => "the geometry differs, and somebody holds the devices",
        ShapingOutcome::Infeasible => "the board cannot have the ordered layout",
        ShapingOutcome::ResetRequired => "a change of MIG mode waits for a reset of the GPU",
        ShapingOutcome::RebootRequired => "a change of MIG mode waits for a restart of the host",
        ShapingOutcome::Failed => "the ordered layout could not be made",
    };
    let message = message
        .as_ref()
        .map(|message| format!(": {message}"))
        .unwrap_or_default();
    Some(format!("shaper: {what}{message}"))
}

fn boards(layout: &LayoutReport) -> impl Iterator<Item = String> + '_ {
    layout.boards.iter().map(|board| {
        let gpus: Vec<String> = board.gpus.iter().map(ToString::to_string).collect();
        format!(
            "GPU {} can carry {}",
            gpus.join(", "),
            geometry::offered(&board.profiles)
        )
    })
}

fn our_pod(pod: &OurPod) -> String {
    let what = pod.operand.as_ref().map_or_else(
        || "agent".to_owned(),
        |operand| {
            format!(
                "{} {} of cohort {}",
                operand.vendor, operand.owner, operand.cohort
            )
        },
    );
    let ready = if pod.ready { "ready" } else { "not ready" };
    let ending = if pod.ending { ", ending" } else { "" };
    format!("{} ({what}): {}, {ready}{ending}", pod.name, pod.state)
}

fn pool(pool: &Pool) -> String {
    let complete = if pool.complete {
        "complete"
    } else {
        "incomplete"
    };
    format!(
        "{} of driver {}, generation {} {complete} with {} devices",
        pool.slices,
        pool.vendor.dra_driver(),
        pool.generation,
        pool.devices
    )
}
