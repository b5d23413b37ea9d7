// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const evil = `<script>alert("x")</script>`

func aNode(name, zone string, cordoned, ready bool) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	n.Spec.Unschedulable = cordoned
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	return n
}

// aState has a rollout with a node in each state, and one of which nothing is known but its name.
func aState() *State {
	since := &metav1.Time{Time: noon.Add(-90 * time.Second)}
	plan := view.Rollout{
		Kind: "Plan", Namespace: "system-upgrade", Name: "k3s", Version: "v1.33.1", State: view.Stalled, Halted: "2 nodes failed " + evil, Since: since,
		Counts: v1alpha1.UnitCounts{Total: 5, Updated: 1, Updating: 1, Failed: 1, Waiting: 2},
		Nodes: []view.Node{
			{Node: "a", State: v1alpha1.UnitFailed, Reason: "JobFailed", Message: "exit code 1 " + evil, Since: since},
			{Node: "b", State: v1alpha1.UnitUpdating, Phase: "Draining", Since: since},
			{Node: "c", State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonMaxConcurrent, Message: "1 of 1 nodes are in a turn"},
			{Node: "d", State: v1alpha1.UnitOutdated},
			{Node: "e", State: v1alpha1.UnitUpdated},
		},
		History: []v1alpha1.Run{{
			Revision: "v1.33.1", CreatedBy: "helm " + evil, ApprovedBy: "jo", CreatedAt: metav1.Time{Time: noon.Add(-time.Hour)}, StartedAt: since,
			Ongoing: []v1alpha1.RunState{v1alpha1.RunFailed}, Failures: []v1alpha1.RunFailure{{Reason: v1alpha1.ReasonJobFailed, Nodes: 1}},
			Total: 5, Updated: 1, Waits: []v1alpha1.RunWait{{Reason: v1alpha1.ReasonPaused, Seconds: 600}, {Reason: v1alpha1.ReasonOutsideWindow, Seconds: 60}},
		}, {
			Revision: "v1.32.0", CreatedAt: metav1.Time{Time: noon.Add(-48 * time.Hour)}, EndedAt: &metav1.Time{Time: noon.Add(-24 * time.Hour)},
			Result: v1alpha1.RunComplete, Total: 4, Updated: 4, Turns: &v1alpha1.RunTurns{Count: 4, MedianSeconds: 90, P95Seconds: 150},
		}},
	}
	daemon := view.Rollout{Kind: "NodeRollout", Name: "hosts", State: view.Complete, Nodes: []view.Node{{Node: "a", State: v1alpha1.UnitUpdated}}}
	return &State{
		At: noon, Rollouts: []view.Rollout{plan, daemon},
		Nodes: []*corev1.Node{
			aNode("a", "z1", false, true), aNode("b", "z1", true, true), aNode("c", "z2", false, false), aNode("d", "z2", false, true),
			aNode("e", "z2", false, true), aNode("f", "", false, true),
		},
		Budgets: []view.Budget{{Name: "all", State: view.BudgetExhausted, Matched: 6, Unavailable: 2, Limit: ptr.To(2), Allowed: ptr.To[int32](0)}},
	}
}

func aServer(states ...*State) *Server {
	s := New(clock.RealClock{}, Reader{
		Why: func(node string) (text.Lines, bool) {
			return text.Lines{{text.Red.Of("node " + node + " is blocked " + evil)}}, node != "nobody"
		},
		Preview: func(context.Context, string, string, string) (text.Lines, error) {
			return nil, errors.New("nodes can't be listed")
		},
		Logs: func(_ context.Context, kind, namespace, name, node string) (string, error) {
			return strings.Join([]string{kind, namespace, name, node, evil}, " "), nil
		},
	})
	for _, state := range states {
		s.Publish(state)
	}
	return s
}

func get(t *testing.T, s *Server, path string) (int, http.Header, string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Header(), w.Body.String()
}

