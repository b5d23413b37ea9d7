// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

var (
	defaults = enough{percent: 95, min: 10}
)

// upgraded is an ExtendedDaemonSet whose status is of its generation 3, and whose pods are up to date.
func upgraded(changes ...func(*edsv1.ExtendedDaemonSet)) *edsv1.ExtendedDaemonSet {
	eds := &edsv1.ExtendedDaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "foo", Generation: 3},
		Status: edsv1.ExtendedDaemonSetStatus{
			State: edsv1.StateRunning, ActiveReplicaSet: "foo-b", ObservedGeneration: 3, Desired: 100, Current: 100, UpToDate: 100,
		},
	}
	for _, change := range changes {
		change(eds)
	}
	return eds
}

func statusOf(change func(*edsv1.ExtendedDaemonSetStatus)) func(*edsv1.ExtendedDaemonSet) {
	return func(eds *edsv1.ExtendedDaemonSet) { change(&eds.Status) }
}

func state(s edsv1.State) func(*edsv1.ExtendedDaemonSet) {
	return statusOf(func(status *edsv1.ExtendedDaemonSetStatus) { status.State = s })
}

func counts(upToDate, current int32) func(*edsv1.ExtendedDaemonSet) {
	return statusOf(func(s *edsv1.ExtendedDaemonSetStatus) { s.UpToDate, s.Current = upToDate, current })
}

func desired(desired, available int32) func(*edsv1.ExtendedDaemonSet) {
	return statusOf(func(s *edsv1.ExtendedDaemonSetStatus) { s.Desired, s.Available = desired, available })
}

func onTrial(s *edsv1.ExtendedDaemonSetStatus) {
	s.State, s.Canary = edsv1.StateCanary, &edsv1.ExtendedDaemonSetStatusCanary{ReplicaSet: "foo-c", Nodes: []string{"a", "b"}}
}

func condition(kind string, is metav1.ConditionStatus, reason, message string) func(*edsv1.ExtendedDaemonSet) {
	return statusOf(func(s *edsv1.ExtendedDaemonSetStatus) {
		s.Conditions = append(s.Conditions, edsv1.Condition{Type: kind, Status: is, Reason: reason, Message: message, LastTransitionTime: metav1.Time{Time: now}})
	})
}

