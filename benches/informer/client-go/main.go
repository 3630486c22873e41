// What client-go's metadata informer takes for the objects of a resource: the other side of
// benches/informer/main.rs, which starts it and measures its process.
//
//	client-go URL GROUP VERSION RESOURCE (whole|stripped)
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

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
)

// What controllers do who care for their memory.
func withoutManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

func main() {
	if len(os.Args) != 6 {
		log.Fatal("client-go URL GROUP VERSION RESOURCE (whole|stripped)")
	}
	client, err := metadata.NewForConfig(&rest.Config{Host: os.Args[1]})
	if err != nil {
		log.Fatal(err)
	}
	resource := schema.GroupVersionResource{Group: os.Args[2], Version: os.Args[3], Resource: os.Args[4]}
	factory := metadatainformer.NewSharedInformerFactory(client, 0)
	informer := factory.ForResource(resource).Informer()
	if os.Args[5] == "stripped" {
		if err := informer.SetTransform(withoutManagedFields); err != nil {
			log.Fatal(err)
		}
	}
	stop := make(chan struct{})
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	fmt.Println("synced", len(informer.GetStore().ListKeys()))

	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		debug.FreeOSMemory()
		fmt.Println("ready")
	}
}
