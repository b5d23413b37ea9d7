// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// table is etcd as a table of members: what can go wrong, goes wrong on demand. members_test.go has the real one.
type table struct {
	mu      sync.Mutex
	members []Member
	leader  uint64
	cluster uint64
	alarms  map[uint64]etcdserverpb.AlarmType
	// silent URLs don't answer, foreign ones are of another cluster, and partial ones take part in no reads.
	silent, foreign, partial map[string]bool
	// errs is what a member's status says.
	errs map[uint64][]string
	// asked are all calls: the changes, and who was asked for the list.
	changes, listed []string
	// before and after fail a change before and after it is done.
	before, after func(change string) error
}

var errSilent = errors.New("connection refused")

func newTable(names ...string) *table {
	e := &table{cluster: 7, leader: 1, silent: map[string]bool{}, foreign: map[string]bool{}, partial: map[string]bool{}}
	for i, name := range names {
		e.members = append(e.members, Member{ID: uint64(i + 1), Name: name, Peers: []string{"https://" + host(name) + ":2380"}, Clients: []string{at(name)}})
	}
	return e
}

// host is the address of a node, by the number at the end of its name.
func host(node string) string { return "10.0.0." + node[len(node)-1:] }

func at(node string) string { return "https://" + host(node) + ":2379" }

func (e *table) Connect(endpoint string) (Conn, error) { return &tableConn{e, endpoint}, nil }

func (e *table) change(what string, do func() error) error {
	if e.before != nil {
		if err := e.before(what); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	e.changes = append(e.changes, what)
	if e.after != nil {
		return e.after(what)
	}
	return nil
}

func (e *table) name(id uint64) string {
	for _, m := range e.members {
		if m.ID == id {
			return m.Name
		}
	}
	return fmt.Sprint(id)
}

type tableConn struct {
	*table
	endpoint string
}

// reach locks the table, unless no one answers.
func (c *tableConn) reach() (own *Member, unlock func(), err error) {
	c.mu.Lock()
	if c.silent[c.endpoint] {
		c.mu.Unlock()
		return nil, nil, errSilent
	}
	for i := range c.members {
		if slices.Contains(c.members[i].Clients, c.endpoint) {
			return &c.members[i], c.mu.Unlock, nil
		}
	}
	c.mu.Unlock()
	return nil, nil, errors.New("etcdserver: server stopped")
}

func (c *tableConn) MemberList(context.Context, ...clientv3.OpOption) (*clientv3.MemberListResponse, error) {
	own, unlock, err := c.reach()
	if err != nil {
		return nil, err
	}
	defer unlock()
	c.listed = append(c.listed, c.endpoint)
	header, members := &etcdserverpb.ResponseHeader{ClusterId: c.cluster}, c.members
	if c.foreign[c.endpoint] {
		header.ClusterId, members = 8, []Member{*own}
	}
	list := &clientv3.MemberListResponse{Header: header}
	for _, m := range members {
		list.Members = append(list.Members, &etcdserverpb.Member{ID: m.ID, Name: m.Name, PeerURLs: m.Peers, ClientURLs: m.Clients, IsLearner: m.Learner})
	}
	return list, nil
}

func (c *tableConn) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	own, unlock, err := c.reach()
	if err != nil {
		return nil, err
	}
	defer unlock()
	return &clientv3.StatusResponse{Header: &etcdserverpb.ResponseHeader{MemberId: own.ID}, Leader: c.leader, Errors: c.errs[own.ID]}, nil
}

func (c *tableConn) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	_, unlock, err := c.reach()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if c.partial[c.endpoint] {
		return nil, context.DeadlineExceeded
	}
	return &clientv3.GetResponse{}, nil
}

func (c *tableConn) AlarmList(context.Context) (*clientv3.AlarmResponse, error) {
	_, unlock, err := c.reach()
	if err != nil {
		return nil, err
	}
	defer unlock()
	list := &clientv3.AlarmResponse{}
	for id, alarm := range c.alarms {
		list.Alarms = append(list.Alarms, &etcdserverpb.AlarmMember{MemberID: id, Alarm: alarm})
	}
	return list, nil
}

func (c *tableConn) MoveLeader(_ context.Context, to uint64) (*clientv3.MoveLeaderResponse, error) {
	own, unlock, err := c.reach()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if own.ID != c.leader {
		return nil, errors.New("etcdserver: not leader")
	}
	return nil, c.change(fmt.Sprintf("lead %s to %s", own.Name, c.name(to)), func() error {
		c.leader = to
		return nil
	})
}

