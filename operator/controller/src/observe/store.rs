//! One kind's objects, kept in step with a watch that may start over at any time.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// What a watch says.
#[derive(Debug)]
pub(crate) enum Change<K, V> {
    /// A new list begins: what does not come again before [`Change::Synced`] is gone.
    Restarted,
    /// The object is there. `None`: it is there, but of no concern.
    Applied(K, Option<V>),
    /// The object is gone.
    Deleted(K),
    /// The list is complete.
    Synced,
}

impl<K, V> Change<K, V> {
    /// Boils the object down; `None` when it is of no concern.
    pub(crate) fn boil<W>(self, boil: impl FnOnce(V) -> Option<W>) -> Change<K, W> {
        match self {
            Self::Restarted => Change::Restarted,
            Self::Applied(key, value) => Change::Applied(key, value.and_then(boil)),
            Self::Deleted(key) => Change::Deleted(key),
            Self::Synced => Change::Synced,
        }
    }

    /// Renames the object.
    pub(crate) fn rekey<L>(self, rekey: impl FnOnce(K) -> L) -> Change<L, V> {
        match self {
            Self::Restarted => Change::Restarted,
            Self::Applied(key, value) => Change::Applied(rekey(key), value),
            Self::Deleted(key) => Change::Deleted(rekey(key)),
            Self::Synced => Change::Synced,
        }
    }
}

/// Objects by key.
#[derive(Debug)]
pub(crate) struct Store<K, V> {
    objects: HashMap<K, V>,
    /// Keys seen in the list under way.
    listing: Option<HashSet<K>>,
    synced: bool,
}

impl<K, V> Default for Store<K, V> {
    fn default() -> Self {
        Self {
            objects: HashMap::new(),
            listing: None,
            synced: false,
        }
    }
}

impl<K: Eq + Hash + Clone, V> Store<K, V> {
    /// Takes a change in; returns each key that changed, with the object that was there before.
    pub(crate) fn apply(&mut self, change: Change<K, V>) -> Vec<(K, Option<V>)> {
        match change {
            Change::Restarted => {
                self.listing = Some(HashSet::new());
                Vec::new()
            }
            Change::Applied(key, value) => {
                if let Some(listing) = &mut self.listing {
                    listing.insert(key.clone());
                }
                let previous = match value {
                    Some(value) => self.objects.insert(key.clone(), value),
                    None => match self.objects.remove(&key) {
                        None => return Vec::new(),
                        gone => gone,
                    },
                };
                vec![(key, previous)]
            }
            Change::Deleted(key) => {
                if let Some(listing) = &mut self.listing {
                    listing.remove(&key);
                }
                self.objects
                    .remove(&key)
                    .map(|gone| (key, Some(gone)))
                    .into_iter()
                    .collect()
            }
            Change::Synced => {
                self.synced = true;
                let Some(listed) = self.listing.take() else {
                    return Vec::new();
                };
                let gone: Vec<K> = self
                    .objects
                    .keys()
                    .filter(|key| !listed.contains(key))
                    .cloned()
                    .collect();
                gone.into_iter()
                    .filter_map(|key| self.objects.remove(&key).map(|old| (key, Some(old))))
                    .collect()
            }
        }
    }

    /// Whether one whole list has arrived.
    pub(crate) const fn synced(&self) -> bool {
        self.synced
    }

    /// Forgets that a list has arrived, for a watch that is about to start over with other contents.
    pub(crate) const fn unsync(&mut self) {
        self.synced = false;
    }

    /// Goes on without a list that does not come.
    pub(crate) const fn assume_synced(&mut self) {
        self.synced = true;
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.objects.get(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.objects.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Store};

    #[test]
    fn what_a_new_list_does_not_name_is_gone() {
        let mut store = Store::default();
        for change in [
            Change::Restarted,
            Change::Applied("kept", Some(1)),
            Change::Applied("lost", Some(2)),
            Change::Synced,
        ] {
            store.apply(change);
        }
        assert!(store.synced() && store.len() == 2);
        store.apply(Change::Restarted);
        store.apply(Change::Applied("kept", Some(3)));
        assert_eq!(
            store.get(&"lost"),
            Some(&2),
            "nothing is lost while the list is under way"
        );
        assert_eq!(store.apply(Change::Synced), vec![("lost", Some(2))]);
        assert_eq!(store.get(&"kept"), Some(&3));
    }

    #[test]
    fn an_object_that_stops_to_matter_leaves() {
        let mut store = Store::default();
        store.apply(Change::Applied("a", Some(1)));
        assert_eq!(
            store.apply(Change::Applied("a", None)),
            vec![("a", Some(1))]
        );
        assert!(store.apply(Change::Applied("b", None)).is_empty());
    }
}
