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

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// annotationClientURLs is kubeadm's annotation of a pod of etcd with the URLs that it listens at.
const annotationClientURLs = "kubeadm.kubernetes.io/etcd.advertise-client-urls"

// etcdLabels are those of etcd's pods.
var etcdLabels = client.MatchingLabels{"component": "etcd", "tier": "control-plane"}

// etcdPod is a running pod of etcd.
type etcdPod struct{ node, endpoint string }

// observation is the state of etcd at one moment.
type observation struct {
	members []*Member
	pods    []etcdPod
	// listed is the URL of the member that listed the others.
	listed string
}

// observe lists the members of etcd, through its pods except that of one node, and reads the status of each member.
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
	for _, m := range o.members {
		checks.Go(func() { p.checkMember(ctx, m) })
	}
	checks.Wait()
	return o, p.checkAlarms(ctx, o)
}

// etcdPods lists the running pods of etcd.
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
	return running, nil
}

// listMembers reads the members. All pods that answer must be of one cluster: a member that formed its own cluster does not list the others.
func (p *Plane) listMembers(ctx context.Context, o *observation, except string) error {
	others := slices.DeleteFunc(slices.Clone(o.pods), func(pod etcdPod) bool { return pod.node == except })
	if len(others) == 0 {
		return errors.New("no pod of etcd runs on another node: another must join first")
	}
	cluster := uint64(0)
	var errs []error
	for _, pod := range others {
		list, err := call(ctx, p, pod.endpoint, func(ctx context.Context, c Conn) (*clientv3.MemberListResponse, error) { return c.MemberList(ctx) })
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", pod.endpoint, err))
		case o.listed == "":
			o.listed, cluster = pod.endpoint, list.Header.ClusterId
			for _, m := range list.Members {
				o.members = append(o.members, &Member{ID: m.ID, Name: m.Name, Peers: m.PeerURLs, Clients: m.ClientURLs, Learner: m.IsLearner})
			}
		case list.Header.ClusterId != cluster:
			return fmt.Errorf("etcd at %s and at %s are two clusters, %x and %x", o.listed, pod.endpoint, cluster, list.Header.ClusterId)
		}
	}
	if o.listed == "" {
		return fmt.Errorf("listing the members of etcd, %w", errors.Join(errs...))
	}
	return nil
}

// checkMember reads the status of a member, and a key through it if it votes and has a leader. A read needs a quorum.
func (p *Plane) checkMember(ctx context.Context, m *Member) {
	switch {
	case m.Name == "":
		return
	case len(m.Clients) == 0:
		m.Problem = "has no URL for clients"
		return
	}
	status, err := call(ctx, p, m.Clients[0], func(ctx context.Context, c Conn) (*clientv3.StatusResponse, error) {
		status, err := c.Status(ctx, m.Clients[0])
		if err == nil && status.Header.MemberId != m.ID {
			err = fmt.Errorf("another member answers, %x", status.Header.MemberId)
		}
		if err != nil || status.Leader == 0 || m.Learner {
			return status, err
		}
		// A refusal for lack of permission needs a quorum too.
		if _, err = c.Get(ctx, "health"); err != nil && !errors.Is(err, rpctypes.ErrPermissionDenied) {
			return nil, fmt.Errorf("reading through it, %w", shorten(err))
		}
		return status, nil
	})
	if err != nil {
		m.Problem = fmt.Sprintf("does not answer as it should at %s: %v", m.Clients[0], err)
		return
	}
	// The status has the alarms of all members.
	errs := slices.DeleteFunc(status.Errors, func(e string) bool { return strings.Contains(e, "alarm:") })
	switch {
	case status.Leader == 0:
		m.Problem = "has no leader"
	case len(errs) > 0:
		m.Problem = "reports " + strings.Join(errs, ", ")
	}
	m.Leader = status.Leader == m.ID
}

// checkAlarms reads which alarms are raised. An error counts only if all members are healthy: else their problems explain it.
func (p *Plane) checkAlarms(ctx context.Context, o *observation) error {
	list, err := call(ctx, p, o.listed, func(ctx context.Context, c Conn) (*clientv3.AlarmResponse, error) { return c.AlarmList(ctx) })
	if err != nil {
		if slices.ContainsFunc(o.members, func(m *Member) bool { return m.unhealthy() != "" }) {
			return nil
		}
		return fmt.Errorf("reading the alarms of etcd at %s, %w", o.listed, err)
	}
	for _, a := range list.Alarms {
		for _, m := range o.members {
			if a.MemberID == m.ID && m.Problem == "" {
				m.Problem = "has raised the alarm " + a.Alarm.String()
			}
		}
	}
	return nil
}

// call makes calls to the member at a URL.
func call[T any](ctx context.Context, p *Plane, endpoint string, do func(context.Context, Conn) (T, error)) (answer T, err error) {
	c, err := p.connect.Connect(endpoint)
	if err != nil {
		return answer, err
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err = do(ctx, c)
	return answer, shorten(err)
}

// memberOf finds the member of a node. Nil: the node has none.
func (p *Plane) memberOf(ctx context.Context, o *observation, node string) (*Member, error) {
	who := identity{node: node}
	n := &corev1.Node{}
	if err := p.client.Get(ctx, client.ObjectKey{Name: node}, n); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading node %s, %w", node, err)
	}
	for _, a := range n.Status.Addresses {
		who.hosts = append(who.hosts, a.Address)
	}
	for _, e := range o.pods {
		if e.node == node {
			who.clients = append(who.clients, e.endpoint)
		}
	}
	return who.memberIn(o.members)
}
