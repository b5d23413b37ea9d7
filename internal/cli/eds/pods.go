// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/view"
)

// Values of --select.
const (
	selectCanary   = "canary"
	selectNotReady = "not-ready"
)

var podColumns = columns{
	cells: []string{"Pod", "Ready", "Phase", "Reason", "Not ready containers", "Restarts", "Node", "Node Ready"},
	wide:  []string{"IP", "Revision", "Waits for"},
}

func (c *command) newPods() *cobra.Command {
	s := &listing{command: c, columns: podColumns}
	cmd := s.one(&cobra.Command{
		Use:   "pods [ExtendedDaemonSet name]",
		Short: "Show pods of an ExtendedDaemonSet: those of its canary, or those that are not ready",
		Long: `Show pods of an ExtendedDaemonSet with their nodes: those of its canary (--select canary), or those that are not ready
(--select not-ready). -o wide also shows their revision and what their containers wait for.`,
		Example: `  kubectl eds pods agent --select not-ready
  kubectl eds pods agent --select canary --watch`,
	}, true, s.pods)
	s.selected.Add(cmd, "select", "Which pods to show: canary or not-ready.", selectCanary, selectNotReady)
	return cmd
}

func (c *command) newCanaryPods() *cobra.Command {
	s := &listing{command: c, columns: podColumns, selected: flags.Choice{Value: selectCanary}}
	return s.one(&cobra.Command{
		Use:     "pods [ExtendedDaemonSet name]",
		Short:   "Show the pods of the canary",
		Long:    `Show the pods of the canary with their nodes. It is the same as kubectl eds pods NAME --select canary.`,
		Example: `  kubectl eds canary pods agent --watch`,
	}, true, s.pods)
}

// pods shows the selected pods. --watch stays with the canary that runs at the beginning.
func (s *listing) pods(ctx context.Context, src *source.Source, eds *edsv1.ExtendedDaemonSet) error {
	selector := labels.Set{edsv1.LabelName: eds.Name}
	switch {
	case s.selected.Value == "":
		return errors.New("missing --select flag")
	case s.selected.Value == selectCanary && eds.Status.Canary == nil:
		return errors.New("the ExtendedDaemonset is not currently running a canary replicaset")
	case s.selected.Value == selectCanary:
		selector = labels.Set{edsv1.LabelReplicaSetName: eds.Status.Canary.ReplicaSet}
	}
	noted := false
	return s.show(ctx, src, func() ([]row, error) {
		pods, errPods := src.ReadPods(ctx, src.Namespace, metav1.ListOptions{LabelSelector: selector.String()})
		nodes, errNodes := src.ReadNodes(ctx)
		if err := cmp.Or(errPods, errNodes); err != nil {
			return nil, err
		}
		if nodes == nil && !noted {
			noted = true
			fmt.Fprintln(s.ErrOut, "Nodes can't be listed: NODE READY is unknown.")
		}
		return podRows(pods, nodes, s.selected.Value), nil
	})
}

// podRows returns the rows of pods. nodes may be nil.
func podRows(pods []corev1.Pod, nodes []corev1.Node, which string) []row {
	ready := map[string]string{}
	for i := range nodes {
		ready[nodes[i].Name] = strconv.FormatBool(view.IsNodeReady(&nodes[i]))
	}
	rows := make([]row, len(pods))
	for i := range pods {
		p := &pods[i]
		notReady, reason := podNotReady(p)
		if notReady {
			reason = cmp.Or(reason, waitReasons(p, false))
		}
		var waiting []string
		var restarts int32
		for _, c := range p.Status.ContainerStatuses {
			restarts += c.RestartCount
			if !c.Ready {
				waiting = append(waiting, c.Name)
			}
		}
		total, node := len(p.Status.ContainerStatuses), view.NodeOf(p)
		p.APIVersion, p.Kind = corev1.SchemeGroupVersion.String(), source.Pod.Name
		rows[i] = row{
			object: p,
			cells: []string{
				p.Name, fmt.Sprintf("%d/%d", total-len(waiting), total), string(p.Status.Phase), reason, strings.Join(waiting, ", "),
				count(restarts), node, cmp.Or(ready[node], "Unknown"),
			},
			wide:     []string{p.Status.PodIP, p.Labels[edsv1.LabelReplicaSetName], waitReasons(p, true)},
			unlisted: which == selectNotReady && !notReady,
		}
	}
	return rows
}

// podNotReady reports whether a pod is not ready, and why.
func podNotReady(p *corev1.Pod) (bool, string) {
	if p.Status.Phase != corev1.PodRunning {
		return true, p.Status.Reason
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
			return true, c.Reason
		}
	}
	return false, ""
}

// waitReasons returns what the containers of a pod wait for, or why it is not scheduled. If detailed, it adds the kubelet's messages.
func waitReasons(p *corev1.Pod, detailed bool) string {
	var all []string
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		w := ptr.Deref(c.State.Waiting, corev1.ContainerStateWaiting{})
		if detailed && w.Message != "" {
			w.Reason += ": " + strings.Join(strings.Fields(w.Message), " ")
		}
		if w.Reason != "" && !slices.Contains(all, w.Reason) {
			all = append(all, w.Reason)
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason != "" {
			all = append(all, c.Reason)
		}
	}
	if p.DeletionTimestamp != nil {
		all = append(all, "Terminating")
	}
	return strings.Join(all, ",")
}
