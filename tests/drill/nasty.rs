//! Servers that misbehave as they are told, in ways that well-made ones cannot be brought to. Each
//! receiver keeps a [ledger](tidings_testkit::ledger) of what it has taken, also of what it took and then gave no
//! answer to.

mod access;
mod broker;
mod certificates;
mod front;
mod otlp;
mod patience;
mod webhook;

pub(crate) use access::Access;
pub(crate) use broker::{Broker, Produces};
pub(crate) use certificates::Authority;
pub(crate) use front::{Front, Way};
pub(crate) use otlp::{Collects, NastyCollector};
pub(crate) use webhook::{Manner, NastyWebhook};
