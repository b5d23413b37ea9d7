// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/operator"
)

// seedOf returns MOULT_SEED, or else always the same.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	text, ok := os.LookupEnv("MOULT_SEED")
	if !ok {
		text = "3"
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("reading MOULT_SEED, %v", err)
	}
	t.Logf("MOULT_SEED=%d repeats what was drawn, though not what happens in between", seed)
	return seed
}

// harness is a cluster with an operator of which all requests go through a gate.
type harness struct {
	t         *testing.T
	cluster   *cluster.Cluster
	client    client.WithWatch
	namespace string
	journal   *journal
	trap      *trap
	gate      *gate
	// args and env are the operator's.
	args, env []string
	logFile   string
	standing  func() string
	// background are goroutines that end with the test's context.
	background sync.WaitGroup

	program, kubeconfig string

	mu      sync.Mutex
	process *operator.Process
}

// buildOperator returns the path of the built operator.
func buildOperator(t *testing.T) string {
	t.Helper()
	program, err := operator.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// newHarness connects to a cluster, and starts no operator yet. The context ends a little before the test must: that is the only bound of all waiting.
func newHarness(t *testing.T, program string) (context.Context, *harness) {
	t.Helper()
	deadline, ok := t.Deadline()
	if !ok {
		deadline = time.Now().Add(24 * time.Hour)
	}
	ctx, cancel := context.WithDeadline(t.Context(), deadline.Add(-time.Until(deadline)/20))
	log.SetLogger(logr.Discard()) // The operator is another process, and logs for itself.
	h := &harness{t: t, program: program, trap: &trap{}, standing: func() string { return "" }}
	h.cluster = cluster.Shared(t, 0)
	config := h.cluster.Config()
	config.UserAgent = "chaos"
	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), upgradev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), edsv1.AddToScheme(scheme))
	if err != nil {
		t.Fatal(err)
	}
	if h.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	h.gate = newGate(t, h.cluster.Config(), h.trap, h)
	h.kubeconfig = h.gate.kubeconfig(t)
	h.journal = newJournal(t, h.client)
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "chaos-"}}
	if err := h.client.Create(ctx, space); err != nil {
		t.Fatal(err)
	}
	h.namespace = space.Name
	// Without its account no pods can be made in the namespace, and the Job controller waits ever longer.
	if err := cluster.WaitForAccounts(ctx, h.client, h.namespace); err != nil {
		t.Fatal(err)
	}
	h.logFile = filepath.Join(t.TempDir(), "moult.log")
	h.args = []string{
		"--namespace=" + h.namespace, "--watch-namespace=" + h.namespace, "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0",
		// A slow machine is no reason for a Job to fail, or to go before it is seen.
		"--job-active-deadline-seconds=0", "--job-ttl-seconds-after-finish=86400",
	}
	t.Cleanup(func() {
		h.Kill()
		cancel()
		h.background.Wait()
		h.remove(context.WithoutCancel(ctx), space)
	})
	return ctx, h
}

// remove deletes what is left. No operator is there for its finalizers.
func (h *harness) remove(ctx context.Context, space *corev1.Namespace) {
	left := []client.Object{space}
	var rollouts v1alpha1.NodeRolloutList
	var budgets v1alpha1.NodeDisruptionBudgetList
	if err := errors.Join(h.client.List(ctx, &rollouts), h.client.List(ctx, &budgets)); err != nil && !meta.IsNoMatchError(err) {
		h.t.Errorf("listing what is left, %v", err)
	}
	for i := range rollouts.Items {
		left = append(left, &rollouts.Items[i])
	}
	for i := range budgets.Items {
		left = append(left, &budgets.Items[i])
	}
	for _, o := range left {
		if len(o.GetFinalizers()) > 0 {
			_ = h.client.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
		}
		if err := client.IgnoreNotFound(h.client.Delete(ctx, o)); err != nil {
			h.t.Errorf("deleting what is left, %v", err)
		}
	}
	// The next test has nodes of the same names.
	if err := h.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(h.namespace), client.GracePeriodSeconds(0)); err != nil {
		h.t.Errorf("deleting what is left, %v", err)
	}
}

