//! Those who receive what the bridge delivers, each writing a [ledger](tidings_testkit::ledger), beside those of the
//! test kit: a reader of what the Collector exports to its file, and a webhook that checks signatures.

mod collector;
mod webhook;

pub(crate) use collector::CollectorReceiver;
pub(crate) use webhook::{Mode, SECRET, WebhookReceiver};