func (c *tableConn) MemberRemove(_ context.Context, id uint64) (*clientv3.MemberRemoveResponse, error) {
	_, unlock, err := c.reach()
	if err != nil {
		return nil, err
	}
	defer unlock()
	return nil, c.change("remove "+c.name(id), func() error {
		c.members = slices.DeleteFunc(c.members, func(m Member) bool { return m.ID == id })
		return nil
	})
}

func (c *tableConn) Close() error { return nil }

// objects are the Nodes of that name, each with a pod of etcd, and kubeadm-config.
func objects(nodes ...string) []client.Object {
	var all []client.Object
	for _, name := range nodes {
		all = append(all, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host(name)}}},
		}, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: metav1.NamespaceSystem, Name: "etcd-" + name, Labels: map[string]string{"component": "etcd", "tier": "control-plane"},
				Annotations: map[string]string{annotationClientURLs: at(name)},
			},
			Spec:   corev1.PodSpec{NodeName: name},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: host(name)},
		})
	}
	return append(all, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"},
		Data:       map[string]string{clusterConfiguration: "kubernetesVersion: v1.36.2\n", "other": "kept"},
	})
}

func find[T client.Object](all []client.Object, name string) T {
	for _, o := range all {
		if typed, ok := o.(T); ok && o.GetName() == name {
			return typed
		}
	}
	panic(name + " is not there")
}

func build(all []client.Object) client.Client {
	return fake.NewClientBuilder().WithObjects(all...).WithStatusSubresource(&corev1.Node{}).Build()
}

func config(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	cm := &corev1.ConfigMap{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"}, cm); err != nil {
		t.Fatal(err)
	}
	return cm.Data
}

var whole = Options{}

// steps calls Leave until it is done, and returns what it said.
func steps(t *testing.T, p *Plane, node string, o Options) []string {
	t.Helper()
	var said []string
	for range 10 {
		done, message, err := p.Leave(t.Context(), node, o)
		if err != nil {
			t.Fatal(err)
		}
		if done {
			return said
		}
		said = append(said, message)
	}
	t.Fatalf("never ends: %q", said)
	return nil
}

func TestLeave(t *testing.T) {
	for _, test := range []struct {
		name   string
		leader uint64
		o      Options
		want   []string
	}{
		{
			name: "the leader", leader: 1, o: Options{Replacement: "cp-4"},
			want: []string{"the leader of etcd was moved from member cp-1 to cp-4", "etcd member cp-1 was removed"},
		},
		{name: "a follower", leader: 2, o: whole, want: []string{"etcd member cp-1 was removed"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			nodes := []string{"cp-1", "cp-2", "cp-3", "cp-4"}
			e, c := newTable(nodes...), build(objects(nodes...))
			e.leader = test.leader
			p := New(c, e)
			if diff := cmp.Diff(test.want, steps(t, p, "cp-1", test.o)); diff != "" {
				t.Error(diff)
			}
			if e.name(1) == "cp-1" {
				t.Errorf("members are %v", e.members)
			}
			if slices.Contains(e.listed, at("cp-1")) {
				t.Errorf("the one that leaves was asked who is there: %v", e.listed)
			}
			// Once more, for whoever forgot that it is done; and the Node may be gone already.
			if err := c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp-1"}}); err != nil {
				t.Fatal(err)
			}
			if said := steps(t, p, "cp-1", test.o); said != nil {
				t.Errorf("did more: %q", said)
			}
		})
	}
}

// A caller may be killed, and an answer be lost, at each change: the next call goes on, and nothing is done twice.
func TestLeaveIsInterrupted(t *testing.T) {
	errLost := errors.New("the answer was lost")
	for step := range 6 {
		for _, effective := range []bool{false, true} {
			nodes := []string{"cp-1", "cp-2", "cp-3", "cp-4"}
			e := newTable(nodes...)
			n := 0
			fail := func(string) error {
				if n++; n == step+1 {
					return errLost
				}
				return nil
			}
			if effective {
				e.after = fail
			} else {
				e.before = fail
			}
			c := build(objects(nodes...))
			failures, done := 0, false
			for i := 0; i < 10 && !done; i++ {
				var err error
				if done, _, err = New(c, e).Leave(t.Context(), "cp-1", whole); err != nil {
					failures++
				}
			}
			want := []string{"lead cp-1 to cp-2", "remove cp-1"}
			if diff := cmp.Diff(want, e.changes); diff != "" || !done {
				t.Errorf("at %d, effective %t: done %t, %s", step, effective, done, diff)
			}
			if wanted := min(1, max(0, len(want)-step)); failures != wanted {
				t.Errorf("at %d, effective %t: %d failures, want %d", step, effective, failures, wanted)
			}
		}
	}
}

