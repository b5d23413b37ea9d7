// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/view"
)

// played is a simulated node on which the test plays the host and its agent.
type played struct {
	t        *testing.T
	name     string
	protocol v1alpha1.HostProtocol
}

// play makes hosts of simulated nodes that run the old version.
func play(t *testing.T, names []string) []*played {
	t.Helper()
	var all []*played
	for _, name := range names {
		h := &played{t: t, name: name, protocol: v1alpha1.HostProtocols[0]}
		was := node(t, name).Status.NodeInfo
		t.Cleanup(func() {
			unset(t, name)
			h.boots(was.BootID, was.OSImage)
		})
		h.boots(name+"-1", "Bottlerocket OS "+oldVersion+" (test)")
		patchNode(t, name, map[string]any{"metadata": map[string]any{"labels": map[string]any{h.protocol.InterfaceLabel: v1alpha1.InterfaceUpdateAPI}}})
		all = append(all, h)
	}
	return all
}

// boots is what the kubelet says after a boot.
func (h *played) boots(id, image string) {
	h.t.Helper()
	body, err := json.Marshal(map[string]any{"status": map[string]any{"nodeInfo": map[string]any{"bootID": id, "osImage": image}}})
	if err != nil {
		h.t.Fatal(err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.name}}
	if err := world.Status().Patch(context.WithoutCancel(h.t.Context()), n, client.RawPatch(types.StrategicMergePatchType, body)); err != nil {
		h.t.Fatalf("patching the status of node %s: %v", h.name, err)
	}
}

