//! The state that survives a bridge: how it is restored at the start, and the checkpointer that saves it once a
//! second.

pub(super) mod checkpointer;
pub(super) mod restore;