// addNodes adds simulated nodes to a pool.
func (h *harness) addNodes(ctx context.Context, pool string, n int, labels map[string]string, osImage string) {
	h.t.Helper()
	all := map[string]string{labelPool: pool}
	maps.Copy(all, labels)
	for i := range n {
		o := cluster.NodeOptions{Name: fmt.Sprintf("%s-%d", pool, i+1), Labels: all, OSImage: osImage}
		if err := h.cluster.AddNode(ctx, o); err != nil {
			h.t.Fatal(err)
		}
	}
	h.until(ctx, "the nodes are ready", func() (bool, error) {
		var nodes corev1.NodeList
		err := h.client.List(ctx, &nodes, client.MatchingLabels{labelPool: pool})
		ready := 0
		for i := range nodes.Items {
			if nodeReady(&nodes.Items[i]) && len(nodes.Items[i].Spec.Taints) == 0 {
				ready++
			}
		}
		return ready == n, err
	})
}

// start starts an operator if none runs.
func (h *harness) start() {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.process != nil {
		return
	}
	var err error
	if h.process, err = operator.Start(h.program, h.kubeconfig, h.logFile, h.env, h.args...); err != nil {
		h.t.Fatal(err)
	}
}

// running returns the operator's process, or nil.
func (h *harness) running() *operator.Process {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.process
}

// Kill ends the operator.
func (h *harness) Kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.process != nil {
		h.process.Kill()
	}
	h.process = nil
}

// stop asks the operator to end, and waits until it has.
func (h *harness) stop() {
	h.t.Helper()
	p := h.running()
	if err := p.Stop(5 * time.Minute); err != nil {
		h.t.Fatal(err)
	}
	h.Kill()
}

// killAt kills at an instant. It returns what it hit.
func (h *harness) killAt(ctx context.Context, at instant) (what string) {
	h.t.Helper()
	hit := h.trap.arm(at)
	h.start()
	h.until(ctx, "the process is killed "+at.String(), func() (bool, error) {
		select {
		case what = <-hit:
			return true, nil
		default:
			return false, nil
		}
	})
	return what
}

// until waits for what must come, as long as the test may run. An error that is the moment's is not the end of it.
func (h *harness) until(ctx context.Context, what string, holds func() (bool, error)) {
	h.t.Helper()
	for {
		p := h.running()
		ok, last := holds()
		if last != nil && !cluster.Passing(last) {
			h.t.Fatalf("waiting until %s, %v", what, last)
		}
		if ok && last == nil {
			return
		}
		var exited <-chan struct{}
		if p != nil {
			exited = p.Exited()
		}
		if h.t.Failed() {
			h.t.Fatalf("waiting until %s, something was wrong meanwhile\n%s", what, h.standing())
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-exited:
			if h.running() == p {
				h.t.Fatal(p.Died())
			}
		case err := <-h.journal.failed:
			h.t.Fatal(err)
		case <-ctx.Done():
			h.t.Fatalf("waiting until %s, %v, %v\n%s\n%s", what, context.Cause(ctx), last, h.standing(), operator.Tail(h.logFile, 20))
		}
	}
}

// create creates an object.
func (h *harness) create(ctx context.Context, objects ...client.Object) {
	h.t.Helper()
	for _, o := range objects {
		if err := h.client.Create(ctx, o); err != nil {
			h.t.Fatal(err)
		}
	}
}

// patch patches an object, which needs no more than its name.
func (h *harness) patch(ctx context.Context, o client.Object, format string, args ...any) error {
	o.SetNamespace(h.namespace)
	return h.client.Patch(ctx, o, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, format, args...)))
}
