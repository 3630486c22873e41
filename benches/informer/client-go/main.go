// What client-go's informers take for the objects of a resource: the other side of benches/informer/main.rs
// and of crates/kube-machinery/benches/memory.rs, which start it and measure its process.
//
//	client-go URL GROUP VERSION RESOURCE (whole|stripped|typed|typed-stripped)
//
// Of the resource's metadata, whole or without managedFields; or, typed, of whole Pods.
//
// It says "synced N" when its cache holds N objects. For each line that it reads it gives back what
// memory it can and says "ready". It ends with its input.
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// What controllers do who care for their memory.
func withoutManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

func ofMetadata(config *rest.Config, resource schema.GroupVersionResource) (cache.SharedIndexInformer, error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return metadatainformer.NewSharedInformerFactory(client, 0).ForResource(resource).Informer(), nil
}

func ofPods(config *rest.Config) (cache.SharedIndexInformer, error) {
	client, err := corev1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	pods := cache.NewListWatchFromClient(client.RESTClient(), "pods", "", fields.Everything())
	return cache.NewSharedIndexInformer(pods, &v1.Pod{}, 0, cache.Indexers{}), nil
}

func main() {
	if len(os.Args) != 6 {
		log.Fatal("client-go URL GROUP VERSION RESOURCE (whole|stripped|typed|typed-stripped)")
	}
	config, keep := &rest.Config{Host: os.Args[1]}, os.Args[5]
	resource := schema.GroupVersionResource{Group: os.Args[2], Version: os.Args[3], Resource: os.Args[4]}
	informer, err := ofMetadata(config, resource)
	if strings.HasPrefix(keep, "typed") {
		informer, err = ofPods(config)
	}
	if err != nil {
		log.Fatal(err)
	}
	if strings.HasSuffix(keep, "stripped") {
		if err := informer.SetTransform(withoutManagedFields); err != nil {
			log.Fatal(err)
		}
	}
	stop := make(chan struct{})
	go informer.Run(stop)
	cache.WaitForCacheSync(stop, informer.HasSynced)
	fmt.Println("synced", len(informer.GetStore().ListKeys()))

	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		debug.FreeOSMemory()
		fmt.Println("ready")
	}
}
