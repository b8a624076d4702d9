//! Every decision Freehold takes, as pure functions.
//!
//! Nothing here knows Kubernetes clients, clocks or files: facts and `now` come in, decisions go out. A decision that
//! seems to need a mock is in the wrong crate. The modules, in the order a node meets them:
//!
//! | module | question |
//! |---|---|
//! | [`vendor`], [`names`] | the words: who can own what, and how names are bounded |
//! | [`intent`] | what the administrator wants, validated once |
//! | [`report`] | what a node's agent says about its host |
//! | [`catalogue`] | what is known about operands, instance types, exclusions and version floors |
//! | [`assign`] | which cohort, if any, a node belongs to for a vendor |
//! | [`geometry`] | which MIG instances fit a board, and where each one goes |
//! | [`expect`] | what the owner must advertise, given the inventory and the layout |
//! | [`tenure`] | the ownership protocol: facts to at most one guarded write |
//! | [`rollout`] | which nodes may start a change now |
//! | [`blocker`] | why a step cannot go on, and what a person does next |
//! | [`summary`] | conditions and counts for a whole cluster |
#![forbid(unsafe_code)]

pub mod assign;
pub mod blocker;
pub mod catalogue;
pub mod expect;
pub mod geometry;
pub mod intent;
pub mod names;
pub mod report;
pub mod rollout;
pub mod summary;
pub mod tenure;
pub mod vendor;
