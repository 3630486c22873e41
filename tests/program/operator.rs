//! The program as an operator has it: a bridge in a process of its own, and `tidings status`, `dead-letters` and
//! `replay` beside it, over the control socket or on the journal of a bridge that is stopped.

use crate::support;

mod commands;
mod credentials;
mod dead_letters;
mod files;
mod planted;
mod process;
mod proxies;
mod reload;
mod replay;
mod rotation;
mod socket;
mod stage;
mod status;
mod stdout;
mod telemetry;
mod tls;
mod usage;
