//! The control socket: dead letters, replay, reload and the configuration in force, for the operator of
//! this machine.

use std::path::Path;

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, FromRequest as _, Path as Segment, RawQuery, Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures_util::stream;
use tokio::time::timeout;

use super::{
    access::Access,
    api::{self, Affected, InForce, Letter, LetterPage, MAX_BODY, Refusal, Reloaded},
    connections::{self, REQUEST_WITHIN},
    reload::{ReloadError, ReloadHandle},
    server::read_only,
    serving::{ServerEnded, Serving},
    socket::{self, Bound},
};
use crate::{
    bridge::{BridgeView, Configuration, Control, ControlError, ReplayRun},
    journal::{LetterError, LetterQuery, Letters},
};

/// Letters read at once; an envelope may be 1.5 MiB long, and a list needs little of it.
const READ_AT_ONCE: usize = 16;

/// The control socket; it ends, and its file goes, when it is stopped or dropped. That has to be while
/// the bridge still holds its directory.
#[derive(Debug)]
pub struct ControlSocket {
    serving: Serving,
    _bound: Bound,
}

impl ControlSocket {
    /// Makes `admin.sock` in the directory of the bridge's journal, and serves.
    ///
    /// # Errors
    ///
    /// The socket cannot be made.
    pub fn start(
        directory: &Path,
        view: BridgeView,
        control: Control,
        reload: ReloadHandle,
    ) -> std::io::Result<Self> {
        let (listener, bound) = socket::bind(directory)?;
        let reloads = Router::new().route("/api/v1/reload", post(reloaded)).with_state(reload);
        let config = Router::new().route("/api/v1/config", get(in_force));
        let config = config.with_state(view.configuration.clone());
        let routes = Router::new()
            .route("/api/v1/dead-letters", get(list))
            .route("/api/v1/dead-letters/{number}", get(show))
            .route("/api/v1/dead-letters/retry", post(retry))
            .route("/api/v1/dead-letters/drop", post(drop_letters))
            .route("/api/v1/replay", post(replay))
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .with_state(control)
            .merge(reloads)
            .merge(config)
            .merge(read_only(view, Access::default()));
        // A replay goes on for as long as its client reads.
        let server = connections::serve(listener, routes, None);
        Ok(Self { serving: Serving::start("the control socket", server), _bound: bound })
    }

    /// Completes when it does not serve any longer, which it does until it is stopped or dropped.
    pub async fn failed(&mut self) -> ServerEnded {
        self.serving.failed().await
    }

    /// Ends it, waits until it has, and removes its file.
    pub async fn stop(self) {
        self.serving.stop().await;
    }
}

/// An answer that is no success.
struct Refused(StatusCode, Refusal);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(self.1)).into_response()
    }
}

/// A mistake in the request.
impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self(StatusCode::BAD_REQUEST, refusal)
    }
}

