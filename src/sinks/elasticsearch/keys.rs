//! The keys of an Elasticsearch sink, and the options that come of them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::index;
use crate::{
    bridge::Sink,
    document::{Checks, Misplaced, Path, Text, wrong},
    sinks::{
        BuildSink, Format, HttpOptions, Proxy, SinkBuildError,
        http::{
            auth::{AuthKeys, BasicModel},
            keys::{HttpModel, Urls, base_url},
        },
        keys::{Keys, Shared, stand_ins, templated, tls::TlsModel},
    },
    template::{Template, Templated},
};

/// Stores events in Elasticsearch or OpenSearch as documents under their ids, so that an index stores each once.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Elasticsearch")]
pub(crate) struct ElasticsearchModel {
    /// The addresses of nodes of one cluster, `http://` or `https://`, which are asked in turn: one that fails is passed
    /// over. The path of bulk requests is appended.
    #[schemars(length(min = 1), extend("x-shown" = "address"))]
    urls: Vec<Text>,
    /// The index or alias, or a template of one: `k8s-events-{{ day }}` is an index for each day. Exactly one of `index` and
    /// `dataStream` is written.
    #[schemars(extend("x-shown" = true))]
    index: Option<Text>,
    /// The data stream.
    #[schemars(extend("x-shown" = true))]
    data_stream: Option<Text>,
    /// The ingest pipeline that documents go through. Default: that of the index.
    #[schemars(extend("x-shown" = true))]
    pipeline: Option<Text>,
    /// Credentials of each request. Default: none.
    auth: Option<ElasticsearchAuthModel>,
    /// TLS, for `https://`. Default: the system's authorities.
    tls: Option<TlsModel>,
}

/// Credentials for each request: exactly one of `basic`, `apiKey` and `bearer`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "ElasticsearchAuth")]
struct ElasticsearchAuthModel {
    /// User and password.
    basic: Option<BasicModel>,
    /// A key of the API, as its answer has it in `encoded`: the base64 of `id:key`. Best as a reference.
    api_key: Option<Text>,
    /// A bearer token, best as a reference.
    bearer: Option<Text>,
}

/// A cluster of Elasticsearch or OpenSearch.
#[derive(Clone, Debug, PartialEq)]
pub struct ElasticsearchOptions {
    /// The nodes that are asked in turn: options that differ in their address.
    pub nodes: Vec<HttpOptions>,
    /// Where documents go.
    pub index: Templated,
    /// The ingest pipeline; `None`: that of the index.
    pub pipeline: Option<String>,
    /// The format of a document.
    pub format: Format,
}

impl ElasticsearchOptions {
    /// One node, without credentials.
    pub fn new(url: impl Into<String>, index: Templated) -> Self {
        let nodes = vec![HttpOptions::new(url)];
        Self { nodes, index, pipeline: None, format: Format::Ecs }
    }
}

impl BuildSink for ElasticsearchOptions {
    fn build(&self) -> Result<Arc<dyn Sink>, SinkBuildError> {
        #[cfg(feature = "elasticsearch")]
        return Ok(Arc::new(super::sink::build(self)?));
        #[cfg(not(feature = "elasticsearch"))]
        Err(SinkBuildError::at(&[], "expected a kind that is built in, found another"))
    }

    fn proxy(&self) -> Option<&Proxy> {
        self.nodes.first().map(|node| &node.proxy)
    }
}

impl Keys for ElasticsearchModel {
    fn options(&self, sink: &Shared<'_>, checks: &mut Checks<'_>) -> Arc<dyn BuildSink> {
        let path = sink.path.key("elasticsearch");
        let model = HttpModel {
            auth: self.auth.as_ref().map(|auth| AuthKeys {
                bearer: auth.bearer.as_ref(),
                basic: auth.basic.as_ref(),
                api_key: auth.api_key.as_ref(),
                oauth2: None,
                names: "`basic`, `apiKey` and `bearer`",
            }),
            tls: self.tls.as_ref(),
            ..HttpModel::new(&path, "urls", Urls::List(&self.urls))
        };
        let nodes = model.resolve_all(sink, checks, |value| {
            let address = base_url(value)?;
            if address.path().ends_with("/_bulk") {
                let wrong = wrong("expected the address of a node, found one of bulk requests");
                return Err(wrong.hint("remove `/_bulk`, which is appended").into());
            }
            Ok(())
        });
        sink.no_zstd(checks);
        let index = self.index(&path, checks);
        let format = sink.format.unwrap_or(Format::Ecs);
        if self.data_stream.is_some() && format != Format::Ecs {
            let wrong =
                wrong("expected `ecs` for a data stream, found a format without `@timestamp`");
            checks.wrong(&sink.path.key("format"), wrong.hint("remove `format`, or use `index`"));
        }
        let pipeline = checks.optional(&path.key("pipeline"), self.pipeline.as_ref());
        let index = index.unwrap_or_else(|| Templated::Fixed(stand_ins::TEXT.to_owned()));
        Arc::new(ElasticsearchOptions { nodes, index, pipeline, format })
    }
}

impl ElasticsearchModel {
    fn index(&self, path: &Path, checks: &mut Checks<'_>) -> Option<Templated> {
        match (&self.index, &self.data_stream) {
            (Some(index), None) => {
                checks.parsed(&path.key("index"), index, |text| templated(text, index::name))
            }
            (None, Some(stream)) => {
                let read = |text: &str| -> Result<_, Misplaced> {
                    if Template::is_in(text) {
                        let wrong = wrong("expected a fixed data stream, found a template");
                        return Err(wrong.hint("write a fixed name, or use `index`").into());
                    }
                    index::name(text)?;
                    Ok(Templated::Fixed(text.to_owned()))
                };
                checks.parsed(&path.key("dataStream"), stream, read)
            }
            (index, _) => {
                let found = if index.is_some() { "both" } else { "none" };
                let wrong =
                    wrong(format!("expected one of `index` and `dataStream`, found {found}"));
                let hint = "write one of them, such as `index: \"k8s-events-{{ day }}\"`";
                checks.wrong_key(path, wrong.hint(hint));
                None
            }
        }
    }
}
