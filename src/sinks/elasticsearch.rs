//! Elasticsearch and OpenSearch: documents under the ids of events, so that an index stores each once.

#[cfg(feature = "elasticsearch")]
mod answer;
#[cfg_attr(not(feature = "elasticsearch"), allow(dead_code, reason = "checked only"))]
mod index;
mod index_template;
mod keys;
#[cfg(feature = "elasticsearch")]
mod sink;

pub use self::keys::ElasticsearchOptions;
pub(crate) use self::{
    index_template::{Product, index_template},
    keys::ElasticsearchModel,
};
