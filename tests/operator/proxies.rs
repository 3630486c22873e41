//! Which proxies `tidings run` uses, before the API server and before a receiver.

use std::{path::Path, process::Stdio, time::Duration};

use tidings::demo::api_server::{ApiServer, EventObject};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpListener,
    process::{Child, Command},
    time::{sleep, timeout},
};

use crate::support::server;

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

#[tokio::test]
async fn a_password_of_a_proxy_of_the_environment_is_not_sent_in_plain_text() {
    let dir = tempfile::tempdir().unwrap();
    let check = async |config: &str, proxy: &str| {
        let file = dir.path().join("tidings.yaml");
        std::fs::write(&file, config).unwrap();
        let mut check = Command::new(env!("CARGO_BIN_EXE_tidings"));
        check.arg("check").arg("--config").arg(file).env("HTTPS_PROXY", proxy);
        let output = check.output().await.unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let sink = "sinks: {out: {webhook: {url: https://siem.example/hook}, proxy: env}}\n";
    let source =
        "source: {proxy: env}\nsinks: {out: {webhook: {url: https://siem.example/hook}}}\n";
    for (config, proxy, is_refused) in [
        (sink, "http://tidings:hunter2secret@192.0.2.2:3128", true),
        (sink, "tidings:hunter2secret@192.0.2.2:3128", true),
        (source, "http://tidings:hunter2secret@192.0.2.2:3128", true),
        (sink, "https://tidings:hunter2secret@192.0.2.2:3128", false),
        (sink, "http://tidings:hunter2secret@127.0.0.1:3128", false),
        (sink, "http://192.0.2.2:3128", false),
    ] {
        let (is_taken, said) = check(config, proxy).await;
        assert_eq!(is_taken, !is_refused, "{proxy}: {said}");
        assert_eq!(said.contains("the proxy in the variable HTTPS_PROXY"), is_refused, "{said}");
        assert!(!said.contains("hunter2secret"), "{said}");
    }
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
async fn a_proxy_of_the_environment_that_is_none_hinders_nothing() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    server.create(EventObject::about_pod("shop", "web-0", "Started", "")).unwrap();
    let _bridge = run(&server, dir.path(), "http://[::1", "", "");
    said(dir.path(), "the sink does not take events").await;
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
