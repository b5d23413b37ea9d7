// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// requestTimeout bounds each request but a watch.
const requestTimeout = 30 * time.Second

// watchFor is the shortest duration of a watch; the longest is twice as long. The watch is renewed without a list.
const watchFor = 30 * time.Minute

// fieldManager names the agent in a Node's managed fields.
const fieldManager = "moult-agent"

// ReadAsNode is the identity with which an agent reads its own Node. As the node itself, it can read only that Node.
type ReadAsNode string

// The values of ReadAsNode.
const (
	// ReadAsNodeAuto reads as the node if the API server lets a service account do so (Kubernetes 1.36 and later). Otherwise it reads as
	// the service account.
	ReadAsNodeAuto ReadAsNode = "auto"
	// ReadAsNodeAlways reads as the node only.
	ReadAsNodeAlways ReadAsNode = "always"
	// ReadAsNodeNever reads as the service account.
	ReadAsNodeNever ReadAsNode = "never"
)

var nodes = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}

// nodeClient reads and patches one Node. Several goroutines may use it.
type nodeClient struct {
	name string
	log  logr.Logger
	// readers has one client for each identity. If the API server refuses one identity, the other is tried. preferred is the index of
	// the reader that worked.
	readers   []metadata.Getter
	preferred atomic.Int32
	writer    metadata.Getter
	// refused gets the error of a read that no identity is allowed.
	refused chan error
}

// readConfigs returns the configurations to read a Node with, the preferred one first.
func (as ReadAsNode) readConfigs(config *rest.Config, name string) ([]*rest.Config, error) {
	asNode := rest.CopyConfig(config)
	asNode.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + name}
	switch as {
	case "", ReadAsNodeAuto:
		return []*rest.Config{asNode, config}, nil
	case ReadAsNodeAlways:
		return []*rest.Config{asNode}, nil
	case ReadAsNodeNever:
		return []*rest.Config{config}, nil
	}
	return nil, fmt.Errorf("reading as the node must be auto, always or never, not %q", as)
}

func newNodeClient(config *rest.Config, as ReadAsNode, name string, log logr.Logger) (*nodeClient, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Timeout = -1, 0 // The agent itself sends no request without a reason. A delayed patch would be out of date.
	configs, err := as.readConfigs(config, name)
	if err != nil {
		return nil, err
	}
	var all []metadata.Getter
	for _, config := range append(configs, config) {
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("making a client, %w", err)
		}
		all = append(all, client.Resource(nodes))
	}
	return &nodeClient{name: name, log: log, readers: all[:len(configs)], writer: all[len(configs)], refused: make(chan error, 1)}, nil
}

// read reads as the preferred identity, and if that is forbidden as the other.
func read[T any](c *nodeClient, get func(metadata.Getter) (T, error)) (T, error) {
	preferred := int(c.preferred.Load())
	got, err := get(c.readers[preferred])
	if !apierrors.IsForbidden(err) {
		return got, err
	}
	other, otherErr := preferred, err
	if len(c.readers) > 1 {
		other = 1 - preferred
		got, otherErr = get(c.readers[other])
	}
	if apierrors.IsForbidden(otherErr) {
		err = fmt.Errorf("reading as system:node:%s needs Kubernetes 1.36 or newer, and reading directly needs config/hostupdate/direct-reads: %w; %w",
			c.name, err, otherErr)
		select {
		case c.refused <- err:
		default:
		}
		return got, err
	}
	if otherErr == nil {
		c.preferred.Store(int32(other))
		c.log.Info("reads are forbidden as one identity and allowed as the other", "asNode", other == 0, "forbidden", err)
	}
	return got, otherErr
}

// get reads the Node.
func (c *nodeClient) get(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	n, err := read(c, func(g metadata.Getter) (*metav1.PartialObjectMetadata, error) {
		return g.Get(ctx, c.name, metav1.GetOptions{})
	})
	if err != nil {
		return nil, fmt.Errorf("reading node %s, %w", c.name, err)
	}
	return n, nil
}

// patch changes the Node, and returns it with the change. With metav1.DryRunAll the change is not stored.
func (c *nodeClient) patch(ctx context.Context, body []byte, dryRun ...string) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	n, err := c.writer.Patch(ctx, c.name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager, DryRun: dryRun})
	if err != nil {
		return nil, fmt.Errorf("writing to node %s, %w", c.name, err)
	}
	return n, nil
}

// watch keeps the observation up to date until the context ends. The reflector reconnects by itself.
func (c *nodeClient) watch(ctx context.Context, o *observation) {
	selector := metav1.ObjectNameField + "=" + c.name
	node := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			options.FieldSelector = selector
			return read(c, func(g metadata.Getter) (runtime.Object, error) { return g.List(ctx, options) })
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			return read(c, func(g metadata.Getter) (watch.Interface, error) { return g.Watch(ctx, options) })
		},
	}
	options := cache.ReflectorOptions{Logger: &c.log, Name: "node", MinWatchTimeout: watchFor}
	cache.NewReflectorWithOptions(node, &metav1.PartialObjectMetadata{}, o, options).RunWithContext(logr.NewContext(ctx, c.log))
}

// observation is the newest known state of the agent's own Node. The reflector and the agent's own reads and writes fill it. States come
// in any order, so set ignores a state that is older.
type observation struct {
	changed chan struct{}

	mu     sync.Mutex
	synced bool
	node   *metav1.PartialObjectMetadata
	// version is the resourceVersion of the newest state, also if there is no Node.
	version string
}

var _ cache.ReflectorStore = (*observation)(nil)

func newObservation() *observation { return &observation{changed: make(chan struct{}, 1)} }

// get returns the Node, or nil if there is no Node. It returns false if nothing is known yet.
func (o *observation) get() (*metav1.PartialObjectMetadata, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.node, o.synced
}

// set stores the state at a resourceVersion: the Node, or nil. It ignores an older state. It stores a state whose order is unknown.
func (o *observation) set(n *metav1.PartialObjectMetadata, version string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if order, err := resourceversion.CompareResourceVersion(version, o.version); err == nil && order <= 0 {
		return
	}
	o.node, o.synced = n, true
	if version != "" {
		o.version = version
	}
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// Add stores a Node that the reflector reports. The reflector reports no other kind.
func (o *observation) Add(object any) error {
	n := object.(*metav1.PartialObjectMetadata)
	o.set(n, n.ResourceVersion)
	return nil
}

// Update stores a Node that the reflector reports.
func (o *observation) Update(object any) error { return o.Add(object) }

// Delete stores that the Node was deleted.
func (o *observation) Delete(object any) error {
	o.set(nil, object.(*metav1.PartialObjectMetadata).ResourceVersion)
	return nil
}

// Replace stores a list that the reflector reports: the Node, or nothing.
func (o *observation) Replace(all []any, version string) error {
	if len(all) > 0 {
		return o.Add(all[0])
	}
	o.set(nil, version)
	return nil
}

// Resync does nothing: every state is handled when it comes.
func (o *observation) Resync() error { return nil }
