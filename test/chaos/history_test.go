// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/moult"
	"moult.dev/moult/internal/notification"
	"moult.dev/moult/test/tier"
)

// The Plans of this test, which are also the pools of their nodes. One waits for an approval after its first node. The other fails on its first node.
const (
	goodPlan = "good"
	badPlan  = "bad"
)

// inbox is a webhook. It keeps the CloudEvents that it gets, by id.
type inbox struct {
	t     *testing.T
	mu    sync.Mutex
	count int
	got   map[string]notification.CloudEvent
}

func (b *inbox) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var e notification.CloudEvent
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		b.t.Errorf("a webhook gets no CloudEvent, %v", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count++
	before, again := b.got[e.ID]
	if again && (before.Type != e.Type || before.Subject != e.Subject || before.Data.Revision != e.Data.Revision || !before.Time.Equal(e.Time)) {
		b.t.Errorf("two notifications have the same id: %+v and %+v", before, e)
	}
	b.got[e.ID] = e
}

// events are the CloudEvents that came, each once, in order.
func (b *inbox) events() (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for e := range maps.Values(b.got) {
		all = append(all, eventText(e.Data.Name, strings.TrimPrefix(e.Type, "dev.moult.rollout."), e.Data.Revision, e.Time))
	}
	slices.Sort(all)
	return all
}

func eventText(plan, event, revision string, at time.Time) string {
	return fmt.Sprintf("%s %s %s at %s", plan, event, revision, at.UTC().Format(time.RFC3339))
}

// runsOf returns the history of a Plan.
func (h *harness) runsOf(ctx context.Context, name string) ([]v1alpha1.Run, error) {
	p := &upgradev1.Plan{}
	err := h.client.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: name}, p)
	return p.Status.History, err
}

// The operator is killed again and again while it carries out two Plans, and one of its webhooks never answers. In the end each Plan has one run with
// right figures, and the other webhook got each notification of it, and no other. One came again: its operator was killed before it was recorded.
func TestHistoryOfKilledOperators(t *testing.T) {
	nodes, kills := 10, 4
	if tier.All {
		nodes, kills = 40, 20
	}
	random := rand.New(rand.NewPCG(seedOf(t), 1))
	ctx, h := newHarness(t, buildOperator(t))
	const recording = "recording a notification"
	h.gate.of = func(r *http.Request, body []byte) (w write) {
		if strings.HasSuffix(r.URL.Path, "/configmaps/"+notification.Name) && bytes.Contains(body, []byte(`"webhook.inbox":"`)) &&
			!bytes.Contains(body, []byte(`"webhook.inbox":""`)) {
			w = write{recording, recording}
		}
		return w
	}
	h.args = append(h.args, "--job-backoff-limit=0")
	h.addNodes(ctx, goodPlan, nodes, nil, "")
	h.addNodes(ctx, badPlan, 2, nil, "")
	to, ended := &inbox{t: t, got: map[string]notification.CloudEvent{}}, make(chan struct{})
	server := httptest.NewServer(to)
	defer server.Close()
	stuck := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	defer stuck.Close()
	defer close(ended)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: notification.Name}, StringData: map[string]string{
		"config.yaml": fmt.Sprintf("webhooks: [{name: stuck, url: %q, format: Slack}, {name: inbox, url: %q, format: CloudEvents}]", stuck.URL, server.URL),
	}}
	h.create(ctx, secret)
	h.start()
	h.until(ctx, "Plans are there", func() (bool, error) {
		err := h.client.List(ctx, &upgradev1.PlanList{})
		return err == nil, client.IgnoreNotFound(ignoreNoMatch(err))
	})
	h.args = append(h.args, "--install-crds=false")
	plan := func(name string, annotations map[string]string, strategy *v1alpha1.Strategy) {
		h.create(ctx, &upgradev1.Plan{
			ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name, Annotations: annotations},
			Spec: upgradev1.PlanSpec{
				Concurrency: 2, Version: "v1", Cordon: true, Upgrade: &upgradev1.ContainerSpec{Image: "example.com/upgrade"},
				NodeSelector: ofPools([]string{name}), Strategy: strategy,
			},
		})
	}
	plan(goodPlan, map[string]string{annotLength: podSeconds}, &v1alpha1.Strategy{Waves: []v1alpha1.Wave{
		{Name: "first", Size: ptr.To(intstr.FromInt32(1)), Approval: v1alpha1.ApprovalManual},
	}})
	plan(badPlan, map[string]string{annotLength: podSeconds, "test.moult.dev/fail": "true"}, &v1alpha1.Strategy{
		MaxConcurrent: ptr.To(intstr.FromInt32(1)), MaxFailures: ptr.To(intstr.FromInt32(0)),
	})

	began, during := time.Now(), 0
	h.killAt(ctx, instant{mechanism: recording, name: recording, nth: 1, when: before}) // The notification is sent once more.
	for i := range kills {
		if i == kills/3 {
			h.start()
			h.approve(ctx, goodPlan)
		}
		h.start()
		time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
		h.Kill()
		runs, err := h.runsOf(ctx, goodPlan)
		if err != nil {
			t.Fatal(err)
		}
		if len(runs) > 0 && runs[0].EndedAt == nil {
			during++
		}
	}
	h.start()
	want := []string(nil)
	h.until(ctx, "the Plans are over and notified", func() (bool, error) {
		good, err := h.runsOf(ctx, goodPlan)
		if err != nil || len(good) == 0 || good[0].EndedAt == nil {
			return false, err
		}
		bad, err := h.runsOf(ctx, badPlan)
		if err != nil || len(bad) == 0 || bad[0].HaltedAt == nil {
			return false, err
		}
		want = []string{
			eventText(badPlan, "failed", bad[0].Revision, bad[0].FailedAt.Time), eventText(badPlan, "halted", bad[0].Revision, bad[0].HaltedAt.Time),
			eventText(badPlan, "started", bad[0].Revision, bad[0].StartedAt.Time), eventText(goodPlan, "done", good[0].Revision, good[0].EndedAt.Time),
			eventText(goodPlan, "started", good[0].Revision, good[0].StartedAt.Time),
			eventText(goodPlan, "waitsforapproval", good[0].Revision, good[0].ApprovalAt.Time),
		}
		return len(to.events()) >= len(want), nil
	})
	if diff := cmp.Diff(want, to.events()); diff != "" {
		t.Errorf("the notifications (-history +got)\n%s", diff)
	}
	if to.count <= len(want) {
		t.Errorf("only %d notifications came", to.count)
	}
	t.Logf("after %.1f s: %d of %d kills were during the run; %d notifications came %d times",
		time.Since(began).Seconds(), during, kills, len(want), to.count)
	h.checkRuns(ctx, goodPlan, v1alpha1.Run{
		Result: v1alpha1.RunComplete, Total: int32(nodes), Updated: int32(nodes),
	})
	h.checkRuns(ctx, badPlan, v1alpha1.Run{
		Total: 2, Ongoing: []v1alpha1.RunState{v1alpha1.RunFailed, v1alpha1.RunHalted},
		Failures: []v1alpha1.RunFailure{{Reason: v1alpha1.ReasonJobFailed, Nodes: 1}},
	})

	// The plugin lets this operator send a test.
	stuck.CloseClientConnections()
	change := fmt.Sprintf("webhooks: [{name: gone, url: 'http://127.0.0.1:1', format: Slack}, {name: inbox, url: %q, format: CloudEvents}]", server.URL)
	if err := h.patch(ctx, secret, `{"stringData":{"config.yaml":%q}}`, change); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	h.until(ctx, "the operator knows the new webhooks", func() (bool, error) {
		out.Reset()
		command := moult.NewCommand(clock.RealClock{}, genericiooptions.IOStreams{Out: &out, ErrOut: io.Discard}, h)
		command.SetArgs([]string{"notify", "--test", "--operator-namespace", h.namespace})
		err := command.ExecuteContext(ctx)
		return strings.Contains(out.String(), "gone") && fmt.Sprint(err) == "1 of 2 webhooks failed", nil
	})
	if got := strings.Fields(out.String()); !slices.Equal(got, strings.Fields("WEBHOOK RESULT gone connect: connection refused inbox ok")) {
		t.Errorf("the plugin prints %v", got)
	}
	t.Logf("all was over after %.1f s", time.Since(began).Seconds())
}

