// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	managerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/config/crd"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/notification"
	"moult.dev/moult/internal/outbound"
	"moult.dev/moult/internal/turn"
	clustertest "moult.dev/moult/test/cluster"
)

const operators = "notify-operators"

// receiver is a server that notes what it gets.
type receiver struct {
	// status returns the status of the nth answer. What was not answered well is not noted.
	status func(n int) int

	mu    sync.Mutex
	count int
	got   []string
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	var e notification.CloudEvent
	_ = json.Unmarshal(body, &e)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count++; r.status != nil && r.status(r.count) != http.StatusOK {
		w.WriteHeader(r.status(r.count))
		return
	}
	r.got = append(r.got, e.Data.Revision+" "+strings.TrimPrefix(e.Type, "dev.moult.rollout."))
}

func (r *receiver) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.got...)
}

func eventually(t *testing.T, what string, holds func() string) {
	t.Helper()
	seen := ""
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		seen = holds()
		return seen == "", nil
	}); err != nil {
		t.Fatalf("%s: %s", what, seen)
	}
}

// A controller that is stopped again and again during a sequence of runs sends each notification at least once, in order: also to a webhook that
// fails now and then, while another never answers, and a third refuses all. Errors of the configuration have an Event, and a test is answered.
func TestAPI(t *testing.T) {
	running := clustertest.Shared(t, 0)
	definitions, err := crd.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	cfg := running.Config()
	cfg.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions {
		if d.Spec.Names.Kind != turn.Kind {
			continue
		}
		if err := c.Create(t.Context(), d); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operators}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "NodeRollouts are served", func() string {
		if err := c.List(t.Context(), &v1alpha1.NodeRolloutList{}); err != nil {
			return err.Error()
		}
		return ""
	})
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	recorder := events.NewRecorder(t.Context(), clock.RealClock{}, clientset.CoreV1().Events(""), scheme, "moult", "n1")
	start := func() (stop func()) {
		m, err := ctrl.NewManager(cfg, ctrl.Options{
			Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: managerconfig.Controller{SkipNameValidation: ptr.To(true)},
			Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}},
			Cache:  cache.Options{ByObject: turn.CacheOptions()},
		})
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Namespace: operators, Kinds: []string{turn.Kind}, Cluster: clusterID, Transport: outbound.NewTransport(true)}
		if err := NewController(clock.RealClock{}, recorder, o).SetupWithManager(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Start(ctx) }()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	r := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: "notify"}}
	r.Spec.HostUpdate = &v1alpha1.HostUpdate{}
	if err := c.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	step := func(change func(history []v1alpha1.Run) []v1alpha1.Run) {
		before := r.DeepCopy()
		r.Status.History = change(r.Status.History)
		if err := c.Status().Patch(t.Context(), r, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	second := func(n int) *metav1.Time {
		return &metav1.Time{Time: time.Now().Add(time.Duration(n) * time.Second).Truncate(time.Second)}
	}
	begin := func(i int) {
		step(func(h []v1alpha1.Run) []v1alpha1.Run {
			h = append([]v1alpha1.Run{{Revision: fmt.Sprint("v", i), CreatedAt: *second(0), StartedAt: second(0), Total: 2}}, h...)
			return h[:min(len(h), v1alpha1.MaxRuns)]
		})
	}
	end := func(int) {
		step(func(h []v1alpha1.Run) []v1alpha1.Run {
			h[0].EndedAt, h[0].Result, h[0].Updated = second(1), v1alpha1.RunComplete, 2
			return h
		})
	}

	// The run that was over before is not sent.
	step(func([]v1alpha1.Run) []v1alpha1.Run {
		return []v1alpha1.Run{{Revision: "old", CreatedAt: *second(-99), StartedAt: second(-98), EndedAt: second(-97), Result: v1alpha1.RunComplete}}
	})
	stop := start()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: notification.Name}, Data: map[string][]byte{keyConfig: []byte("webhooks: []")},
	}
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the error is in an Event", func() string {
		var all corev1.EventList
		if err := c.List(t.Context(), &all, client.InNamespace(operators)); err != nil || len(all.Items) == 0 {
			return fmt.Sprint("no Event ", err)
		}
		if m := all.Items[0].Message; m != "No notification is sent: config.yaml: webhooks must have 1 to 10 entries" {
			return m
		}
		return ""
	})
	key := client.ObjectKeyFromObject(secret)
	if err := c.Get(t.Context(), key, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("without a webhook the ConfigMap is written: %v", err)
	}
	to, flaky := &receiver{}, &receiver{status: func(n int) int {
		if n%8 == 1 {
			return http.StatusBadGateway
		}
		return http.StatusOK
	}}
	refusing := &receiver{status: func(int) int { return http.StatusBadRequest }}
	ended := make(chan struct{})
	text := "webhooks:"
	for name, receiver := range map[string]http.Handler{
		"ops": to, "flaky": flaky, "refusing": refusing, "stuck": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }),
	} {
		server := httptest.NewServer(receiver)
		t.Cleanup(server.Close)
		text += "\n- {name: " + name + ", url: '" + server.URL + "', format: CloudEvents}"
	}
	defer close(ended)
	secret.Data[keyConfig] = []byte(text)
	if err := c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	stored := &corev1.ConfigMap{}
	eventually(t, "the webhooks are recorded", func() string {
		if err := c.Get(t.Context(), key, stored); err != nil || len(stored.Data) != 4 {
			return fmt.Sprint(err, stored.Data)
		}
		return ""
	})
	const runs = 10
	for i := range runs {
		for _, change := range []func(int){begin, end} {
			stop()
			change(i)
			stop = start()
			if i%2 == 1 {
				continue // It is stopped again at any moment.
			}
			eventually(t, "it is sent", func() string {
				if got := to.all(); len(got) == 0 || !strings.HasPrefix(got[len(got)-1], fmt.Sprint("v", i, " ")) {
					return fmt.Sprint(got)
				}
				return ""
			})
		}
	}
	last := fmt.Sprint("v", runs-1, " done")
	for _, to := range []*receiver{to, flaky} {
		eventually(t, "the last is sent", func() string {
			if got := to.all(); len(got) == 0 || got[len(got)-1] != last {
				return fmt.Sprint(got)
			}
			return ""
		})
		seen := map[string]int{}
		for _, got := range to.all() {
			seen[got]++
			if revision, done := strings.CutSuffix(got, " done"); done && seen[revision+" started"] == 0 {
				t.Errorf("%s comes before its start", got)
			}
		}
		for i := range runs {
			for _, event := range []string{"started", "done"} {
				if seen[fmt.Sprint("v", i, " ", event)] == 0 {
					t.Errorf("v%d %s is missing", i, event)
				}
			}
		}
		if len(seen) != 2*runs {
			t.Errorf("there are others: %v", seen)
		}
	}
	eventually(t, "what is refused is dropped", func() string {
		err := c.Get(t.Context(), key, stored)
		if sent := strings.Fields(stored.Data[notification.KeyOfWebhook+"refusing"]); err != nil || len(sent) != 2*v1alpha1.MaxRuns {
			return fmt.Sprint(err, sent)
		}
		return ""
	})
	text, _, _ = strings.Cut(text, "\n")
	server := httptest.NewServer(to)
	defer server.Close()
	secret.Data[keyConfig] = []byte(text + "\n- {name: ops, url: '" + server.URL + "', format: Slack, events: [Done]}")
	if err := c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	asked := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationTestNotifications+`":"1"}}}`))
	if err := c.Patch(t.Context(), stored, asked); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the test is answered", func() string {
		if err := c.Get(t.Context(), key, stored); err != nil || stored.Data[notification.KeyTest] != `{"of":"1","webhooks":[{"name":"ops","result":"ok"}]}` {
			return fmt.Sprint(err, stored.Data[notification.KeyTest])
		}
		return ""
	})
	if len(stored.Data) != 2 {
		t.Errorf("the webhooks that were removed are recorded: %v", stored.Data)
	}
	stop()
}
