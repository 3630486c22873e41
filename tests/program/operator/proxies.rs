//! Which proxies `tidings run` uses, before the API server and before a receiver.

use std::{path::Path, process::Stdio, time::Duration};

use tidings_testkit::api_server::{ApiServer, EventObject};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpListener,
    process::{Child, Command},
    time::{sleep, timeout},
};

use super::support::server;

const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Starts a bridge with one webhook, whose receiver is to be had through a proxy alone; the
/// environment names a proxy.
fn run(server: &ApiServer, dir: &Path, proxy: &str, source: &str, sink: &str) -> Child {
    run_with(&server.kubeconfig(), dir, proxy, source, sink)
}

/// The same with a kubeconfig.
fn run_with(kubeconfig: &str, dir: &Path, proxy: &str, source: &str, sink: &str) -> Child {
    std::fs::write(dir.join("kubeconfig"), kubeconfig).unwrap();
    let config = format!(
        "source: {{kubeconfig: {0}/kubeconfig{source}}}\njournal: {{path: {0}/journal}}\n\
         server: {{listen: \"127.0.0.1:0\"}}\n\
         sinks: {{out: {{webhook: {{url: \"http://receiver.invalid/hook\"}}{sink}}}}}\n",
        dir.display()
    );
    std::fs::write(dir.join("tidings.yaml"), config).unwrap();
    let log = std::fs::File::create(dir.join("log")).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_tidings"));
    run.args(["run", "--config"]).arg(dir.join("tidings.yaml"));
    run.env("HTTP_PROXY", proxy).env("HTTPS_PROXY", proxy);
    run.env_remove("NO_PROXY").env_remove("no_proxy");
    run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
    run.spawn().unwrap()
}

/// Waits until the log says something.
async fn said(dir: &Path, words: &str) -> String {
    let saying = async {
        loop {
            let log = std::fs::read_to_string(dir.join("log")).unwrap();
            if log.contains(words) {
                return log;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONGEST_WAIT, saying).await.unwrap_or_else(|_| {
        panic!("{words:?} is not said: {}", std::fs::read_to_string(dir.join("log")).unwrap())
    })
}

/// The first line of the next request.
async fn asked(proxy: &TcpListener) -> String {
    let (connection, _) = timeout(LONGEST_WAIT, proxy.accept()).await.unwrap().unwrap();
    let mut line = String::new();
    BufReader::new(connection).read_line(&mut line).await.unwrap();
    line
}

async fn listener() -> (TcpListener, String) {
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    (proxy, address)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_of_the_environment_is_left_alone_and_named() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (proxy, address) = listener().await;
    server.create(EventObject::about_pod("shop", "web-0", "Started", "")).unwrap();
    let _bridge = run(&server, dir.path(), &address, "", "");
    let log = said(dir.path(), "the sink does not take events").await;
    assert_eq!(log.matches("which this sink does not use").count(), 1, "{log}");
    assert!(log.contains("the client to the API server does not use"), "{log}");
    assert!(log.contains("source.proxy: env"), "{log}");
    assert!(timeout(Duration::ZERO, proxy.accept()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_of_the_environment_is_asked_where_the_sink_says_so() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (proxy, address) = listener().await;
    server.create(EventObject::about_pod("shop", "web-0", "Started", "")).unwrap();
    let _bridge = run(&server, dir.path(), &address, "", ", proxy: env");
    assert_eq!(asked(&proxy).await, "POST http://receiver.invalid/hook HTTP/1.1\r\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_before_the_api_server_is_asked_where_the_source_says_so() {
    for named in [true, false] {
        let (server, dir) = (server(), tempfile::tempdir().unwrap());
        let (proxy, address) = listener().await;
        let source = format!(", proxy: {}", if named { &address } else { "env" });
        let elsewhere = if named { "http://127.0.0.1:1" } else { &address };
        let _bridge = run(&server, dir.path(), elsewhere, &source, "");
        let line = asked(&proxy).await;
        let host = server.kubeconfig();
        let host = host.split("http://").nth(1).unwrap().split(['"', '\n', ',']).next().unwrap();
        assert!(line.contains(host.trim()), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_before_the_api_server_changes_without_a_restart() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (proxy, address) = listener().await;
    let _bridge = run(&server, dir.path(), "", ", start: all", "");
    said(dir.path(), "the first list is in the journal").await;
    let config = dir.path().join("tidings.yaml");
    let changed = std::fs::read_to_string(&config).unwrap();
    let changed = changed.replace("start: all", &format!("start: all, proxy: {address:?}"));
    std::fs::write(&config, changed).unwrap();
    said(dir.path(), "changed=\"source.proxy\"").await;
    // The next request goes there.
    server.cut_connections();
    assert!(asked(&proxy).await.starts_with("CONNECT 127.0.0.1:"));
}

/// kube would say why it cannot use it with all of its address.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_before_the_api_server_that_cannot_be_used_is_not_told_with_its_password() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    for proxy in ["socks5h://Pl4nted:Pl4nted@127.0.0.1:1", "socks5://Pl4nted:Pl4nted@127.0.0.1:1"] {
        for way in ["source", "environment", "kubeconfig"] {
            let (source, environment) = match way {
                "source" => (format!(", proxy: \"{proxy}\""), ""),
                "environment" => (", proxy: env".to_owned(), proxy),
                _ => (String::new(), ""),
            };
            let mut kubeconfig = server.kubeconfig();
            if way == "kubeconfig" {
                let named = format!("proxy-url: \"{proxy}\"\n    server:");
                kubeconfig = kubeconfig.replacen("server:", &named, 1);
            }
            let mut bridge = run_with(&kubeconfig, dir.path(), environment, &source, "");
            let ended = timeout(LONGEST_WAIT, bridge.wait()).await.unwrap().unwrap();
            let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
            assert_eq!(ended.code(), Some(2), "{way}: {log}");
            assert!(log.contains("proxy") && log.contains("hint: "), "{way}: {log}");
            assert!(!log.contains("Pl4nted"), "{way}: {log}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_in_the_address_of_the_api_server_is_not_told() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let kubeconfig = server.kubeconfig().replacen("http://", "http://Pl4nted:Pl4nted@", 1);
    let _bridge = run_with(&kubeconfig, dir.path(), "", "", "");
    let log = said(dir.path(), "starting").await;
    assert!(log.contains("credentials=") && !log.contains("Pl4nted"), "{log}");
}
