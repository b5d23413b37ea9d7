// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/agent/host"
	"moult.dev/moult/test/cluster"
)

// world is one Node of a real API server with its machine, and the operator's half of the protocol.
type world struct {
	t        *testing.T
	config   *rest.Config
	client   kubernetes.Interface
	node     string
	protocol v1alpha1.HostProtocol
	machine  *machine
	wire     *wire
	log      *lines
	options  Options
	// hostErr is why there is no host, or nil.
	hostErr error
	// kill ends the agent's process, and another one starts.
	kill chan struct{}
	// claims has the operator claim the node, as Moult's does and others don't.
	claims bool
}

// newWorld makes a Node with the label of an interface.
func newWorld(t *testing.T, config *rest.Config, p v1alpha1.HostProtocol, hostInterface string) *world {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, config: config, client: client, protocol: p, machine: newMachine("1.0.0", "1.1.0"), wire: &wire{counts: map[string]int{}, late: map[string]int{}},
		log: &lines{}, kill: make(chan struct{}, 10), claims: true,
		options: Options{CheckInterval: time.Hour, RebootGrace: time.Hour},
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the agent:\n%s", w.log)
		}
	})
	w.create(hostInterface)
	return w
}

// create makes the Node.
func (w *world) create(hostInterface string) {
	w.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "n-", Name: w.node, Labels: map[string]string{w.protocol.InterfaceLabel: hostInterface},
		// What others have there stays.
		Annotations: map[string]string{"example.com/other": "stays"},
	}}
	n, err := w.client.CoreV1().Nodes().Create(w.t.Context(), n, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.node = n.Name
	w.t.Cleanup(func() {
		err := w.client.CoreV1().Nodes().Delete(context.WithoutCancel(w.t.Context()), w.node, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			w.t.Error(err)
		}
	})
}

// agent makes one, as a new process does.
func (w *world) agent() *Agent {
	w.t.Helper()
	o := w.options
	o.NodeName, o.Config, o.ReadAsNode = w.node, rest.CopyConfig(w.config), ReadAsNodeNever
	o.Config.Wrap(func(next http.RoundTripper) http.RoundTripper { return w.wire.around(next) })
	o.Host = func(v1alpha1.HostProtocol, string) (host.Host, error) { return w.machine, w.hostErr }
	o.Log = w.log.logger()
	a, err := New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	a.doubt, a.firstCheck = 100*time.Millisecond, 0
	return a
}

// live runs one process of the agent after the other until the test ends, or until it is stopped: a new one after each reboot and
// each kill.
func (w *world) live() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			process, end := context.WithCancel(ctx)
			ran := make(chan error, 1)
			a := w.agent()
			go func() { ran <- a.Run(process) }()
			select {
			case <-ctx.Done():
			case <-w.machine.rebooted:
			case <-w.kill:
			}
			end()
			if err := <-ran; err != nil {
				w.t.Errorf("the agent ended with %v", err)
			}
		}
	}()
	stop = func() { cancel(); <-ended }
	w.t.Cleanup(stop)
	return stop
}

