//! From request to answer: routes, single objects and writes.

use std::io;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::{
    Shared,
    faults::{Fault, On},
    http::{Connection, Ending, Request},
    list,
    object::EventObject,
    status::ApiStatus,
    watch,
};

pub(super) const JSON: &str = "Content-Type: application/json\r\n";

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
enum Route<'a> {
    List(Option<&'a str>),
    Watch(Option<&'a str>),
    GetEvent(&'a str, &'a str),
    Create(&'a str),
    Patch(&'a str, &'a str),
    Delete(&'a str, &'a str),
    Namespace(&'a str),
    Document(&'static str),
    Version,
    Healthy,
    NoMethod,
    NoPath,
}

impl<'a> Route<'a> {
    fn of(request: &'a Request) -> Self {
        let path: Vec<&str> = request.path.trim_matches('/').split('/').collect();
        let listing = |namespace| {
            let watch = request.flag("watch");
            if watch { Self::Watch(namespace) } else { Self::List(namespace) }
        };
        match (request.method.as_str(), path.as_slice()) {
            ("GET", ["api", "v1", "events"]) => listing(None),
            ("GET", ["api", "v1", "namespaces", namespace, "events"]) => listing(Some(*namespace)),
            ("POST", ["api", "v1", "namespaces", namespace, "events"]) => Self::Create(namespace),
            (method, ["api", "v1", "namespaces", namespace, "events", name]) => match method {
                "GET" => Self::GetEvent(namespace, name),
                "PATCH" => Self::Patch(namespace, name),
                "DELETE" => Self::Delete(namespace, name),
                _ => Self::NoMethod,
            },
            ("GET", ["api", "v1", "namespaces", namespace]) => Self::Namespace(namespace),
            ("GET", ["version"]) => Self::Version,
            ("GET", ["api"]) => Self::Document(super::documents::API_VERSIONS),
            ("GET", ["apis"]) => Self::Document(super::documents::API_GROUPS),
            ("GET", ["api", "v1"]) => Self::Document(super::documents::CORE_RESOURCES),
            ("GET", ["livez" | "readyz" | "healthz"]) => Self::Healthy,
            (_, ["api", "v1", "events"] | ["api", "v1", "namespaces", _, "events"]) => {
                Self::NoMethod
            }
            _ => Self::NoPath,
        }
    }

    fn on(&self) -> On {
        match self {
            Self::List(_) => On::List,
            Self::Watch(_) => On::Watch,
            Self::Create(_) | Self::Patch(..) | Self::Delete(..) => On::Write,
            _ => On::Get,
        }
    }

    /// The refusal of someone who lacks the right to this.
    fn forbidden(&self, user: &str) -> ApiStatus {
        let (verb, name, namespace) = match *self {
            Self::List(namespace) => ("list", None, namespace),
            Self::Watch(namespace) => ("watch", None, namespace),
            Self::Create(namespace) => ("create", None, Some(namespace)),
            Self::Patch(namespace, name) => ("patch", Some(name), Some(namespace)),
            Self::Delete(namespace, name) => ("delete", Some(name), Some(namespace)),
            Self::GetEvent(namespace, name) => ("get", Some(name), Some(namespace)),
            Self::Namespace(name) => {
                return ApiStatus::forbidden(user, "get", "namespaces", Some(name), Some(name));
            }
            _ => ("get", None, None),
        };
        ApiStatus::forbidden(user, verb, "events", name, namespace)
    }
}

/// Serves one connection until either side ends it.
pub(super) async fn connection(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut connection = Connection::new(stream);
    while let Some(request) = connection.request().await? {
        shared.record(&request);
        let route = Route::of(&request);
        let fault = shared.faults().take(route.on());
        connection.pace = None;
        if !respond(&mut connection, shared, &request, &route, fault).await? {
            break;
        }
    }
    Ok(())
}

/// Answers one request. True: the connection can serve another.
async fn respond(
    connection: &mut Connection,
    shared: &Shared,
    request: &Request,
    route: &Route<'_>,
    mut fault: Option<Fault>,
) -> io::Result<bool> {
    match &fault {
        Some(Fault::Unauthorized) => {
            return refuse(connection, &ApiStatus::unauthorized()).await;
        }
        Some(Fault::Forbidden) => {
            let status = route.forbidden(&shared.options.user);
            return refuse(connection, &status).await;
        }
        Some(Fault::TooManyRequests { retry_after }) => {
            let head = format!(
                "Content-Type: text/plain; charset=utf-8\r\nRetry-After: {retry_after}\r\n"
            );
            let body = b"Too many requests, please try again later.\n";
            connection.answer(429, &head, body).await?;
            return Ok(true);
        }
        Some(Fault::InternalError) => return refuse(connection, &ApiStatus::internal()).await,
        Some(Fault::Unavailable) => return refuse(connection, &ApiStatus::unavailable()).await,
        Some(Fault::Gone) if matches!(route, Route::Watch(_)) => {
            return refuse(connection, &ApiStatus::expired_watch()).await;
        }
        Some(Fault::Gone) => return refuse(connection, &ApiStatus::expired_list()).await,
        Some(Fault::Html { code }) => {
            let body = "<html><head><title>Bad Gateway</title></head><body>nginx</body></html>\r\n";
            connection.answer(*code, "Content-Type: text/html\r\n", body.as_bytes()).await?;
            return Ok(true);
        }
        Some(Fault::Reset) => return connection.end(Ending::Reset).await,
        Some(Fault::Hang) => {
            connection.closed().await;
            return Ok(false);
        }
        Some(Fault::Delay(wait)) => {
            tokio::select! {
                () = connection.closed() => return Ok(false),
                () = tokio::time::sleep(*wait) => {}
            }
        }
        Some(Fault::Slow { bytes_per_second }) => connection.pace = Some(*bytes_per_second),
        Some(Fault::EmptyStream | Fault::Stream { .. }) | None => {}
    }
    match *route {
        Route::Watch(namespace) => {
            watch::serve(connection, shared, namespace, request, fault.take()).await
        }
        Route::List(namespace) => match list::list(shared, namespace, request) {
            Ok(list) => list::send(connection, shared, request, list, fault).await,
            Err(status) => refuse(connection, &status).await,
        },
        Route::GetEvent(namespace, name) => {
            let key = format!("{namespace}/{name}");
            let found = shared.state().get(&key).cloned();
            let found = found.ok_or_else(|| ApiStatus::not_found("events", name));
            send_object(connection, 200, found).await
        }
        Route::Create(namespace) => {
            let created = body_object(request)
                .and_then(event_of)
                .and_then(|event| checked(event, namespace))
                .and_then(|event| shared.create(event));
            send_object(connection, 201, created.map(|written| written.item)).await
        }
        Route::Patch(namespace, name) => {
            let patched =
                body_object(request).and_then(|patch| shared.merge(namespace, name, &patch));
            send_object(connection, 200, patched.map(|written| written.item)).await
        }
        Route::Delete(namespace, name) => match shared.delete(namespace, name) {
            Ok(written) => {
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                    "details": {"name": name, "kind": "events", "uid": written.uid}
                });
                send_json(connection, 200, status.to_string().as_bytes()).await
            }
            Err(status) => refuse(connection, &status).await,
        },
        Route::Namespace(name) => {
            let namespace = namespace(shared, name);
            send_json(connection, 200, namespace.to_string().as_bytes()).await
        }
        Route::Document(text) => send_json(connection, 200, text.as_bytes()).await,
        Route::Version => send_json(connection, 200, super::documents::VERSION.as_bytes()).await,
        Route::Healthy => {
            connection.answer(200, "Content-Type: text/plain; charset=utf-8\r\n", b"ok").await?;
            Ok(true)
        }
        Route::NoMethod => refuse(connection, &ApiStatus::method_not_allowed()).await,
        Route::NoPath => {
            let head = "Content-Type: text/plain; charset=utf-8\r\n";
            connection.answer(404, head, b"404 page not found\n").await?;
            Ok(true)
        }
    }
}

/// Answers with a Status that says no.
pub(super) async fn refuse(connection: &mut Connection, status: &ApiStatus) -> io::Result<bool> {
    send_json(connection, status.code, &status.to_json()).await
}

async fn send_json(connection: &mut Connection, code: u16, json: &[u8]) -> io::Result<bool> {
    let mut body = json.to_vec();
    body.push(b'\n');
    connection.answer(code, JSON, &body).await?;
    Ok(true)
}

async fn send_object(
    connection: &mut Connection,
    code: u16,
    object: Result<Bytes, ApiStatus>,
) -> io::Result<bool> {
    match object {
        Ok(item) => {
            let mut body = Vec::with_capacity(item.len() + 64);
            watch::push_typed(&mut body, &item);
            send_json(connection, code, &body).await
        }
        Err(status) => refuse(connection, &status).await,
    }
}

fn body_object(request: &Request) -> Result<Value, ApiStatus> {
    let content = request.header("content-type");
    if content.contains("protobuf") || content.contains("yaml") {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: application/json, application/merge-patch+json, application/strategic-merge-patch+json, but it was {content}"
        );
        return Err(ApiStatus::new(415, "UnsupportedMediaType", message));
    }
    serde_json::from_slice(&request.body)
        .map_err(|error| ApiStatus::bad_request(format!("couldn't decode the body: {error}")))
}

pub(super) fn event_of(value: Value) -> Result<EventObject, ApiStatus> {
    EventObject::from_json(value).map_err(|error| {
        ApiStatus::bad_request(format!(
            "Event in version \"v1\" cannot be handled as a Event: {error}"
        ))
    })
}

/// What the API server checks of a new Event, and takes from the path.
fn checked(mut event: EventObject, namespace: &str) -> Result<EventObject, ApiStatus> {
    if event.metadata.namespace.is_empty() {
        namespace.clone_into(&mut event.metadata.namespace);
    }
    if event.metadata.namespace != namespace {
        let message =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiStatus::bad_request(message));
    }
    let name = &event.metadata.name;
    if name.is_empty() && event.metadata.generate_name.is_empty() {
        let cause = "Required value: name or generateName is required";
        return Err(ApiStatus::invalid("Event", name, "metadata.name", cause));
    }
    let about = &event.involved_object.namespace;
    if about != namespace && !(about.is_empty() && namespace == "default") {
        let cause = format!("Invalid value: {about:?}: does not match event.namespace");
        return Err(ApiStatus::invalid("Event", name, "involvedObject.namespace", &cause));
    }
    // Neither is the client's to choose.
    event.metadata.uid.clear();
    event.metadata.creation_timestamp = None;
    Ok(event)
}

fn namespace(shared: &Shared, name: &str) -> Value {
    json!({
        "kind": "Namespace",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "uid": shared.namespace_uid(name),
            "resourceVersion": "4",
            "creationTimestamp": "2026-01-05T08:00:00Z",
            "labels": {"kubernetes.io/metadata.name": name}
        },
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"}
    })
}
