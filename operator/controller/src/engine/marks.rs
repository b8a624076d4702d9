//! Changes of our marks that others made.

use freehold_core::tenure::{Contended, Contention, Write};
use freehold_core::vendor::{PerVendor, Vendor};
use jiff::Timestamp;

use super::Engine;
use super::nodes::alias_act;
use crate::observe::entry::NodeEntry;
use crate::observe::marks::Marks;

/// What is remembered about a node's marks.
#[derive(Default)]
pub(super) struct MarksState {
    /// As they will be when the last write has landed, which its answer need not tell.
    foreseen: Option<Marks>,
    contention: PerVendor<Option<Contention>>,
}

impl Engine {
    /// The alias label's key.
    pub(super) fn owner_alias(&self) -> Option<String> {
        self.wanted
            .as_ref()
            .and_then(|wanted| wanted.intent.owner_alias.clone())
    }

    /// Notes what a write will leave on the node.
    pub(super) fn foresee(
        &mut self,
        node: &NodeEntry,
        vendor: Vendor,
        write: &Write,
        alias: Option<&str>,
    ) {
        let Write::Node(write) = write else { return };
        let foreseen = Marks::after(node, vendor, write, alias);
        let state = self.nodes.entry(node.view.name.clone()).or_default();
        state.marks.foreseen = Some(foreseen);
    }

    /// Tells our own changes of marks from those of others. A replica that does not act cannot, and need not.
    pub(super) fn judge_marks(&mut self) {
        let changed = std::mem::take(&mut self.world.dirty.marks);
        if changed.is_empty() || !self.acts() {
            return;
        }
        let alias = self.owner_alias();
        let now_s = Timestamp::now().as_second();
        for (name, before, after) in changed {
            let (old, new) = (
                Marks::of(&before, alias.as_deref()),
                Marks::of(&after, alias.as_deref()),
            );
            let state = self.nodes.entry(name.clone()).or_default();
            if old == new || state.marks.foreseen.take_if(|seen| *seen == new).is_some() {
                continue;
            }
            let changes = new.foreign_changes(&old, &after, alias.as_deref());
            for vendor in Vendor::ALL {
                if let Some(change) = changes.get(vendor).clone() {
                    tracing::warn!(
                        node = name,
                        vendor = vendor.key(),
                        ?change,
                        "somebody else changed a mark"
                    );
                    let contention = state.marks.contention.get_mut(vendor);
                    *contention = Some(Contention::with(contention.take(), change, now_s));
                }
            }
        }
    }

    /// The pause that others' changes of our marks call for, if it is not over.
    pub(super) fn contended(&self, entry: &NodeEntry, vendor: Vendor) -> Option<Contended> {
        let state = self.nodes.get(&entry.view.name)?;
        let contention = state.marks.contention.get(vendor).as_ref()?;
        let mut contended = contention.contended(Timestamp::now().as_second())?;
        // No decision of core's misses the alias.
        let alias = alias_act(entry, self.owner_alias().as_ref());
        contended.steady |= alias.is_some_and(|(of, _)| of == vendor);
        Some(contended)
    }
}
