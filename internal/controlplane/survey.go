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

// annotationClientURLs is where kubeadm says on a pod of etcd what it listens at.
const annotationClientURLs = "kubeadm.kubernetes.io/etcd.advertise-client-urls"

// etcdLabels are those of etcd's pods.
var etcdLabels = client.MatchingLabels{"component": "etcd", "tier": "control-plane"}

// errAlone is said when etcd could be asked through the member only that is to leave.
var errAlone = errors.New("no pod of etcd runs on another node")

// pod is a running pod of etcd.
type pod struct {
	node      string
	endpoints []string
}

// survey is how etcd is, at one moment.
type survey struct {
	members []Member
	pods    []pod
	// asked is a URL of a member that has answered.
	asked string
}

// pods lists those of etcd that run.
func (p *Plane) pods(ctx context.Context) ([]pod, error) {
	var list corev1.PodList
	if err := p.client.List(ctx, &list, client.InNamespace(metav1.NamespaceSystem), etcdLabels); err != nil {
		return nil, fmt.Errorf("listing the pods of etcd, %w", err)
	}
	var running []pod
	for i := range list.Items {
		is := &list.Items[i]
		if is.Status.Phase != corev1.PodRunning || is.DeletionTimestamp != nil {
			continue
		}
		one := pod{node: is.Spec.NodeName}
		for url := range strings.SplitSeq(is.Annotations[annotationClientURLs], ",") {
			if url = strings.TrimSpace(url); url != "" {
				one.endpoints = append(one.endpoints, url)
			}
		}
		if len(one.endpoints) == 0 && is.Status.PodIP != "" {
			one.endpoints = []string{"https://" + net.JoinHostPort(is.Status.PodIP, "2379")}
		}
		if len(one.endpoints) > 0 {
			running = append(running, one)
		}
	}
	slices.SortFunc(running, func(a, b pod) int { return strings.Compare(a.node, b.node) })
	return running, nil
}

// look asks etcd who its members are, through its pods but for that of the node without, and each of them how it is.
func (p *Plane) look(ctx context.Context, without string) (*survey, error) {
	all, err := p.pods(ctx)
	if err != nil {
		return nil, err
	}
	s := &survey{pods: all}
	var endpoints []string
	for _, one := range all {
		if one.node != without {
			endpoints = append(endpoints, one.endpoints...)
		}
	}
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("no pod of etcd runs in namespace %s, by the labels component=etcd and tier=control-plane", metav1.NamespaceSystem)
	case len(endpoints) == 0:
		return nil, errAlone
	}
	if err := p.list(ctx, endpoints, s); err != nil {
		return nil, err
	}
	return s, p.examine(ctx, s)
}

// list reads the members. All that answer must be of one cluster: a member that has founded one of its own knows nothing of the others.
func (p *Plane) list(ctx context.Context, endpoints []string, s *survey) error {
	type answer struct {
		cluster uint64
		members []Member
		err     error
	}
	answers := make([]answer, len(endpoints))
	var asking sync.WaitGroup
	for i, endpoint := range endpoints {
		asking.Go(func() {
			a := &answers[i]
			a.err = p.with(endpoint, func(c Conn) (err error) {
				a.cluster, a.members, err = c.Members(ctx)
				return err
			})
		})
	}
	asking.Wait()
	first := -1
	var errs []error
	for i, a := range answers {
		switch {
		case a.err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", endpoints[i], a.err))
		case first < 0:
			first = i
		case a.cluster != answers[first].cluster:
			return fmt.Errorf("etcd at %s and at %s are two clusters, %x and %x", endpoints[first], endpoints[i], answers[first].cluster, a.cluster)
		}
	}
	if first < 0 {
		return fmt.Errorf("listing the members of etcd, %w", errors.Join(errs...))
	}
	s.members, s.asked = answers[first].members, endpoints[first]
	return nil
}

// examine finds out how each member is.
func (p *Plane) examine(ctx context.Context, s *survey) error {
	var asking sync.WaitGroup
	leaders := make([]uint64, len(s.members))
	for i := range s.members {
		asking.Go(func() { leaders[i] = p.ask(ctx, &s.members[i]) })
	}
	var alarms map[uint64][]string
	var unknown error
	asking.Go(func() {
		unknown = p.with(s.asked, func(c Conn) (err error) {
			alarms, err = c.Alarms(ctx)
			return err
		})
	})
	asking.Wait()
	healthy := true
	for i := range s.members {
		m := &s.members[i]
		m.Leader = m.ID == leaders[i]
		if raised := alarms[m.ID]; len(raised) > 0 && m.Problem == "" {
			m.Problem = "has raised the alarm " + strings.Join(raised, ", ")
		}
		healthy = healthy && m.ill() == ""
	}
	if unknown != nil && healthy {
		return fmt.Errorf("reading the alarms of etcd at %s, %w", s.asked, unknown)
	}
	return nil
}

// ask asks a member how it is, and returns the id of the one that leads as it sees it.
func (p *Plane) ask(ctx context.Context, m *Member) (leader uint64) {
	if m.Name == "" {
		return 0
	}
	if len(m.Clients) == 0 {
		m.Problem = "tells no URL for clients"
		return 0
	}
	var errs []string
	for _, endpoint := range m.Clients {
		var is Status
		err := p.with(endpoint, func(c Conn) (err error) {
			if is, err = c.Status(ctx); err != nil || m.Learner || is.Leader == 0 || is.Member != m.ID {
				return err
			}
			if err = c.Read(ctx); err != nil {
				err = fmt.Errorf("reading through it, %w", err)
			}
			return err
		})
		switch {
		case err != nil:
			errs = append(errs, fmt.Sprintf("%s: %v", endpoint, err))
			continue
		case is.Member != m.ID:
			errs = append(errs, fmt.Sprintf("%s: another member answers, %x", endpoint, is.Member))
			continue
		case is.Leader == 0:
			m.Problem = "knows of no leader"
		case len(is.Errors) > 0:
			m.Problem = "says " + strings.Join(is.Errors, ", ")
		}
		return is.Leader
	}
	m.Problem = "does not answer as it should at " + strings.Join(errs, ", ")
	return 0
}

// with speaks to the member at a URL.
func (p *Plane) with(endpoint string, do func(Conn) error) error {
	c, err := p.connect.Connect(endpoint)
	if err != nil {
		return err
	}
	err = do(c)
	_ = c.Close() // All is said.
	return err
}

// of finds the member of a node.
func (p *Plane) of(ctx context.Context, s *survey, node string) (*Member, error) {
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
	for _, one := range s.pods {
		if one.node == node {
			who.clients = append(who.clients, one.endpoints...)
		}
	}
	return who.of(s.members)
}
