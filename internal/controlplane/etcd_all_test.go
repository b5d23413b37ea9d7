// SPDX-License-Identifier: Apache-2.0

//go:build all

package controlplane

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/test/etcd"
)

// healthy waits until Healthy says that.
func (w *world) healthy(t *testing.T, because string) {
	t.Helper()
	eventually(t, "it says: "+because, func(ctx context.Context) (string, bool) {
		why, err := w.Leavable(ctx)
		return fmt.Sprintf("%q, %v", why, err), why == because && err == nil
	})
}

// The only member goes once another votes.
func TestAPIEtcdOfOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []string{"cp-1"}, "cp-2")
	if why, err := w.MayLeave(t.Context(), "cp-1", whole); why != "" || err == nil || err.Error() != "no pod of etcd runs on another node: another must join first" {
		t.Errorf("got %q, %v", why, err)
	}
	w.healthy(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.JoinAsLearner(ctx, "cp-2", "cp-1"); err != nil {
		t.Fatal(err)
	}
	w.pods(t, "cp-1", "cp-2")
	both := Options{Replacement: "cp-2"}
	eventually(t, "cp-2 is a learner", func(ctx context.Context) (string, bool) {
		why, err := w.Joined(ctx, "cp-2")
		return why, err == nil && why == "etcd member cp-2 is a learner, and does not vote yet"
	})
	w.pods(t, "cp-1", "cp-2")
	w.healthy(t, "etcd member cp-2 is a learner, and does not vote yet")
	if err := w.Promote(ctx, "cp-2", "cp-1"); err != nil {
		t.Fatal(err)
	}
	w.says(t, "cp-1", whole, "the voters of etcd would go down to 1")
	w.says(t, "cp-1", both, "")
	w.leaves(t, "cp-1", both)
	w.Stop("cp-1")
	w.well(t, "cp-2")
}

// Each way to be sick stops everybody, and is over when it is mended.
func TestAPIEtcdIsSick(t *testing.T) {
	t.Parallel()
	nodes := []string{"cp-1", "cp-2", "cp-3"}
	w := newWorld(t, nodes, "cp-4")
	w.join(t, "cp-4", "cp-3")
	w.pods(t, append(nodes, "cp-4")...)
	surge := Options{Replacement: "cp-4"}
	w.says(t, "cp-1", surge, "")

	w.Stop("cp-2")
	w.says(t, "cp-1", surge, "etcd member cp-2 does not answer as it should at "+w.URL("cp-2")+": transport: Error while dialing")
	if err := w.Resume("cp-2"); err != nil {
		t.Fatal(err)
	}
	w.says(t, "cp-1", surge, "")

	if err := w.Freeze("cp-2"); err != nil {
		t.Fatal(err)
	}
	w.says(t, "cp-1", surge, "etcd member cp-2 does not answer as it should at "+w.URL("cp-2")+": no answer within 4s")
	if done, message, err := w.Leave(t.Context(), "cp-1", surge); done || !strings.Contains(message, "cp-2") || err != nil {
		t.Errorf("got %t, %q, %v", done, message, err)
	}
	if err := w.Thaw("cp-2"); err != nil {
		t.Fatal(err)
	}
	w.says(t, "cp-1", surge, "")

	w.alarm(t, "cp-3", etcdserverpb.AlarmRequest_ACTIVATE)
	w.says(t, "cp-1", surge, "etcd member cp-3 has raised the alarm NOSPACE")
	w.alarm(t, "cp-3", etcdserverpb.AlarmRequest_DEACTIVATE)
	w.says(t, "cp-1", surge, "")

	// Without a quorum no one can say who is there.
	for _, name := range nodes {
		w.Stop(name)
	}
	if _, err := w.MayLeave(t.Context(), "cp-1", surge); err == nil {
		t.Error("looked at etcd without a quorum")
	}
	for _, name := range nodes {
		if err := w.Resume(name); err != nil {
			t.Fatal(err)
		}
	}
	w.says(t, "cp-1", surge, "")
}

// alarm raises an alarm of a member, or ends it.
func (w *world) alarm(t *testing.T, node string, action etcdserverpb.AlarmRequest_AlarmAction) {
	t.Helper()
	s, err := w.observe(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	c, err := w.Client(node)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	request := &etcdserverpb.AlarmRequest{Action: action, MemberID: named(s.members, node).ID, Alarm: etcdserverpb.AlarmType_NOSPACE}
	eventually(t, "alarm of "+node, func(ctx context.Context) (string, bool) {
		_, err := etcdserverpb.NewMaintenanceClient(c.ActiveConnection()).Alarm(ctx, request)
		return fmt.Sprint(err), err == nil
	})
}

// A member that was started with an initial cluster of itself knows nothing of the others.
func TestAPIEtcdIsTwo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []string{"cp-1"})
	other := etcd.Start(t, "cp-2")
	// They trust each other's clients where one authority signs all, which two clusters of a test don't have.
	all := objects("cp-1", "cp-2")
	find[*corev1.Pod](all, "etcd-cp-1").Annotations[annotationClientURLs] = w.URL("cp-1")
	find[*corev1.Pod](all, "etcd-cp-2").Annotations[annotationClientURLs] = other.URL("cp-2")
	p := New(build(all), two{w.URL("cp-1"): Certificates(w.Certificates()), other.URL("cp-2"): Certificates(other.Certificates())})
	if why, err := p.Joined(t.Context(), "cp-2"); why != "" || err == nil || !strings.Contains(err.Error(), "are two clusters") {
		t.Errorf("got %q, %v", why, err)
	}
}

// two are the certificates of two clusters, by the URLs of their members.
type two map[string]Certificates

func (c two) Connect(endpoint string) (Conn, error) { return c[endpoint].Connect(endpoint) }
