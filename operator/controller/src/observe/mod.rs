//! From the API server to facts: watches, the stores they fill, and fresh reads.

pub(crate) mod consumers;
pub(crate) mod definitions;
pub(crate) mod entry;
pub(crate) mod fresh;
pub(crate) mod marks;
pub(crate) mod reach;
pub(crate) mod slim;
pub(crate) mod store;
mod trouble;
pub(crate) mod watches;
pub(crate) mod world;
