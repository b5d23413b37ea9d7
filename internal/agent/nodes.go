// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// requestTimeout bounds each request but a watch.
const requestTimeout = 30 * time.Second

// What one agent may ask of the API server: requests a second, and at once.
const (
	qps   = 5
	burst = 10
)

// fieldManager names the agent in a Node's managed fields.
const fieldManager = "moult-agent"

// ReadAsNode says as whom an agent reads its own Node. As the node itself the API server shows it that one Node alone.
type ReadAsNode string

// As whom an agent reads its own Node.
const (
	// ReadAsNodeAuto reads as the node where the API server lets a service account do so, which it does from Kubernetes 1.36 on, and as
	// itself where not.
	ReadAsNodeAuto ReadAsNode = "auto"
	// ReadAsNodeAlways reads as the node only.
	ReadAsNodeAlways ReadAsNode = "always"
	// ReadAsNodeNever reads as the service account.
	ReadAsNodeNever ReadAsNode = "never"
)

// reader reads one Node in ways that take each other's place when the API server refuses one.
type reader struct {
	name string
	ways []metadata.Getter
	// first is the index of the way that worked.
	first atomic.Int32
	log   *slog.Logger
	told  atomic.Bool
}

var nodes = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}

// limited is the configuration of a client of one node.
func limited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.Timeout = qps, burst, 0
	return config
}

// asNode is the configuration that reads as a node.
func asNode(config *rest.Config, name string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + name}
	return config
}

// configs are those with which a Node is read, the one to begin with first.
func (as ReadAsNode) configs(config *rest.Config, name string) ([]*rest.Config, error) {
	switch as {
	case "", ReadAsNodeAuto:
		return []*rest.Config{asNode(config, name), config}, nil
	case ReadAsNodeAlways:
		return []*rest.Config{asNode(config, name)}, nil
	case ReadAsNodeNever:
		return []*rest.Config{config}, nil
	}
	return nil, fmt.Errorf("reading as the node must be auto, always or never, not %q", as)
}

// newReader makes a reader, which may be used by several goroutines.
func newReader(config *rest.Config, as ReadAsNode, name string, log *slog.Logger) (*reader, error) {
	configs, err := as.configs(config, name)
	if err != nil {
		return nil, err
	}
	r := &reader{name: name, log: log}
	for _, c := range configs {
		client, err := metadata.NewForConfig(c)
		if err != nil {
			return nil, fmt.Errorf("making a client, %w", err)
		}
		r.ways = append(r.ways, client.Resource(nodes))
	}
	return r, nil
}

// try reads in one way after the other until one is not refused, and remembers which. When all are, the next time begins with the
// first way again.
func (r *reader) try(read func(metadata.Getter) error) error {
	first := int(r.first.Load())
	err := read(r.ways[first])
	if !apierrors.IsForbidden(err) || len(r.ways) == 1 {
		return err
	}
	other := 1 - first
	otherErr := read(r.ways[other])
	if !apierrors.IsForbidden(otherErr) {
		if otherErr == nil {
			r.first.Store(int32(other))
			r.log.Info("reads are refused in one way and work in another", "asNode", other == 0, "refused", err)
		}
		return otherErr
	}
	r.first.Store(0)
	if first != 0 {
		err, otherErr = otherErr, err
	}
	err = fmt.Errorf("neither as system:node:%s (Kubernetes 1.36 and newer) nor directly (config/hostupdate/direct-reads for older ones): %w; %w",
		r.name, err, otherErr)
	if r.told.CompareAndSwap(false, true) {
		r.log.Error("the Node can't be read", "error", err)
	}
	return err
}

// get reads the Node as it is now; nil when there is none.
func (r *reader) get(ctx context.Context) (n *metav1.PartialObjectMetadata, err error) {
	err = r.try(func(c metadata.Getter) error {
		timed, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		n, err = c.Get(timed, r.name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading node %s, %w", r.name, err)
	}
	return n, nil
}

// list reads the Node as it is now, nil when there is none, and the resourceVersion from which it can be watched.
func (r *reader) list(ctx context.Context) (n *metav1.PartialObjectMetadata, resourceVersion string, err error) {
	var all *metav1.PartialObjectMetadataList
	err = r.try(func(c metadata.Getter) error {
		timed, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		all, err = c.List(timed, metav1.ListOptions{FieldSelector: r.selector()})
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("reading node %s, %w", r.name, err)
	}
	for i := range all.Items {
		if all.Items[i].Name == r.name {
			n = &all.Items[i]
		}
	}
	return n, all.ResourceVersion, nil
}

// watch tells of each change of the Node after a resourceVersion, for so long.
func (r *reader) watch(ctx context.Context, resourceVersion string, d time.Duration) (w watch.Interface, err error) {
	seconds := int64(d.Seconds())
	err = r.try(func(c metadata.Getter) error {
		w, err = c.Watch(ctx, metav1.ListOptions{
			FieldSelector: r.selector(), ResourceVersion: resourceVersion, TimeoutSeconds: &seconds, AllowWatchBookmarks: true,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watching node %s, %w", r.name, err)
	}
	return w, nil
}

func (r *reader) selector() string { return metav1.ObjectNameField + "=" + r.name }

// writer writes to one Node.
type writer struct {
	name   string
	client metadata.Getter
}

func newWriter(config *rest.Config, name string) (*writer, error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client, %w", err)
	}
	return &writer{name: name, client: client.Resource(nodes)}, nil
}

// patch changes the Node, and returns it as it is then.
func (w *writer) patch(ctx context.Context, body []byte) (*metav1.PartialObjectMetadata, error) {
	timed, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	n, err := w.client.Patch(timed, w.name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return nil, fmt.Errorf("writing to node %s, %w", w.name, err)
	}
	return n, nil
}
