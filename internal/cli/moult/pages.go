// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
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
	// previewsWithin is how long a page waits for a preview. One of many nodes takes longer.
	previewsWithin = 20 * time.Millisecond
	// logLines is how many lines of a failed pod are shown.
	logLines = 30
)

// Pages are the web pages of a cluster. They show what commands say of it.
type Pages struct {
	*dashboard.Server
	clock clock.WithTicker
	src   *source.Source

	// mu guards what the pages of nodes and rollouts are made of. It replaces a cluster, and does not change one.
	mu      sync.Mutex
	cluster *view.Cluster
	now     time.Time
	// previews are the last ones, by kind, namespace and name.
	previews map[[3]string]*previewed
}

// previewed is a preview.
type previewed struct {
	lines text.Lines
	err   error
	// next is when there may be another. It is not known while one is made.
	next *time.Time
}

// NewPages returns the pages of what the source may read. They show nothing until Run.
func NewPages(clk clock.WithTicker, src *source.Source) *Pages {
	c := &Pages{clock: clk, src: src, previews: map[[3]string]*previewed{}}
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
			if trouble != nil {
				err = nil // The watches try again.
			}
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

// Serve runs the server and keeps the pages up to date, until the context ends or either fails.
func (c *Pages) Serve(ctx context.Context, server *http.Server, serve func() error) error {
	group, running := errgroup.WithContext(ctx)
	context.AfterFunc(running, func() { _ = server.Close() })
	group.Go(func() error { return fmt.Errorf("serving pages, %w", serve()) })
	group.Go(func() error { return c.Run(running) })
	if err := group.Wait(); ctx.Err() == nil {
		return err
	}
	return nil // The program was ended.
}

// read reads the cluster.
func (c *Pages) read(ctx context.Context, now time.Time) (*dashboard.State, error) {
	cluster, err := c.src.ReadNamed(ctx, source.Target{}, "", nil, now)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cluster, c.now = cluster, now
	return &dashboard.State{At: now, Rollouts: cluster.Rollouts(), Budgets: cluster.Budgets(), Nodes: cluster.Nodes()}, nil
}

// why explains a node.
func (c *Pages) why(node string) (text.Lines, bool) {
	c.mu.Lock()
	cluster, now := c.cluster, c.now
	c.mu.Unlock()
	w, ok := cluster.Why(node)
	return explain(&w, now), ok
}

// preview says what a rollout would do. It returns the last preview if another takes long. Previews of a rollout use at most a tenth of a core.
func (c *Pages) preview(ctx context.Context, kind, namespace, name string) (text.Lines, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := [3]string{kind, namespace, name}
	last := c.previews[key]
	if last == nil {
		last = &previewed{err: errors.New("it is still being worked out"), next: &time.Time{}}
		c.previews[key] = last
	}
	began := c.clock.Now()
	if last.next == nil || began.Before(*last.next) {
		return last.lines, last.err
	}
	last.next = nil
	made := make(chan struct{})
	go func(cluster *view.Cluster, now time.Time) {
		defer close(made)
		lines, err := previewOf(cluster, kind, namespace, name, now)
		ended := c.clock.Now()
		c.mu.Lock()
		defer c.mu.Unlock()
		*last = previewed{lines, err, ptr.To(ended.Add(9 * ended.Sub(began)))}
	}(c.cluster, c.now)
	c.mu.Unlock()
	select {
	case <-made:
	case <-ctx.Done():
	case <-c.clock.After(previewsWithin):
	}
	c.mu.Lock()
	return last.lines, last.err
}

func previewOf(cluster *view.Cluster, kind, namespace, name string, now time.Time) (l text.Lines, err error) {
	for _, o := range cluster.Objects() {
		s := newSubject(o, 0)
		if s.kind.Name != kind || o.GetNamespace() != namespace || o.GetName() != name {
			continue
		}
		r := &result{Preview: cluster.Preview(o, s.Supposition)}
		(&previewCommand{limit: 10}).draw(&l, r, s, now)
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

func newUI(c command) *cobra.Command {
	cmd := help("ui",
		`Show rollouts, nodes and budgets as live web pages.
A web server on this machine's loopback address shows what you may read with your kubeconfig. It ends with Ctrl-C.`,
		`  kubectl moult ui
  kubectl moult ui --port 9000 --browser=false`)
	port := cmd.Flags().Int("port", 8090, "Port on the loopback address; 0 is any free one.")
	browser := cmd.Flags().Bool("browser", true, "Open the page in the browser.")
	return source.Verb(c.cluster, cmd, nil, func(ctx context.Context, src *source.Source, _ source.Target) error {
		return c.serve(ctx, src, *port, *browser)
	})
}

func (c *command) serve(ctx context.Context, src *source.Source, port int, browser bool) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) //nolint:noctx // It returns at once.
	if err != nil {
		return fmt.Errorf("listening, %w (--port chooses another port)", err)
	}
	pages := NewPages(c.clock, src)
	server := &http.Server{Handler: onlyLocal(listener.Addr().(*net.TCPAddr).Port, pages.Server), ReadHeaderTimeout: 10 * time.Second}
	address := "http://" + listener.Addr().String() + "/"
	fmt.Fprintf(c.Out, "The page is at %s until Ctrl-C.\n", address)
	if browser {
		open(ctx, address)
	}
	return pages.Serve(ctx, server, func() error { return server.Serve(listener) })
}

// onlyLocal refuses requests that name another host: a page of another site may have made them, by a name that it made lead here.
func onlyLocal(port int, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, at, err := net.SplitHostPort(r.Host)
		if err != nil || at != strconv.Itoa(port) || host != "localhost" && host != "127.0.0.1" {
			http.Error(w, "Only requests to localhost are answered.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// open opens a page in the browser, if there is one.
func open(ctx context.Context, address string) {
	opener := map[string][]string{"darwin": {"open"}, "windows": {"rundll32", "url.dll,FileProtocolHandler"}}[runtime.GOOS]
	if opener == nil {
		opener = []string{"xdg-open"}
	}
	_ = exec.CommandContext(ctx, opener[0], append(opener[1:], address)...).Start() // If it fails, the address was printed.
}
