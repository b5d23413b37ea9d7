// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/node"
)

// saying is what the operator writes with an order to the agent.
func saying(r *hostupdate.Report, action v1alpha1.HostAction) node.Also {
	return node.Annotating(map[string]*string{r.Protocol.Wanted: ptr.To(string(action))})
}

// ordering is the first order of a turn, with the version that is to be prepared, if it has a name.
func ordering(r *hostupdate.Report, c *v1alpha1.Claim) node.Also {
	values := map[string]*string{r.Protocol.Wanted: ptr.To(string(v1alpha1.HostActionPrepare)), v1alpha1.AnnotationHostWanted: nil}
	if version := hostupdate.VersionOf(c); version != "" {
		values[v1alpha1.AnnotationHostWanted] = &version
	}
	return node.Annotating(values)
}

// forgetting lets an agent take up an order anew of which it is not known how it stands.
func forgetting(r *hostupdate.Report) node.Also {
	return node.Annotating(map[string]*string{
		r.Protocol.Active: ptr.To(string(v1alpha1.HostActionUnknown)), r.Protocol.State: ptr.To(string(v1alpha1.HostStateUnknown)),
	})
}

// calling puts a label on the node while hooks are waited for, or takes it off; either way they have to say so anew.
func calling(label string, on bool, hooks []string) []node.Also {
	annotations := map[string]*string{}
	for _, key := range hooks {
		annotations[key] = nil
	}
	labels := map[string]*string{label: nil}
	if on {
		labels[label] = ptr.To("true")
	}
	return []node.Also{node.Annotating(annotations), node.Labelling(labels)}
}

// before and after are the hooks of a NodeRollout.
func before(h *v1alpha1.HostUpdate) []string {
	if h == nil || h.Hooks == nil {
		return nil
	}
	return h.Hooks.BeforeReboot
}

func after(h *v1alpha1.HostUpdate) []string {
	if h == nil || h.Hooks == nil {
		return nil
	}
	return h.Hooks.AfterReboot
}

// asking is what the operator writes to let the agent find out what its host has to offer, and to end what it had told it before. It also takes
// off the empty labels that the Bottlerocket update operator left on nodes, which in some eyes hide the annotations of the same keys.
func asking(n *corev1.Node, r *hostupdate.Report) []node.Also {
	return looking(n, r, v1alpha1.HostActionStabilize)
}

// looking is asking with an action of those that let the agent find out what its host has to offer.
func looking(n *corev1.Node, r *hostupdate.Report, action v1alpha1.HostAction) []node.Also {
	unknown := string(v1alpha1.HostActionUnknown)
	annotations := map[string]*string{
		r.Protocol.Wanted: ptr.To(string(action)), r.Protocol.Active: &unknown,
		r.Protocol.State: ptr.To(string(v1alpha1.HostStateUnknown)), r.Protocol.Update: ptr.To(v1alpha1.HostUpdateUnknown),
		v1alpha1.AnnotationHostWanted: nil,
	}
	labels := map[string]*string{r.Protocol.Update: ptr.To(v1alpha1.HostUpdateUnknown)}
	for _, p := range v1alpha1.HostProtocols {
		// An order by another protocol, which the host spoke before, must not be found by an agent when the host speaks it again.
		if p != r.Protocol {
			annotations[p.Wanted] = nil
		}
	}
	for _, key := range []string{r.Protocol.Wanted, r.Protocol.Active, r.Protocol.State} {
		if value, there := n.Labels[key]; there && value == "" {
			labels[key] = nil
		}
	}
	return []node.Also{node.Annotating(annotations), node.Labelling(labels)}
}

// uncalling takes off the labels by which hooks are called, and what these have said.
func uncalling(n *corev1.Node, h *v1alpha1.HostUpdate) []node.Also {
	var all []node.Also
	if _, there := n.Labels[v1alpha1.LabelBeforeReboot]; there {
		all = append(all, calling(v1alpha1.LabelBeforeReboot, false, before(h))...)
	}
	if _, there := n.Labels[v1alpha1.LabelAfterReboot]; there {
		all = append(all, calling(v1alpha1.LabelAfterReboot, false, after(h))...)
	}
	return all
}

// silencing ends what a host was told whose node has lost the label that names its interface: no agent is there to be asked.
func silencing(n *corev1.Node, h *v1alpha1.HostUpdate) []node.Also {
	annotations, labels := map[string]*string{v1alpha1.AnnotationHostWanted: nil}, map[string]*string{}
	for _, p := range v1alpha1.HostProtocols {
		for _, key := range []string{p.Wanted, p.Active, p.State, p.Update} {
			annotations[key] = nil
		}
		labels[p.Update] = nil
	}
	return append(uncalling(n, h), node.Annotating(annotations), node.Labelling(labels))
}

// ending is what the operator writes when it lets go of a host for a rollout: it ends what it was told last, if that is still to be ended, and has what was
// performed taken back. A host that another rollout of this kind has by now is told nothing.
func ending(n *corev1.Node, rollout types.UID, h *v1alpha1.HostUpdate) []node.Also {
	claims, err := v1alpha1.ParseClaims(n.Annotations)
	r, speaks := hostupdate.Read(n)
	switch {
	case err != nil || slices.ContainsFunc(claims, func(c v1alpha1.Claim) bool {
		return strings.HasPrefix(c.Rollout, kind+"/") && c.UID != rollout && !c.Parked()
	}):
		return nil
	case !speaks:
		return silencing(n, h)
	case r.Wanted == v1alpha1.HostActionStabilize, r.Wanted == v1alpha1.HostActionReset:
		return uncalling(n, h)
	}
	action := v1alpha1.HostActionStabilize
	if r.Wanted == v1alpha1.HostActionPerform && !r.Checked.IsZero() {
		// It may be about to boot into what it was brought to, at whatever reboot comes next. Only an agent of Moult's can take that back; it
		// says when it has looked.
		action = v1alpha1.HostActionReset
	}
	return append(uncalling(n, h), looking(n, &r, action)...)
}
