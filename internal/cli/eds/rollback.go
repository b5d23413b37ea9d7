// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/source"
)

func (c *command) newRollback() *cobra.Command {
	var to string
	cmd := c.one(&cobra.Command{
		Use:   "rollback [ExtendedDaemonSet name]",
		Short: "Go back to an earlier revision: writes its template to the spec",
		Long: `Go back to an earlier revision: writes the template of its ExtendedDaemonSetReplicaSet to spec.template. Nodes get it as they get
any other template: after a canary where there is one (spec.strategy.canary), unless it is that of the active revision.

Without --to-revision it is, while a canary goes on or has failed, the active revision, and else the one that was active last
before. kubectl eds history lists all. Where the manifest is kept elsewhere, such as in git, change it there as well.`,
		Example: `  kubectl eds rollback agent -n monitoring
  kubectl eds rollback agent --to-revision agent-7xk2p
  kubectl eds rollback agent --to-revision 3`,
	}, func(ctx context.Context, src *source.Source, name string) error {
		return c.rollback(ctx, src, name, to)
	})
	cmd.Flags().StringVar(&to, "to-revision", "", "The revision: the name of its ExtendedDaemonSetReplicaSet, or its number in kubectl eds history.")
	if err := cmd.RegisterFlagCompletionFunc("to-revision", completeRevision(c.cluster)); err != nil {
		panic(err) // There is no such flag.
	}
	return cmd
}

func (c *command) rollback(ctx context.Context, src *source.Source, name, to string) error {
	var chosen *edsv1.ExtendedDaemonSetReplicaSet
	err := src.Write(ctx, source.DaemonSet, name, byPlugin, func(u *unstructured.Unstructured) (*source.Change, error) {
		eds := source.As[edsv1.ExtendedDaemonSet](u)
		revisions, err := revisionsOf(ctx, src, eds)
		if err != nil {
			return nil, err
		}
		i, err := rollbackIndex(eds, revisions, to)
		if err != nil {
			return nil, err
		}
		chosen = &revisions[i]
		// As it is stored: the types of this program may know less than the API server.
		stored, err := src.Get(ctx, source.ReplicaSet, chosen.Name)
		if err != nil {
			return nil, err
		}
		template, _, err := unstructured.NestedMap(stored.Object, "spec", "template")
		if err != nil || template == nil {
			return nil, fmt.Errorf("reading ExtendedDaemonSetReplicaSet %s/%s, it has no template", chosen.Namespace, chosen.Name)
		}
		return &source.Change{JSON: []map[string]any{{"op": "replace", "path": "/spec/template", "value": template}}}, nil
	})
	if err == nil {
		c.say(src, name, fmt.Sprintf("rolled back to the template of ExtendedDaemonSetReplicaSet '%s/%s'", chosen.Namespace, chosen.Name))
	}
	return err
}

// rollbackIndex is the index of the revision to go back to: the one that is named by its name or its number, or else the active one
// if spec.template is another, or else the one that was active last before. It refuses one that has failed, or that is there already.
func rollbackIndex(eds *edsv1.ExtendedDaemonSet, revisions []edsv1.ExtendedDaemonSetReplicaSet, to string) (int, error) {
	if eds.DeletionTimestamp != nil {
		return 0, errors.New("the ExtendedDaemonset is being deleted; cannot roll back")
	}
	if to == "" {
		return previousIndex(eds, revisions)
	}
	i, err := indexOf(revisions, to)
	if err != nil {
		return 0, err
	}
	r := &revisions[i]
	switch failed := canaryFailure(r); {
	case sameTemplate(&r.Spec.Template, &eds.Spec.Template):
		return 0, fmt.Errorf("the ExtendedDaemonset has the template of '%s' already", r.Name)
	case r.DeletionTimestamp != nil:
		return 0, fmt.Errorf("'%s' is being deleted; cannot roll back to it", r.Name)
	case failed != nil && r.Name != eds.Status.ActiveReplicaSet:
		return 0, fmt.Errorf("the canary of '%s' has failed (%s); cannot roll back to it", r.Name, failed.Reason)
	}
	return i, nil
}

// indexOf is the index of a revision by its name or its number.
func indexOf(revisions []edsv1.ExtendedDaemonSetReplicaSet, to string) (int, error) {
	named, err := source.Parse(to, source.ReplicaSet)
	if err != nil {
		return 0, err
	}
	if i := slices.IndexFunc(revisions, func(r edsv1.ExtendedDaemonSetReplicaSet) bool { return r.Name == named.Name }); i >= 0 {
		return i, nil
	}
	number, err := strconv.Atoi(to)
	switch {
	case err != nil:
		return 0, fmt.Errorf("the ExtendedDaemonset has no revision '%s': see kubectl eds history", named.Name)
	case number < 1 || number > len(revisions):
		return 0, fmt.Errorf("the ExtendedDaemonset has no revision %d, but %d of them: see kubectl eds history", number, len(revisions))
	}
	return number - 1, nil
}

// previousIndex is the index of the revision that was active last before that of the spec.
func previousIndex(eds *edsv1.ExtendedDaemonSet, revisions []edsv1.ExtendedDaemonSetReplicaSet) (int, error) {
	best := -1
	for i := range revisions {
		r := &revisions[i]
		if r.DeletionTimestamp != nil || sameTemplate(&r.Spec.Template, &eds.Spec.Template) {
			continue
		}
		if r.Name == eds.Status.ActiveReplicaSet {
			return i, nil
		}
		if canaryFailure(r) == nil && (best < 0 || !lastActive(r).Before(lastActive(&revisions[best]))) {
			best = i
		}
	}
	if best < 0 {
		return 0, errors.New("the ExtendedDaemonset has no earlier revision to go back to: see kubectl eds history")
	}
	return best, nil
}

// lastActive is until when a revision was active; zero if it never was.
func lastActive(r *edsv1.ExtendedDaemonSetReplicaSet) time.Time {
	if active := edsv1.FindCondition(r.Status.Conditions, edsv1.ConditionActive); active != nil {
		return active.LastTransitionTime.Time
	}
	return time.Time{}
}

// completeRevision offers the revisions of the ExtendedDaemonSet that is named.
func completeRevision(cluster source.Config) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		src, err := source.Connect(cluster)
		if err != nil || len(args) == 0 {
			return nil, none
		}
		named, err := source.Parse(args[0], source.DaemonSet)
		if err != nil {
			return nil, none
		}
		eds, err := source.GetAs[edsv1.ExtendedDaemonSet](cmd.Context(), src, source.DaemonSet, named.Name)
		if err != nil {
			return nil, none
		}
		revisions, _ := revisionsOf(cmd.Context(), src, eds)
		for i := range revisions {
			names = append(names, revisions[i].Name)
		}
		return names, none
	}
}
