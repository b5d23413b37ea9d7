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
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/test/etcd"
	"moult.dev/moult/test/tier"
)

func TestIdentity(t *testing.T) {
	member := func(id uint64, name, peer, client string) *Member {
		return &Member{ID: id, Name: name, Peers: []string{peer}, Clients: []string{client}}
	}
	members := []*Member{
		member(1, "cp-1", "https://10.0.0.1:2380", "https://10.0.0.1:2379"),
		member(2, "etcd-two", "https://10.0.0.2:2380", "https://10.0.0.2:2379"),
		member(3, "etcd-three", "https://[fd00::3]:2380", "https://10.9.0.3:2379"),
		member(4, "", "https://cp-4.example:2380", ""),
		member(5, "twin", "https://10.0.0.5:2380", "https://10.0.0.5:2379"),
		member(6, "twin", "https://10.0.0.6:2380", "https://10.0.0.6:2379"),
	}
	for _, test := range []struct {
		name string
		who  identity
		want uint64
		err  string
	}{
		{name: "by name, whatever the address", who: identity{node: "cp-1", hosts: []string{"10.0.0.2"}}, want: 1},
		{name: "by address", who: identity{node: "cp-2", hosts: []string{"192.168.0.1", "10.0.0.2"}}, want: 2},
		{name: "by address of IPv6, however written", who: identity{node: "cp-3", hosts: []string{"fd00:0::0003"}}, want: 3},
		{name: "by name of the host, before it started", who: identity{node: "cp-4", hosts: []string{"CP-4.example"}}, want: 4},
		{name: "by its pod", who: identity{node: "cp-3", clients: []string{"https://10.9.0.3:2379"}}, want: 3},
		{name: "none", who: identity{node: "cp-9", hosts: []string{"10.0.0.9"}, clients: []string{"https://10.0.0.9:2379"}}},
		{name: "an address that begins alike", who: identity{node: "cp-9", hosts: []string{"10.0.0"}}},
		{name: "twins", who: identity{node: "twin"}, err: "2 members of etcd could be that of node twin (5 at https://10.0.0.5:2380, 6 at https://10.0.0.6:2380)"},
	} {
		m, err := test.who.memberIn(members)
		if test.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("%s: got %v, %v", test.name, m, err)
			}
			continue
		}
		var got uint64
		if m != nil {
			got = m.ID
		}
		if got != test.want || err != nil {
			t.Errorf("%s: got %v, %v", test.name, m, err)
		}
	}
}

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
		if did := strings.HasPrefix(message, "the leader of etcd") || strings.HasSuffix(message, " was removed"); did && !done {
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
		s, err := w.observe(ctx, "")
		if err != nil {
			return err.Error(), false
		}
		to := named(s.members, node)
		for _, m := range s.members {
			if m.Leader && m.Name != node {
				_, err = call(ctx, w.Plane, m.Clients[0], func(ctx context.Context, c Conn) (any, error) { return c.MoveLeader(ctx, to.ID) })
				return errors.Join(err, errors.New("moving")).Error(), false
			}
		}
		return "no one leads", to.Leader
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

// Members are replaced one by one, with surge. Etcd lets none go within 5 seconds after another has come.
func TestAPIEtcdIsReplaced(t *testing.T) {
	t.Parallel()
	old := []string{"cp-1", "cp-2", "cp-3"}
	w := newWorld(t, old, "cp-4", "cp-5", "cp-6")
	w.says(t, "cp-2", whole, "the voters of etcd would go down to 2")
	// The members that stay to the end are those that it speaks to: a client of a member that goes has to turn to another.
	var u *user
	var nodes []string
	goers := old[:1]
	if tier.All {
		goers = old
	}
	for i, goes := range goers {
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
			"the leader of etcd was moved from member " + goes + " to " + comes,
			"etcd member " + goes + " was removed",
		}
		if diff := cmp.Diff(want, w.leaves(t, goes, Options{Replacement: comes})); diff != "" {
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
		s, err := w.observe(ctx, "")
		if err != nil {
			return err.Error(), false
		}
		for _, name := range nodes {
			if m := named(s.members, name); m == nil || m.unhealthy() != "" || len(s.members) != len(old) {
				return fmt.Sprintf("%s is %+v among %d", name, m, len(s.members)), false
			}
		}
		return "", true
	})
}

// Certificates are read anew each time: they are renewed while the program runs.
func TestAPIEtcdCertificates(t *testing.T) {
	t.Parallel()
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
	fails("holds none of the pairs .crt and .key of healthcheck-client, server, tls")
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
	fails("ca.crt: no such file or directory")
	put("ca.crt", "ca.crt")
	// TLS 1.3 lets a client write before it hears that it was refused, and then it may hear only that no one reads.
	fails("tls:", "broken pipe", "connection reset")
	for _, name := range []string{"tls", "server", "healthcheck-client"} {
		put(name+".crt", strings.Replace(name, "tls", "server", 1)+".crt")
		put(name+".key", strings.Replace(name, "tls", "server", 1)+".key")
		w.well(t, "cp-1")
	}
	strange("ca.crt", "ca.crt")
	fails("certificate signed by unknown authority")
}
