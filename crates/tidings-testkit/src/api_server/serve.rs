//! From request to answer: routes, single objects and writes.

use std::io;

use bytes::Bytes;
use serde_json::{Value, json};

use super::object_key;
use super::{
    Shared, documents,
    faults::{Fault, On},
    list,
    object::EventObject,
    resource::EVENTS,
    route::{Route, Target, Verb},
    shape::Shape,
    state::Written,
    status::ApiStatus,
    watch,
};
use crate::http::{Connection, Ending, Request, Stream};

pub(super) const JSON: &str = "Content-Type: application/json\r\n";

/// Serves one connection until either side ends it.
pub(super) async fn connection(stream: impl Stream + 'static, shared: &Shared) -> io::Result<()> {
    let mut connection = Connection::new(stream);
    while let Some(request) = connection.request().await? {
        shared.record(&request);
        let route = Route::of(&request, &shared.catalogue);
        let resource = route.target().map(|target| shared.catalogue[target.resource].name());
        if let Some(target) = route.target() {
            shared.feeds[target.resource].count_request(target.verb);
        }
        let fault = shared.faults().take(route.on(), resource);
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
    fault: Option<Fault>,
) -> io::Result<bool> {
    match &fault {
        Some(Fault::Unauthorized) => {
            return refuse(connection, &ApiStatus::unauthorized()).await;
        }
        Some(Fault::Forbidden) => {
            let user = &shared.options.user;
            let status = match route.target() {
                Some(target) => target.forbidden(user, &shared.catalogue),
                None => ApiStatus::forbidden_path(user, &request.path),
            };
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
        Some(Fault::Gone) if route.on() == On::Watch => {
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
    let document = match *route {
        Route::Objects(ref target) => {
            return objects(connection, shared, request, target, fault).await;
        }
        Route::Api => Some(documents::API_VERSIONS.to_owned()),
        Route::Version => Some(documents::VERSION.to_owned()),
        Route::Groups => Some(documents::groups(&shared.catalogue).to_string()),
        Route::Group(name) => {
            documents::group(&shared.catalogue, name).map(|group| group.to_string())
        }
        Route::Resources(group, version) => {
            documents::resources(&shared.catalogue, group, version).map(|list| list.to_string())
        }
        Route::Healthy => {
            connection.answer(200, "Content-Type: text/plain; charset=utf-8\r\n", b"ok").await?;
            return Ok(true);
        }
        Route::NoMethod => return refuse(connection, &ApiStatus::method_not_allowed()).await,
        Route::NoResource => return refuse(connection, &ApiStatus::no_resource()).await,
        Route::NoPath => None,
    };
    if let Some(document) = document {
        return send_json(connection, 200, "", document.as_bytes()).await;
    }
    let head = "Content-Type: text/plain; charset=utf-8\r\n";
    connection.answer(404, head, b"404 page not found\n").await?;
    Ok(true)
}

/// Answers what is asked of a resource's objects.
async fn objects(
    connection: &mut Connection,
    shared: &Shared,
    request: &Request,
    target: &Target<'_>,
    fault: Option<Fault>,
) -> io::Result<bool> {
    let Target { verb, resource, name, .. } = *target;
    let namespace = target.namespace.unwrap_or_default();
    let kind = &shared.catalogue[resource];
    let (code, object) = match verb {
        Verb::Watch => return watch::serve(connection, shared, target, request, fault).await,
        Verb::List => {
            return match list::list(shared, target, request) {
                Ok(list) => list::send(connection, shared, request, list, fault).await,
                Err(status) => refuse(connection, &status).await,
            };
        }
        Verb::Delete => {
            return match shared.delete(resource, namespace, name) {
                Ok(written) => {
                    let status = json!({
                        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                        "details": {"name": name, "kind": kind.plural, "uid": written.uid}
                    });
                    send_json(connection, 200, "", status.to_string().as_bytes()).await
                }
                Err(status) => refuse(connection, &status).await,
            };
        }
        Verb::Get => (200, get(shared, target)),
        Verb::Create => (201, item(create(shared, target, request))),
        Verb::Update => {
            let updated =
                body_object(request).and_then(|new| shared.replace(resource, namespace, name, new));
            (200, item(updated))
        }
        Verb::Patch => {
            let patched =
                body_object(request).and_then(|p| shared.merge(resource, namespace, name, &p));
            (200, item(patched))
        }
    };
    let rendered = object.and_then(|item| {
        let mut body = Vec::with_capacity(item.len() + 64);
        Shape::of_object(request, kind)?.push(&mut body, &item);
        Ok(body)
    });
    match rendered {
        Ok(body) => send_json(connection, code, "", &body).await,
        Err(status) => refuse(connection, &status).await,
    }
}

fn item(written: Result<Written, ApiStatus>) -> Result<Bytes, ApiStatus> {
    written.map(|written| written.item)
}

fn get(shared: &Shared, target: &Target<'_>) -> Result<Bytes, ApiStatus> {
    let key = object_key(target.namespace.unwrap_or_default(), target.name);
    let found = shared.state().table(target.resource).found(&key).cloned();
    if found.is_err() && shared.catalogue[target.resource].name() == "namespaces" {
        return Ok(namespace(shared, target.name));
    }
    found
}

fn create(shared: &Shared, target: &Target<'_>, request: &Request) -> Result<Written, ApiStatus> {
    let namespace = target.namespace.unwrap_or_default();
    let object = body_object(request)?;
    if target.resource == EVENTS {
        return shared.create_event(checked(event_of(object)?, namespace)?);
    }
    let kind = &shared.catalogue[target.resource].kind;
    shared.create(target.resource, namespace, new_object(object, kind, namespace)?)
}

/// Answers with a Status that says no.
pub(super) async fn refuse(connection: &mut Connection, status: &ApiStatus) -> io::Result<bool> {
    let head = status
        .retry_after()
        .map(|seconds| format!("Retry-After: {seconds}\r\n"))
        .unwrap_or_default();
    send_json(connection, status.code, &head, &status.to_json()).await
}

async fn send_json(
    connection: &mut Connection,
    code: u16,
    head: &str,
    json: &[u8],
) -> io::Result<bool> {
    let mut body = json.to_vec();
    body.push(b'\n');
    connection.answer(code, &format!("{JSON}{head}"), &body).await?;
    Ok(true)
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

/// The refusal of an object that is sent to another namespace than its own.
fn other_namespace() -> ApiStatus {
    ApiStatus::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    )
}

fn name_required(kind: &str) -> ApiStatus {
    let cause = "Required value: name or generateName is required";
    ApiStatus::invalid(kind, "", "metadata.name", cause)
}

/// What the API server checks of any new object, less what is the server's to choose.
fn new_object(mut object: Value, kind: &str, namespace: &str) -> Result<Value, ApiStatus> {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let Some(metadata) = metadata else {
        return Err(name_required(kind));
    };
    let text = |member: &str| metadata.get(member).and_then(Value::as_str).unwrap_or_default();
    if text("name").is_empty() && text("generateName").is_empty() {
        return Err(name_required(kind));
    }
    if !["", namespace].contains(&text("namespace")) {
        return Err(other_namespace());
    }
    metadata.retain(|member, _| member != "uid" && member != "creationTimestamp");
    Ok(object)
}

/// What the API server checks of a new Event, and takes from the path.
fn checked(mut event: EventObject, namespace: &str) -> Result<EventObject, ApiStatus> {
    if event.metadata.namespace.is_empty() {
        namespace.clone_into(&mut event.metadata.namespace);
    }
    if event.metadata.namespace != namespace {
        return Err(other_namespace());
    }
    let name = &event.metadata.name;
    if name.is_empty() && event.metadata.generate_name.is_empty() {
        return Err(name_required("Event"));
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

/// A namespace that nobody created: each that is asked for is there.
fn namespace(shared: &Shared, name: &str) -> Bytes {
    let namespace = json!({
        "metadata": {
            "name": name,
            "uid": shared.namespace_uid(name),
            "resourceVersion": "4",
            "creationTimestamp": "2026-01-05T08:00:00Z",
            "labels": {"kubernetes.io/metadata.name": name}
        },
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"}
    });
    namespace.to_string().into()
}
