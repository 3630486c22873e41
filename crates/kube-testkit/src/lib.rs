//! A kit for tests of a Kubernetes program, in place of a cluster: an in-process API server over real
//! HTTP that can be told to misbehave, and stories of a cluster, told as the Events that its
//! components write.

pub mod api_server;
pub mod story;
