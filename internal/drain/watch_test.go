// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"moult.dev/moult/test/cluster"
)

// TestAPIWatcher watches pods at a real API server. No kubelet runs them: their nodes are only objects.
func TestAPIWatcher(t *testing.T) {
	config := cluster.Shared(t, 0).Config()
	config.QPS = -1
	line := &line{denials: map[string]int{}}
	config.Wrap(line.through)
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w := &watching{t: t, api: api, line: line, calls: map[string]int{}}
	for _, node := range []string{"n1", "n2", "n3"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		if _, err := api.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.Watcher = NewWatcher(api.CoreV1(), w.note, func(*corev1.Pod) {})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	w.Watch("n1") // Before Run: it begins with it.
	go func() { ended <- w.Run(ctx) }()

	w.theFirstList()
	w.whatMatters()
	w.stopped()
	w.outage()

	stop()
	if err := <-ended; err != nil {
		t.Errorf("running, %v", err)
	}
	w.eventually("all watches have ended", func() (string, bool) { return fmt.Sprintf("%d are open", line.open()), line.open() == 0 })
}

type watching struct {
	*Watcher

	t    *testing.T
	api  kubernetes.Interface
	line *line

	mu    sync.Mutex
	calls map[string]int
}

func (w *watching) note(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[node]++
}

// called is how often a node was said to have changed since this was asked last.
func (w *watching) called(node string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer delete(w.calls, node)
	return w.calls[node]
}

func (w *watching) eventually(what string, is func() (string, bool)) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		seen, ok := is()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("waiting until %s; last seen: %s", what, seen)
		}
	}
}

// names waits until these are the pods of a node.
func (w *watching) names(node string, want ...string) {
	w.t.Helper()
	w.eventually(fmt.Sprint("the pods of ", node, " are ", want), func() (string, bool) {
		pods, ok := w.Pods(node)
		names := make([]string, len(pods))
		for i := range pods {
			names[i] = pods[i].Name
		}
		seen := strings.Join(names, " ")
		return seen, ok && seen == strings.Join(want, " ")
	})
}

// calledOnce checks that one change was told, and no more.
func (w *watching) calledOnce(node, after string) {
	w.t.Helper()
	w.calledTimes(node, 1, after)
}

func (w *watching) calledTimes(node string, times int, after string) {
	w.t.Helper()
	w.eventually("changes are told: "+after, func() (string, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return fmt.Sprint(w.calls[node]), w.calls[node] >= times
	})
	if n := w.called(node); n != times {
		w.t.Errorf("%s: told %d times", after, n)
	}
}

