//! Our side: a shared informer of metadata, as a program has it.

use std::io::BufRead as _;

use clap::ValueEnum;
use kube::{
    Config,
    core::{ApiResource, GroupVersionKind},
};
use tidings::{
    cache::{Metadata, ResourceApi, SharedInformer},
    record::ApiServerSink,
};

use crate::Result;

/// What is kept of an object.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Keep {
    Whole,
    WithoutAnnotations,
}

/// Says how many objects there are when it has all of them, and "ready" for each line that it reads.
#[tokio::main]
pub(crate) async fn run(url: &str, resource: &str, keep: Keep) -> Result<()> {
    let client = ApiServerSink::client_without_retry(Config::new(url.parse()?))?;
    // The kind does not matter: objects come as PartialObjectMetadata.
    let kind = GroupVersionKind::gvk("", "v1", "Object");
    let resource = ApiResource::from_gvk_with_plural(&kind, resource);
    let api = ResourceApi::new(client, &resource).metadata_only();
    let mut builder = SharedInformer::<Metadata>::builder(api);
    if keep == Keep::WithoutAnnotations {
        builder = builder.transform(|mut object| {
            object.retain_annotations(|_| false);
            Ok(object)
        });
    }
    let informer = builder.build();
    let running = tokio::spawn({
        let informer = informer.clone();
        async move { informer.run().await }
    });
    informer.wait_for_cache_sync().await;
    println!("synced {}", informer.store().len());
    tokio::task::spawn_blocking(|| {
        for line in std::io::stdin().lock().lines() {
            line?;
            println!("ready");
        }
        std::io::Result::Ok(())
    })
    .await??;
    informer.shutdown().await;
    Ok(running.await??)
}
