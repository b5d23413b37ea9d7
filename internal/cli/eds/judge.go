// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"cmp"
	"errors"
	"fmt"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/text"
)

// enough is how many pods must be up to date.
type enough struct {
	// percent is the percentage of all pods that must be exceeded. 100 means all of them, and they must be available.
	percent float64
	// min is the number below which outdated pods do not matter. It has no effect if there are no more than min pods.
	min int32
}

// isReached reports whether this number of up-to-date pods is enough.
func (e enough) isReached(upToDate, all int32) bool {
	left := all - upToDate
	return left <= 0 || float64(upToDate)*100 > float64(all)*e.percent || all > e.min && left < e.min
}

// judge reports whether an ExtendedDaemonSet is up to date, and what it is doing. The error says why nothing will change until a person acts.
func judge(eds *edsv1.ExtendedDaemonSet, enough enough) (done bool, what string, err error) {
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
	counts := fmt.Sprintf("nb pods: %d, nb updated pods: %d", s.Current, s.UpToDate)
	switch {
	case s.Canary != nil && s.State == edsv1.StateCanaryPaused:
		reason := cmp.Or(s.Reason, edsv1.StatusReasonUnknown)
		return false, fmt.Sprintf("canary paused (%s): %s on %d nodes", reason, s.Canary.ReplicaSet, len(s.Canary.Nodes)), nil
	case s.Canary != nil:
		return false, fmt.Sprintf("canary running: %s on %d nodes", s.Canary.ReplicaSet, len(s.Canary.Nodes)), nil
	case s.State == edsv1.StateRollingUpdatePaused, s.State == edsv1.StateRolloutFrozen:
		return false, "", fmt.Errorf("its state is %q, until a person ends that", s.State)
	case s.State == edsv1.StateCanary, s.State == edsv1.StateCanaryPaused:
		return false, "the canary ends", nil // The status has no nodes of it any more.
	case s.ActiveReplicaSet == "":
		return false, "no revision is active yet", nil
	case !enough.isReached(s.UpToDate, max(s.Desired, s.Current)):
		return false, "still upgrading " + counts, nil
	case enough.percent >= 100 && s.Available < s.Desired:
		return false, fmt.Sprintf("still upgrading %s, nb available pods: %d", counts, s.Available), nil
	}
	return true, "upgrade is now finished " + counts, nil
}

// failedCanary is the error that the canary has failed.
type failedCanary struct{ error }

// failureOf returns why the template does not come to the nodes until a person acts, or nil.
func failureOf(eds *edsv1.ExtendedDaemonSet) error {
	s := &eds.Status
	failed := edsv1.TrueCondition(s.Conditions, edsv1.ConditionCanaryFailed)
	if s.State == edsv1.StateCanaryFailed || failed != nil {
		message := "the canary has failed" + text.When(s.Reason != "", " (%s)", s.Reason)
		if failed != nil {
			message += ": " + failed.Message
		}
		return failedCanary{errors.New(message)}
	}
	if stalled := edsv1.TrueCondition(s.Conditions, edsv1.ConditionStalled); stalled != nil {
		return fmt.Errorf("it is stalled (%s): %s", stalled.Reason, stalled.Message)
	}
	return nil
}
