// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/dashboard"
	"moult.dev/moult/internal/view"
)

const (
	// pagesEvery is how often the pages may change. Without a change they are updated after pagesAtLeast, because of their durations.
	pagesEvery, pagesAtLeast = time.Second, 10 * time.Second
	// logLines is how many lines of a failed pod are shown.
	logLines = 30
)

// Pages are the web pages of a cluster. They show what commands say of it.
type Pages struct {
	*dashboard.Server
	clock clock.WithTicker
	src   *source.Source

	// mu guards what the pages of nodes and rollouts are made of.
	mu      sync.Mutex
	cluster *view.Cluster
	now     time.Time
}

// NewPages returns the pages of what the source may read. They show nothing until Run.
func NewPages(clk clock.WithTicker, src *source.Source) *Pages {
	c := &Pages{clock: clk, src: src}
	c.Server = dashboard.New(clk, dashboard.Reader{Why: c.why, Preview: c.preview, Logs: c.logs})
	return c
}

// Run publishes the state after changes, until the context ends.
func (c *Pages) Run(ctx context.Context) error {
	c.src.Own, c.src.Namespace = c.src.Namespace, ""
	watches := c.src.Follow()
	watches.Rest = pagesEvery
	ticker := c.clock.NewTicker(pagesAtLeast)
	defer ticker.Stop()
	var last *dashboard.State
	return watches.Run(ctx, c.clock, ticker.C(), func() (bool, error) {
		now := c.clock.Now()
		c.src.Notes = nil
		next, err := c.read(ctx, now)
		trouble := watches.Trouble()
		switch {
		case err != nil && last == nil:
			return false, err
		case err != nil:
			next, trouble = &dashboard.State{At: last.At, Rollouts: last.Rollouts, Budgets: last.Budgets, Nodes: last.Nodes}, err
		}
		next.Notes = slices.Clone(c.src.Notes)
		if trouble != nil {
			next.Stale = "What is shown may be out of date: " + trouble.Error()
		}
		c.Publish(next)
		last = next
		return false, nil
	})
}

// read reads the cluster.
func (c *Pages) read(ctx context.Context, now time.Time) (*dashboard.State, error) {
	found, err := c.src.ReadRollouts(ctx, source.Target{})
	if err != nil {
		return nil, err
	}
	cluster, err := c.src.ReadCluster(ctx, found, nil, now)
	if err == nil && cluster.Nodes() != nil {
		err = c.src.ReadChecks(ctx, cluster, "")
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cluster, c.now = cluster, now
	return &dashboard.State{At: now, Rollouts: cluster.Rollouts(), Budgets: cluster.Budgets(), Nodes: cluster.Nodes()}, nil
}

// why explains a node.
func (c *Pages) why(_ context.Context, node string) (text.Lines, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, ok := c.cluster.Why(node)
	if !ok {
		return nil, false, nil
	}
	return explain(&w, c.now), true, nil
}

// preview says what a rollout would do.
func (c *Pages) preview(_ context.Context, kind, namespace, name string) (l text.Lines, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.cluster.Objects() {
		s := newSubject(o, 0)
		if s.kind.Name != kind || o.GetNamespace() != namespace || o.GetName() != name {
			continue
		}
		r := &result{Preview: c.cluster.Preview(o, s.Supposition)}
		(&previewCommand{limit: 10}).draw(&l, r, s, c.now)
		return l, nil
	}
	return nil, errors.New("the rollout is gone")
}

// logs returns the last lines of the pod that a rollout ran on a node: of the newest one that has failed, or else of the newest.
func (c *Pages) logs(ctx context.Context, kind, namespace, name, node string) (string, error) {
	var of labels.Set
	switch kind {
	case source.Plan.Name:
		of = labels.Set{upgradev1.LabelPlan: name, upgradev1.LabelNode: node}
	case source.DaemonSet.Name:
		of = labels.Set{edsv1.LabelName: name}
	default:
		return "The host's own log has them: this rollout runs no pod.", nil
	}
	on := source.OnNode(node)
	on.LabelSelector = of.String()
	pods, err := c.src.Core.Pods(namespace).List(ctx, on)
	if err != nil {
		return "", fmt.Errorf("listing pods, %w", err)
	}
	if len(pods.Items) == 0 {
		return "Its pod is gone.", nil
	}
	newest := slices.MaxFunc(pods.Items, func(a, b corev1.Pod) int {
		failed := func(p *corev1.Pod) int { return len(text.When(p.Status.Phase == corev1.PodFailed, "f")) }
		return cmp.Or(failed(&a)-failed(&b), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	container := newest.Spec.Containers[0].Name
	for _, s := range slices.Concat(newest.Status.InitContainerStatuses, newest.Status.ContainerStatuses) {
		if ended := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated); ended != nil && ended.ExitCode != 0 {
			container = s.Name
			break
		}
	}
	lines, err := c.src.Core.Pods(namespace).GetLogs(newest.Name, &corev1.PodLogOptions{Container: container, TailLines: ptr.To[int64](logLines)}).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the log of pod %s, %w", newest.Name, err)
	}
	return string(lines), nil
}