// Load implements the plugin's configuration.
func (h *harness) Load() (*rest.Config, string, error) { return h.cluster.Config(), h.namespace, nil }

// approve approves the wave of a Plan once it waits for that.
func (h *harness) approve(ctx context.Context, name string) {
	h.t.Helper()
	h.until(ctx, "the wave is approved", func() (bool, error) {
		p := &upgradev1.Plan{}
		err := h.client.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: name}, p)
		if err != nil || p.Status.Wave == nil || p.Status.Wave.State != v1alpha1.WaveWaitingForApproval {
			return false, err
		}
		err = h.patch(ctx, p, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationApprove, p.Status.Wave.ApproveWith)
		return err == nil, err
	})
}

// checkRuns expects one run with these figures. What depends on the time is in order.
func (h *harness) checkRuns(ctx context.Context, name string, want v1alpha1.Run) {
	h.t.Helper()
	runs, err := h.runsOf(ctx, name)
	if err != nil || len(runs) != 1 {
		h.t.Fatalf("Plan %s has %d runs, %v", name, len(runs), err)
	}
	r := runs[0]
	last := r.CreatedAt.Time
	for _, at := range []*metav1.Time{r.StartedAt, r.FailedAt, r.HaltedAt, r.ApprovalAt, r.EndedAt} {
		if at != nil && at.Time.Before(last) {
			h.t.Errorf("the times of Plan %s are not in order: %+v", name, r)
		}
		if at != nil {
			last = at.Time
		}
	}
	if t := r.Turns; t != nil && t.Count > want.Updated {
		h.t.Errorf("Plan %s has %d turns", name, t.Count)
	}
	revision, _, _ := strings.Cut(r.Revision, "@")
	got := v1alpha1.Run{Result: r.Result, Total: r.Total, Updated: r.Updated, Ongoing: r.Ongoing, Failures: r.Failures}
	if diff := cmp.Diff(want, got); diff != "" || revision != "v1" || r.CreatedBy != "chaos" {
		h.t.Errorf("the run of Plan %s is %+v (-want +got)\n%s", name, r, diff)
	}
}
