//! Shaping: the node's geometry made what was ordered.

pub mod engine;
