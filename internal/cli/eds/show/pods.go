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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/eds/feed"
	"moult.dev/moult/internal/cli/eds/object"
	"moult.dev/moult/internal/cli/target"
	"moult.dev/moult/internal/view"
)

// Values of --select.
const (
	selectCanary   = "canary"
	selectNotReady = "not-ready"
)

// pod is the kind of what pods shows.
var pod = &target.Kind{Name: "Pod", Article: "a", Singular: "pod", Resource: corev1.SchemeGroupVersion.WithResource("pods"), Namespaced: true}

var podColumns = columns{
	kind:  pod,
	cells: []string{"Pod", "Ready", "Phase", "Reason", "Not ready containers", "Restarts", "Node", "Node Ready"},
	wide:  []string{"IP", "Revision", "Waits for"},
}

func newPods(c *command) *cobra.Command {
	var which string
	cmd := &cobra.Command{
		Use:   "pods [ExtendedDaemonSet name]",
		Short: "Show pods of an ExtendedDaemonSet: those of its canary, or those that are not ready",
		Long: `Show pods of an ExtendedDaemonSet with their nodes: those of its canary (--select canary), or those that are not ready
(--select not-ready). -o wide shows their revision and what their containers wait for, too.`,
		Example: `  kubectl eds pods agent --select not-ready
  kubectl eds pods agent --select canary --watch`,
		Args: object.OneName,
	}
	c.mount(cmd, target.DaemonSet)
	c.addWatch(cmd)
	cmd.Flags().StringVar(&which, "select", "", "Which pods to show: canary or not-ready.")
	values := []cobra.Completion{selectCanary, selectNotReady}
	if err := cmd.RegisterFlagCompletionFunc("select", cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // There is no such flag.
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch which {
		case "":
			return errors.New("missing --select flag")
		case selectCanary, selectNotReady:
			return c.pods(cmd.Context(), args, which)
		}
		return fmt.Errorf("invalid select flag value '%s': the supported select values are: 'canary' 'not-ready'", which)
	}
	return cmd
}

func newCanaryPods(c *command) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "pods [ExtendedDaemonSet name]",
		Short:   "Show the pods of the canary",
		Long:    `Show the pods of the canary with their nodes. It is the same as kubectl eds pods NAME --select canary.`,
		Example: `  kubectl eds canary pods agent --watch`,
		Args:    object.OneName,
	}
	c.mount(cmd, target.DaemonSet)
	c.addWatch(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.pods(cmd.Context(), args, selectCanary) }
	return cmd
}

func (c *command) pods(ctx context.Context, args []string, which string) error {
	client, name, err := c.connect(args)
	if err != nil {
		return err
	}
	eds, err := client.Get(ctx, name)
	if err != nil {
		return err
	}
	selector := object.OfSet(eds.Name)
	if which == selectCanary {
		if eds.Status.Canary == nil {
			return errors.New("the ExtendedDaemonset is not currently running a canary replicaset")
		}
		selector = object.OfRevision(eds.Status.Canary.ReplicaSet)
	}
	p := newPrinter(c.Out, &c.output, podColumns)
	if c.watch {
		return c.followPods(ctx, client, p, selector, which)
	}
	pods, err := listPods(ctx, client, selector)
	if err != nil {
		return err
	}
	nodes, err := client.ReadNodes(ctx)
	if err != nil {
		return err
	}
	if nodes == nil {
		fmt.Fprintln(c.ErrOut, noNodes)
	}
	ready := map[string]bool{}
	for i := range nodes {
		ready[nodes[i].Name] = nodeReady(&nodes[i])
	}
	rows := slices.DeleteFunc(podRows(pods, ready, which), func(r row) bool { return r.unlisted })
	return p.print(rows, false, c.clock.Now())
}

// noNodes is said to those who may not see nodes.
const noNodes = "Nodes can't be listed: whether those of the pods are ready is not known."

func listPods(ctx context.Context, client *object.Client, selector string) ([]*corev1.Pod, error) {
	const page = 500
	var pods []*corev1.Pod
	for next := ""; ; {
		list, err := client.Core.Pods(client.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: page, Continue: next})
		if err != nil {
			return nil, fmt.Errorf("listing pods, %w", err)
		}
		for i := range list.Items {
			list.Items[i].ManagedFields = nil
			pods = append(pods, &list.Items[i])
		}
		if next = list.Continue; next == "" {
			return pods, nil
		}
	}
}

// followPods shows pods with each of their changes, and of their nodes'. The canary is the one that there was to begin with.
func (c *command) followPods(ctx context.Context, client *object.Client, p *printer, selector, which string) error {
	f := feed.New(client.Client)
	pods, err := f.Add(&corev1.Pod{}, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return client.Core.Pods(client.Namespace).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return client.Core.Pods(client.Namespace).Watch(ctx, o)
		},
	}, false)
	if err != nil {
		return err
	}
	nodes, err := f.Add(&corev1.Node{}, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.Core.Nodes().List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Core.Nodes().Watch(ctx, o)
		},
	}, true)
	if err != nil {
		return err
	}
	told := false
	return c.follow(ctx, f, p, func() ([]row, error) {
		if nodes.Denied() && !told {
			fmt.Fprintln(c.ErrOut, noNodes)
			told = true
		}
		ready := map[string]bool{}
		for _, o := range nodes.All() {
			n := o.(*corev1.Node)
			ready[n.Name] = nodeReady(n)
		}
		var all []*corev1.Pod
		for _, o := range pods.All() {
			all = append(all, o.(*corev1.Pod))
		}
		return podRows(all, ready, which), nil
	})
}

// podRows are the lines of pods on nodes that are ready, or are not, or of which that is not known.
func podRows(pods []*corev1.Pod, ready map[string]bool, which string) []row {
	rows := []row{}
	for _, p := range pods {
		notReady, reason := podNotReady(p)
		total, waiting, restarts := containers(p)
		node := view.NodeOf(p)
		nodeReady := "Unknown"
		if is, known := ready[node]; known {
			nodeReady = strconv.FormatBool(is)
		}
		content := *p
		content.APIVersion, content.Kind = corev1.SchemeGroupVersion.String(), pod.Name
		rows = append(rows, row{
			namespace: p.Namespace, name: p.Name, created: p.CreationTimestamp.Time, content: &content,
			cells: []string{
				p.Name, fmt.Sprintf("%d/%d", total-len(waiting), total), string(p.Status.Phase), reason, strings.Join(waiting, ", "),
				count(restarts), node, nodeReady,
			},
			wide:     []string{p.Status.PodIP, p.Labels[edsv1.LabelReplicaSetName], waitsFor(p)},
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

// containers counts a pod's containers and their restarts, and names those that are not ready.
func containers(p *corev1.Pod) (total int, notReady []string, restarts int32) {
	for _, c := range p.Status.ContainerStatuses {
		restarts += c.RestartCount
		if !c.Ready {
			notReady = append(notReady, c.Name)
		}
	}
	return len(p.Status.ContainerStatuses), notReady, restarts
}

// waitsFor says what the containers of a pod wait for, or why it is not scheduled.
func waitsFor(p *corev1.Pod) string {
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

func nodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
