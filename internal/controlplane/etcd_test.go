// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/test/etcd"
)

// patience is how long a real etcd may take for anything, on a machine that is busy.
const patience = 2 * time.Minute

// world is a real etcd, with the objects of its nodes.
type world struct {
	*etcd.Cluster
	*Plane
	certificates string
}

// newWorld starts a cluster with a voter on each of these nodes, and makes the objects of these and later ones.
func newWorld(t *testing.T, nodes []string, later ...string) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts etcd")
	}
	w := &world{Cluster: etcd.Start(t, nodes...)}
	w.certificates = w.Certificates()
	w.pods(t, append(nodes, later...)...)
	return w
}

// pods makes a pod of etcd run on these nodes, and no others.
func (w *world) pods(t *testing.T, nodes ...string) {
	t.Helper()
	all := objects(nodes...)
	for i, name := range nodes {
		p := find[*corev1.Pod](all, "etcd-"+name)
		if p.Annotations[annotationClientURLs] = w.URL(name); i%2 == 1 {
			p.Annotations, p.Status.PodIP = nil, w.Host(name)
		}
		if w.Host(name) == "" {
			p.Status.Phase = corev1.PodPending
		}
	}
	w.Plane = New(build(all), Certificates(w.certificates))
}

// eventually waits until a condition holds, and says what was seen last if it never does.
func eventually(t *testing.T, what string, holds func(context.Context) (string, bool)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		seen, ok := holds(ctx)
		if ok {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%s: not in %s; last seen: %s", what, patience, seen)
		}
	}
}

// says waits until MayLeave begins with that.
func (w *world) says(t *testing.T, node string, o Options, want string) {
	t.Helper()
	eventually(t, "may "+node+" leave: "+want, func(ctx context.Context) (string, bool) {
		why, err := w.MayLeave(ctx, node, o)
		if err != nil {
			return err.Error(), false
		}
		return why, strings.HasPrefix(why, want) && (want != "" || why == "")
	})
}

// well waits until a node's member has joined, and is well.
func (w *world) well(t *testing.T, node string) {
	t.Helper()
	eventually(t, node+" is well", func(ctx context.Context) (string, bool) {
		why, err := w.Joined(ctx, node)
		return fmt.Sprintf("%q, %v", why, err), why == "" && err == nil
	})
}

// leavable waits until Leavable says that.
func (w *world) leavable(t *testing.T, want int, because string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d may leave: %s", want, because), func(ctx context.Context) (string, bool) {
		n, why, err := w.Leavable(ctx, nil)
		return fmt.Sprintf("%d, %q, %v", n, why, err), n == want && why == because && err == nil
	})
}

// leaves calls Leave until it is done, and returns what it did before. The members may need a moment after each step, and are not well meanwhile; and etcd
// itself refuses to lose one when another has just come.
func (w *world) leaves(t *testing.T, node string, o Options) []string {
	t.Helper()
	var said []string
	eventually(t, node+" leaves", func(ctx context.Context) (string, bool) {
		done, message, err := w.Leave(ctx, node, o)
		if err != nil {
			return err.Error(), false
		}
		if did := strings.HasPrefix(message, "its API endpoint") || strings.HasPrefix(message, "the lead of etcd") || strings.HasSuffix(message, " was removed"); did && !done {
			said = append(said, message)
		}
		return message, done
	})
	return said
}

func (w *world) join(t *testing.T, node, via string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.Join(ctx, node, via); err != nil {
		t.Fatal(err)
	}
}

// lead makes a node's member lead.
func (w *world) lead(t *testing.T, node string) {
	t.Helper()
	eventually(t, node+" leads", func(ctx context.Context) (string, bool) {
		s, err := w.look(ctx, "")
		if err != nil {
			return err.Error(), false
		}
		to := named(s.members, node)
		for i := range s.members {
			if m := &s.members[i]; m.Leader && m.Name != node {
				err = w.with(m.Clients[0], func(c Conn) error { return c.MoveLeader(ctx, to.ID) })
				return errors.Join(err, errors.New("moving")).Error(), false
			}
		}
		return "nobody leads", to.Leader
	})
}

