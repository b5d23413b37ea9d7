// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/source"
)

func (c *command) newRollback() *cobra.Command {
	var to string
	cmd := c.one(&cobra.Command{
		Use:   "rollback [ExtendedDaemonSet name]",
		Short: "Go back to an earlier revision: writes its template to the spec",
		Long: `Go back to an earlier revision: writes the template of its ExtendedDaemonSetReplicaSet to spec.template. Its rollout may begin
with a canary, like that of any other template. Without --to-revision it is the active revision while a canary runs or has
failed, and otherwise the revision that was active before.`,
		Example: `  kubectl eds rollback agent -n monitoring
  kubectl eds rollback agent --to-revision agent-7xk2p
  kubectl eds rollback agent --to-revision 3`,
	}, func(ctx context.Context, src *source.Source, eds *edsv1.ExtendedDaemonSet) error {
		return c.rollback(ctx, src, eds.Name, to)
	})
	cmd.Flags().StringVar(&to, "to-revision", "", "The revision: the name of its ExtendedDaemonSetReplicaSet, or its number in kubectl eds history.")
	utilruntime.Must(cmd.RegisterFlagCompletionFunc("to-revision", c.completeRevision))
	return cmd
}

func (c *command) rollback(ctx context.Context, src *source.Source, name, to string) error {
	var chosen string
	err := src.Write(ctx, source.DaemonSet, name, byPlugin, func(u *unstructured.Unstructured) (change *source.Change, err error) {
		change, chosen, err = Rollback(ctx, src, u, to)
		return change, err
	})
	if err == nil {
		c.say("ExtendedDaemonset", src, name, fmt.Sprintf("rolled back to the template of ExtendedDaemonSetReplicaSet '%s/%s'", src.Namespace, chosen))
	}
	return err
}

// Rollback returns the change that brings an ExtendedDaemonSet back to the revision with this name or number, and the revision's name. Without
// one it is the revision before.
func Rollback(ctx context.Context, src *source.Source, u *unstructured.Unstructured, to string) (*source.Change, string, error) {
	eds := source.As[edsv1.ExtendedDaemonSet](u)
	revisions, err := readRevisions(ctx, src, eds)
	if err != nil {
		return nil, "", err
	}
	chosen, err := chooseRevision(eds, revisions, to)
	if err != nil {
		return nil, "", err
	}
	// The template is copied as it is stored. This program may not know all of its fields.
	stored, err := src.Get(ctx, source.ReplicaSet, chosen.Name)
	if err != nil {
		return nil, "", err
	}
	template, _, err := unstructured.NestedMap(stored.Object, "spec", "template")
	if err != nil {
		return nil, "", fmt.Errorf("reading ExtendedDaemonSetReplicaSet %s/%s, %w", chosen.Namespace, chosen.Name, err)
	}
	return &source.Change{JSON: []map[string]any{{"op": "replace", "path": "/spec/template", "value": template}}}, chosen.Name, nil
}

// chooseRevision returns the revision to go back to: the one with this name or number. Without one it is the active revision if
// spec.template is another, and otherwise the revision that was active before.
func chooseRevision(
	eds *edsv1.ExtendedDaemonSet, revisions []edsv1.ExtendedDaemonSetReplicaSet, to string,
) (*edsv1.ExtendedDaemonSetReplicaSet, error) {
	if eds.DeletionTimestamp != nil {
		return nil, errors.New("the ExtendedDaemonset is being deleted; cannot roll back")
	}
	if to == "" {
		return previousRevision(eds, revisions)
	}
	r, err := findRevision(revisions, to)
	if err != nil {
		return nil, err
	}
	switch failed := canaryFailure(r); {
	case sameTemplate(&r.Spec.Template, &eds.Spec.Template):
		return nil, fmt.Errorf("the ExtendedDaemonset has the template of '%s' already", r.Name)
	case r.DeletionTimestamp != nil:
		return nil, fmt.Errorf("'%s' is being deleted; cannot roll back to it", r.Name)
	case failed != nil && r.Name != eds.Status.ActiveReplicaSet:
		return nil, fmt.Errorf("the canary of '%s' has failed (%s); cannot roll back to it", r.Name, failed.Reason)
	}
	return r, nil
}