// Each page shows what it should, and nothing that others wrote becomes markup.
func TestPages(t *testing.T) {
	s := aServer(aState())
	for path, wants := range map[string][]string{
		"/": {
			"<!doctype html>", "Plan system-upgrade/k3s</a>: halted: 2 nodes failed", `failed: 1 node<ul class="nodes"><li><a href="/nodes/a">a</a>`, "2 of at most 2 unavailable",
			`<th scope="row">z1</th><td>2</td><td>1</td><td>1</td><td>0</td>`, `href="/rollouts/NodeRollout/-/hosts"`,
		},
		"/?by=absent": {`<th scope="row">(none)</th><td>6</td>`},
		"/rollouts/Plan/system-upgrade/k3s": {
			"1 of 5 updated, 1 updating, 2 waiting, 1 failed", "Halted: 2 nodes failed", "<td>Draining</td><td>90s</td>", "MaxConcurrent", "nodes can&#39;t be listed",
			"kubectl moult retry plan/k3s -n system-upgrade", `data-log="/logs/Plan/system-upgrade/k3s/a"`,
			`<rect class="updated" x="0" width="200"`,
			`<th scope="row">v1.33.1</th><td>helm &lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;</td><td>jo</td><td>2026-05-01 11:00</td><td>2026-05-01 11:58</td><td></td>` +
				"<td>Failed</td><td>1/5</td><td>JobFailed 1</td><td></td><td>Paused 10m, OutsideWindow 60s</td></tr>",
			`<th scope="row">v1.32.0</th><td></td><td></td><td>2026-04-29 12:00</td><td></td><td>2026-04-30 12:00</td>` +
				"<td>Complete</td><td>4/4</td><td></td><td>90s/2m30s</td><td></td></tr>",
		},
		"/rollouts/NodeRollout/-/hosts": {"<h1>NodeRollout hosts</h1>", "kubectl moult status nr/hosts"},
		"/nodes/a":                      {"<h1>Node a</h1>", "JobFailed: exit code 1", `<span class="red">node a is blocked`},
	} {
		code, header, body := get(t, s, path)
		if code != http.StatusOK || strings.Contains(body, "<script>") || !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %d, %v\n%s", path, code, header, body)
		}
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s lacks %q:\n%s", path, want, body)
			}
		}
		if _, _, part := get(t, s, path+map[bool]string{true: "&part", false: "?part"}[strings.Contains(path, "?")]); strings.Contains(part, "<!doctype") || !strings.Contains(body, part) {
			t.Errorf("%s: the part is not what the page has in its middle", path)
		}
	}
}

