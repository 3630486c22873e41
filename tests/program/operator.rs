//! What an operator does beside a bridge: `tidings status`, `dead-letters` and `replay`, as commands in
//! processes of their own, over the control socket or on the journal of a bridge that is stopped.

use crate::support;

mod commands;
mod dead_letters;
mod files;
mod planted;
mod process;
mod proxies;
mod replay;
mod socket;
mod stage;
mod status;
mod stdout;
mod usage;
