// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
)

// labelPool is a label of the nodes of a pool, with the name of its rollout.
const labelPool = "example.com/pool"

// pool is a scale set, and the rollout that replaces its machines.
type pool struct {
	*harness
	cloud   *replaceCloud
	world   *clouds.World
	set     string
	rollout string
}

// standing says in short how things stand.
func (c *pool) standing() string {
	set, _ := c.world.Set(c.set)
	count := map[string]int{}
	for _, m := range c.world.Machines(c.set) {
		what := m.State
		if m.Model != set.Model {
			what = "old " + what
		}
		count[what]++
	}
	text := fmt.Sprintf("%s: capacity %d, %v", clouds.ImageName(set.Image), set.Capacity, count)
	if r := c.latestRollout(); r != nil {
		for _, s := range r.Status.ScaleSets {
			for _, o := range s.Operations {
				text += fmt.Sprintf("; %s of %d", o.Kind, max(int(o.Count), len(o.Machines)))
			}
			if s.Reason != "" {
				text += fmt.Sprintf("; %s", s.Reason)
			}
		}
		var turns []string
		for i := range r.Status.Turns {
			turns = append(turns, fmt.Sprintf("%s %s", r.Status.Turns[i].Machine, r.Status.Turns[i].Phase))
		}
		text += "; " + strings.Join(turns, ", ")
	}
	return text
}

func (c *pool) latestRollout() (r *v1alpha1.NodeRollout) {
	c.journal.see(func(latest map[string]client.Object) {
		r, _ = latest[fmt.Sprintf("%T %s", r, c.rollout)].(*v1alpha1.NodeRollout)
	})
	return r
}

// replaced says what is missing until all machines are of the newest image and nothing is under way; "" when nothing is.
func (c *pool) replaced() string {
	set, _ := c.world.Set(c.set)
	machines := c.world.Machines(c.set)
	if len(machines) != set.Capacity {
		return fmt.Sprintf("there are %d machines", len(machines))
	}
	for _, m := range machines {
		if m.State != clouds.Running || m.Model != set.Model {
			return fmt.Sprintf("machine %s is %s, and of image %s", m.ID, m.State, m.Image)
		}
	}
	maps.DeleteFunc(set.Settings, func(_, value string) bool { return value == "" })
	if !maps.Equal(set.Settings, c.cloud.settings) {
		return fmt.Sprintf("the scale set has the settings %v", set.Settings)
	}
	r := c.latestRollout()
	switch {
	case r == nil:
		return "there is no rollout"
	case len(r.Status.Turns) > 0:
		return fmt.Sprintf("%d machines are in a turn", len(r.Status.Turns))
	case !strings.HasPrefix(r.Status.Revision, clouds.ImageName(set.Image)+"@"):
		return "the revision is " + r.Status.Revision
	case len(r.Status.ScaleSets) != 1:
		return fmt.Sprintf("the scale sets are %+v", r.Status.ScaleSets)
	case len(r.Status.ScaleSets[0].Operations) > 0:
		return "operations are under way"
	case r.Status.Counts == nil || r.Status.Counts.Updated != int32(set.Capacity) || r.Status.Counts.Total != int32(set.Capacity):
		return fmt.Sprintf("of %d nodes %+v", set.Capacity, r.Status.Counts)
	case !meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionReady):
		return "the rollout is not Ready"
	}
	return c.untouched(machines)
}

// untouched says which node is not as it is to be while no machine is in a turn.
func (c *pool) untouched(machines []clouds.Machine) (missing string) {
	c.journal.see(func(latest map[string]client.Object) {
		nodes := 0
		for _, o := range latest {
			n, ok := o.(*corev1.Node)
			if !ok || n.Labels[labelPool] != c.rollout {
				continue
			}
			nodes++
			if left := leftOn(n); left != "" {
				missing = fmt.Sprintf("%s has %s", n.Name, left)
			}
			if !slices.ContainsFunc(machines, func(m clouds.Machine) bool { return m.NodeName == n.Name && m.ProviderID == n.Spec.ProviderID }) {
				missing = fmt.Sprintf("the machine of %s is gone", n.Name)
			}
		}
		if nodes != len(machines) {
			missing = fmt.Sprintf("%d machines have %d nodes", len(machines), nodes)
		}
	})
	return missing
}

// leftOn says what a rollout has left on a node, or what is wrong with it.
func leftOn(n *corev1.Node) string {
	for _, keys := range []map[string]string{n.Annotations, n.Labels} {
		for key := range keys {
			if strings.Contains(key, v1alpha1.GroupName+"/") && !strings.HasPrefix(key, "test.") || key == v1alpha1.AnnotationScaleDownDisabled || key == corev1.LabelNodeExcludeBalancers {
				return key
			}
		}
	}
	switch {
	case len(n.Spec.Taints) > 0:
		return fmt.Sprintf("taints %v", n.Spec.Taints)
	case n.Spec.Unschedulable:
		return "a cordon"
	case !nodeReady(n):
		return "no kubelet"
	}
	return ""
}

// story is what happened in the cloud of late, and how the rollout stands.
func (c *pool) story(ctx context.Context) string {
	const most = 60
	var text strings.Builder
	calls := c.world.Journal()
	for _, call := range calls[max(0, len(calls)-most):] {
		fmt.Fprintf(&text, "%s %s %s %s\n", call.Time.Format("15:04:05.000"), call.Name, call.Detail, call.Outcome)
	}
	var rollout v1alpha1.NodeRollout
	if err := c.client.Get(context.WithoutCancel(ctx), client.ObjectKey{Name: c.rollout}, &rollout); err != nil {
		return text.String() + err.Error()
	}
	status, err := json.MarshalIndent(rollout.Status, "", " ")
	if err != nil {
		return text.String() + err.Error()
	}
	return text.String() + string(status)
}