// Whatever is wrong, nothing is changed, and what is wrong is said.
func TestLeaveIsRefused(t *testing.T) {
	three, four := []string{"cp-1", "cp-2", "cp-3"}, []string{"cp-1", "cp-2", "cp-3", "cp-4"}
	for _, test := range []struct {
		name  string
		nodes []string
		o     Options
		spoil func(*table, []client.Object)
		why   string
	}{
		{name: "too few", nodes: three, o: whole, why: "the voters of etcd would go down to 2, which does not tolerate the failure of one: another must join first"},
		{
			name: "the replacement has not joined", nodes: four, o: Options{Replacement: "cp-5"},
			why: "etcd has no member on the replacement cp-5 yet",
		},
		{
			name: "a member is not there", nodes: four, o: whole, spoil: func(e *table, _ []client.Object) { e.silent[at("cp-3")] = true },
			why: "etcd member cp-3 does not answer as it should at https://10.0.0.3:2379: connection refused",
		},
		{
			name: "its own is not there", nodes: four, o: whole, spoil: func(e *table, _ []client.Object) { e.silent[at("cp-1")] = true },
			why: "etcd member cp-1 does not answer as it should at https://10.0.0.1:2379: connection refused",
		},
		{
			name: "a member is cut off", nodes: four, o: whole, spoil: func(e *table, _ []client.Object) { e.partial[at("cp-2")] = true },
			why: "etcd member cp-2 does not answer as it should at https://10.0.0.2:2379: reading through it, no answer within 4s",
		},
		{
			name: "out of space", nodes: four, o: whole, spoil: func(e *table, _ []client.Object) {
				e.alarms = map[uint64]etcdserverpb.AlarmType{2: etcdserverpb.AlarmType_NOSPACE}
			},
			why: "etcd member cp-2 has raised the alarm NOSPACE",
		},
		{
			name: "corrupt", nodes: four, o: whole, spoil: func(e *table, _ []client.Object) { e.errs = map[uint64][]string{4: {"etcdserver: corrupt cluster"}} },
			why: "etcd member cp-4 reports etcdserver: corrupt cluster",
		},
		{
			name: "no one leads", nodes: four, o: whole, spoil: func(e *table, _ []client.Object) { e.leader = 0 },
			why: "etcd member cp-1 has no leader; etcd member cp-2 has no leader; etcd member cp-3 has no leader; etcd member cp-4 has no leader",
		},
		{
			name: "a learner", nodes: four, o: whole, spoil: func(e *table, _ []client.Object) { e.members[3].Learner = true },
			why: "etcd member cp-4 is a learner, and does not vote yet",
		},
		{
			name: "not started", nodes: four, o: whole, spoil: func(e *table, _ []client.Object) { e.members[3].Name, e.members[3].Clients = "", nil },
			why: "etcd member 4 at https://10.0.0.4:2380 has not started yet",
		},
		{
			name: "another member at that URL", nodes: four, o: whole, spoil: func(e *table, _ []client.Object) { e.members[3].Clients = e.members[1].Clients },
			why: "etcd member cp-4 does not answer as it should at https://10.0.0.2:2379: another member answers, 2",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			e, all := newTable(test.nodes...), objects(test.nodes...)
			if test.spoil != nil {
				test.spoil(e, all)
			}
			c := build(all)
			before := config(t, c)
			p := New(c, e)
			done, message, err := p.Leave(t.Context(), "cp-1", test.o)
			if done || message != test.why || err != nil {
				t.Errorf("got %t, %q, %v", done, message, err)
			}
			why, err := p.MayLeave(t.Context(), "cp-1", test.o)
			if why != test.why || err != nil {
				t.Errorf("may leave: got %q, %v", why, err)
			}
			if diff := cmp.Diff(before, config(t, c)); diff != "" || e.changes != nil {
				t.Errorf("did %v, %s", e.changes, diff)
			}
		})
	}
}

