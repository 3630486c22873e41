//! HTTP over the socket of a running bridge.

use std::{io, path::Path, time::Duration};

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;

use super::Failure;
use crate::{
    admin::{api::Refusal, connect},
    cli::EXIT_CONFIGURATION,
};

/// An answer begins within this time, or the bridge is stuck. The slowest waits for a commit of 64 MiB.
const ANSWER_WITHIN: Duration = Duration::from_mins(1);

/// A running bridge.
pub(super) struct Client<'a> {
    directory: &'a Path,
    /// How long an answer may take to begin; nothing where it takes as long as it takes.
    within: Option<Duration>,
}

impl<'a> Client<'a> {
    /// The bridge whose journal is in this directory; nothing if none listens there.
    pub(super) async fn find(directory: &'a Path) -> Result<Option<Self>, Failure> {
        use io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound, PermissionDenied};
        match connect(directory).await {
            Ok(_) => Ok(Some(Self { directory, within: Some(ANSWER_WITHIN) })),
            Err(error) if matches!(error.kind(), NotFound | NotADirectory | ConnectionRefused) => {
                Ok(None)
            }
            Err(error) => Err(Failure::new(
                format_args!("cannot reach the bridge of {}: {error}", directory.display()),
                match error.kind() {
                    PermissionDenied => {
                        "its socket admits only the user that runs the bridge: be that user"
                    }
                    _ => "run the command where the bridge runs, with the same journal.path",
                },
            )),
        }
    }

    /// The bridge, which has to run.
    pub(super) async fn running(directory: &'a Path, hint: &str) -> Result<Self, Failure> {
        Self::find(directory).await?.ok_or_else(|| {
            let what = format_args!("no bridge runs on the journal {}", directory.display());
            Failure::new(what, hint)
        })
    }

    /// Waits for an answer however long it takes.
    pub(super) fn patient(self) -> Self {
        Self { within: None, ..self }
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let answer = self.ask(Method::GET, path, Vec::new()).await?;
        self.read(answer).await
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let answer = self.stream(path, body).await?;
        self.read(answer).await
    }

    /// Like [`post`](Self::post), with the body of the answer still to be read.
    pub(super) async fn stream(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Response<Incoming>, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::from(&error))?;
        self.ask(Method::POST, path, body).await
    }

    /// An answer that is a success.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, Failure> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "tidings")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Failure::from(&error))?;
        let asking = async {
            let stream = connect(self.directory).await.map_err(|error| self.cut(&error))?;
            let (mut sender, connection) =
                http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.cut(&error))?;
            // Its errors come out of the request and of the body, too.
            tokio::spawn(connection);
            sender.send_request(request).await.map_err(|error| self.cut(&error))
        };
        let answer = self.within(asking).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body = self.body(answer).await?;
        let Ok(refusal) = serde_json::from_slice::<Refusal>(&body) else {
            return Err(Failure::new(
                format_args!("the bridge answers HTTP {status}"),
                "it may be of another version: run the command of that version",
            ));
        };
        let usage = status == StatusCode::BAD_REQUEST;
        let code = if usage { EXIT_CONFIGURATION } else { 1 };
        Err(Failure { message: refusal.to_string(), code })
    }

    async fn read<T: DeserializeOwned>(&self, answer: Response<Incoming>) -> Result<T, Failure> {
        serde_json::from_slice(&self.body(answer).await?).map_err(|error| unreadable(&error))
    }

    async fn body(&self, answer: Response<Incoming>) -> Result<Bytes, Failure> {
        let collected = async { answer.into_body().collect().await.map_err(|e| self.cut(&e)) };
        Ok(self.within(collected).await?.to_bytes())
    }

    async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let Some(within) = self.within else { return work.await };
        timeout(within, work).await.unwrap_or_else(|_| {
            Err(Failure::new(
                format_args!("the bridge of {} does not answer", self.directory.display()),
                "its log says what keeps it; a change may have been made all the same",
            ))
        })
    }

    /// The connection broke.
    pub(super) fn cut(&self, error: &dyn std::error::Error) -> Failure {
        Failure::new(
            format_args!(
                "the connection to the bridge of {} has ended: {error}",
                self.directory.display()
            ),
            "it may have been stopped or killed: look at its log; a change may have been made all the same",
        )
    }
}

/// An answer is not what this version expects.
pub(super) fn unreadable(error: &serde_json::Error) -> Failure {
    Failure::new(
        format_args!("the answer of the bridge cannot be read: {error}"),
        "it may be of another version: run the command of that version",
    )
}
