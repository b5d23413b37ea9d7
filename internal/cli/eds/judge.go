// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"cmp"
	"errors"
	"fmt"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// enough says how many pods must be up to date.
type enough struct {
	// percent is how many of all pods are too few, out of 100. With 100 it takes all of them, and each node's must be available.
	percent float64
	// min is how many pods that are not up to date are too many, where there are more than that altogether.
	min int32
}

// isReached reports whether so many pods of all are up to date.
func (e enough) isReached(upToDate, all int32) bool {
	left := all - upToDate
	return left <= 0 || float64(upToDate)*100 > float64(all)*e.percent || all > e.min && left < e.min
}

// judge says whether an ExtendedDaemonSet is up to date, or what it does, or why it will never be.
func judge(eds *edsv1.ExtendedDaemonSet, enough enough) (done bool, text string, err error) {
	s := &eds.Status
	switch {
	case eds.DeletionTimestamp != nil:
		return false, "", errors.New("it is being deleted")
	case s.ObservedGeneration == 0 || s.ObservedGeneration < eds.Generation:
		return false, "the operator has not seen the change yet", nil
	}
	if err := failureOf(eds); err != nil {
		return false, "", err
	}
	if s.Canary != nil {
		text := "canary running"
		if s.State == edsv1.StateCanaryPaused {
			text = fmt.Sprintf("canary paused (%s)", cmp.Or(s.Reason, edsv1.StatusReasonUnknown))
		}
		return false, fmt.Sprintf("%s: %s on %d nodes", text, s.Canary.ReplicaSet, len(s.Canary.Nodes)), nil
	}
	switch s.State {
	case edsv1.StateRollingUpdatePaused, edsv1.StateRolloutFrozen:
		return false, "", fmt.Errorf("its state is %q, and it goes on only when a person ends that", s.State)
	case edsv1.StateCanary, edsv1.StateCanaryPaused:
		return false, "the canary ends", nil // Its nodes are gone from the status already.
	}
	if s.ActiveReplicaSet == "" {
		return false, "no revision is active yet", nil
	}
	counts := fmt.Sprintf("nb pods: %d, nb updated pods: %d", s.Current, s.UpToDate)
	switch {
	// A node without a pod of its own lacks one, whoever else has a pod there.
	case !enough.isReached(s.UpToDate, max(s.Desired, s.Current)):
		return false, "still upgrading " + counts, nil
	case enough.percent >= 100 && s.Available < s.Desired:
		return false, fmt.Sprintf("still upgrading %s, nb available pods: %d", counts, s.Available), nil
	}
	return true, "upgrade is now finished " + counts, nil
}

// failedCanary is that the canary has failed.
type failedCanary struct{ error }

// failureOf says why the template will not come to the nodes, if that is so.
func failureOf(eds *edsv1.ExtendedDaemonSet) error {
	s := &eds.Status
	if canary := edsv1.FindCondition(s.Conditions, edsv1.ConditionCanaryFailed); s.State == edsv1.StateCanaryFailed || edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionCanaryFailed) {
		text := "the canary has failed"
		if s.Reason != "" {
			text += " (" + string(s.Reason) + ")"
		}
		if canary != nil && canary.Message != "" {
			text += ": " + canary.Message
		}
		return failedCanary{errors.New(text)}
	}
	if stalled := edsv1.FindCondition(s.Conditions, edsv1.ConditionStalled); edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionStalled) {
		return fmt.Errorf("it is stalled (%s): %s", stalled.Reason, stalled.Message)
	}
	return nil
}
