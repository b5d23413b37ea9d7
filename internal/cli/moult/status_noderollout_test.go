// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/view"
)

// hostRollouts are NodeRollouts: one under way, one halted, one that waits for hosts without versions, and one that is done.
func hostRollouts() []view.Rollout {
	host := func(name, version, to string, state v1alpha1.UnitState, change func(*view.Node)) view.Node {
		n := view.Node{Node: name, State: state, Version: version, Target: to}
		change(&n)
		return n
	}
	phase := func(p v1alpha1.Phase, message string) func(*view.Node) {
		return func(n *view.Node) { n.Phase, n.Since, n.Message = p, ago(20*time.Second), message }
	}
	reason := func(r v1alpha1.Reason, message string) func(*view.Node) {
		return func(n *view.Node) { n.Reason, n.Message = r, message }
	}
	nothing := func(*view.Node) {}
	const old, latest = "1.19.0", "1.20.3"
	return []view.Rollout{
		{
			Kind: view.KindNodeRollout, Name: "bottlerocket", Version: latest, State: view.Progressing, Since: ago(12 * time.Minute), Unlabelled: 2, OptedOut: 1,
			Counts:   v1alpha1.UnitCounts{Total: 6, Updated: 2, Updating: 2, Waiting: 2},
			Versions: []v1alpha1.HostVersion{{Version: old, Nodes: 4}, {Version: latest, Nodes: 2}},
			Nodes: []view.Node{
				host("a", old, latest, v1alpha1.UnitUpdating, phase(v1alpha1.PhaseChanging, "the host reboots: not ready since 2026-11-20T11:59:40Z")),
				host("b", old, latest, v1alpha1.UnitUpdating, phase(v1alpha1.PhaseDraining, "2 pods left")),
				host("c", old, latest, v1alpha1.UnitOutdated, reason(v1alpha1.ReasonMaxConcurrent, "2 of 2 slots taken (a, b)")),
				host("d", old, "", v1alpha1.UnitOutdated, reason(v1alpha1.ReasonHostSilent, "the host's agent has not answered stabilize: does it run on the node?")),
				host("e", latest, "", v1alpha1.UnitUpdated, nothing), host("f", latest, "", v1alpha1.UnitUpdated, nothing),
			},
		},
		{
			Kind: view.KindNodeRollout, Name: "halted", Version: latest, State: view.Stalled, Since: ago(time.Minute), Halted: "the change failed on a",
			Message: "halted: the change failed on a", Counts: v1alpha1.UnitCounts{Total: 2, Failed: 1, Waiting: 1},
			Nodes: []view.Node{
				host("a", old, latest, v1alpha1.UnitFailed, reason(v1alpha1.ReasonVersionUnchanged, "the host has rebooted, and runs 1.19.0, not 1.20.3")),
				host("b", old, latest, v1alpha1.UnitOutdated, reason(v1alpha1.ReasonHalted, "the change failed on a")),
			},
		},
		{
			Kind: view.KindNodeRollout, Name: "reboots", Version: "reboot-3", State: view.Waiting, Since: ago(time.Minute), Paused: true,
			Counts: v1alpha1.UnitCounts{Total: 1, Waiting: 1},
			Nodes:  []view.Node{host("x", "", "", v1alpha1.UnitOutdated, reason(v1alpha1.ReasonPaused, "the rollout is paused"))},
		},
		{
			Kind: view.KindNodeRollout, Name: "steady", Version: latest, RolledBack: "1.20.4", State: view.Complete, Since: ago(time.Hour), Counts: v1alpha1.UnitCounts{Total: 1, Updated: 1},
			Versions: []v1alpha1.HostVersion{{Version: latest, Nodes: 1}}, Nodes: []view.Node{host("y", latest, "", v1alpha1.UnitUpdated, nothing)},
		},
	}
}

func TestFrameOfNodeRollouts(t *testing.T) {
	golden(t, "status/"+"hosts", frame(&shown{rollouts: hostRollouts()}, now, false).Text(0, false))
	golden(t, "status/"+"hosts-wide", frame(&shown{rollouts: hostRollouts()[:1]}, now, true).Text(0, false))
}

