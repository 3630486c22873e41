//! End-to-end tests against the real parts: etcd, kube-apiserver, Kafka and the OpenTelemetry
//! Collector, installed by `tests/parts/install` and started here on free ports.
//!
//! `make e2e` installs the parts and runs four scenarios: the first list with load through all sinks, an outage of
//! the webhook, a bridge that is killed, and an API server that restarts. `make e2e ARGS=--all` runs the others, too.
//! `make e2e-cluster` runs the one in which controllers and a scheduler write the Events, about simulated nodes.
//! `make e2e-sinks` runs the one with the systems of a SIEM: OpenSearch, Loki, the Collector as a HEC, and rsyslog.
//!
//! ```text
//!  writers ──▶ API server ──▶ tidings ──▶ Kafka, Collector, webhook ──▶ receivers ──▶ ledgers
//!                  │                                                                     │
//!                  └──────────────▶ truth ─────────────────▶ oracle ◀────────────────────┘
//! ```
//!
//! A scenario sets a stage, lets writers write, does harm to some part, and has the oracle hold
//! what arrived at each sink against what the API server showed to a watch of the test's own.
//!
//! The in-process API server of the other tests is held against the real one (`imitation`).
//!
//! The recorders of the library are tested the other way round: what they wrote is what kubectl
//! shows (`scenarios::recorder`).

// Where a machine or a part fails, so does the test, and there is nobody to hand an error to.
#![allow(clippy::panic, clippy::print_stderr)]

mod bridge;
mod imitation;
mod oracle;
#[allow(dead_code, unused_imports, reason = "shared with the drills, which ask for more")]
mod parts;
#[allow(dead_code, unused_imports, reason = "shared with the drills, which ask for more")]
mod receivers;
mod scenarios;
mod stage;
#[allow(dead_code, reason = "shared with the drills, which ask for more")]
mod truth;
mod wait;
mod writers;