// read is the Node as it is.
func (w *world) read() *corev1.Node {
	w.t.Helper()
	n, err := w.client.CoreV1().Nodes().Get(w.t.Context(), w.node, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// intent is what the protocol says on a Node.
func (w *world) intent(n *corev1.Node) string {
	a := n.Annotations
	return fmt.Sprintf("%s,%s,%s %s", a[w.protocol.Wanted], a[w.protocol.Active], a[w.protocol.State], a[w.protocol.Update])
}

// write sets annotations on the Node; an empty value takes one off. With a resourceVersion it is a precondition. What a busy API server did
// not answer in time is written again.
func (w *world) write(resourceVersion string, annotations map[string]string) error {
	values := map[string]any{}
	for key, value := range annotations {
		if values[key] = any(value); value == "" {
			values[key] = nil
		}
	}
	metadata := map[string]any{"annotations": values}
	if resourceVersion != "" {
		metadata["resourceVersion"] = resourceVersion
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	for {
		_, err := w.client.CoreV1().Nodes().Patch(w.t.Context(), w.node, types.MergePatchType, body, metav1.PatchOptions{})
		if err == nil || apierrors.IsConflict(err) || !cluster.Passing(err) || w.t.Context().Err() != nil {
			return err
		}
	}
}

// label sets the label of the interface; an empty value takes it off.
func (w *world) label(value string) {
	w.t.Helper()
	var v any
	if v = value; value == "" {
		v = nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{w.protocol.InterfaceLabel: v}}})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.client.CoreV1().Nodes().Patch(w.t.Context(), w.node, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// say writes what the operator wants, and other keys.
func (w *world) say(wanted string, others map[string]string) {
	w.t.Helper()
	annotations := map[string]string{w.protocol.Wanted: wanted}
	maps.Copy(annotations, others)
	if err := w.write("", annotations); err != nil {
		w.t.Fatal(err)
	}
}

// stabilize writes what the operator begins and ends with.
func (w *world) stabilize() map[string]string {
	return map[string]string{
		w.protocol.Wanted: "stabilize", w.protocol.Active: "unknown", w.protocol.State: "unknown", w.protocol.Update: "unknown",
		v1alpha1.AnnotationHostWanted: "", v1alpha1.AnnotationClaims: "",
	}
}

// wait is until something is so of the Node, and returns it.
func (w *world) wait(what string, is func(*corev1.Node) bool) *corev1.Node {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	defer cancel()
	list, err := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + w.node})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range list.Items {
		if is(&list.Items[i]) {
			return &list.Items[i]
		}
	}
	stream, err := w.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + w.node, ResourceVersion: list.ResourceVersion})
	if err != nil {
		w.t.Fatal(err)
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		if n, ok := event.Object.(*corev1.Node); ok && is(n) {
			return n
		}
	}
	w.t.Fatalf("waiting for %s: the Node says %s", what, w.intent(w.read()))
	return nil
}

// until is until the protocol says so on the Node.
func (w *world) until(intent string) *corev1.Node {
	w.t.Helper()
	return w.wait(intent, func(n *corev1.Node) bool { return w.intent(n) == intent })
}

// errAgent says that the agent said so.
var errAgent = errors.New("the agent says error")

// operate brings the host to what it offers, as the operator does, and returns every state of the protocol there was.
func (w *world) operate() (trace []string, err error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	defer cancel()
	n := w.read()
	stream, err := w.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + w.node, ResourceVersion: n.ResourceVersion})
	if err != nil {
		return nil, err
	}
	defer stream.Stop()
	for {
		if intent := w.intent(n); len(trace) == 0 || trace[len(trace)-1] != intent {
			trace = append(trace, intent)
		}
		words, done, err := w.operator(n)
		if done || err != nil {
			return trace, err
		}
		if words != nil {
			if err := w.write(n.ResourceVersion, words); err != nil && !apierrors.IsConflict(err) {
				return trace, err
			}
		}
		event, ok := <-stream.ResultChan()
		if !ok {
			return trace, fmt.Errorf("the watch has ended, the Node says %s", w.intent(n))
		}
		if n, ok = event.Object.(*corev1.Node); !ok {
			return trace, apierrors.FromObject(event.Object)
		}
	}
}

// operator is what the operator says to what is on the Node, and whether the update is over.
func (w *world) operator(n *corev1.Node) (map[string]string, bool, error) {
	switch intent := w.intent(n); intent {
	case ",, ":
		return w.stabilize(), false, nil
	case "stabilize,stabilize,ready true":
		return map[string]string{w.protocol.Wanted: "prepare-update", v1alpha1.AnnotationHostWanted: n.Annotations[v1alpha1.AnnotationHostTarget]}, false, nil
	case "prepare-update,prepare-update,ready true":
		return map[string]string{w.protocol.Wanted: "perform-update"}, false, nil
	case "perform-update,perform-update,ready true":
		words := map[string]string{w.protocol.Wanted: "reboot-update"}
		if w.claims {
			boot, err := w.machine.BootID()
			if err != nil {
				return nil, false, err
			}
			claims, err := v1alpha1.FormatClaims([]v1alpha1.Claim{{Rollout: "NodeRollout/r", UID: "u", Revision: "1.1.0", Turn: "t", BootID: boot}})
			if err != nil {
				return nil, false, err
			}
			words[v1alpha1.AnnotationClaims] = claims
		}
		return words, false, nil
	case "reboot-update,reboot-update,ready false":
		words := w.stabilize()
		if w.claims { // Moult's operator takes it that the host has looked.
			words[w.protocol.Active], words[w.protocol.State], words[w.protocol.Update] = "stabilize", "ready", "false"
		}
		return words, false, nil
	case "reboot-update,reboot-update,ready true":
		return w.stabilize(), false, nil
	case "stabilize,stabilize,ready false":
		return nil, true, nil
	default:
		if strings.Contains(intent, ",error ") {
			return nil, true, fmt.Errorf("%w: %s", errAgent, n.Annotations[v1alpha1.AnnotationHostError])
		}
		return nil, false, nil
	}
}

