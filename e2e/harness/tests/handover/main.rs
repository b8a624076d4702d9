//! Handovers, end to end, each under a monitor that checks the invariants in every state from the start to the end.

mod crashes;
mod interlock;
mod leaders;
mod planted;
mod rig;
mod stage;
mod weather;
mod whole;