// user writes and reads through one member, as API servers do, until end is called.
type user struct {
	end func()
	// written counts the writes that were acknowledged, and refused those that were not. Each of these was repeated.
	written, refused int
	wrong            []string
}

// uses starts a user of a member. A leader refuses or loses what is proposed while it hands over the lead: with
// "raft proposal dropped", "etcdserver: leader changed" or a timeout. Neither etcd's client nor an API server repeats such a
// write, because it may have been done. Their clients do. So an error alone is not wrong. These are: a write that never
// succeeds, and an acknowledged write that is not read.
func (w *world) uses(t *testing.T, name string) *user {
	t.Helper()
	c, err := w.Client(name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	u := &user{end: func() {
		stop()
		<-ended
		c.Close()
	}}
	// persistently repeats a call until it succeeds.
	persistently := func(what string, call func(context.Context) error) bool {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		for {
			err := call(within)
			if err == nil {
				return true
			}
			u.refused++
			select {
			case <-time.After(10 * time.Millisecond):
			case <-within.Done():
				u.wrong = append(u.wrong, fmt.Sprintf("%s did not succeed in %s: %v", what, patience, err))
				return false
			}
		}
	}
	go func() {
		defer close(ended)
		for n := 0; ctx.Err() == nil && len(u.wrong) == 0; n++ {
			// A write that is repeated is done once, also if the first one takes effect late.
			want, got, before := strconv.Itoa(n), "", clientv3.Compare(clientv3.CreateRevision("key"), "=", 0)
			if n > 0 {
				before = clientv3.Compare(clientv3.Value("key"), "=", strconv.Itoa(n-1))
			}
			if !persistently("writing", func(ctx context.Context) error {
				_, err := c.Txn(ctx).If(before).Then(clientv3.OpPut("key", want)).Commit()
				return err
			}) || !persistently("reading", func(ctx context.Context) error {
				answer, err := c.Get(ctx, "key")
				if err == nil && len(answer.Kvs) == 1 {
					got = string(answer.Kvs[0].Value)
				}
				return err
			}) {
				return
			}
			if got != want {
				u.wrong = append(u.wrong, fmt.Sprintf("read %q after %q was written", got, want))
			}
			u.written++
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return u
}

// Three members are replaced one by one, with surge.
func TestEtcdIsReplaced(t *testing.T) {
	old := []string{"cp-1", "cp-2", "cp-3"}
	w := newWorld(t, old, "cp-4", "cp-5", "cp-6")
	w.says(t, "cp-2", whole, "etcd would be left with 2 voters, and would not bear the failure of one")
	// The members that stay to the end are those that it speaks to: a client of a member that goes has to turn to another.
	var u *user
	var nodes []string
	for i, goes := range old {
		comes := []string{"cp-4", "cp-5", "cp-6"}[i]
		w.join(t, comes, []string{"cp-3", "cp-3", "cp-4"}[i])
		w.pods(t, append(append([]string{comes}, old[i:]...), nodes...)...)
		nodes = append(nodes, comes)
		eventually(t, comes+" has joined", func(ctx context.Context) (string, bool) {
			why, err := w.Joined(ctx, comes)
			return why, why == "" && err == nil
		})
		if u == nil {
			u = w.uses(t, "cp-4")
		}
		w.lead(t, goes)
		want := []string{
			"its API endpoint was taken out of kubeadm's ClusterStatus", "the lead of etcd was moved from member " + goes + " to " + comes,
			"etcd member " + goes + " was removed",
		}
		if diff := cmp.Diff(want, w.leaves(t, goes, Options{Etcd: true, Kubeadm: true, Replacement: comes})); diff != "" {
			t.Error(diff)
		}
		w.Stop(goes)
	}
	u.end()
	if u.written == 0 || len(u.wrong) > 0 {
		t.Errorf("etcd acknowledged %d writes and refused %d: %v", u.written, u.refused, u.wrong)
	}
	t.Logf("etcd acknowledged %d writes and refused %d", u.written, u.refused)
	eventually(t, "the members are those of the nodes, and well", func(ctx context.Context) (string, bool) {
		s, err := w.look(ctx, "")
		if err != nil {
			return err.Error(), false
		}
		for _, name := range nodes {
			if m := named(s.members, name); m == nil || m.ill() != "" || len(s.members) != len(nodes) {
				return fmt.Sprintf("%s is %+v among %d", name, m, len(s.members)), false
			}
		}
		return "", true
	})
}

// The only member goes once another votes.
func TestEtcdOfOne(t *testing.T) {
	w := newWorld(t, []string{"cp-1"}, "cp-2")
	if why, err := w.MayLeave(t.Context(), "cp-1", whole); why != "no pod of etcd runs on another node: another must have joined before" || err != nil {
		t.Errorf("got %q, %v", why, err)
	}
	w.leavable(t, 1, "")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.JoinAsLearner(ctx, "cp-2", "cp-1"); err != nil {
		t.Fatal(err)
	}
	w.pods(t, "cp-1", "cp-2")
	both := Options{Etcd: true, Kubeadm: true, Replacement: "cp-2"}
	eventually(t, "cp-2 is a learner", func(ctx context.Context) (string, bool) {
		why, err := w.Joined(ctx, "cp-2")
		return why, err == nil && why == "etcd member cp-2 is a learner, and does not vote yet"
	})
	w.pods(t, "cp-1", "cp-2")
	w.leavable(t, 0, "etcd member cp-2 is a learner, and does not vote yet")
	if err := w.Promote(ctx, "cp-2", "cp-1"); err != nil {
		t.Fatal(err)
	}
	w.says(t, "cp-1", whole, "etcd would be left with 1 voter")
	w.says(t, "cp-1", both, "")
	w.leaves(t, "cp-1", both)
	w.Stop("cp-1")
	w.well(t, "cp-2")
}

// Each way to be sick stops everybody, and is over when it is mended.
func TestEtcdIsSick(t *testing.T) {
	nodes := []string{"cp-1", "cp-2", "cp-3"}
	w := newWorld(t, nodes, "cp-4")
	w.join(t, "cp-4", "cp-3")
	w.pods(t, append(nodes, "cp-4")...)
	surge := Options{Etcd: true, Kubeadm: true, Replacement: "cp-4"}
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

	// Without a quorum nobody can say who is there.
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
	s, err := w.look(t.Context(), "")
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

// Certificates are read anew each time: they are renewed while the program runs.
func TestEtcdCertificates(t *testing.T) {
	w := newWorld(t, []string{"cp-1"})
	w.certificates = t.TempDir()
	w.pods(t, "cp-1")
	fails := func(wants ...string) {
		t.Helper()
		_, err := w.Joined(t.Context(), "cp-1")
		if err == nil || !slices.ContainsFunc(wants, func(want string) bool { return strings.Contains(err.Error(), want) }) {
			t.Errorf("got %v, want one of %q", err, wants)
		}
	}
	fails("ca.crt: no such file or directory")
	put := func(to, from string) {
		t.Helper()
		raw, err := os.ReadFile(filepath.Join(w.Certificates(), from))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(w.certificates, to), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("ca.crt", "server.key")
	fails("ca.crt holds no certificate")
	put("ca.crt", "ca.crt")
	fails("holds none of the pairs .crt and .key of healthcheck-client, server, tls")
	other := newWorld(t, []string{"cp-1"})
	strange := func(to, from string) {
		t.Helper()
		raw, err := os.ReadFile(filepath.Join(other.Certificates(), from))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(w.certificates, to), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	strange("tls.crt", "server.crt")
	put("tls.key", "server.key")
	fails("private key does not match public key")
	strange("tls.key", "server.key")
	// TLS 1.3 lets a client write before it hears that it was refused, and then it may hear only that nobody reads.
	fails("tls:", "broken pipe", "connection reset")
	for _, name := range []string{"tls", "server", "healthcheck-client"} {
		put(name+".crt", strings.Replace(name, "tls", "server", 1)+".crt")
		put(name+".key", strings.Replace(name, "tls", "server", 1)+".key")
		w.well(t, "cp-1")
	}
	strange("ca.crt", "ca.crt")
	fails("certificate signed by unknown authority")
}

// A member that was started with an initial cluster of itself knows nothing of the others.
func TestEtcdIsTwo(t *testing.T) {
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
