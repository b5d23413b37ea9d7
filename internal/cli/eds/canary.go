// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/source"
)

func (c *command) validate(ctx context.Context, src *source.Source, eds *edsv1.ExtendedDaemonSet) error {
	var valid string
	err := writeAnnotations(ctx, src, eds.Name, func(eds *edsv1.ExtendedDaemonSet) (map[string]any, error) {
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
		fmt.Fprintf(c.Out, "Canary replicaset '%s' was validated properly for extendeddaemonset %s/%s.\n", valid, src.Namespace, eds.Name)
	}
	return err
}

func (c *command) fail(ctx context.Context, src *source.Source, eds *edsv1.ExtendedDaemonSet) error {
	if err := checkCanary(eds); err != nil {
		return err
	}
	if err := FailCanary(ctx, src, eds, c.clock.Now(), byPlugin); err != nil {
		return err
	}
	c.say("ExtendedDaemonSetReplicaSet", src, eds.Name, "canary deployment set to failed") // ExtendedDaemonSet's plugin also prints this name.
	return nil
}

// FailCanary fails the canary of an ExtendedDaemonSet: its nodes return to the active revision.
func FailCanary(ctx context.Context, src *source.Source, eds *edsv1.ExtendedDaemonSet, now time.Time, o metav1.PatchOptions) error {
	revision := eds.Status.Canary.ReplicaSet
	err := setFailed(ctx, src, revision, now, o, metav1.ConditionTrue, edsv1.ReasonManuallyFailed, "canary deployment already failed")
	if err != nil {
		return err
	}
	// The canary may have passed meanwhile. On an active revision the condition has no effect, and the operator removes it.
	if eds, err = source.GetAs[edsv1.ExtendedDaemonSet](ctx, src, source.DaemonSet, eds.Name); err != nil {
		return err
	}
	if eds.Status.ActiveReplicaSet == revision {
		return fmt.Errorf("canary replicaset '%s' has just become active; cannot fail it: see kubectl eds rollback", revision)
	}
	return nil
}

func (c *command) reset(ctx context.Context, src *source.Source, eds *edsv1.ExtendedDaemonSet) error {
	revisions, err := readRevisions(ctx, src, eds)
	if err != nil {
		return err
	}
	revision, err := revisionToReset(eds, revisions)
	if err != nil {
		return err
	}
	err = setFailed(ctx, src, revision, c.clock.Now(), byPlugin, metav1.ConditionFalse, edsv1.ReasonReset, "canary deployment already reset")
	if err != nil {
		return err
	}
	c.say("ExtendedDaemonSetReplicaSet", src, revision, "canary deployment reset")
	return nil
}

// revisionToReset returns the name of the revision with the template of the spec. Its canary must have failed.
func revisionToReset(eds *edsv1.ExtendedDaemonSet, revisions []edsv1.ExtendedDaemonSetReplicaSet) (string, error) {
	r := revisionInSpec(eds, revisions)
	if r == nil || canaryFailure(r) == nil || r.Name == eds.Status.ActiveReplicaSet {
		return "", errors.New("no canary deployment of the ExtendedDaemonset's template has failed; cannot reset")
	}
	return r.Name, nil
}

// setFailed sets the condition Canary-Failed of a revision to True or False. already is the error if the condition has this status already.
func setFailed(
	ctx context.Context, src *source.Source, revision string, at time.Time, o metav1.PatchOptions, is metav1.ConditionStatus, reason, already string,
) error {
	return src.Write(ctx, source.ReplicaSet, revision, o, func(u *unstructured.Unstructured) (*source.Change, error) {
		ers := source.As[edsv1.ExtendedDaemonSetReplicaSet](u)
		if (canaryFailure(ers) != nil) == (is == metav1.ConditionTrue) {
			return nil, errors.New(already)
		}
		now := metav1.Time{Time: at}
		condition := edsv1.Condition{Type: edsv1.ConditionCanaryFailed, Status: is, Reason: reason, LastTransitionTime: now, LastUpdateTime: now}
		status := &ers.Status
		if old := edsv1.FindCondition(status.Conditions, condition.Type); old != nil {
			*old = condition
		} else {
			status.Conditions = append(status.Conditions, condition)
		}
		// The whole status is written: the API server refuses one without its required fields.
		return &source.Change{Merge: map[string]any{"status": status}, Subresources: []string{"status"}}, nil
	})
}