// says is what the agent writes: what it has taken up, and how that stands. Each pair is another annotation.
func (h *played) says(active v1alpha1.HostAction, state v1alpha1.HostState, pairs ...string) {
	h.t.Helper()
	annotations := map[string]any{h.protocol.Active: string(active), h.protocol.State: string(state)}
	for i := 0; i < len(pairs); i += 2 {
		annotations[pairs[i]] = pairs[i+1]
	}
	patchNode(h.t, h.name, map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

// hears waits until the operator wants something of the host.
func (h *played) hears(wanted v1alpha1.HostAction) {
	h.t.Helper()
	eventually(h.t, h.name+" hears "+string(wanted), func(context.Context) (string, bool) {
		got := node(h.t, h.name).Annotations
		return fmt.Sprint(got), got[h.protocol.Wanted] == string(wanted)
	})
}

// does what the operator wants.
func (h *played) does(wanted v1alpha1.HostAction) {
	h.t.Helper()
	h.hears(wanted)
	h.says(wanted, v1alpha1.HostStateReady)
}

// finds is what the agent says of what its host runs and has to offer.
func (h *played) finds(runs, target string) {
	h.t.Helper()
	h.hears(v1alpha1.HostActionStabilize)
	update := v1alpha1.HostUpdateFalse
	if target != "" {
		update = v1alpha1.HostUpdateTrue
	}
	h.says(v1alpha1.HostActionStabilize, v1alpha1.HostStateReady, v1alpha1.AnnotationHostVersion, runs, v1alpha1.AnnotationHostTarget, target,
		h.protocol.Update, update, v1alpha1.AnnotationHostChecked, "2026-11-21T12:00:00Z")
}

// reboots into the new version, and is done.
func (h *played) reboots() {
	h.t.Helper()
	h.hears(v1alpha1.HostActionReboot)
	h.says(v1alpha1.HostActionReboot, v1alpha1.HostStateBusy, v1alpha1.AnnotationHostBoot, h.name+"-1")
	h.boots(h.name+"-2", "Bottlerocket OS "+newVersion+" (test)")
	h.says(v1alpha1.HostActionReboot, v1alpha1.HostStateReady, v1alpha1.AnnotationHostVersion, newVersion, v1alpha1.AnnotationHostPrevious, oldVersion)
}

// why asks about the host's node until its part in the NodeRollout is as wanted.
func (h *played) why(rollout, what string, holds func(*view.Part, *view.Why) bool) {
	h.t.Helper()
	eventually(h.t, "why "+h.name+": "+what, func(context.Context) (string, bool) {
		out, err := moult(h.t, "why", h.name, "-o", "json")
		var w view.Why
		if err != nil || json.Unmarshal([]byte(out), &w) != nil {
			return fmt.Sprint(err, out), false
		}
		i := slices.IndexFunc(w.Rollouts, func(p view.Part) bool { return p.Rollout.Kind == view.KindNodeRollout && p.Rollout.Name == rollout })
		return out, i >= 0 && holds(&w.Rollouts[i], &w)
	})
}

// inPhase reports whether a node is in a phase of its turn, and waits for this.
func inPhase(phase v1alpha1.Phase, message string) func(*view.Part, *view.Why) bool {
	return func(p *view.Part, _ *view.Why) bool {
		return p.Unit.Phase == phase && strings.Contains(p.Unit.Message, message) && len(p.Checks) == 0
	}
}

// agree waits until the plugin says of each node of a NodeRollout what the operator says in the status.
func agree(t *testing.T, name string) {
	t.Helper()
	eventually(t, "plugin and operator agree on the nodes of "+name, func(context.Context) (string, bool) {
		s := rollout(t, name).Status
		out, err := moult(t, "status", "nr/"+name, "-o", "json")
		var r view.Rollout
		if err != nil || json.Unmarshal([]byte(out), &r) != nil {
			return fmt.Sprint(err, out), false
		}
		said, told := map[string]string{}, map[string]string{}
		for _, n := range r.Nodes {
			switch {
			case n.State == v1alpha1.UnitUpdated:
			case n.InTurn():
				said[n.Node] = string(n.Phase)
			default:
				said[n.Node] = string(n.Reason)
			}
		}
		for _, u := range s.Updating {
			told[u.Node] = string(u.Phase)
		}
		for _, u := range append(s.Waiting, s.Failed...) {
			told[u.Node] = string(u.Reason)
		}
		same := len(said) == len(told) && s.Counts != nil && r.Counts == *s.Counts && r.Revision == s.Revision && slices.Equal(r.Versions, s.Versions)
		for node, word := range told {
			same = same && said[node] == word
		}
		return fmt.Sprintf("plugin %v, operator %v\n%s", said, told, out), same
	})
}

// TestPluginHosts shows and steers a NodeRollout from its preview to its end.
func TestPluginHosts(t *testing.T) {
	t.Parallel()
	names := takeSimulated(t, 3)
	hosts := play(t, names)
	const name = "plugin-hosts"
	r := newRollout(name)
	r.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeRollout"}
	r.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{target: labelOf(t)}}
	r.Spec.Strategy = &v1alpha1.Strategy{
		Paused: true,
		Order:  []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: corev1.LabelHostname}},
		Waves:  []v1alpha1.Wave{{Name: "canary", Size: ptr.To(intstr.FromInt32(1)), Approval: v1alpha1.ApprovalManual}},
	}
	says(t, []string{"preview", write(t, r), "--turn=1m"}, "NodeRollout "+name+"  not in the cluster yet  3 nodes selected", "HostSilent",
		"does not end by itself")
	refuses(t, []string{"status", "nr/" + name}, "NodeRollout "+name+" not found")
	createRollout(t, r)

	// Nobody has looked for updates yet.
	a, b, c := hosts[0], hosts[1], hosts[2]
	a.hears(v1alpha1.HostActionStabilize)
	a.why(name, "its agent is silent", func(p *view.Part, w *view.Why) bool {
		return waitsFor(v1alpha1.ReasonHostSilent)(p, w) && waitsFor(v1alpha1.ReasonPaused)(p, w) && w.Node.Host != nil &&
			w.Node.Host.Wanted == v1alpha1.HostActionStabilize && w.Node.Host.Version == oldVersion && w.Node.Host.Interface == v1alpha1.InterfaceUpdateAPI
	})
	says(t, []string{"why", a.name}, "host runs "+oldVersion+", has not said whether there is an update; interface 2.0.0", "→ does the host's agent run?")
	agree(t, name)

	// All have an update, and a person has paused the rollout.
	for _, h := range hosts {
		h.finds(oldVersion, newVersion)
	}
	rolloutIs(t, name, "knows the new version", func(s *v1alpha1.NodeRolloutStatus) bool { return s.Revision == newVersion })
	agree(t, name)
	says(t, []string{"status", name}, "NodeRollout "+name+"  "+newVersion+"  Waiting", "0 of 3 updated, 3 waiting", "versions: "+oldVersion+" on 3",
		"paused: nothing new starts  (kubectl moult resume nr/"+name+")", "3 wait: Paused")
	says(t, []string{"preview", "nr/" + name, "--turn=5m"}, "wave canary: 1 node", a.name+"  "+oldVersion+" → "+newVersion, "the time until it is resumed",
		"the time until wave canary is approved", "drain of "+a.name)
	refuses(t, []string{"approve", "nr/" + name}, "does not wait for approval")
	says(t, []string{"resume", name}, "noderollout.moult.dev/"+name+" resumed")

	// The first goes through its turn.
	a.hears(v1alpha1.HostActionPrepare)
	a.why(name, "is claimed", inPhase(v1alpha1.PhasePreparing, "has not taken up prepare-update yet"))
	a.says(v1alpha1.HostActionPrepare, v1alpha1.HostStateBusy, v1alpha1.AnnotationHostAttempts, "1")
	a.why(name, "fetches", func(p *view.Part, w *view.Why) bool {
		return inPhase(v1alpha1.PhasePreparing, "the host fetches "+newVersion)(p, w) && w.Node.Host.Asked == newVersion && w.Node.Host.Attempts == 1
	})
	says(t, []string{"why", a.name}, "claimed by NodeRollout/"+name, "host wanted prepare-update, active prepare-update, state busy, target "+newVersion+", attempt 1")
	b.why(name, "waits for the canary", waitsFor(v1alpha1.ReasonWavePending))
	agree(t, name)
	a.says(v1alpha1.HostActionPrepare, v1alpha1.HostStateReady)
	a.does(v1alpha1.HostActionPerform)
	a.hears(v1alpha1.HostActionReboot)
	a.why(name, "is drained, and told to reboot", func(p *view.Part, w *view.Why) bool {
		return inPhase(v1alpha1.PhaseChanging, "has not taken up reboot-update yet")(p, w) && w.Node.CordonedBy == "NodeRollout/"+name && w.Node.Excluded
	})
	agree(t, name)
	says(t, []string{"status", name}, "▶ "+a.name+"  Changing", oldVersion+" → "+newVersion)
	a.reboots()
	a.finds(newVersion, "")
	a.why(name, "is updated", func(p *view.Part, w *view.Why) bool {
		return p.Unit.State == v1alpha1.UnitUpdated && w.Node.Host.Previous == oldVersion && !w.Node.Unschedulable
	})
	agree(t, name)

	// The second waits for approval, fails, and is tried again.
	b.why(name, "waits for approval", func(p *view.Part, w *view.Why) bool {
		return waitsFor(v1alpha1.ReasonWaitingForApproval)(p, w) && p.Wave == "remainder" && p.Place == 1 && p.Asking == 2
	})
	says(t, []string{"status", "nr/" + name}, "wave 1 of 2, canary: WaitingForApproval", "(kubectl moult approve nr/"+name+")")
	says(t, []string{"approve", "nr/" + name, "--wave=canary"}, "noderollout.moult.dev/"+name+" wave canary (1 of 2) approved")
	b.hears(v1alpha1.HostActionPrepare)
	b.says(v1alpha1.HostActionPrepare, v1alpha1.HostStateError, v1alpha1.AnnotationHostError, "no space left")
	b.why(name, "has failed", func(p *view.Part, w *view.Why) bool {
		return p.Unit.State == v1alpha1.UnitFailed && p.Unit.Reason == v1alpha1.ReasonHostUpdateFailed && strings.Contains(p.Unit.Message, "no space left")
	})
	b.finds(oldVersion, newVersion)
	agree(t, name)
	says(t, []string{"status", name}, "1 of 3 updated, 1 failed, 1 waiting", "✗ "+b.name+"  HostUpdateFailed", "MaxConcurrent")
	says(t, []string{"why", b.name}, "Failed: HostUpdateFailed", "→ mend it, then: kubectl moult retry "+b.name)
	says(t, []string{"retry", b.name, "--rollout", "nr/" + name, "--dry-run=server"}, "node/"+b.name+" is retried: nr/"+name+" (HostUpdateFailed) (server dry run)")
	says(t, []string{"retry", "nr/" + name}, "noderollout.moult.dev/"+name+" is retried: "+b.name+" (HostUpdateFailed)")
	b.does(v1alpha1.HostActionPrepare)
	b.does(v1alpha1.HostActionPerform)
	b.reboots()
	b.finds(newVersion, "")

	// The third is ignored.
	c.why(name, "is in its turn", inPhase(v1alpha1.PhasePreparing, ""))
	patchNode(t, c.name, map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelNodeRollout(name): v1alpha1.LabelNodeRolloutDisabled}}})
	c.finds(oldVersion, newVersion)
	c.why(name, "has opted out", func(p *view.Part, w *view.Why) bool { return p.OptedOut && len(w.Node.Claims) == 0 })
	says(t, []string{"status", name, "--until-complete"}, "Complete, 2 of 2 updated")
	says(t, []string{"status", name}, "Complete", "(1 opted out)", "versions: "+newVersion+" on 2")
	agree(t, name)
	says(t, []string{"preview", name}, "2 nodes selected, 2 updated, 1 opted out", "no node needs a turn")

	// Its name, as kubectl asks for it.
	program, err := builtPlugin()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"pause", "nr/plugin"}, {"retry", "nr/plugin"}, {"status", "nr/plugin"}, {"preview", "nr/plugin"}} {
		cmd := exec.CommandContext(t.Context(), program, append([]string{"__complete", "-n", namespace}, args...)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+world.Kubeconfig())
		if out, err := cmd.Output(); err != nil || !slices.Contains(strings.Split(string(out), "\n"), "nr/"+name) {
			t.Errorf("completion of %v: %v\n%s", args, err, out)
		}
	}
}

