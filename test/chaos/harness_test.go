// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

const (
	kills = 50
	// patience bounds a life whose kill would wait for something that does not come.
	patience = 6 * time.Second
	// starting bounds how long it is waited for an operator that begins.
	starting = 30 * time.Second
)

// seed is MOULT_SEED, or else always the same: what is drawn by chance is for those to see who look for it, by make chaos.
func seed(t *testing.T) uint64 {
	t.Helper()
	text, ok := os.LookupEnv("MOULT_SEED")
	if !ok {
		return 3
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("reading MOULT_SEED, %v", err)
	}
	return n
}

// harness is what every kind of rollout is killed with.
type harness struct {
	t       *testing.T
	random  *rand.Rand
	cluster *cluster.Cluster
	client  client.WithWatch
	gate    *gate
	journal *journal
	program string
	// env is the operator's environment.
	env     []string
	process *operator.Process
	// now says in short how things stand.
	now func() string
	// tally counts the kills by what they hit.
	tally map[string]int
}

// newHarness starts a cluster, without an operator yet.
func newHarness(ctx context.Context, t *testing.T, random *rand.Rand, o cluster.Options, w writes) *harness {
	t.Helper()
	log.SetLogger(logr.Discard()) // The operator is another process, and logs for itself.
	h := &harness{t: t, random: random, tally: map[string]int{}}
	var err error
	if h.program, err = operator.Build(ctx, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	h.cluster = cluster.New(t, o)
	config := h.cluster.Config()
	config.UserAgent = "chaos"
	scheme := runtime.NewScheme()
	err = errors.Join(clientgoscheme.AddToScheme(scheme), upgradev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), edsv1.AddToScheme(scheme))
	if err != nil {
		t.Fatal(err)
	}
	if h.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	h.gate = newGate(t, h.cluster.Config(), w)
	h.journal = newJournal(t, h.client)
	return h
}

// end leaves no operator behind.
func (h *harness) end() {
	if h.process != nil {
		h.process.Kill()
	}
}

func (h *harness) makeNamespace(ctx context.Context, name string) {
	h.t.Helper()
	if err := h.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		h.t.Fatal(err)
	}
	// Without it no pods can be made, and the Job controller waits ever longer.
	if err := cluster.WaitForAccounts(ctx, h.client, name); err != nil {
		h.t.Fatal(err)
	}
}

// startOperator starts the operator with the gate between it and the API server.
func (h *harness) startOperator(more ...string) {
	h.t.Helper()
	args := append([]string{"--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0"}, more...)
	var err error
	h.process, err = operator.StartWith(h.program, h.gate.kubeconfig, h.log(), h.env, args...)
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) stopOperator() {
	h.t.Helper()
	if err := h.process.Stop(time.Minute); err != nil {
		h.t.Fatal(err)
	}
	h.process = nil
}

// look starts the operator once more, to see that one that comes to work that is done leaves it as it is, and returns
// when it was started.
func (h *harness) look(ctx context.Context) time.Time {
	h.t.Helper()
	began := time.Now()
	probes := freeAddress(h.t)
	h.startOperator("--health-probe-bind-address=" + probes)
	h.until(ctx, "the operator is ready", func() (bool, error) { return ready(ctx, probes), nil })
	time.Sleep(2 * time.Second)
	h.stopOperator()
	return began
}

func (h *harness) log() string { return filepath.Join(h.cluster.Dir(), "log", "moult.log") }

// killAll kills one operator after the other.
func (h *harness) killAll(ctx context.Context) {
	h.t.Helper()
	for n := range kills {
		if n > 0 {
			h.startOperator()
		}
		h.kill(ctx, n+1)
	}
}

// kill kills the operator at an instant that is drawn, and notes what that hit.
func (h *harness) kill(ctx context.Context, n int) {
	h.t.Helper()
	h.killAt(ctx, n, h.gate, nil)
}

// killAt kills the operator at a gate. Its time counts from when it has begun; nil: it has.
func (h *harness) killAt(ctx context.Context, n int, g *gate, begun <-chan struct{}) {
	h.t.Helper()
	began := time.Now()
	at := g.writes.draw(h.random)
	hit := g.arm(at, h.process)
	wait := cmp.Or(g.writes.patience, patience)
	if at.write == anyInstant {
		wait = at.delay
	}
	what := at.String()
	if begun != nil {
		select {
		case <-hit:
		case <-begun:
		case <-time.After(starting):
		case <-ctx.Done():
			h.t.Fatal(h.stuck(context.Cause(ctx)))
		}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-hit:
	case <-timer.C:
		if !g.disarm() {
			<-hit
			break
		}
		if at.write != anyInstant {
			what = "waiting, without " + at.write
		}
		if !h.process.Kill() {
			h.t.Fatal(h.process.Died())
		}
	case <-h.process.Exited():
		select {
		case <-hit: // That is why.
		case <-time.After(starting):
			h.t.Fatal(h.process.Died())
		}
	case err := <-h.journal.failed:
		h.t.Fatal(err)
	case <-ctx.Done():
		h.t.Fatal(h.stuck(context.Cause(ctx)))
	}
	h.tally[what]++
	h.t.Logf("kill %2d after %4d ms, %s; %s", n, time.Since(began).Milliseconds(), what, h.now())
}

// until waits for what must come. An error that is the moment's is not the end of it.
func (h *harness) until(ctx context.Context, what string, holds func() (bool, error)) {
	h.t.Helper()
	for {
		ok, last := holds()
		if last != nil && !cluster.Passing(last) {
			h.t.Fatalf("waiting until %s, %v", what, last)
		}
		if ok && last == nil {
			return
		}
		var exited <-chan struct{}
		if h.process != nil {
			exited = h.process.Exited()
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-exited:
			h.t.Fatal(h.process.Died())
		case err := <-h.journal.failed:
			h.t.Fatal(err)
		case <-ctx.Done():
			h.t.Fatalf("waiting until %s, %v", what, h.stuck(errors.Join(context.Cause(ctx), last)))
		}
	}
}

// createSoon creates an object of a kind whose definition the operator brings along.
func (h *harness) createSoon(ctx context.Context, o client.Object) {
	h.t.Helper()
	asked := false
	h.until(ctx, fmt.Sprintf("a %T can be created", o), func() (bool, error) {
		err := h.client.Create(ctx, o)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return false, nil
		}
		// A request that was not answered may have been carried out all the same.
		if asked && apierrors.IsAlreadyExists(err) {
			err = h.client.Get(ctx, client.ObjectKeyFromObject(o), o)
		}
		asked = true
		return err == nil, err
	})
}

// stuck adds to an error how things stand.
func (h *harness) stuck(err error) error {
	return fmt.Errorf("%w\n%s\n%s", err, h.now(), operator.Tail(h.log(), 20))
}

// objects lists all objects of these kinds in a namespace as they are now, and all Nodes.
func (h *harness) objects(ctx context.Context, namespace string, lists ...client.ObjectList) (all []client.Object) {
	h.t.Helper()
	for _, list := range append(lists, &corev1.NodeList{}) {
		in := client.InNamespace(namespace)
		if _, ok := list.(*corev1.NodeList); ok {
			in = ""
		}
		if err := h.client.List(ctx, list, in); err != nil {
			h.t.Fatal(err)
		}
		all = append(all, h.journal.items(list)...)
	}
	return all
}