// What can't be looked at is an error, and changes nothing.
func TestLookFails(t *testing.T) {
	nodes := []string{"cp-1", "cp-2", "cp-3", "cp-4"}
	for _, test := range []struct {
		name  string
		spoil func(*table, []client.Object) []client.Object
		err   string
	}{
		{
			"no pods", func(_ *table, all []client.Object) []client.Object {
				return slices.DeleteFunc(all, func(o client.Object) bool { _, pod := o.(*corev1.Pod); return pod })
			}, "no pod of etcd runs in namespace kube-system, by the labels component=etcd and tier=control-plane",
		},
		{
			"no other pod", func(_ *table, all []client.Object) []client.Object {
				for _, name := range nodes[1:] {
					find[*corev1.Pod](all, "etcd-"+name).Status.Phase = corev1.PodFailed
				}
				return all
			}, "no pod of etcd runs on another node: another must join first",
		},
		{
			"no one answers", func(e *table, all []client.Object) []client.Object {
				for _, name := range nodes {
					e.silent[at(name)] = true
				}
				return all
			}, "listing the members of etcd, https://10.0.0.2:2379: connection refused",
		},
		{
			"one founded a cluster of its own", func(e *table, all []client.Object) []client.Object {
				e.foreign[at("cp-4")] = true
				return all
			}, "etcd at https://10.0.0.2:2379 and at https://10.0.0.4:2379 are two clusters, 7 and 8",
		},
		{
			"twins", func(e *table, all []client.Object) []client.Object {
				e.members[1].Name = "cp-1"
				find[*corev1.Node](all, "cp-1").Status.Addresses = nil
				find[*corev1.Pod](all, "etcd-cp-1").Status.Phase = corev1.PodPending
				return all
			}, "2 members of etcd could be that of node cp-1",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newTable(nodes...)
			p := New(build(test.spoil(e, objects(nodes...))), e)
			done, message, err := p.Leave(t.Context(), "cp-1", whole)
			if done || message != "" || err == nil || !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("got %t, %q, %v", done, message, err)
			}
			if why, err := p.Leavable(t.Context()); why != "" || err == nil && test.name != "twins" && test.name != "no other pod" { // It looks for no node.
				t.Errorf("healthy: got %q, %v", why, err)
			}
			if e.changes != nil {
				t.Errorf("did %v", e.changes)
			}
		})
	}
}

// A member whose machine is gone is removed although it does not answer, and takes no one with it.
func TestLeaveOfAMachineThatIsGone(t *testing.T) {
	nodes := []string{"cp-1", "cp-2", "cp-3"}
	e, all := newTable(nodes...), objects(nodes...)
	e.silent[at("cp-3")] = true
	p := New(build(all), e)
	if why, err := p.Leavable(t.Context()); !strings.HasPrefix(why, "etcd member cp-3 does not answer") || err != nil {
		t.Errorf("got %q, %v", why, err)
	}
	steps(t, p, "cp-3", Options{Gone: true})
	if diff := cmp.Diff([]string{"remove cp-3"}, e.changes); diff != "" {
		t.Error(diff)
	}
	// A learner that did not come to vote goes as easily.
	e.members[1].Learner = true
	steps(t, p, "cp-2", whole)
	if diff := cmp.Diff([]string{"remove cp-3", "remove cp-2"}, e.changes); diff != "" {
		t.Error(diff)
	}
}

// A machine whose name is not known goes once there is no member that could be its.
func TestLeaveWithoutName(t *testing.T) {
	const is = "has no node, and may be that of the machine: it must be removed first"
	for _, test := range []struct {
		name  string
		spoil func(*table)
		o     Options
		why   string
	}{
		{name: "all are of nodes", o: whole},
		{name: "by another name", o: whole, spoil: func(e *table) { e.members[1].Name = "etcd-of-cp-2" }},
		{
			name: "one is of none", o: whole, why: "etcd member cp-9 " + is,
			spoil: func(e *table) {
				e.members = append(e.members, Member{ID: 9, Name: "cp-9", Clients: []string{at("cp-9")}})
				e.silent[at("cp-9")] = true
			},
		},
		{
			name: "not started", o: whole, why: "etcd member 9 at https://10.0.0.9:2380 " + is,
			spoil: func(e *table) { e.members = append(e.members, Member{ID: 9, Peers: []string{"https://10.0.0.9:2380"}}) },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			nodes := []string{"cp-1", "cp-2", "cp-3"}
			e := newTable(nodes...)
			if test.spoil != nil {
				test.spoil(e)
			}
			done, message, err := New(build(objects(nodes...)), e).Leave(t.Context(), "", test.o)
			if done != (test.why == "") || message != test.why || err != nil || e.changes != nil {
				t.Errorf("got %t, %q, %v, and did %v", done, message, err, e.changes)
			}
		})
	}
}

