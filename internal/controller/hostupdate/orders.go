// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/node"
)

// order writes an order of a turn to the agent, with the version if it has a name.
func order(r *hostupdate.Report, c *v1alpha1.Claim, action v1alpha1.HostAction) node.Also {
	values := map[string]*string{r.Protocol.Wanted: ptr.To(string(action)), v1alpha1.AnnotationHostWanted: nil}
	if version := hostupdate.VersionOf(c); version != "" {
		values[v1alpha1.AnnotationHostWanted] = &version
	}
	return node.Annotating(values)
}

// resetProgress makes an agent acknowledge an order again if its progress is unknown.
func resetProgress(r *hostupdate.Report) node.Also {
	return node.Annotating(map[string]*string{
		r.Protocol.Active: ptr.To(string(v1alpha1.HostActionUnknown)), r.Protocol.State: ptr.To(string(v1alpha1.HostStateUnknown)),
	})
}

// orderCheck replaces any order by stabilize or reset-state: the agent looks for updates. If no label names the host's interface, no agent
// can take the order, so orderCheck only removes all orders. It also removes empty labels of the Bottlerocket update operator, which hide the
// annotations of the same keys in some views.
func orderCheck(r *hostupdate.Report, action v1alpha1.HostAction) []node.Also {
	annotations, labels := map[string]*string{v1alpha1.AnnotationHostWanted: nil}, map[string]*string{}
	for _, p := range v1alpha1.HostProtocols {
		// Old orders of the other protocols must not take effect if the host uses such a protocol again.
		for _, key := range []string{p.Wanted, p.Active, p.State, p.Update} {
			annotations[key], labels[key] = nil, nil
		}
	}
	if p, unknown := r.Protocol, v1alpha1.HostUpdateUnknown; p.Wanted != "" {
		annotations[p.Wanted], annotations[p.Active] = ptr.To(string(action)), &unknown
		annotations[p.State], annotations[p.Update], labels[p.Update] = &unknown, &unknown, &unknown
	}
	return []node.Also{node.Annotating(annotations), node.Labelling(labels)}
}

// answerCheck makes the order of orderCheck one that the agent has answered: there is no update.
func answerCheck(r *hostupdate.Report) []node.Also {
	none := map[string]*string{r.Protocol.Update: ptr.To(v1alpha1.HostUpdateFalse)}
	return []node.Also{node.Annotating(none), node.Labelling(none), node.Annotating(map[string]*string{
		r.Protocol.Active: ptr.To(string(v1alpha1.HostActionStabilize)), r.Protocol.State: ptr.To(string(v1alpha1.HostStateReady)),
	})}
}

// setHookLabel sets or removes the label for hooks, and removes their answers, so that they must answer again.
func setHookLabel(label string, on bool, hooks []string) []node.Also {
	annotations, labels := map[string]*string{}, map[string]*string{label: nil}
	for _, key := range hooks {
		annotations[key] = nil
	}
	if on {
		labels[label] = ptr.To("true")
	}
	return []node.Also{node.Annotating(annotations), node.Labelling(labels)}
}

// removeHookLabels removes the labels for hooks, with their answers.
func removeHookLabels(n *corev1.Node, hooks v1alpha1.RebootHooks) []node.Also {
	var all []node.Also
	if _, called := n.Labels[v1alpha1.LabelBeforeReboot]; called {
		all = append(all, setHookLabel(v1alpha1.LabelBeforeReboot, false, hooks.BeforeReboot)...)
	}
	if _, called := n.Labels[v1alpha1.LabelAfterReboot]; called {
		all = append(all, setHookLabel(v1alpha1.LabelAfterReboot, false, hooks.AfterReboot)...)
	}
	return all
}

// endOrders ends the orders of a turn, and orders the revert of a performed update. It does nothing if another NodeRollout now claims the node.
func endOrders(n *corev1.Node, rollout types.UID, hooks v1alpha1.RebootHooks) []node.Also {
	claims, err := v1alpha1.ParseClaims(n.Annotations)
	if err != nil || hostupdate.IsOthers(claims, rollout) {
		return nil
	}
	r, _ := hostupdate.Read(n)
	also := removeHookLabels(n, hooks)
	if r.Wanted == v1alpha1.HostActionStabilize || r.Wanted == v1alpha1.HostActionReset {
		return also
	}
	return append(also, orderCheck(&r, checkAfter(&r))...)
}

// checkAfter returns the order that ends the order before it. After an update that was performed, or an agent that has begun to make the host return,
// any next reboot would boot another version, so that is reverted, also after a reboot that the host has refused. Only Moult's agents can do that. An agent that reports when it checked is Moult's.
func checkAfter(r *hostupdate.Report) v1alpha1.HostAction {
	returns := r.Wanted == v1alpha1.HostActionRollback && r.Active == r.Wanted && r.State != v1alpha1.HostStateError
	refused := r.Wanted == v1alpha1.HostActionReboot && r.Active == r.Wanted && r.State == v1alpha1.HostStateError && r.BootID != "" && r.RebootingFrom == r.BootID
	if (r.Wanted == v1alpha1.HostActionPerform || returns || refused) && !r.Checked.IsZero() {
		return v1alpha1.HostActionReset
	}
	return v1alpha1.HostActionStabilize
}
