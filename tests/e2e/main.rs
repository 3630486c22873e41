//! End-to-end tests against the real parts: etcd, kube-apiserver, Kafka and the OpenTelemetry
//! Collector, installed by `tests/parts/install` and started here on free ports.
//!
//! `make e2e` installs the parts and runs these tests.

// Where a machine or a part fails, so does the test, and there is nobody to hand an error to.
#![allow(clippy::panic, clippy::print_stderr)]

mod parts;
mod parts_smoke;