func TestWhatIsNotThere(t *testing.T) {
	s := aServer(aState())
	for path, want := range map[string]int{
		"/nodes/nobody": http.StatusNotFound, "/rollouts/Plan/system-upgrade/none": http.StatusNotFound, "/rollouts/Plan/-/k3s": http.StatusNotFound,
		"/other": http.StatusNotFound, "/nodes?name=a": http.StatusSeeOther, "/assets/dashboard.css": http.StatusOK,
	} {
		if code, _, _ := get(t, s, path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	if code, header, _ := get(t, aServer(), "/"); code != http.StatusServiceUnavailable || header.Get("Refresh") == "" {
		t.Errorf("before the cluster was read: %d, %v", code, header)
	}
}

// A log is text, whatever is in it.
func TestLogs(t *testing.T) {
	code, header, body := get(t, aServer(aState()), "/logs/NodeRollout/-/hosts/a")
	if code != http.StatusOK || header.Get("Content-Type") != "text/plain; charset=utf-8" || body != "NodeRollout  hosts a "+evil {
		t.Errorf("%d, %v, %q", code, header, body)
	}
}

type fleetAnswer struct {
	Groups []struct {
		Name, States, Marks string
		Nodes               []string
		Texts               []int
	}
	Texts []string
}

func readFleet(t *testing.T, s *Server, path string) (fleet fleetAnswer) {
	t.Helper()
	_, _, body := get(t, s, path)
	if err := json.Unmarshal([]byte(body), &fleet); err != nil {
		t.Fatal(err)
	}
	return fleet
}

// compressed returns what a browser gets, which says that it can unpack it.
func compressed(t *testing.T, s *Server, path string) *bytes.Buffer {
	t.Helper()
	r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil), httptest.NewRecorder()
	r.Header.Set("Accept-Encoding", "gzip, br")
	s.ServeHTTP(w, r)
	if w.Code != http.StatusOK || w.Header().Get("Content-Encoding") != "gzip" {
		t.Fatalf("%s: %d, %v", path, w.Code, w.Header())
	}
	return w.Body
}

// A node shows its most urgent part, and its own state.
func TestFleet(t *testing.T) {
	fleet := readFleet(t, aServer(aState()), "/fleet.json")
	got := ""
	for _, g := range fleet.Groups {
		got += g.Name + "=" + strings.Join(g.Nodes, "") + "/" + g.States + "/" + g.Marks + " "
	}
	if want := "(none)=f/-/. z1=ab/FU/.c z2=cde/WND/x.. "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if text := fleet.Texts[fleet.Groups[2].Texts[0]]; text != "Plan system-upgrade/k3s: waiting, MaxConcurrent" {
		t.Error(text)
	}
}

// Ten thousand nodes are sent in few bytes.
func TestLargeFleet(t *testing.T) {
	state := &State{At: noon, Rollouts: []view.Rollout{{Kind: "Plan", Namespace: "ns", Name: "p"}}}
	for i := range 10_000 {
		name := fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", i/6400, i/80%80, i%80)
		state.Nodes = append(state.Nodes, aNode(name, fmt.Sprintf("eu-central-1%c", 'a'+i%3), i%100 == 0, true))
		state.Rollouts[0].Nodes = append(state.Rollouts[0].Nodes, view.Node{Node: name, State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonMaxConcurrent})
	}
	s := aServer(state)
	fleet, size := readFleet(t, s, "/fleet.json"), compressed(t, s, "/").Len()+compressed(t, s, "/fleet.json").Len()
	if len(fleet.Groups) != 3 || size > 200_000 {
		t.Errorf("%d groups, and %d bytes", len(fleet.Groups), size)
	}
}

// An answer is made once for each state, is the same with and without compression, and few are kept.
func TestAnswers(t *testing.T) {
	made := 0
	s := New(clock.RealClock{}, Reader{Preview: func(context.Context, string, string, string) (text.Lines, error) {
		made++
		return nil, nil
	}})
	const path = "/rollouts/Plan/system-upgrade/k3s"
	for state := 1; state <= 2; state++ {
		s.Publish(aState())
		_, _, plain := get(t, s, path)
		zip, err := gzip.NewReader(compressed(t, s, path))
		if err != nil {
			t.Fatal(err)
		}
		if unpacked, err := io.ReadAll(zip); err != nil || string(unpacked) != plain {
			t.Errorf("unpacked it is %q, %v", unpacked, err)
		}
		if made != state {
			t.Errorf("made %d times for %d states", made, state)
		}
	}
	for i := range 3 * mostAnswers {
		get(t, s, fmt.Sprintf("/fleet.json?by=%d", i))
	}
	if kept := len(s.state.answers); kept > mostAnswers {
		t.Errorf("%d answers are kept", kept)
	}
}

// A viewer sees the rollouts that he may list, and nothing that names others. Only one who may list everything sees all.
func TestViewers(t *testing.T) {
	state := aState()
	state.Rollouts = append(state.Rollouts, view.Rollout{
		Kind: "Plan", Namespace: "team", Name: "own", State: view.Waiting, Message: "node c is claimed by Plan/system-upgrade/k3s",
		Wave:  &v1alpha1.WaveStatus{Name: "first", Message: "k3s is ahead"},
		Nodes: []view.Node{{Node: "c", State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonClaimed, Message: "claimed by Plan/system-upgrade/k3s"}},
	})
	s := aServer(state)
	for name, tc := range map[string]struct {
		may   May
		codes map[string]int
		all   bool
	}{
		"everything": {func(string, string) bool { return true }, map[string]int{"/rollouts/Plan/system-upgrade/k3s": 200, "/nodes/c": 200}, true},
		"one namespace": {
			func(_, namespace string) bool { return namespace == "team" },
			map[string]int{"/rollouts/Plan/system-upgrade/k3s": 404, "/rollouts/NodeRollout/-/hosts": 404, "/rollouts/Plan/team/own": 200, "/nodes/c": 404}, false,
		},
		"all but budgets": {
			func(kind, _ string) bool { return kind != "NodeDisruptionBudget" },
			map[string]int{"/rollouts/Plan/system-upgrade/k3s": 200, "/nodes/c": 404}, false,
		},
		"nothing": {func(string, string) bool { return false }, map[string]int{"/rollouts/Plan/team/own": 404, "/nodes/c": 404}, false},
	} {
		t.Run(name, func(t *testing.T) {
			tc.codes["/"], tc.codes["/fleet.json"] = 200, 200
			for path, want := range tc.codes {
				w := httptest.NewRecorder()
				s.ServeHTTP(w, ForViewer(httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil), tc.may, false))
				body := w.Body.String()
				if w.Code != want {
					t.Errorf("%s: %d, want %d", path, w.Code, want)
				}
				if name == "one namespace" && strings.Contains(body, "k3s") || name == "nothing" && strings.Contains(body, "team/own") {
					t.Errorf("%s names a rollout that may not be seen:\n%s", path, body)
				}
				if path == "/" && strings.Contains(body, "2 of at most 2 unavailable") != tc.all {
					t.Errorf("budgets are shown to those who may see all: %t", !tc.all)
				}
			}
		})
	}
}

