// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/view"
)

// daemonRollouts are ExtendedDaemonSets: one rolling, one in its canary, one paused, one that failed, one frozen, and one at rest.
func daemonRollouts() []view.Rollout {
	daemon := func(name string, stage edsv1.State, state view.State, change func(*view.Rollout)) view.Rollout {
		r := view.Rollout{
			Kind: view.KindDaemonSet, Namespace: "monitoring", Name: name, Version: name + "-7xk2p", State: state, Stage: stage, Since: ago(4 * time.Minute),
			Pods: &view.PodCounts{Desired: 3, Current: 3, Ready: 2, Available: 2, UpToDate: 1},
		}
		change(&r)
		for i := range r.Nodes {
			r.Counts.Total++
			switch r.Nodes[i].State {
			case v1alpha1.UnitUpdated:
				r.Counts.Updated++
			case v1alpha1.UnitOutdated:
				r.Counts.Waiting++
			case v1alpha1.UnitFailed:
				r.Counts.Failed++
			case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking:
				r.Counts.Updating++
			}
		}
		return r
	}
	waits := func(reason v1alpha1.Reason, message string, nodes ...string) (all []view.Node) {
		for _, n := range nodes {
			all = append(all, view.Node{Node: n, State: v1alpha1.UnitOutdated, Reason: reason, Message: message})
		}
		return all
	}
	canary := view.Node{Node: "n1", State: v1alpha1.UnitUpdated, Canary: true}
	return []view.Rollout{
		daemon("agent", edsv1.StateRunning, view.Progressing, func(r *view.Rollout) {
			r.Nodes = append([]view.Node{
				{Node: "n1", State: v1alpha1.UnitUpdating, Phase: v1alpha1.PhaseChanging, Since: ago(8 * time.Second), Message: "pod agent-7xk2p-abcdefghij: container agent can't start, ErrImagePull: no such image"},
				{Node: "n2", State: v1alpha1.UnitUpdated},
			}, waits(v1alpha1.ReasonMaxConcurrent, "1 of 1 slots taken (n1)", "n3", "n4")...)
		}),
		daemon("canary", edsv1.StateCanary, view.Waiting, func(r *view.Rollout) {
			r.Canary = &view.Canary{Revision: r.Version, Nodes: []string{"n1"}, State: view.CanaryProgressing}
			r.Wave = &v1alpha1.WaveStatus{Name: "canary", Number: 1, Of: 2, State: v1alpha1.WaveWaitingForApproval, Since: *ago(time.Minute), Nodes: 1, Updated: 1, ApproveWith: "x"}
			r.Nodes = append(waits(v1alpha1.ReasonWaitingForApproval, "wave 2 (remainder) has not begun: wave 1 (canary) waits for approval", "n2", "n3"), canary)
		}),
		daemon("failed", edsv1.StateCanaryFailed, view.Stalled, func(r *view.Rollout) {
			r.Message = "canary failed with ers: failed-7xk2p: OOMKilled: pod on node n1: container c has restarted 6 times"
			r.Canary = &view.Canary{Revision: r.Version, State: view.CanaryFailed, Reason: "OOMKilled", Message: "pod on node n1: container c has restarted 6 times"}
			r.Nodes = []view.Node{{Node: "n1", State: v1alpha1.UnitUpdating, Phase: v1alpha1.PhaseChanging, Message: "no pod yet"}}
		}),
		daemon("frozen", edsv1.StateRolloutFrozen, view.Waiting, func(r *view.Rollout) {
			r.Paused, r.PausedBy = true, edsv1.AnnotationRolloutFrozen
			r.Nodes = waits(v1alpha1.ReasonPaused, "the rollout is paused", "n1")
		}),
		daemon("halted", edsv1.StateRunning, view.Stalled, func(r *view.Rollout) {
			r.Halted, r.Message = "1 nodes failed; maxFailures is 0: n1", "1 nodes failed; maxFailures is 0: n1"
			r.Nodes = append([]view.Node{{Node: "n1", State: v1alpha1.UnitFailed, Reason: v1alpha1.ReasonPodFailed, Message: "pod x can't start"}}, waits(v1alpha1.ReasonHalted, r.Halted, "n2")...)
		}),
		daemon("paused", edsv1.StateCanaryPaused, view.Waiting, func(r *view.Rollout) {
			r.Canary = &view.Canary{Revision: r.Version, Nodes: []string{"n1"}, State: view.CanaryPaused, Reason: "ImagePullBackOff", Message: "pod on node n1: no such image"}
			r.Paused, r.PausedBy = true, edsv1.AnnotationRollingUpdatePaused
			r.Nodes = append([]view.Node{{Node: "n1", State: v1alpha1.UnitUpdating, Phase: v1alpha1.PhaseChanging, Canary: true, Message: "the canary is paused"}},
				waits(v1alpha1.ReasonWavePending, "wave 2 (remainder) has not begun: 0 of 1 nodes of wave 1 (canary) are updated", "n2")...)
		}),
		daemon("steady", edsv1.StateRunning, view.Complete, func(r *view.Rollout) { r.Nodes = []view.Node{{Node: "n1", State: v1alpha1.UnitUpdated}} }),
	}
}