// findRevision returns the revision with this name, or with this number in kubectl eds history.
func findRevision(revisions []edsv1.ExtendedDaemonSetReplicaSet, to string) (*edsv1.ExtendedDaemonSetReplicaSet, error) {
	named, err := source.Parse(to, source.ReplicaSet)
	if err != nil {
		return nil, err
	}
	number, _ := strconv.Atoi(to)
	for i := range revisions {
		if revisions[i].Name == named.Name || i+1 == number {
			return &revisions[i], nil
		}
	}
	return nil, fmt.Errorf("the ExtendedDaemonset has no revision '%s': see kubectl eds history", named.Name)
}

// previousRevision returns the active revision if the spec has another template, else the one that was active last before it.
func previousRevision(
	eds *edsv1.ExtendedDaemonSet, revisions []edsv1.ExtendedDaemonSetReplicaSet,
) (best *edsv1.ExtendedDaemonSetReplicaSet, err error) {
	for i := range revisions {
		r := &revisions[i]
		switch {
		case r.DeletionTimestamp != nil, sameTemplate(&r.Spec.Template, &eds.Spec.Template):
		case r.Name == eds.Status.ActiveReplicaSet:
			return r, nil
		case edsv1.FindCondition(r.Status.Conditions, edsv1.ConditionCanary) != nil && lastActive(r).IsZero(): // Only a canary tried it.
		case canaryFailure(r) == nil && (best == nil || !lastActive(r).Before(lastActive(best))):
			best = r
		}
	}
	if best == nil {
		return nil, errors.New("the ExtendedDaemonset has no earlier revision to go back to: see kubectl eds history")
	}
	return best, nil
}

// lastActive returns when a revision became active, or was replaced; zero if it never was active.
func lastActive(r *edsv1.ExtendedDaemonSetReplicaSet) time.Time {
	return ptr.Deref(edsv1.FindCondition(r.Status.Conditions, edsv1.ConditionActive), edsv1.Condition{}).LastTransitionTime.Time
}

// completeRevision offers the revisions of the ExtendedDaemonSet on the command line.
func (c *command) completeRevision(cmd *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	src, err := source.Connect(c.cluster)
	if err != nil || len(args) == 0 {
		return nil, none
	}
	eds, err := source.GetAs[edsv1.ExtendedDaemonSet](cmd.Context(), src, source.DaemonSet, args[0])
	if err != nil {
		return nil, none
	}
	revisions, _ := readRevisions(cmd.Context(), src, eds)
	for i := range revisions {
		names = append(names, revisions[i].Name)
	}
	return names, none
}

// readRevisions reads the ExtendedDaemonSetReplicaSets of an ExtendedDaemonSet, and returns the oldest first. One without an owner belongs
// to it by its label.
func readRevisions(ctx context.Context, src *source.Source, eds *edsv1.ExtendedDaemonSet) ([]edsv1.ExtendedDaemonSetReplicaSet, error) {
	o := metav1.ListOptions{LabelSelector: labels.Set{edsv1.LabelName: eds.Name}.String()}
	all, err := source.Read[edsv1.ExtendedDaemonSetReplicaSet](ctx, src, source.ReplicaSet, o)
	if err != nil {
		return nil, source.Explain(source.ReplicaSet, err)
	}
	all = slices.DeleteFunc(all, func(ers edsv1.ExtendedDaemonSetReplicaSet) bool {
		owner := metav1.GetControllerOf(&ers)
		return owner != nil && owner.UID != eds.UID
	})
	slices.SortFunc(all, func(a, b edsv1.ExtendedDaemonSetReplicaSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// revisionInSpec returns the newest revision with the template of the spec, or nil.
func revisionInSpec(eds *edsv1.ExtendedDaemonSet, revisions []edsv1.ExtendedDaemonSetReplicaSet) *edsv1.ExtendedDaemonSetReplicaSet {
	for i := len(revisions) - 1; i >= 0; i-- {
		if sameTemplate(&eds.Spec.Template, &revisions[i].Spec.Template) {
			return &revisions[i]
		}
	}
	return nil
}

// sameTemplate reports whether two templates make the same revision. Their names do not count.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	a.Name, b.Name = "", ""
	return equality.Semantic.DeepEqual(a, b)
}

// canaryFailure returns the condition that the canary of a revision has failed, or nil.
func canaryFailure(ers *edsv1.ExtendedDaemonSetReplicaSet) *edsv1.Condition {
	return edsv1.TrueCondition(ers.Status.Conditions, edsv1.ConditionCanaryFailed)
}