// wire is what an agent's requests go through.
type wire struct {
	mu     sync.Mutex
	counts map[string]int
	// conflicts are of them those that others have written before, and late those that a busy API server did not answer in time.
	conflicts int
	late      map[string]int
	down      bool
	open      []io.Closer
	// before is called before a request is sent, after when it is answered, with how many there have been of its verb; an error takes the
	// place of the answer.
	before, after func(verb string, count int) error
}

// around puts the wire around a transport.
func (w *wire) around(next http.RoundTripper) http.RoundTripper {
	return tripper(func(r *http.Request) (*http.Response, error) {
		verb := strings.ToLower(r.Method)
		switch {
		case r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1":
			verb = "watch"
		case verb == "get" && strings.HasSuffix(r.URL.Path, "/nodes"):
			verb = "list"
		}
		w.mu.Lock()
		w.counts[verb]++
		count, before, after, down := w.counts[verb], w.before, w.after, w.down
		w.mu.Unlock()
		if down {
			return nil, errors.New("the network is down")
		}
		if before != nil {
			if err := before(verb, count); err != nil {
				return nil, err
			}
		}
		response, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		w.mu.Lock()
		switch response.StatusCode {
		case http.StatusConflict:
			w.conflicts++
		case http.StatusTooManyRequests, http.StatusGatewayTimeout:
			w.late[verb]++
		}
		w.mu.Unlock()
		if after != nil {
			if err := after(verb, count); err != nil {
				_ = response.Body.Close()
				return nil, err
			}
		}
		if verb == "watch" {
			w.mu.Lock()
			w.open = append(w.open, response.Body)
			w.mu.Unlock()
		}
		return response, nil
	})
}

type tripper func(*http.Request) (*http.Response, error)

func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// cut takes the network down, and ends the watches; mend brings it back.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	for _, body := range w.open {
		_ = body.Close()
	}
	w.open = nil
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

// count is how many requests there were of each verb, without those that were made because the cluster's controllers wrote to the Node at
// the same time, and those that were not answered in time.
func (w *wire) count() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := maps.Clone(w.counts)
	counts["patch"] -= w.conflicts
	for verb := range counts {
		if counts[verb] -= w.late[verb]; counts[verb] == 0 {
			delete(counts, verb)
		}
	}
	return counts
}

// updated is the trace of an update without faults.
var updated = []string{
	",, ",
	"stabilize,unknown,unknown unknown",
	"stabilize,stabilize,ready true",
	"prepare-update,stabilize,ready true",
	"prepare-update,prepare-update,busy true",
	"prepare-update,prepare-update,ready true",
	"perform-update,prepare-update,ready true",
	"perform-update,perform-update,busy true",
	"perform-update,perform-update,ready true",
	"reboot-update,perform-update,ready true",
	"reboot-update,reboot-update,busy true",
	"reboot-update,reboot-update,ready false",
	"stabilize,stabilize,ready false",
}

// askedAgain is the trace where the operator orders the host to look once more.
var askedAgain = slices.Insert(slices.Clone(updated), len(updated)-1, "stabilize,unknown,unknown unknown")

// expectUpdated updates the host and expects that nothing shows of what went on besides.
func (w *world) expectUpdated() {
	w.t.Helper()
	w.expectTrace(updated)
}

// expectTrace updates the host and expects these states of the protocol.
func (w *world) expectTrace(want []string) {
	w.t.Helper()
	trace, err := w.operate()
	if err != nil {
		w.t.Errorf("the update ends with %v", err)
	}
	if !slices.Equal(trace, want) {
		w.t.Errorf("the trace is\n%s\nwant\n%s", strings.Join(trace, "\n"), strings.Join(want, "\n"))
	}
	if boots := w.machine.booted(); boots != 2 {
		w.t.Errorf("the machine was booted %d times, want 2", boots)
	}
}