func TestJudge(t *testing.T) {
	for name, tc := range map[string]struct {
		eds    *edsv1.ExtendedDaemonSet
		enough enough
		done   bool
		text   string
		err    string
	}{
		"up to date":         {eds: upgraded(), done: true, text: "upgrade is now finished nb pods: 100, nb updated pods: 100"},
		"no nodes":           {eds: upgraded(counts(0, 0), desired(0, 0)), done: true, text: "upgrade is now finished nb pods: 0, nb updated pods: 0"},
		"enough percent":     {eds: upgraded(counts(961, 1000), desired(1000, 1000)), done: true, text: "upgrade is now finished nb pods: 1000, nb updated pods: 961"},
		"not enough percent": {eds: upgraded(counts(950, 1000), desired(1000, 1000)), text: "still upgrading nb pods: 1000, nb updated pods: 950"},
		"few are left":       {eds: upgraded(counts(91, 100)), done: true, text: "upgrade is now finished nb pods: 100, nb updated pods: 91"},
		"too many are left":  {eds: upgraded(counts(90, 100)), text: "still upgrading nb pods: 100, nb updated pods: 90"},
		"few pods":           {eds: upgraded(counts(2, 3), desired(3, 3)), text: "still upgrading nb pods: 3, nb updated pods: 2"},
		"few pods, all":      {eds: upgraded(counts(3, 3), desired(3, 3)), done: true, text: "upgrade is now finished nb pods: 3, nb updated pods: 3"},
		"more pods than nodes": {
			eds: upgraded(counts(6, 8), desired(6, 6)), text: "still upgrading nb pods: 8, nb updated pods: 6",
		},
		"some will be made": {eds: upgraded(counts(3, 3), desired(6, 3)), text: "still upgrading nb pods: 3, nb updated pods: 3"},
		"all will be made":  {eds: upgraded(counts(0, 0), desired(6, 0)), text: "still upgrading nb pods: 0, nb updated pods: 0"},
		"not counted yet": {
			eds: upgraded(func(eds *edsv1.ExtendedDaemonSet) {
				eds.Status = edsv1.ExtendedDaemonSetStatus{State: edsv1.StateRunning, ActiveReplicaSet: "foo-b"}
			}, condition(edsv1.ConditionReconciling, metav1.ConditionTrue, "Progressing", ""), condition(edsv1.ConditionReady, metav1.ConditionFalse, "Progressing", "")),
			text: "the operator has not seen the change yet",
		},
		"one is not available": {eds: upgraded(counts(6, 6), desired(6, 5)), done: true, text: "upgrade is now finished nb pods: 6, nb updated pods: 6"},
		"one is not available, and all are wanted": {
			eds: upgraded(counts(6, 6), desired(6, 5)), enough: enough{percent: 100, min: 10}, text: "still upgrading nb pods: 6, nb updated pods: 6, nb available pods: 5",
		},
		"all are wanted, and available": {
			eds: upgraded(counts(6, 6), desired(6, 6)), enough: enough{percent: 100, min: 10}, done: true, text: "upgrade is now finished nb pods: 6, nb updated pods: 6",
		},
		"all are wanted": {eds: upgraded(counts(99, 100)), enough: enough{percent: 100, min: 1}, text: "still upgrading nb pods: 100, nb updated pods: 99"},
		"canary":         {eds: upgraded(statusOf(onTrial)), text: "canary running: foo-c on 2 nodes"},
		"canary paused":  {eds: upgraded(statusOf(onTrial), state(edsv1.StateCanaryPaused)), text: "canary paused (Unknown): foo-c on 2 nodes"},
		"canary paused by itself": {
			eds: upgraded(statusOf(onTrial), state(edsv1.StateCanaryPaused), statusOf(func(s *edsv1.ExtendedDaemonSetStatus) {
				s.Reason = "ErrImagePull"
			})), text: "canary paused (ErrImagePull): foo-c on 2 nodes",
		},
		"canary ends": {eds: upgraded(state(edsv1.StateCanary)), text: "the canary ends"},
		"canary failed": {
			eds: upgraded(state(edsv1.StateCanaryFailed), statusOf(func(s *edsv1.ExtendedDaemonSetStatus) { s.Reason = "CrashLoopBackOff" })),
			err: "the canary has failed (CrashLoopBackOff)",
		},
		"canary failed, and its nodes are back": {
			eds: upgraded(condition(edsv1.ConditionCanaryFailed, metav1.ConditionTrue, edsv1.ReasonCanaryFailed, "canary failed with ers: foo-c")),
			err: "the canary has failed: canary failed with ers: foo-c",
		},
		"canary failed once, and was reset": {
			eds:  upgraded(condition(edsv1.ConditionCanaryFailed, metav1.ConditionFalse, edsv1.ReasonReset, "")),
			done: true, text: "upgrade is now finished nb pods: 100, nb updated pods: 100",
		},
		"stalled": {
			eds: upgraded(counts(1, 100), condition(edsv1.ConditionStalled, metav1.ConditionTrue, "FailureLimit", "2 pods have failed")),
			err: "it is stalled (FailureLimit): 2 pods have failed",
		},
		"paused": {
			eds: upgraded(counts(1, 100), state(edsv1.StateRollingUpdatePaused)),
			err: `its state is "RollingUpdate Paused", until a person ends that`,
		},
		"frozen":   {eds: upgraded(state(edsv1.StateRolloutFrozen)), err: `its state is "Rollout frozen", until a person ends that`},
		"not seen": {eds: upgraded(func(eds *edsv1.ExtendedDaemonSet) { eds.Generation = 4 }), text: "the operator has not seen the change yet"},
		"never seen": {
			eds:  upgraded(func(eds *edsv1.ExtendedDaemonSet) { eds.Status = edsv1.ExtendedDaemonSetStatus{} }),
			text: "the operator has not seen the change yet",
		},
		"nothing active": {eds: upgraded(statusOf(func(s *edsv1.ExtendedDaemonSetStatus) { s.ActiveReplicaSet = "" })), text: "no revision is active yet"},
		"deleted":        {eds: upgraded(func(eds *edsv1.ExtendedDaemonSet) { eds.DeletionTimestamp = &metav1.Time{Time: now} }), err: "it is being deleted"},
		"failed before the change": {
			eds: upgraded(state(edsv1.StateCanaryFailed), func(eds *edsv1.ExtendedDaemonSet) { eds.Generation = 4 }), text: "the operator has not seen the change yet",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.enough == (enough{}) {
				tc.enough = defaults
			}
			done, text, err := judge(tc.eds, tc.enough)
			if err == nil && tc.err != "" || err != nil && err.Error() != tc.err {
				t.Fatalf("%v, want %q", err, tc.err)
			}
			if done != tc.done || text != tc.text {
				t.Errorf("%t, %q; want %t, %q", done, text, tc.done, tc.text)
			}
		})
	}
}