impl From<ControlError> for Refused {
    fn from(error: ControlError) -> Self {
        let status = match &error {
            ControlError::NoSuchSink { .. } | ControlError::NoObjects(_) => StatusCode::BAD_REQUEST,
            ControlError::Letters(LetterError::NoSuchLetter(_)) => StatusCode::NOT_FOUND,
            ControlError::Letters(
                LetterError::Unidentified(_) | LetterError::NotConfigured { .. },
            )
            | ControlError::SinkStopped(_)
            | ControlError::ReplayRuns(_) => StatusCode::CONFLICT,
            ControlError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            ControlError::Read(_) | ControlError::Letters(LetterError::Store(_)) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        Self(status, Refusal::from_message(&error.to_string()))
    }
}

impl From<ReloadError> for Refused {
    fn from(error: ReloadError) -> Self {
        let status = match &error {
            // The mistake is in the file.
            ReloadError::Rejected(_) => StatusCode::BAD_REQUEST,
            ReloadError::Unfinished(_) => StatusCode::INTERNAL_SERVER_ERROR,
            ReloadError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self(status, Refusal::from_message(&error.to_string()))
    }
}

async fn list(
    State(control): State<Control>,
    RawQuery(query): RawQuery,
) -> Result<Json<LetterPage>, Refused> {
    let mut asked = api::parse_query(&query.unwrap_or_default())?;
    let mut page = LetterPage { dead_letters: Vec::new(), before: None };
    while page.dead_letters.len() < asked.limit {
        let limit = READ_AT_ONCE.min(asked.limit - page.dead_letters.len());
        let letters = control.dead_letters(LetterQuery { limit, ..asked.clone() }).await?;
        page.dead_letters.extend(letters.iter().map(Letter::listed));
        if letters.len() < limit {
            return Ok(Json(page));
        }
        asked.before = letters.last().map(|letter| letter.number);
    }
    page.before = asked.before;
    Ok(Json(page))
}

async fn show(
    State(control): State<Control>,
    Segment(number): Segment<String>,
) -> Result<Json<Letter>, Refused> {
    let parsed = number.parse().map_err(|_| {
        Refusal::new(format!("`{number}` is not the number of a dead letter"), "digits only")
    })?;
    let missing = || ControlError::from(LetterError::NoSuchLetter(parsed));
    let letter = control.dead_letter(parsed).await?.ok_or_else(missing)?;
    Ok(Json(Letter::whole(&letter)))
}

async fn retry(
    State(control): State<Control>,
    request: Request,
) -> Result<Json<Affected>, Refused> {
    let letters = selection(request).await?;
    Ok(Json(Affected { dead_letters: control.retry(letters).await? }))
}

async fn drop_letters(
    State(control): State<Control>,
    request: Request,
) -> Result<Json<Affected>, Refused> {
    let letters = selection(request).await?;
    Ok(Json(Affected { dead_letters: control.drop_letters(letters).await? }))
}

/// A line for each step of it, until it is done; a client that goes away ends it.
async fn replay(State(control): State<Control>, request: Request) -> Result<Response, Refused> {
    let asked = api::parse_replay(&whole(request).await?)?;
    let run = control.replay(asked)?;
    let lines = stream::unfold(run, async |mut run: ReplayRun| {
        let progress = run.next().await?;
        // A struct of numbers and strings always serialises.
        let mut line = serde_json::to_vec(&progress).unwrap_or_default();
        line.push(b'\n');
        Some((Ok::<_, std::convert::Infallible>(line), run))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(lines)).into_response())
}

/// Answers when it is done.
async fn reloaded(State(reload): State<ReloadHandle>) -> Result<Json<Reloaded>, Refused> {
    Ok(Json(reload.reload().await?))
}

async fn in_force(State(configuration): State<Configuration>) -> Result<Json<InForce>, Refused> {
    let state = configuration.now().ok_or_else(|| {
        let hint = "`tidings run --config FILE` reads one";
        Refused(
            StatusCode::NOT_FOUND,
            Refusal::new("the bridge runs without a configuration file", hint),
        )
    })?;
    let yaml = state.shown.to_string();
    Ok(Json(InForce { state: state.into(), yaml }))
}

/// The body of a request, which has to be here in time.
async fn whole(request: Request) -> Result<Bytes, Refused> {
    let late = |_| {
        let what = format!("the request is not whole after {} s", REQUEST_WITHIN.as_secs());
        Refused(StatusCode::REQUEST_TIMEOUT, Refusal::new(what, "send all of it at once"))
    };
    let reading = timeout(REQUEST_WITHIN, Bytes::from_request(request, &()));
    reading.await.map_err(late)?.map_err(|rejection| {
        let hint = format!("a body has {MAX_BODY} bytes at most; ask several times");
        Refused(rejection.status(), Refusal::new(rejection.body_text(), hint))
    })
}

async fn selection(request: Request) -> Result<Letters, Refused> {
    Ok(api::parse_selection(&whole(request).await?)?)
}