// Only the pages of a viewer who is logged in have a button that ends that.
func TestLogOut(t *testing.T) {
	s := aServer(aState())
	for _, loggedIn := range []bool{false, true} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, ForViewer(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), func(string, string) bool { return true }, loggedIn))
		if got := strings.Contains(w.Body.String(), `<form action="/logout" method="post"><button>Log out`); got != loggedIn {
			t.Errorf("logged in %t: button %t", loggedIn, got)
		}
	}
}

// A browser hears of each newer state, and of the present one when it connects again.
func TestChanges(t *testing.T) {
	s := aServer(aState())
	server := httptest.NewServer(s)
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/changes", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	next := func() string {
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return text
			}
		}
		return "the end"
	}
	if got := next(); got != "1" {
		t.Fatal(got)
	}
	s.Publish(aState())
	if got := next(); got != "2" {
		t.Error(got)
	}
}

// BenchmarkFirstLoad is the server's part of a first load, in a fleet of ten thousand nodes.
func BenchmarkFirstLoad(b *testing.B) {
	state := aState()
	for i := range 10_000 {
		name := fmt.Sprintf("node-%05d", i)
		state.Nodes = append(state.Nodes, aNode(name, string('a'+rune(i%3)), false, true))
		state.Rollouts[0].Nodes = append(state.Rollouts[0].Nodes, view.Node{Node: name, State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonMaxConcurrent})
	}
	for page, paths := range map[string][]string{"fleet": {"/", "/fleet.json"}, "rollout": {"/rollouts/Plan/system-upgrade/k3s"}} {
		b.Run(page, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s := aServer(state)
				for _, path := range paths {
					r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, path, nil)
					r.Header.Set("Accept-Encoding", "gzip")
					s.ServeHTTP(httptest.NewRecorder(), r)
				}
			}
		})
	}
}
