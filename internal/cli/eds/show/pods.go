// SPDX-License-Identifier: Apache-2.0

package show

import (
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

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/eds/object"
	"moult.dev/moult/internal/cli/feed"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
	"moult.dev/moult/internal/view"
)

// Values of --select.
const (
	selectCanary   = "canary"
	selectNotReady = "not-ready"
)

var podColumns = columns{
	kind:  target.Pod,
	cells: []string{"Pod", "Ready", "Phase", "Reason", "Not ready containers", "Restarts", "Node", "Node Ready"},
	wide:  []string{"IP", "Revision", "Waits for"},
}

func newPods(c *command) *cobra.Command {
	var which string
	cmd := c.completeOne(&cobra.Command{
		Use:   "pods [ExtendedDaemonSet name]",
		Short: "Show pods of an ExtendedDaemonSet: those of its canary, or those that are not ready",
		Long: `Show pods of an ExtendedDaemonSet with their nodes: those of its canary (--select canary), or those that are not ready
(--select not-ready). -o wide shows their revision and what their containers wait for, too.`,
		Example: `  kubectl eds pods agent --select not-ready
  kubectl eds pods agent --select canary --watch`,
	}, func(ctx context.Context, client *object.Client, eds *edsv1.ExtendedDaemonSet) error {
		switch which {
		case "":
			return errors.New("missing --select flag")
		case selectCanary, selectNotReady:
			return c.pods(ctx, client, eds, which)
		}
		return fmt.Errorf("invalid select flag value '%s': the supported select values are: 'canary' 'not-ready'", which)
	})
	c.addWatch(cmd)
	cmd.Flags().StringVar(&which, "select", "", "Which pods to show: canary or not-ready.")
	values := []cobra.Completion{selectCanary, selectNotReady}
	if err := cmd.RegisterFlagCompletionFunc("select", cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // There is no such flag.
	}
	return cmd
}

func newCanaryPods(c *command) *cobra.Command {
	cmd := c.completeOne(&cobra.Command{
		Use:     "pods [ExtendedDaemonSet name]",
		Short:   "Show the pods of the canary",
		Long:    `Show the pods of the canary with their nodes. It is the same as kubectl eds pods NAME --select canary.`,
		Example: `  kubectl eds canary pods agent --watch`,
	}, func(ctx context.Context, client *object.Client, eds *edsv1.ExtendedDaemonSet) error {
		return c.pods(ctx, client, eds, selectCanary)
	})
	c.addWatch(cmd)
	return cmd
}

// noNodes is said to those who may not see nodes.
const noNodes = "Nodes can't be listed: whether those of the pods are ready is not known."

func (c *command) pods(ctx context.Context, client *object.Client, eds *edsv1.ExtendedDaemonSet, which string) error {
	selector := labels.Set{edsv1.LabelName: eds.Name}
	if which == selectCanary {
		if eds.Status.Canary == nil {
			return errors.New("the ExtendedDaemonset is not currently running a canary replicaset")
		}
		selector = labels.Set{edsv1.LabelReplicaSetName: eds.Status.Canary.ReplicaSet}
	}
	p := newPrinter(c.Out, &c.output, podColumns)
	if c.watch {
		return c.followPods(ctx, client, p, selector.String(), which)
	}
	pods, err := source.List[corev1.Pod](ctx, client.Core.Pods(client.Namespace), metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return fmt.Errorf("listing pods, %w", err)
	}
	nodes, err := client.ReadNodes(ctx)
	if err != nil {
		return err
	}
	if nodes == nil {
		fmt.Fprintln(c.ErrOut, noNodes)
	}
	rows := slices.DeleteFunc(podRows(pods, nodes, which), func(r row) bool { return r.unlisted })
	return p.print(rows, false, c.clock.Now())
}

// followPods shows pods with each of their changes, and of their nodes'. The canary stays the one of the beginning.
func (c *command) followPods(ctx context.Context, client *object.Client, p *printer, selector, which string) error {
	f := feed.New(client.Client)
	pods, err := feed.Add[corev1.Pod](f, client.Core.Pods(client.Namespace), feed.Options{LabelSelector: selector})
	if err != nil {
		return err
	}
	nodes, err := feed.Add[corev1.Node](f, client.Core.Nodes(), feed.Options{Optional: true})
	if err != nil {
		return err
	}
	noted := false
	return c.follow(ctx, f, p, func() ([]row, error) {
		if nodes.Denied() != nil && !noted {
			fmt.Fprintln(c.ErrOut, noNodes)
			noted = true
		}
		return podRows(pods.All(), nodes.All(), which), nil
	})
}

// podRows are the lines of pods, on nodes as far as these are known.
func podRows(pods []corev1.Pod, nodes []corev1.Node, which string) []row {
	ready := map[string]bool{}
	for i := range nodes {
		ready[nodes[i].Name] = slices.ContainsFunc(nodes[i].Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
	}
	rows := []row{}
	for i := range pods {
		p := &pods[i]
		notReady, reason := podNotReady(p)
		total, waiting, restarts := containerCounts(p)
		node := view.NodeOf(p)
		nodeReady := "Unknown"
		if is, known := ready[node]; known {
			nodeReady = strconv.FormatBool(is)
		}
		content := *p
		content.APIVersion, content.Kind = corev1.SchemeGroupVersion.String(), target.Pod.Name
		rows = append(rows, row{
			namespace: p.Namespace, name: p.Name, created: p.CreationTimestamp.Time, content: &content,
			cells: []string{
				p.Name, fmt.Sprintf("%d/%d", total-len(waiting), total), string(p.Status.Phase), reason, strings.Join(waiting, ", "),
				count(restarts), node, nodeReady,
			},
			wide:     []string{p.Status.PodIP, p.Labels[edsv1.LabelReplicaSetName], waitReasons(p)},
			unlisted: which == selectNotReady && !notReady,
		})
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

// containerCounts counts a pod's containers and their restarts, and names those that are not ready.
func containerCounts(p *corev1.Pod) (total int, notReady []string, restarts int32) {
	for _, c := range p.Status.ContainerStatuses {
		restarts += c.RestartCount
		if !c.Ready {
			notReady = append(notReady, c.Name)
		}
	}
	return len(p.Status.ContainerStatuses), notReady, restarts
}

// waitReasons says what the containers of a pod wait for, or why it is not scheduled.
func waitReasons(p *corev1.Pod) string {
	var all []string
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason != "" && !slices.Contains(all, w.Reason) {
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