func TestFrameOfDaemons(t *testing.T) {
	golden(t, "status/"+"daemons", frame(&shown{rollouts: daemonRollouts()}, now, false).Text(0, false))
}

func TestJournalOfDaemons(t *testing.T) {
	var out bytes.Buffer
	j := newJournal(&out, now, false)
	all := daemonRollouts()
	j.show(&shown{rollouts: all[1:3]}, "", now)
	all[1].Wave.State, all[1].Stage = v1alpha1.WaveComplete, edsv1.StateRunning
	all[2].Canary, all[2].State, all[2].Message = nil, view.Progressing, ""
	j.show(&shown{rollouts: all[1:3]}, "", now.Add(time.Second))
	golden(t, "status/"+"journal-daemons", out.Bytes())
}

func aDaemonSet(namespace, name string, change ...func(*edsv1.ExtendedDaemonSet)) *unstructured.Unstructured {
	d := &edsv1.ExtendedDaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: edsv1.GroupVersion.String(), Kind: source.DaemonSet.Name},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Status: edsv1.ExtendedDaemonSetStatus{
			ActiveReplicaSet: name + "-a", Desired: 1, Current: 1, Ready: 1, Available: 1, UpToDate: 1,
			Conditions: []edsv1.Condition{{Type: edsv1.ConditionReady, Status: metav1.ConditionTrue}},
		},
	}
	for _, f := range change {
		f(d)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	if err != nil {
		panic(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// restless has a pod that is not ready.
func restless(d *edsv1.ExtendedDaemonSet) {
	d.Status.Conditions[0].Status = metav1.ConditionFalse
	d.Status.Updating = []v1alpha1.UnitStatus{{Node: "node", Phase: v1alpha1.PhaseChanging}}
}

// aBudget is one of all nodes.
func aBudget() *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.NodeDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Name: "everything"},
		Spec:       v1alpha1.NodeDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(1))},
	})
	if err != nil {
		panic(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// TestOnce shows what there is to see, and says what is not.
func TestOnce(t *testing.T) {
	plans, sets := source.Plan.Resource.GroupResource(), source.DaemonSet.Resource.GroupResource()
	gone := func(of schema.GroupResource) error { return apierrors.NewNotFound(of, "") }
	denied := func(of schema.GroupResource) error { return apierrors.NewForbidden(of, "", errors.New("no")) }
	plan := aPlan("ns", "p", upgradev1.Condition{Type: upgradev1.ConditionComplete, Status: metav1.ConditionTrue})
	for name, tc := range map[string]struct {
		objects []runtime.Object
		fails   map[string]error
		args    []string
		want    []string
		not     string
		err     string
	}{
		"both":              {objects: []runtime.Object{plan, aDaemonSet("ns", "d")}, want: []string{"Plan ns/p", "ExtendedDaemonSet ns/d  d-a  Complete"}},
		"of the same name":  {objects: []runtime.Object{plan, aDaemonSet("ns", "p")}, args: []string{"p"}, want: []string{"Plan ns/p", "ExtendedDaemonSet ns/p"}},
		"one of them":       {objects: []runtime.Object{plan, aDaemonSet("ns", "p")}, args: []string{"eds/p"}, want: []string{"ExtendedDaemonSet ns/p"}, not: "Plan ns/p"},
		"just by its name":  {objects: []runtime.Object{aDaemonSet("ns", "d")}, args: []string{"d"}, want: []string{"ExtendedDaemonSet ns/d"}},
		"as JSON":           {objects: []runtime.Object{aDaemonSet("ns", "d")}, args: []string{"eds/d", "-o", "json"}, want: []string{`"kind": "ExtendedDaemonSet"`, `"upToDate": 1`}, not: "items"},
		"no such kind":      {objects: []runtime.Object{plan}, fails: map[string]error{"extendeddaemonsets": gone(sets)}, want: []string{"Plan ns/p", "ExtendedDaemonSets are not shown: this cluster does not know ExtendedDaemonSets"}},
		"not to be listed":  {objects: []runtime.Object{plan}, fails: map[string]error{"extendeddaemonsets": denied(sets)}, want: []string{"Plan ns/p", "ExtendedDaemonSets are not shown: "}},
		"asked for it":      {objects: []runtime.Object{plan}, fails: map[string]error{"extendeddaemonsets": gone(sets)}, args: []string{"eds/d"}, err: "this cluster does not know ExtendedDaemonSets"},
		"no Plans":          {objects: []runtime.Object{aDaemonSet("ns", "d")}, fails: map[string]error{"plans": gone(plans)}, want: []string{"ExtendedDaemonSet ns/d", "Plans are not shown: this cluster does not know Plans"}},
		"neither":           {fails: map[string]error{"plans": gone(plans), "extendeddaemonsets": gone(sets)}, err: "this cluster does not know Plans, is Moult installed?"},
		"not there":         {objects: []runtime.Object{aDaemonSet("other", "d")}, args: []string{"d"}, err: `Plan ns/d not found; ExtendedDaemonSet d is in other: use -n`},
		"not there by kind": {objects: []runtime.Object{aDaemonSet("other", "d")}, args: []string{"eds/d"}, err: `ExtendedDaemonSet ns/d not found; ExtendedDaemonSet d is in other: use -n`},
		"elsewhere":         {objects: []runtime.Object{aDaemonSet("other", "d")}, want: []string{"No rollouts in namespace ns: -A shows those of all namespaces."}},
		"no rollout, but a budget": {
			objects: []runtime.Object{aDaemonSet("other", "d"), aBudget()},
			want:    []string{"No rollouts in namespace ns: -A shows those of all namespaces.\nNeeds a person\n", "\nBudgets\n  everything  Exhausted  1 of at most 1 unavailable, none more may be taken\n"},
		},
		"no rollout, but a budget, wide": {objects: []runtime.Object{aBudget()}, args: []string{"-o", "wide"}, want: []string{"No rollouts in namespace ns: -A shows those of all namespaces.\n", "\nBudgets\n"}},
		"no rollout, but a budget, as JSON": {
			objects: []runtime.Object{aBudget()}, args: []string{"-o", "json"}, want: []string{`"items": []`, `"name": "everything"`, `"matched": 1`}, not: "No rollouts",
		},
		"a budget, and nodes may not be seen": {
			objects: []runtime.Object{aBudget()}, fails: map[string]error{"nodes": denied(corev1.Resource("nodes"))}, want: []string{source.NoNodes, "Budgets\n  everything"},
		},
		"neither rollouts nor budgets": {want: []string{"No rollouts in namespace ns: -A shows those of all namespaces."}, not: "Budgets"},
		"its pods may not be seen": {
			objects: []runtime.Object{aDaemonSet("ns", "d", restless)}, fails: map[string]error{"pods": denied(corev1.Resource("pods"))},
			want: []string{"▶ node  Changing", source.NoPodsSeen},
		},
		"its revisions may not be seen": {
			objects: []runtime.Object{aDaemonSet("ns", "d", restless)}, fails: map[string]error{"extendeddaemonsetreplicasets": denied(sets)},
			want: []string{"▶ node  Changing", source.NoPodsSeen},
		},
		"at rest its pods are not looked at": {
			objects: []runtime.Object{aDaemonSet("ns", "d")}, fails: map[string]error{"pods": errors.New("why?")}, want: []string{"Complete"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			src, dynamic, core := fakes(t, tc.objects...)
			for resource, err := range tc.fails {
				fail := func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, err }
				dynamic.PrependReactor("list", resource, fail)
				core.PrependReactor("list", resource, fail)
			}
			var out bytes.Buffer
			c := &statusCommand{command: command{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}, clock: clocktesting.NewFakeClock(now)}}
			cmd := &cobra.Command{}
			c.output.Add(cmd, flags.Wide, flags.JSON, flags.YAML)
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

// TestFollowDaemons: an ExtendedDaemonSet is followed by its pods while it has something to do, and by its status else.
func TestFollowDaemons(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no"))
	for name, tc := range map[string]struct {
		fails map[string]error
		want  string
	}{
		"by its pods":                         {want: "pod d-a-x is not ready"},
		"by its status":                       {fails: map[string]error{"pods": forbidden}},
		"beside Plans that there are none of": {fails: map[string]error{"plans": apierrors.NewNotFound(source.Plan.Resource.GroupResource(), "")}, want: "pod d-a-x is not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			src, dynamic, core := fakes(t, aDaemonSet("ns", "d", restless), aRevision("ns", "d-a", "d"))
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "ns", Name: "d-a-x", Labels: map[string]string{edsv1.LabelName: "d"}, Annotations: map[string]string{edsv1.AnnotationTemplateHash: "h"},
					OwnerReferences: []metav1.OwnerReference{{Kind: "ExtendedDaemonSetReplicaSet", Name: "d-a", Controller: ptr.To(true)}},
				},
				Spec: corev1.PodSpec{NodeName: "node"},
			}
			if err := core.Tracker().Add(pod); err != nil {
				t.Fatal(err)
			}
			for resource, err := range tc.fails {
				fail := func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, err }
				dynamic.PrependReactor("list", resource, fail)
				core.PrependReactor("list", resource, fail)
			}
			painter, ended := make(seen, 1), make(chan error, 1)
			go func() { ended <- follow(ctx, clock.RealClock{}, src, source.Target{}, painter, true) }()
			for said := false; !said; {
				select {
				case all := <-painter:
					said = len(all) == 1 && len(all[0].Nodes) == 1 && strings.HasPrefix(all[0].Nodes[0].Message, tc.want) && (tc.want == "") == (all[0].Nodes[0].Message == "")
				case err := <-ended:
					t.Fatal(err)
				case <-ctx.Done():
					t.Fatal("it does not say so")
				}
			}
			if _, err := src.Of(source.DaemonSet).Update(ctx, aDaemonSet("ns", "d"), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func aRevision(namespace, name, of string) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&edsv1.ExtendedDaemonSetReplicaSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: edsv1.GroupVersion.String(), Kind: "ExtendedDaemonSetReplicaSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{edsv1.LabelName: of}},
		Spec:       edsv1.ExtendedDaemonSetReplicaSetSpec{TemplateGeneration: "h"},
	})
	if err != nil {
		panic(err)
	}
	return &unstructured.Unstructured{Object: content}
}
