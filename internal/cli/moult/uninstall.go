// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
)

func newUninstallCheck(c command) *cobra.Command {
	cmd := help("uninstall-check",
		`List what Moult has left on nodes and in rollouts, with the commands that remove it. The exit code is 1 if anything is left.
Let rollouts end, or delete them, while the operator runs. A Plan that you keep runs again on nodes without their label of it.`,
		"  kubectl moult uninstall-check")
	return source.Verb(c.cluster, cmd, nil, func(ctx context.Context, src *source.Source, _ source.Target) error {
		return c.uninstallCheck(ctx, src)
	})
}

// leftovers are what is left of Moult: what it is, and the command that removes it.
type leftovers [][2]string

func (l *leftovers) add(what, fix string, args ...any) {
	*l = append(*l, [2]string{what, fmt.Sprintf(fix, args...)})
}

func (c *command) uninstallCheck(ctx context.Context, src *source.Source) error {
	var left leftovers
	src.Namespace = metav1.NamespaceAll
	if err := left.ofRollouts(ctx, src); err != nil {
		return err
	}
	if err := source.Each(ctx, src.Core.Nodes(), metav1.ListOptions{}, left.ofNode); err != nil {
		return fmt.Errorf("listing nodes, %w", err)
	}
	for _, one := range left {
		fmt.Fprintf(c.Out, "%s\n  %s\n", text.Clean(one[0]), text.Clean(one[1]))
	}
	if len(left) > 0 {
		return fmt.Errorf("%d things of Moult are left: while the operator runs, let rollouts end; after that run the commands above", len(left))
	}
	fmt.Fprintln(c.Out, "Nothing of Moult is left on nodes, and no rollout is in progress.")
	return nil
}

// ofRollouts adds rollouts that are in the middle of a turn.
func (l *leftovers) ofRollouts(ctx context.Context, src *source.Source) error {
	errPlans := eachOf(ctx, src, source.Plan, func(p *upgradev1.Plan) {
		if len(p.Status.Applying) > 0 {
			l.add(fmt.Sprintf("%s -n %s changes %s", source.Plan.String(p.Name), p.Namespace, strings.Join(p.Status.Applying, ", ")),
				"kubectl delete plan -n %s %s", p.Namespace, p.Name)
		}
	})
	errRollouts := eachOf(ctx, src, source.NodeRollout, func(r *v1alpha1.NodeRollout) {
		if len(r.Status.Turns) > 0 {
			l.add(fmt.Sprintf("%s replaces %d machines: look in the cloud for what it has added", source.NodeRollout.String(r.Name), len(r.Status.Turns)),
				"kubectl delete noderollout %s", r.Name)
		}
		if i := slices.Index(r.Finalizers, v1alpha1.FinalizerReplacement); i >= 0 {
			path := fmt.Sprintf("/metadata/finalizers/%d", i) // The test keeps it from removing another one if the list has changed.
			l.add(source.NodeRollout.String(r.Name)+" has the finalizer "+v1alpha1.FinalizerReplacement+", which only the operator removes",
				`kubectl patch noderollout %s --type=json -p '[{"op":"test","path":"%s","value":"%s"},{"op":"remove","path":"%s"}]'`,
				r.Name, path, v1alpha1.FinalizerReplacement, path)
		}
	})
	errDaemons := eachOf(ctx, src, source.DaemonSet, func(d *edsv1.ExtendedDaemonSet) {
		if s := &d.Status; s.Canary != nil || s.UpToDate < s.Desired {
			l.add(fmt.Sprintf("%s -n %s is being updated: its pods stay as they are without the operator", source.DaemonSet.String(d.Name), d.Namespace),
				"kubectl moult status eds/%s -n %s", d.Name, d.Namespace)
		}
	})
	return errors.Join(errPlans, errRollouts, errDaemons)
}

// eachOf calls do with each object of a kind. A kind that the API server does not know has none.
func eachOf[T any](ctx context.Context, src *source.Source, k *source.Kind, do func(*T)) error {
	if err := source.Each(ctx, src.Of(k), metav1.ListOptions{}, do); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("listing %ss, %w", k.Name, err)
	}
	return nil
}

// ofNode adds what is left on a node: last its claims, so that a command that fails before leaves them to look at.
func (l *leftovers) ofNode(n *corev1.Node) {
	_, cordoned := n.Annotations[v1alpha1.AnnotationCordonedBy]
	claims, _ := v1alpha1.ParseClaims(n.Annotations) // What can't be read is listed as an annotation.
	claimed := ""
	for i := range claims {
		cordoned = cordoned || claims[i].Uncordon
		claimed += ", with a claim of " + claims[i].Rollout
	}
	if cordoned && n.Spec.Unschedulable {
		l.add("node/"+n.Name+" is cordoned by Moult", "kubectl uncordon %s", n.Name)
	}
	for _, t := range n.Spec.Taints {
		if strings.Contains(t.Key, v1alpha1.TaintOutdatedSuffix+"/") {
			l.add("node/"+n.Name+" has the taint "+t.Key, "kubectl taint node %s %s:%s-", n.Name, t.Key, t.Effect)
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Reason == v1alpha1.ReasonMaintenance && c.Status == corev1.ConditionTrue {
			l.add(fmt.Sprintf("node/%s has the condition %s, with the message %q", n.Name, c.Type, c.Message),
				`kubectl patch node %s --subresource=status -p '{"status":{"conditions":[{"type":"%s","status":"False"}]}}'`, n.Name, c.Type)
		}
	}
	labels, annotations := ownKeys(n.Labels), ownKeys(n.Annotations)
	if _, own := n.Annotations[v1alpha1.AnnotationExcludedBy]; own {
		l.add("node/"+n.Name+" is kept from load balancers by Moult", "kubectl label node %s %s-", n.Name, corev1.LabelNodeExcludeBalancers)
	}
	if _, own := n.Annotations[v1alpha1.AnnotationScaleDownBy]; own {
		annotations = append(annotations, v1alpha1.AnnotationScaleDownDisabled)
	}
	if len(labels) > 0 {
		l.add("node/"+n.Name+" has the labels "+strings.Join(labels, ", "), "kubectl label node %s %s-", n.Name, strings.Join(labels, "- "))
	}
	if len(annotations) > 0 {
		what := "node/" + n.Name + " has the annotations " + strings.Join(annotations, ", ") + claimed
		l.add(what, "kubectl annotate node %s %s-", n.Name, strings.Join(annotations, "- "))
	}
}

// ownKeys returns the keys of labels or annotations that are Moult's. A person's opt-out is none.
func ownKeys(of map[string]string) (own []string) {
	for _, key := range slices.Sorted(maps.Keys(of)) {
		is := strings.HasPrefix(key, v1alpha1.GroupName+"/") || strings.HasPrefix(key, upgradev1.LabelPlanHash("")) && of[key] != upgradev1.LabelDisabled
		for _, p := range v1alpha1.HostProtocols {
			is = is && key != p.InterfaceLabel || slices.Contains([]string{p.Wanted, p.Active, p.State, p.Update}, key)
		}
		if is {
			own = append(own, key)
		}
	}
	return own
}
