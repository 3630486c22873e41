//! By what name a broker knows the bridge.

use std::process::Stdio;

use tokio::{io::AsyncReadExt as _, net::TcpListener};

use crate::{commands::command, support::server};

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_hears_the_name_of_the_cluster_as_client_id() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let broker = TcpListener::bind("127.0.0.1:0").await.unwrap();
    std::fs::write(dir.path().join("kubeconfig"), server.kubeconfig()).unwrap();
    let config = format!(
        "cluster: {{name: prod-eu-1}}\nsource: {{kubeconfig: {0}/kubeconfig}}\n\
         journal: {{path: {0}/journal}}\nserver: {{listen: \"127.0.0.1:0\"}}\n\
         sinks: {{audit: {{kafka: {{brokers: [\"{1}\"], topic: t}}}}}}\n",
        dir.path().display(),
        broker.local_addr().unwrap(),
    );
    let path = dir.path().join("tidings.yaml");
    std::fs::write(&path, config).unwrap();
    let mut run = command(&path, &["run"]);
    let _bridge = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (mut asking, _) = broker.accept().await.unwrap();
    // Every request begins with its size, its kind and version, its number and the client's id.
    let mut head = [0; 12];
    asking.read_exact(&mut head).await.unwrap();
    let mut id = vec![0; asking.read_u16().await.unwrap().into()];
    asking.read_exact(&mut id).await.unwrap();
    assert_eq!(String::from_utf8(id).unwrap(), "tidings-prod-eu-1");
}
