// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// zones are given to nodes in turn.
var zones = []string{"zone-a", "zone-b", "zone-c"}

// SimulatedNode is the prefix of the names of simulated nodes.
const SimulatedNode = "sim-"

// AddNodes adds simulated nodes and returns when they are ready. Their names
// continue where the last ones ended: sim-0001, sim-0002 and so on.
func (c *Cluster) AddNodes(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	c.nodesMu.Lock()
	defer c.nodesMu.Unlock()
	if c.nodes == 0 {
		// Another process may have added some.
		nodes, err := c.simulatedNodes(ctx)
		if err != nil {
			return err
		}
		c.nodes = len(nodes)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for i := c.nodes; i < c.nodes+n; i++ {
		group.Go(func() error {
			_, err := c.client.CoreV1().Nodes().Create(groupCtx, simulatedNode(i), metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("adding simulated nodes, %w", err)
	}
	c.nodes += n
	return c.waitForSimulatedNodes(ctx, c.nodes)
}

// simulatedNode returns the node with that index, which says that it is ready.
func simulatedNode(i int) *corev1.Node {
	name := fmt.Sprintf("%s%04d", SimulatedNode, i+1)
	return NodeOptions{Name: name, Zone: zones[i%len(zones)]}.node(fmt.Sprintf("198.18.%d.%d", i/250, i%250+1))
}

// NodeOptions says what a simulated node is like that has a name of its own.
type NodeOptions struct {
	// Name of it. It must not begin with SimulatedNode.
	Name string
	// Zone it is in. Empty: none.
	Zone string
	// ProviderID is what spec.providerID says. Default "simulated://" and the name.
	ProviderID string
	// Labels beside those that each node has.
	Labels map[string]string
	// Taints it begins with.
	Taints []corev1.Taint
	// OSImage is what status.nodeInfo.osImage says. Default "Simulated".
	OSImage string
	// NotReady makes a node that is never ready.
	NotReady bool
}

// AddNode adds a simulated node. That the cluster counts it as ready is for the caller to see.
func (c *Cluster) AddNode(ctx context.Context, o NodeOptions) error {
	if strings.HasPrefix(o.Name, SimulatedNode) {
		return fmt.Errorf("adding simulated node %s: such names are AddNodes'", o.Name)
	}
	c.nodesMu.Lock()
	i := c.named
	c.named++
	c.nodesMu.Unlock()
	n := o.node(fmt.Sprintf("198.19.%d.%d", i/250%250, i%250+1))
	if _, err := c.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("adding simulated node %s, %w", o.Name, err)
	}
	return nil
}

// NodeNotReady is the annotation, with the value "true", of a simulated node that does not become ready. One that has lost it does. See stages.yaml.
const NodeNotReady = "test.moult.dev/not-ready"

// Silence makes a simulated node look as one whose kubelet has gone, from now on. It is no error if there is no such node any more.
func (c *Cluster) Silence(ctx context.Context, name string) error {
	annotate := fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, NodeNotReady)
	_, err := c.client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(annotate), metav1.PatchOptions{})
	if err == nil {
		now := metav1.Now().UTC().Format(time.RFC3339)
		silent := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown",`+
			`"message":"Kubelet stopped posting node status.","lastTransitionTime":%q}]}}`, now)
		_, err = c.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, []byte(silent), metav1.PatchOptions{}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("silencing simulated node %s, %w", name, err)
	}
	return nil
}

// node returns the node, which says that it is ready unless it is not to be.
func (o NodeOptions) node(address string) *corev1.Node {
	now := metav1.Now()
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("32"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourcePods:             resource.MustParse("110"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
	}
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	ready := condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady")
	annotations := map[string]string{kwokManaged: "fake"}
	if o.NotReady {
		ready = condition(corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady")
		annotations[NodeNotReady] = "true"
	}
	labels := map[string]string{
		corev1.LabelHostname:   o.Name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64",
	}
	if o.Zone != "" {
		labels[corev1.LabelTopologyZone] = o.Zone
	}
	maps.Copy(labels, o.Labels)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: labels, Annotations: annotations},
		Spec:       corev1.NodeSpec{ProviderID: cmp.Or(o.ProviderID, "simulated://"+o.Name), Taints: o.Taints},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity,
			Conditions: []corev1.NodeCondition{
				ready,
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
			},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: address},
				{Type: corev1.NodeHostName, Address: o.Name},
				// Where the API server looks for a kubelet first. There is none.
				{Type: corev1.NodeInternalDNS, Address: "localhost"},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 1}},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID:               strings.ReplaceAll(string(uuid.NewUUID()), "-", ""),
				SystemUUID:              string(uuid.NewUUID()),
				BootID:                  string(uuid.NewUUID()),
				KernelVersion:           "6.12.0",
				OSImage:                 cmp.Or(o.OSImage, "Simulated"),
				ContainerRuntimeVersion: "containerd://2.1.0",
				KubeletVersion:          "v1.37.2",
				OperatingSystem:         "linux",
				Architecture:            "amd64",
			},
		},
	}
}

// simulatedNodes are those that AddNodes has added.
func (c *Cluster) simulatedNodes(ctx context.Context) ([]corev1.Node, error) {
	// From the API server's cache: a thousand nodes are listed often.
	list, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	var nodes []corev1.Node
	for _, node := range list.Items {
		if strings.HasPrefix(node.Name, SimulatedNode) {
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}

// waitForSimulatedNodes returns when that many are ready, which includes that the node controller has taken notice.
func (c *Cluster) waitForSimulatedNodes(ctx context.Context, want int) error {
	interval := max(100*time.Millisecond, time.Duration(want)*time.Millisecond/2)
	ready := 0
	err := poll(ctx, interval, func() (bool, error) {
		nodes, err := c.simulatedNodes(ctx)
		if err != nil {
			return false, err
		}
		ready = 0
		for i := range nodes {
			if nodeReady(&nodes[i]) {
				ready++
			}
		}
		return ready >= want, nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d simulated nodes are ready, %w", ready, want, err)
	}
	return nil
}

// nodeReady reports whether pods can be scheduled to a node as far as its state, and not a person's wish, is concerned.
func nodeReady(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable {
			return false
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
