//! The recorder, from a call to the sink, through public doors. Time is paused, so that waits cost
//! nothing and can be told to the millisecond.

mod api_server;
mod conservation;
mod flush;
mod panics;
mod queues;
mod shutdown;
pub(crate) mod support;
mod watchers;
mod writing;
