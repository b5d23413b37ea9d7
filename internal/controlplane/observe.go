// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// annotationClientURLs is where kubeadm writes on a pod of etcd the URLs that it listens at.
const annotationClientURLs = "kubeadm.kubernetes.io/etcd.advertise-client-urls"

// etcdLabels are those of etcd's pods.
var etcdLabels = client.MatchingLabels{"component": "etcd", "tier": "control-plane"}

// errAlone means that etcd could be asked only through the member that leaves.
var errAlone = errors.New("no pod of etcd runs on another node")

// etcdPod is a running pod of etcd.
type etcdPod struct{ node, endpoint string }

// observation is the state of etcd at one moment.
type observation struct {
	members []Member
	pods    []etcdPod
	// asked is the URL of the member that has listed the others, and cluster the id of its cluster.
	asked   string
	cluster uint64
}

// observe lists the members of etcd, through its pods except that of one node, and asks each member how it is.
func (p *Plane) observe(ctx context.Context, except string) (*observation, error) {
	pods, err := p.etcdPods(ctx)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("no pod of etcd runs in namespace %s, by the labels component=etcd and tier=control-plane", metav1.NamespaceSystem)
	}
	o := &observation{pods: pods}
	if err := p.listMembers(ctx, o, except); err != nil {
		return nil, err
	}
	var checks sync.WaitGroup
	for i := range o.members {
		checks.Go(func() { p.checkMember(ctx, &o.members[i]) })
	}
	checks.Wait()
	return o, p.checkAlarms(ctx, o)
}

// etcdPods lists the running pods of etcd, by node.
func (p *Plane) etcdPods(ctx context.Context) ([]etcdPod, error) {
	var list corev1.PodList
	if err := p.client.List(ctx, &list, client.InNamespace(metav1.NamespaceSystem), etcdLabels); err != nil {
		return nil, fmt.Errorf("listing the pods of etcd, %w", err)
	}
	var running []etcdPod
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		endpoint := pod.Annotations[annotationClientURLs]
		if endpoint == "" && pod.Status.PodIP != "" {
			endpoint = "https://" + net.JoinHostPort(pod.Status.PodIP, "2379")
		}
		if endpoint != "" {
			running = append(running, etcdPod{node: pod.Spec.NodeName, endpoint: endpoint})
		}
	}
	slices.SortFunc(running, func(a, b etcdPod) int { return strings.Compare(a.node, b.node) })
	return running, nil
}

// listMembers reads the members. All pods that answer must be of one cluster: a member that has founded its own knows nothing of the others.
func (p *Plane) listMembers(ctx context.Context, o *observation, except string) error {
	alone := true
	var errs []error
	for _, pod := range o.pods {
		if pod.node == except {
			continue
		}
		alone = false
		var cluster uint64
		var members []Member
		err := p.connected(pod.endpoint, func(c Conn) (err error) {
			cluster, members, err = c.Members(ctx)
			return err
		})
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", pod.endpoint, err))
		case o.asked == "":
			o.asked, o.cluster, o.members = pod.endpoint, cluster, members
		case cluster != o.cluster:
			return fmt.Errorf("etcd at %s and at %s are two clusters, %x and %x", o.asked, pod.endpoint, o.cluster, cluster)
		}
	}
	switch {
	case alone:
		return errAlone
	case o.asked == "":
		return fmt.Errorf("listing the members of etcd, %w", errors.Join(errs...))
	}
	return nil
}

// checkMember asks a member how it is, and reads a key through it if it votes and has a leader.
func (p *Plane) checkMember(ctx context.Context, m *Member) {
	switch {
	case m.Name == "":
		return
	case len(m.Clients) == 0:
		m.Problem = "tells no URL for clients"
		return
	}
	var status Status
	err := p.connected(m.Clients[0], func(c Conn) (err error) {
		if status, err = c.Status(ctx); err != nil || status.Member != m.ID || status.Leader == 0 || m.Learner {
			return err
		}
		if err = c.Read(ctx); err != nil {
			return fmt.Errorf("reading through it, %w", err)
		}
		return nil
	})
	if err == nil && status.Member != m.ID {
		err = fmt.Errorf("another member answers, %x", status.Member)
	}
	switch {
	case err != nil:
		m.Problem = fmt.Sprintf("does not answer as it should at %s: %v", m.Clients[0], err)
		return
	case status.Leader == 0:
		m.Problem = "knows of no leader"
	case len(status.Errors) > 0:
		m.Problem = "says " + strings.Join(status.Errors, ", ")
	}
	m.Leader = status.Leader == m.ID
}

// checkAlarms reads which alarms are raised. That etcd can't tell is an error only if all members are healthy: else they say why.
func (p *Plane) checkAlarms(ctx context.Context, o *observation) error {
	healthy := !slices.ContainsFunc(o.members, func(m Member) bool { return m.unhealthy() != "" })
	var alarms map[uint64][]string
	err := p.connected(o.asked, func(c Conn) (err error) {
		alarms, err = c.Alarms(ctx)
		return err
	})
	if err != nil && healthy {
		return fmt.Errorf("reading the alarms of etcd at %s, %w", o.asked, err)
	}
	for i := range o.members {
		m := &o.members[i]
		if raised := alarms[m.ID]; len(raised) > 0 && m.Problem == "" {
			m.Problem = "has raised the alarm " + strings.Join(raised, ", ")
		}
	}
	return nil
}

// connected speaks to the member at a URL.
func (p *Plane) connected(endpoint string, do func(Conn) error) error {
	c, err := p.connect.Connect(endpoint)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return do(c)
}

// memberOf finds the member of a node. Nil: it has none.
func (p *Plane) memberOf(ctx context.Context, o *observation, node string) (*Member, error) {
	who := identity{node: node}
	n := &corev1.Node{}
	if err := p.client.Get(ctx, client.ObjectKey{Name: node}, n); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading node %s, %w", node, err)
	}
	for _, a := range n.Status.Addresses {
		switch a.Type {
		case corev1.NodeInternalIP, corev1.NodeInternalDNS, corev1.NodeHostName:
			who.hosts = append(who.hosts, a.Address)
		default:
		}
	}
	for _, e := range o.pods {
		if e.node == node {
			who.clients = append(who.clients, e.endpoint)
		}
	}
	return who.memberIn(o.members)
}

// memberIDs returns the ids of the members of these nodes. Nodes without one are left out.
func (p *Plane) memberIDs(ctx context.Context, o *observation, nodes []string) ([]uint64, error) {
	var ids []uint64
	for _, node := range nodes {
		m, err := p.memberOf(ctx, o, node)
		if err != nil {
			return nil, err
		}
		if m != nil {
			ids = append(ids, m.ID)
		}
	}
	return ids, nil
}
