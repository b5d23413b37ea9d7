// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/source"
)

func (c *command) validate(ctx context.Context, src *source.Source, name string) error {
	var valid string
	err := writeAnnotations(ctx, src, name, func(eds *edsv1.ExtendedDaemonSet) (map[string]any, error) {
		if eds.Status.Canary == nil {
			return nil, errors.New("the ExtendedDaemonset is not currently running a canary replicaset")
		}
		valid = eds.Status.Canary.ReplicaSet
		if eds.Annotations[edsv1.AnnotationCanaryValid] == valid {
			return nil, fmt.Errorf("canary replicaset '%s' already validated", valid)
		}
		return map[string]any{edsv1.AnnotationCanaryValid: valid}, nil
	})
	if err == nil {
		fmt.Fprintf(c.Out, "Canary replicaset '%s' was validated properly for extendeddaemonset %s/%s.\n", valid, src.Namespace, name)
	}
	return err
}

func (c *command) fail(ctx context.Context, src *source.Source, name string) error {
	eds, err := source.GetAs[edsv1.ExtendedDaemonSet](ctx, src, source.DaemonSet, name)
	if err != nil {
		return err
	}
	if err := hasCanary(eds); err != nil {
		return err
	}
	revision := eds.Status.Canary.ReplicaSet
	err = c.setFailed(ctx, src, revision, metav1.ConditionTrue, edsv1.ReasonManuallyFailed, func(ers *edsv1.ExtendedDaemonSetReplicaSet) error {
		switch {
		case canaryFailure(ers) != nil:
			return errors.New("canary deployment already failed")
		case ers.Status.Status == edsv1.ReplicaSetActive:
			return fmt.Errorf("canary replicaset '%s' is active already; cannot fail it", revision)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// The status of the revision becomes active a moment after that of the ExtendedDaemonSet. The condition of an active one has no effect.
	if eds, err = source.GetAs[edsv1.ExtendedDaemonSet](ctx, src, source.DaemonSet, name); err != nil {
		return err
	}
	if eds.Status.ActiveReplicaSet == revision {
		return fmt.Errorf("canary replicaset '%s' has become active in this moment; cannot fail it: see kubectl eds rollback", revision)
	}
	c.sayOfRevision(src, name, "canary deployment set to failed") // Scripts know it so, with the name of the ExtendedDaemonSet.
	return nil
}

func (c *command) reset(ctx context.Context, src *source.Source, name string) error {
	eds, err := source.GetAs[edsv1.ExtendedDaemonSet](ctx, src, source.DaemonSet, name)
	if err != nil {
		return err
	}
	revisions, err := revisionsOf(ctx, src, eds)
	if err != nil {
		return err
	}
	revision, err := revisionToReset(eds, revisions)
	if err != nil {
		return err
	}
	err = c.setFailed(ctx, src, revision, metav1.ConditionFalse, edsv1.ReasonReset, func(ers *edsv1.ExtendedDaemonSetReplicaSet) error {
		if canaryFailure(ers) == nil {
			return errors.New("canary deployment already reset")
		}
		return nil
	})
	if err == nil {
		c.sayOfRevision(src, revision, "canary deployment reset")
	}
	return err
}

// revisionToReset is the name of the revision whose canary has failed and must be tried again: that of spec.template.
func revisionToReset(eds *edsv1.ExtendedDaemonSet, revisions []edsv1.ExtendedDaemonSetReplicaSet) (string, error) {
	var failed []string
	for i := range revisions {
		if r := &revisions[i]; canaryFailure(r) != nil && r.Name != eds.Status.ActiveReplicaSet {
			failed = append(failed, r.Name)
		}
	}
	if len(failed) == 0 {
		return "", errors.New("no canary deployment of the ExtendedDaemonset has failed; cannot reset")
	}
	if i := inSpec(eds, revisions); i >= 0 {
		if r := &revisions[i]; canaryFailure(r) == nil || r.Name == eds.Status.ActiveReplicaSet {
			return "", fmt.Errorf("spec.template is that of '%s', whose canary has not failed; cannot reset that of %s", r.Name, strings.Join(failed, ", "))
		}
		return revisions[i].Name, nil
	}
	if len(failed) > 1 {
		return "", fmt.Errorf("none of the failed canaries %s has the template of the ExtendedDaemonset; cannot reset", strings.Join(failed, ", "))
	}
	return failed[0], nil
}

// setFailed sets the condition Canary-Failed of a revision, unless check refuses that.
func (c *command) setFailed(
	ctx context.Context, src *source.Source, revision string, is metav1.ConditionStatus, reason string, check func(*edsv1.ExtendedDaemonSetReplicaSet) error,
) error {
	return src.Write(ctx, source.ReplicaSet, revision, byPlugin, func(u *unstructured.Unstructured) (*source.Change, error) {
		ers := source.As[edsv1.ExtendedDaemonSetReplicaSet](u)
		if err := check(ers); err != nil {
			return nil, err
		}
		now := metav1.Time{Time: c.clock.Now()}
		condition := edsv1.Condition{Type: edsv1.ConditionCanaryFailed, Status: is, Reason: reason, LastTransitionTime: now, LastUpdateTime: now}
		status := &ers.Status
		if there := edsv1.FindCondition(status.Conditions, condition.Type); there != nil {
			*there = condition
		} else {
			status.Conditions = append(status.Conditions, condition)
		}
		// All of the status: one without its required fields would be refused.
		return &source.Change{Merge: map[string]any{"status": status}, Subresource: "status"}, nil
	})
}

// sayOfRevision prints what was done to the ExtendedDaemonSetReplicaSet.
func (c *command) sayOfRevision(src *source.Source, name, done string) {
	fmt.Fprintf(c.Out, "ExtendedDaemonSetReplicaSet '%s/%s' %s\n", src.Namespace, name, done)
}