func TestJournalOfNodeRollouts(t *testing.T) {
	var out bytes.Buffer
	j := newJournal(&out, now, false)
	all := hostRollouts()
	j.show(&shown{rollouts: all[:2]}, "", now)
	n := &all[0].Nodes[1]
	n.Phase, n.Message = v1alpha1.PhaseChanging, "the host's agent has not taken up reboot-update yet"
	j.show(&shown{rollouts: all[:2]}, "", now.Add(5*time.Second))
	golden(t, "status/"+"journal-hosts", out.Bytes())
}

// aNodeRollout is one of a cluster.
func aNodeRollout(name string, ready metav1.ConditionStatus) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.NodeRollout{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeRollout"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "nr"},
		Spec:       v1alpha1.NodeRolloutSpec{HostUpdate: &v1alpha1.HostUpdate{}},
		Status:     v1alpha1.NodeRolloutStatus{Revision: "1.20.3", Conditions: []metav1.Condition{{Type: "Ready", Status: ready}}},
	})
	if err != nil {
		panic(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// aHost is a node with a host that has an update, and which must be rebooted.
func aHost(t *testing.T) *corev1.Node {
	t.Helper()
	at := metav1.Time{Time: clock.RealClock{}.Now()} // Those who follow it look at the clock.
	claims, err := v1alpha1.FormatClaims([]v1alpha1.Claim{{
		Rollout: "NodeRollout/bottlerocket", UID: "nr", Revision: "1.20.3", Since: at, Cordoned: &at, Rebooting: &at, BootID: "before",
	}})
	if err != nil {
		t.Fatal(err)
	}
	p := v1alpha1.HostProtocols[0]
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "host", Labels: map[string]string{p.InterfaceLabel: "2.0.0"}, Annotations: map[string]string{
		p.Wanted: "reboot-update", p.Active: "reboot-update", p.State: "busy", p.Update: "true", v1alpha1.AnnotationClaims: claims,
	}}}
	n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "before", OSImage: "Bottlerocket OS 1.19.0 (aws-k8s-1.37)", Architecture: "amd64"}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

// TestOnceOfNodeRollouts: they are in no namespace, and shown with those of any.
func TestOnceOfNodeRollouts(t *testing.T) {
	gone := apierrors.NewNotFound(source.NodeRollout.Resource.GroupResource(), "")
	denied := apierrors.NewForbidden(source.NodeRollout.Resource.GroupResource(), "", errors.New("no"))
	plan := aPlan("ns", "p", upgradev1.Condition{Type: upgradev1.ConditionComplete, Status: metav1.ConditionTrue})
	done := aNodeRollout("bottlerocket", metav1.ConditionTrue)
	for name, tc := range map[string]struct {
		objects []runtime.Object
		fails   map[string]error
		args    []string
		want    []string
		not     string
		err     string
	}{
		"beside a Plan":     {objects: []runtime.Object{plan, done}, want: []string{"Plan ns/p", "NodeRollout bottlerocket  Complete"}},
		"by its name":       {objects: []runtime.Object{done}, args: []string{"bottlerocket"}, want: []string{"NodeRollout bottlerocket"}},
		"by its kind":       {objects: []runtime.Object{plan, done}, args: []string{"nr/bottlerocket"}, want: []string{"NodeRollout bottlerocket"}, not: "Plan"},
		"as JSON":           {objects: []runtime.Object{done}, args: []string{"nr/bottlerocket", "-o", "json"}, want: []string{`"kind": "NodeRollout"`, `"state": "Complete"`}, not: "items"},
		"as JSON, of all":   {objects: []runtime.Object{done}, args: []string{"nr/bottlerocket", "-o", "json", "-A"}, want: []string{`"kind": "NodeRollout"`}, not: "items"},
		"not there":         {objects: []runtime.Object{plan}, args: []string{"nr/x"}, err: `NodeRollout x not found`},
		"not there at all":  {args: []string{"x"}, err: `Plan ns/x not found`},
		"no such kind":      {objects: []runtime.Object{plan}, fails: map[string]error{"noderollouts": gone}, want: []string{"Plan ns/p", "NodeRollouts are not shown: this cluster does not know NodeRollouts"}},
		"no two such kinds": {objects: []runtime.Object{plan}, fails: map[string]error{"noderollouts": gone, "extendeddaemonsets": gone}, want: []string{"NodeRollouts are not shown: this cluster does not know NodeRollouts"}},
		"one and the other": {objects: []runtime.Object{plan}, fails: map[string]error{"noderollouts": denied, "extendeddaemonsets": gone}, want: []string{"NodeRollouts are not shown: "}},
		"not Plans":         {objects: []runtime.Object{done}, fails: map[string]error{"plans": denied}, want: []string{"NodeRollout bottlerocket", "Plans are not shown: "}},
		"neither Plans":     {fails: map[string]error{"plans": denied}, err: "forbidden"},
		"asked for it":      {objects: []runtime.Object{plan}, fails: map[string]error{"noderollouts": gone}, args: []string{"nr/x"}, err: "this cluster does not know NodeRollouts"},
		"it fails":          {objects: []runtime.Object{plan}, fails: map[string]error{"noderollouts": errors.New("broken")}, err: "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			src, dynamic, _ := fakes(t, tc.objects...)
			for resource, err := range tc.fails {
				dynamic.PrependReactor("list", resource, func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, err })
			}
			var out bytes.Buffer
			c := &statusCommand{command: command{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}, clock: clocktesting.NewFakeClock(now)}}
			cmd := &cobra.Command{}
			c.output.Add(cmd, flags.Wide, flags.JSON, flags.YAML)
			all := cmd.Flags().BoolP("all-namespaces", "A", false, "")
			if err := cmd.ParseFlags(tc.args); err != nil {
				t.Fatal(err)
			}
			var named source.Target
			if args := cmd.Flags().Args(); len(args) > 0 {
				var err error
				if named, err = source.Parse(args[0], source.Rollouts...); err != nil {
					t.Fatal(err)
				}
			}
			if *all {
				src.Namespace = ""
			}
			err := c.show(t.Context(), src, named)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Fatalf("%v, want %q", err, tc.err)
			}
			for _, want := range tc.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it does not say %q:\n%s", want, out.String())
				}
			}
			if tc.not != "" && strings.Contains(out.String(), tc.not) {
				t.Errorf("it says %q:\n%s", tc.not, out.String())
			}
		})
	}
}