func TestJoined(t *testing.T) {
	nodes := []string{"cp-1", "cp-2", "cp-3"}
	e := newTable(nodes...)
	p := New(build(objects(append(nodes, "cp-4")...)), e)
	e.silent[at("cp-4")] = true
	expect := func(want string) {
		t.Helper()
		if why, err := p.Joined(t.Context(), "cp-4"); why != want || err != nil {
			t.Errorf("got %q, %v", why, err)
		}
	}
	expect("etcd has no member on node cp-4 yet")
	e.members = append(e.members, Member{ID: 4, Peers: []string{"https://10.0.0.4:2380"}, Learner: true})
	expect("etcd member 4 at https://10.0.0.4:2380 has not started yet")
	e.members[3].Name, e.members[3].Clients = "cp-4", []string{at("cp-4")}
	expect("etcd member cp-4 does not answer as it should at https://10.0.0.4:2379: connection refused")
	delete(e.silent, at("cp-4"))
	expect("etcd member cp-4 is a learner, and does not vote yet")
	e.members[3].Learner = false
	expect("")
	if why, err := p.Leavable(t.Context()); why != "" || err != nil {
		t.Errorf("got %q, %v", why, err)
	}
}

func TestPods(t *testing.T) {
	all := objects("cp-1", "cp-2", "cp-3", "cp-4", "cp-5", "cp-6")
	change := func(node string, how func(*corev1.Pod)) { how(find[*corev1.Pod](all, "etcd-"+node)) }
	change("cp-2", func(p *corev1.Pod) { p.Annotations = nil })
	change("cp-3", func(p *corev1.Pod) { p.Annotations, p.Status.PodIP = nil, "fd00::3" })
	change("cp-4", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })
	change("cp-5", func(p *corev1.Pod) { p.Annotations, p.Status.PodIP = nil, "" })
	change("cp-6", func(p *corev1.Pod) {
		p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"a/b"}
	})
	got, err := New(build(all), nil).etcdPods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []etcdPod{{"cp-1", at("cp-1")}, {"cp-2", "https://10.0.0.2:2379"}, {"cp-3", "https://[fd00::3]:2379"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(etcdPod{})); diff != "" {
		t.Error(diff)
	}
}

func TestSetVersion(t *testing.T) {
	c := build(objects())
	writes := 0
	counted := interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			writes++
			if body, err := p.Data(o); err != nil || !strings.Contains(string(body), "resourceVersion") {
				t.Errorf("no precondition in %s, %v", body, err)
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	p := New(counted, nil)
	for _, to := range []string{"1.36.2", "v1.36.2", "1.37.0", "v1.37.0", "1.37.0"} {
		if err := p.SetVersion(t.Context(), to, true); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{clusterConfiguration: "kubernetesVersion: v1.37.0\n", "other": "kept"}
	if diff := cmp.Diff(want, config(t, c)); diff != "" || writes != 1 {
		t.Errorf("%d writes, %s", writes, diff)
	}
	for to, want := range map[string]string{"1.36.9": "v1.37.0", "1.37.1": "v1.37.1"} {
		c := build(objects())
		p := New(c, nil)
		if err := errors.Join(p.SetVersion(t.Context(), "1.37.0", true), p.SetVersion(t.Context(), to, false)); err != nil {
			t.Fatal(err)
		}
		if got := config(t, c)[clusterConfiguration]; got != "kubernetesVersion: "+want+"\n" {
			t.Errorf("%s, and never older: %q", to, got)
		}
	}
	if err := New(build(nil), nil).SetVersion(t.Context(), "1.37.0", true); err != nil {
		t.Errorf("without kubeadm-config: %v", err)
	}
	if err := p.SetVersion(t.Context(), "newest", true); err == nil {
		t.Error("took a version that is none")
	}
}
