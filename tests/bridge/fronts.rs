//! What stands in front of a receiver, and answers in its place.

use axum::{Router, http::StatusCode};
use tidings::{
    bridge::{RetryOptions, SinkCondition},
    sinks::{BuildSink as _, HttpOptions, OtlpOptions, OtlpProtocol},
};
use tokio::net::TcpListener;
use tonic::{
    service::Routes,
    transport::{Server, server::TcpIncoming},
};

use crate::support::{Setup, Tuning, create, dead_letters, server, sink_status, stop, until};

/// A proxy over HTTP/2 that answers everything with a status and a page.
async fn proxy(status: StatusCode) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().fallback(move || async move { (status, "<html>Not here</html>") });
    let server = Server::builder().add_routes(Routes::from(router));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    format!("http://{address}")
}

/// Their words are about us, so that no number of attempts gives up an event.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_does_not_let_grpc_through_empties_no_journal() {
    for status in [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::NOT_FOUND] {
        let (server, dir) = (server(), tempfile::tempdir().unwrap());
        for n in 0..40 {
            create(&server, &format!("web-{n}"));
        }
        let options = OtlpOptions {
            http: HttpOptions::new(proxy(status).await),
            protocol: OtlpProtocol::Grpc,
            resource: std::collections::BTreeMap::new(),
        };
        let retry = RetryOptions { max_attempts: Some(3), ..Tuning::default().retry };
        let mut setup = Setup::new(&server, dir.path()).other("otlp", options.build().unwrap());
        setup.sinks[0].2.retry = retry;
        let bridge = setup.start().await;
        let view = bridge.view();
        until("the sink has tried more often than it may otherwise", || {
            let sink = sink_status(&view, "otlp");
            sink.failed_attempts > 4 || sink.dead_lettered > 0
        })
        .await;
        let sink = sink_status(&view, "otlp");
        assert_eq!(sink.state, SinkCondition::Misconfigured);
        assert_eq!((sink.pending, sink.dead_lettered), (40, 0));
        let words = format!("HTTP {status}: <html>Not here</html>");
        assert_eq!(sink.last_error.unwrap(), words);
        stop(bridge).await;
        assert!(dead_letters(dir.path()).is_empty());
    }
}