// TestFollowNodeRollouts to their end.
func TestFollowNodeRollouts(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	src, dynamic, core := fakes(t, aNodeRollout("bottlerocket", metav1.ConditionFalse))
	dynamic.PrependReactor("list", "extendeddaemonsets", func(ktesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(source.DaemonSet.Resource.GroupResource(), "")
	})
	if err := core.Tracker().Add(aHost(t)); err != nil {
		t.Fatal(err)
	}
	painter, ended := make(seen, 1), make(chan error, 1)
	go func() {
		ended <- follow(ctx, clock.RealClock{}, src, source.Target{Name: "bottlerocket"}, painter, true)
	}()
	for said := false; !said; {
		select {
		case all := <-painter:
			said = len(all) == 1 && len(all[0].Nodes) == 1
			if said && (all[0].Nodes[0].Message != "the host is to reboot, and has not gone down yet" || all[0].Nodes[0].Version != "1.19.0") {
				t.Errorf("%+v", all[0].Nodes[0])
			}
		case err := <-ended:
			t.Fatal(err)
		case <-ctx.Done():
			t.Fatal("it does not say so")
		}
	}
	if _, err := src.Of(source.NodeRollout).Update(ctx, aNodeRollout("bottlerocket", metav1.ConditionTrue), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	released := aHost(t)
	delete(released.Annotations, v1alpha1.AnnotationClaims)
	p := v1alpha1.HostProtocols[0]
	maps.Copy(released.Annotations, map[string]string{p.Wanted: "stabilize", p.Active: "stabilize", p.State: "ready", p.Update: "false"})
	if err := core.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), released, ""); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestFollowEndsOfNodeRollouts(t *testing.T) {
	gone := apierrors.NewNotFound(source.NodeRollout.Resource.GroupResource(), "")
	for name, tc := range map[string]struct {
		fails map[string]error
		want  string
	}{
		"there is none":         {want: `NodeRollout x not found`},
		"there is no such kind": {fails: map[string]error{"noderollouts": gone}, want: "this cluster does not know NodeRollouts"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			src, dynamic, _ := fakes(t)
			for resource, err := range tc.fails {
				dynamic.PrependReactor("list", resource, func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, err })
			}
			err := follow(ctx, clock.RealClock{}, src, source.Target{Kind: source.NodeRollout, Name: "x"}, make(seen), true)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("it ends with %v, want %q", err, tc.want)
			}
		})
	}
}