// TestPluginHostsThatWait shows why hosts are not told to update.
func TestPluginHostsThatWait(t *testing.T) {
	t.Parallel()
	h := play(t, takeSimulated(t, 1))[0]
	const name = "plugin-waits"
	r := newRollout(name)
	r.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{target: labelOf(t)}}
	r.Spec.HostUpdate.DetectOnly = true
	createRollout(t, r)
	h.finds(oldVersion, newVersion)
	for _, tc := range []struct {
		change func(*v1alpha1.HostUpdate)
		want   v1alpha1.Reason
		says   string
	}{
		{func(*v1alpha1.HostUpdate) {}, v1alpha1.ReasonDetectOnly, "spec.hostUpdate.detectOnly keeps it from being updated"},
		{func(u *v1alpha1.HostUpdate) { *u = v1alpha1.HostUpdate{Version: "9.9.9"} }, v1alpha1.ReasonVersionNotOffered, "the rollout wants 9.9.9"},
		{func(u *v1alpha1.HostUpdate) {
			*u = v1alpha1.HostUpdate{MinimumAge: &metav1.Duration{Duration: 72 * 3600e9}}
		}, v1alpha1.ReasonReleaseTooYoung, "minimumAge is 72h0m0s"},
	} {
		editRollout(t, name, func(r *v1alpha1.NodeRollout) { tc.change(r.Spec.HostUpdate) })
		rolloutIs(t, name, "waits for "+string(tc.want), func(s *v1alpha1.NodeRolloutStatus) bool { return len(s.Waiting) == 1 && s.Waiting[0].Reason == tc.want })
		h.why(name, string(tc.want), waitsFor(tc.want))
		says(t, []string{"why", h.name}, string(tc.want), tc.says)
		agree(t, name)
	}

	// The agent can't find out, and then it is gone with its label.
	h.says(v1alpha1.HostActionStabilize, v1alpha1.HostStateError, v1alpha1.AnnotationHostError, "no route to host")
	h.why(name, "its agent fails", waitsFor(v1alpha1.ReasonHostError))
	says(t, []string{"why", h.name}, "host error: no route to host", "HostError: no route to host")
	patchNode(t, h.name, map[string]any{"metadata": map[string]any{"labels": map[string]any{h.protocol.InterfaceLabel: nil}}})
	eventually(t, "why says that there is no label", func(context.Context) (string, bool) {
		out, err := moult(t, "why", h.name)
		return fmt.Sprint(err, out), strings.Contains(out, "NodeRollout "+name+": no label names the interface of the node's host")
	})
	says(t, []string{"status", name}, "(1 without an interface label)")
	eventually(t, "the operator says so too", func(context.Context) (string, bool) {
		out, err := kubectl(t.Context(), "get", "nr", name, "-o", "wide")
		return out, err == nil && strings.Contains(out, "selected nodes without a label that names their host's interface are ignored: 1")
	})

	// What can't be carried out says so.
	editRollout(t, name, func(r *v1alpha1.NodeRollout) {
		r.Spec.Strategy = &v1alpha1.Strategy{Windows: []v1alpha1.Window{{Schedule: "@daily", Duration: metav1.Duration{Duration: 3600e9}, TimeZone: "Nowhere"}}}
	})
	refuses(t, []string{"status", name, "--until-complete"}, "NodeRollout "+name+" is stalled: spec.strategy.windows[0].timeZone: unknown time zone Nowhere")
}