func (w *watching) pod(name, node string) *corev1.Pod {
	w.t.Helper()
	p, err := w.api.CoreV1().Pods("default").Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"app": name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Thing", Name: "thing", UID: "1", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "c", Image: "none", Env: []corev1.EnvVar{{Name: "A", Value: "B"}}}},
			Volumes: []corev1.Volume{
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *watching) patch(name, body string, subresources ...string) {
	w.t.Helper()
	_, err := w.api.CoreV1().Pods("default").
		Patch(w.t.Context(), name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, subresources...)
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *watching) remove(name string, grace int64) {
	w.t.Helper()
	if err := w.api.CoreV1().Pods("default").Delete(w.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watching) theFirstList() {
	w.names("n1")
	w.calledOnce("n1", "the list of a node without pods")
	w.pod("b", "n2")
	w.pod("a", "n2")
	w.pod("c", "n3")
	if _, ok := w.Pods("n2"); ok {
		w.t.Error("pods of a node are known that no one asked for")
	}
	w.Watch("n2")
	w.Watch("n2")
	w.names("n2", "a", "b")
	w.calledOnce("n2", "the first list")

	whole, err := w.api.CoreV1().Pods("default").Get(w.t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	trimmed, _ := w.Pods("n2")
	for _, o := range []Options{{}, {DeleteEmptyDirData: true}} {
		want, got := Filter([]corev1.Pod{*whole}, Facts{Now: time.Now()}, o)[0], Filter(trimmed[:1], Facts{Now: time.Now()}, o)[0]
		want.Pod, got.Pod = nil, nil
		if diff := cmp.Diff(want, got); diff != "" {
			w.t.Errorf("the verdict on what is kept of a pod (-want +got)\n%s", diff)
		}
	}
	if pod := &trimmed[0]; len(pod.Spec.Containers) > 0 || len(pod.Spec.Volumes) != 1 || len(pod.ManagedFields) > 0 {
		w.t.Errorf("more is kept than needed: %v", pod)
	}
}

func (w *watching) whatMatters() {
	const status = `{"status":{"conditions":[{"type":"Ready","status":"%s"}],"containerStatuses":[{"name":"c","image":"none","imageID":"","ready":true,` +
		`"restartCount":%d,"started":true,"state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}}]}}`
	w.pod("d", "n2")
	w.names("n2", "a", "b", "d")
	w.calledOnce("n2", "a pod that comes")

	w.patch("a", fmt.Sprintf(status, "True", 0), "status")
	w.calledOnce("n2", "a pod that becomes ready")
	w.patch("a", fmt.Sprintf(status, "True", 1), "status")
	w.calledOnce("n2", "a container that restarts")
	w.patch("a", `{"metadata":{"labels":{"app":"x"}}}`)
	w.calledOnce("n2", "another label")

	// None of these is worth a call.
	w.patch("a", `{"metadata":{"annotations":{"example.com/x":"y"}}}`)
	w.patch("a", `{"status":{"conditions":[{"type":"example.com/Mine","status":"True"}],"message":"hello"}}`, "status")
	w.patch("a", fmt.Sprintf(status, "True", 1), "status")
	w.patch("c", fmt.Sprintf(status, "True", 1), "status") // Of a node that no one watches.
	w.remove("b", 30)
	w.calledOnce("n2", "a pod that is ordered to go")
	w.pod("g", "n2")
	w.calledOnce("n2", "one more pod")
	w.remove("g", 0)
	w.names("n2", "a", "b", "d")
	w.calledTimes("n2", 2, "a pod that is ordered to go at once, and goes")
	if n := w.called("n3"); n > 0 {
		w.t.Errorf("a node that no one watches was told of %d times", n)
	}
	w.pod("e", "n1")
	w.names("n1", "e")
	w.calledOnce("n1", "a pod on a node that was watched before Run")
}

func (w *watching) stopped() {
	w.Stop("n1")
	w.Stop("n1")
	if _, ok := w.Pods("n1"); ok {
		w.t.Error("the pods of a node are kept that no one watches any more")
	}
	w.eventually("its watch has ended", func() (string, bool) {
		n := w.line.open()
		return fmt.Sprintf("%d are open", n), n == 1
	})
	w.pod("f", "n1")
	w.Watch("n1")
	w.names("n1", "e", "f")
	w.calledOnce("n1", "the list after the watch was stopped and begun anew")
}

// While the API server does not answer nothing is forgotten, and what has happened meanwhile is told afterwards.
func (w *watching) outage() {
	w.line.cut()
	w.eventually("it asks again", func() (string, bool) {
		n := w.line.refused("n2")
		return fmt.Sprintf("%d requests", n), n > 1
	})
	w.names("n2", "a", "b", "d")
	w.Watch("n3")
	w.Stop("n1")
	w.remove("d", 0)
	w.line.mend()
	w.names("n2", "a", "b")
	w.calledOnce("n2", "a pod that went after an outage")
	w.names("n3", "c")
	w.calledOnce("n3", "a list that failed at first")
	if n := w.line.refused("n2"); n > 40 {
		w.t.Errorf("%d requests in an outage of a moment", n)
	}
}

// line is the connection of the watches: other requests always get through.
type line struct {
	mu      sync.Mutex
	down    bool
	denials map[string]int // by node
	watches map[*body]bool
}

type body struct {
	io.ReadCloser

	line *line
}

func (l *line) through(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		selector := r.URL.Query().Get("fieldSelector")
		if !strings.HasPrefix(selector, NodeNameField) {
			return next.RoundTrip(r)
		}
		l.mu.Lock()
		down := l.down
		if down {
			l.denials[strings.TrimPrefix(selector, NodeNameField+"=")]++
		}
		l.mu.Unlock()
		if down {
			return nil, errors.New("the line is cut")
		}
		response, err := next.RoundTrip(r)
		if err == nil && r.URL.Query().Get("watch") != "" {
			b := &body{response.Body, l}
			response.Body = b
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.watches == nil {
				l.watches = map[*body]bool{}
			}
			l.watches[b] = true
		}
		return response, err
	})
}

func (b *body) Close() error {
	b.line.mu.Lock()
	delete(b.line.watches, b)
	b.line.mu.Unlock()
	return b.ReadCloser.Close()
}

func (l *line) cut() {
	l.mu.Lock()
	l.down = true
	var all []*body
	for b := range l.watches {
		all = append(all, b)
	}
	l.mu.Unlock()
	for _, b := range all {
		_ = b.Close()
	}
}

func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

func (l *line) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.watches)
}

func (l *line) refused(node string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.denials[node]
}
