//! The memory of a cache of whole objects: `cargo bench -p kube-machinery --bench memory`.
//!
//! An API server in a process of its own holds 100 000 Pods, or as many as `PODS` says. One after another, each
//! in a fresh process, the caches list them, open their watch and stand still. `CLIENT_GO` may name the program that
//! is built of `benches/informer/client-go`, to stand beside them. docs/benchmarks.md has the figures.

#![allow(clippy::unwrap_used, reason = "a measurement ends with whatever went wrong first")]
#![allow(clippy::print_stdout, reason = "the table is the output")]

use std::{
    env, fs,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Config, core::ApiResource};
use kube_machinery::cache::{
    Decode, Metadata, ReflectorOptions, ResourceApi, SharedInformer, without_managed_fields,
};
use kube_testkit::api_server::{ApiServer, Options, Population};

/// How long a process stands still before its memory is read.
const SETTLE: Duration = Duration::from_secs(5);

/// By name and description.
const SIDES: [(&str, &str); 5] = [
    ("whole", "`SharedInformer<Pod>`"),
    ("whole-streamed", "the same, from a streaming list"),
    ("stripped", "the same, `without_managed_fields`"),
    ("stripped-streamed", "the same, from a streaming list"),
    ("metadata", "`SharedInformer<Metadata>`"),
];

/// By how client-go's program is to keep objects, and description.
const CLIENT_GO: [(&str, &str); 2] = [
    ("typed", "client-go 0.34.4, informer of Pods"),
    ("typed-stripped", "the same, `managedFields` removed by a transform"),
];

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve"] => serve(),
        ["follow", side, url] => follow(side, url),
        // Without it this is a test run, which measures nothing.
        [.., "--bench"] => measure(),
        _ => {}
    }
}

fn measure() {
    let this = env::current_exe().unwrap();
    let mut server = start(Command::new(&this).arg("serve"));
    let url = line(&mut server);
    println!("| cache | objects | s | CPU s | peak RSS MiB | RSS MiB |\n|---|--:|--:|--:|--:|--:|");
    for (side, what) in SIDES {
        row(what, Command::new(&this).args(["follow", side, &url]));
    }
    if let Some(client_go) = env::var_os("CLIENT_GO") {
        for (keep, what) in CLIENT_GO {
            row(what, Command::new(&client_go).args([&*url, "", "v1", "pods", keep]));
        }
    }
    server.kill().unwrap();
    server.wait().unwrap();
}

/// Has a program follow the Pods, and says what that took.
fn row(what: &str, program: &mut Command) {
    let begun = Instant::now();
    let mut follower = start(program);
    let objects = line(&mut follower);
    let seconds = begun.elapsed().as_secs_f64();
    std::thread::sleep(SETTLE);
    let (peak, rss) = memory(&follower);
    let cpu = processor_seconds(&follower);
    let objects = objects.trim_start_matches("synced ");
    println!("| {what} | {objects} | {seconds:.2} | {cpu:.2} | {peak:.0} | {rss:.0} |");
    follower.kill().unwrap();
    follower.wait().unwrap();
}

fn start(program: &mut Command) -> Child {
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn line(helper: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(helper.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// `VmHWM` and `VmRSS` in MiB.
fn memory(of: &Child) -> (f64, f64) {
    let status = fs::read_to_string(format!("/proc/{}/status", of.id())).unwrap();
    let member = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
    };
    (member("VmHWM:"), member("VmRSS:"))
}

/// User and system time.
fn processor_seconds(of: &Child) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", of.id())).unwrap();
    let times = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
    times.map(|ticks| ticks.parse::<f64>().unwrap() / 100.0).sum()
}

fn until_end() {
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[tokio::main]
async fn serve() {
    let server = ApiServer::start(Options::default()).unwrap();
    let pods = env::var("PODS").map_or(100_000, |pods| pods.parse().unwrap());
    server.populate(&Population::of_pods(pods));
    println!("{}", server.url());
    tokio::task::spawn_blocking(until_end).await.unwrap();
}

#[tokio::main]
async fn follow(side: &str, url: &str) {
    let config = Config::new(url.parse().unwrap());
    let client = kube_machinery::client_without_retry(config).unwrap();
    let streaming_lists = side.ends_with("-streamed");
    let options = ReflectorOptions { streaming_lists, ..ReflectorOptions::default() };
    let pods = ResourceApi::new(client.clone(), &ApiResource::erase::<Pod>(&()));
    match side.trim_end_matches("-streamed") {
        "metadata" => run(SharedInformer::<Metadata>::builder(pods.metadata_only()).build()).await,
        "stripped" => {
            let builder = SharedInformer::<Pod>::builder(pods).reflector(options);
            run(builder.transform(without_managed_fields).build()).await;
        }
        _ => run(SharedInformer::<Pod>::builder(pods).reflector(options).build()).await,
    }
}

async fn run<K: Decode>(informer: SharedInformer<K>) {
    let running = tokio::spawn({
        let informer = informer.clone();
        async move { informer.run().await }
    });
    assert!(informer.wait_for_cache_sync().await);
    println!("{}", informer.store().len());
    running.await.unwrap().unwrap();
}
