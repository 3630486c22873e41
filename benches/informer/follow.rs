//! Our side: a shared informer of metadata, as a program has it.

use std::io::BufRead as _;

use kube::{
    Config,
    core::{ApiResource, GroupVersionKind},
};
use tidings_kube::{
    client_without_retry, informer::SharedInformer, object::Metadata, reflector::ResourceApi,
};

use crate::Result;

/// Says how many objects there are when it has all of them, and "ready" for each line that it reads.
#[tokio::main]
pub(crate) async fn run(url: &str, resource: &str) -> Result<()> {
    let client = client_without_retry(Config::new(url.parse()?))?;
    // The kind does not matter: objects come as PartialObjectMetadata.
    let kind = GroupVersionKind::gvk("", "v1", "Object");
    let resource = ApiResource::from_gvk_with_plural(&kind, resource);
    let api = ResourceApi::new(client, &resource).metadata_only();
    let informer = SharedInformer::<Metadata>::builder(api).build();
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
