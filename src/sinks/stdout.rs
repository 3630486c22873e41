//! Standard output: a line of JSON for each event. It has no keys, and refuses some of those of every sink.

mod sink;

use std::{borrow::Cow, sync::Arc};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

pub use self::sink::StdoutSink;
use super::{
    BuildSink, Format, SinkBuildError,
    keys::{Keys, Shared},
};
use crate::{bridge::Sink, document::Checks};

#[derive(Clone, Copy, Debug, PartialEq)]
struct Stdout(Format);

impl BuildSink for Stdout {
    fn build(&self) -> Result<Arc<dyn Sink>, SinkBuildError> {
        Ok(Arc::new(StdoutSink::new(self.0)?))
    }
}

/// Writes lines of JSON to standard output. It has no keys of its own.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StdoutModel {}

impl JsonSchema for StdoutModel {
    fn schema_name() -> Cow<'static, str> {
        "Stdout".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Writes lines of JSON to standard output. It has no keys of its own.",
            "type": ["object", "null"],
            "additionalProperties": false,
        })
    }
}

impl Keys for StdoutModel {
    fn options(&self, sink: &Shared<'_>, checks: &mut Checks<'_>) -> Arc<dyn BuildSink> {
        sink.only_lines("stdout", checks);
        Arc::new(Stdout(sink.format.unwrap_or_default()))
    }
}
