// SPDX-License-Identifier: Apache-2.0

package show

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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/eds/object"
	"moult.dev/moult/internal/cli/feed"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
)

func newGet(c *command) *cobra.Command {
	return c.completeGet(&cobra.Command{
		Use:   "get [ExtendedDaemonSet name]",
		Short: "Show ExtendedDaemonSets: how many pods they have, of which revision, and what they do",
		Long: `Show ExtendedDaemonSets: how many pods they have, how many of these are ready, up to date and available, what the
ExtendedDaemonSet is doing (Running, Canary, Canary Paused, Canary Failed, RollingUpdate Paused, Rollout frozen) and why,
and the names of the active and of the canary's ExtendedDaemonSetReplicaSet.

-o wide shows the canary's nodes, the containers, their images and the selector of nodes, too.`,
		Example: `  kubectl eds get
  kubectl eds get agent -n monitoring --watch
  kubectl eds get -A -o wide`,
	}, columns{
		kind: target.DaemonSet,
		cells: []string{
			"Namespace", "Name", "Desired", "Current", "Ready", "Up-to-date", "Available", "Ignored unresponsive nodes", "Status", "Reason", "Active RS", "Canary RS",
		},
		wide: []string{"Canary nodes", "Containers", "Images", "Node selector"},
	}, daemonSetRow)
}

func newGetERS(c *command) *cobra.Command {
	return c.completeGet(&cobra.Command{
		Use:   "get-ers [ExtendedDaemonSetReplicaSet name]",
		Short: "Show ExtendedDaemonSetReplicaSets, each of which is a revision of an ExtendedDaemonSet",
		Long: `Show ExtendedDaemonSetReplicaSets: how many pods of the revision there are, and whether it is the active one, the canary's,
or none of both (unknown). kubectl eds history NAME shows those of one ExtendedDaemonSet in their order.

-o wide shows the hash of the template, the containers, their images and the selector of nodes, too.`,
		Example: `  kubectl eds get-ers
  kubectl eds get-ers agent-7xk2p -n monitoring -o yaml`,
	}, columns{
		kind:  target.ReplicaSet,
		cells: []string{"Namespace", "Name", "Desired", "Current", "Ready", "Available", "Ignored unresponsive nodes", "Status"},
		wide:  []string{"Template hash", "Containers", "Images", "Node selector"},
	}, revisionRow)
}

// completeGet gives the cobra command what both kinds share.
func (c *command) completeGet(cmd *cobra.Command, of columns, rowOf func(*unstructured.Unstructured) row) *cobra.Command {
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return errors.New("either one or no arguments are allowed")
		}
		return nil
	}
	c.addWatch(cmd)
	cmd.Flags().BoolVarP(&c.allNamespaces, "all-namespaces", "A", false, "Show those of all namespaces.")
	c.addOutput(cmd)
	cmd.SilenceUsage = true
	cmd.ValidArgsFunction = source.Complete(c.config, &c.allNamespaces, of.kind)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.get(cmd.Context(), args, of, rowOf) }
	return cmd
}

func (c *command) get(ctx context.Context, args []string, of columns, rowOf func(*unstructured.Unstructured) row) error {
	client, err := object.Connect(c.config)
	if err != nil {
		return err
	}
	if c.allNamespaces {
		client.Namespace = ""
	}
	name := ""
	if len(args) > 0 {
		if name, err = object.Name(of.kind, args[0]); err != nil {
			return err
		}
	}
	p := newPrinter(c.Out, &c.output, of)
	if c.watch {
		return c.followObjects(ctx, client, p, name, rowOf)
	}
	items, err := source.List[unstructured.Unstructured](ctx, client.Of(of.kind), source.Named(name))
	switch {
	case err != nil:
		return source.Explain(of.kind, err)
	case len(items) == 0 && name != "":
		return client.NotFound(ctx, of.kind, name)
	case len(items) == 0:
		fmt.Fprintln(c.ErrOut, client.Nothing(ctx, of.kind.Name+"s", of.kind))
	}
	rows := make([]row, len(items))
	for i := range items {
		rows[i] = rowOf(&items[i])
	}
	return p.print(rows, name != "" && client.Namespace != "", c.clock.Now())
}

// followObjects shows objects of one kind with each of their changes.
func (c *command) followObjects(
	ctx context.Context, client *object.Client, p *printer, name string, rowOf func(*unstructured.Unstructured) row,
) error {
	f, k := feed.New(client.Client), p.columns.kind
	objects, err := feed.Add[unstructured.Unstructured](f, client.Of(k), feed.Options{
		FieldSelector: source.Named(name).FieldSelector, Explain: func(err error) error { return source.Explain(k, err) },
	})
	if err != nil {
		return err
	}
	known := name == ""
	return c.follow(ctx, f, p, func() ([]row, error) {
		var rows []row
		for _, o := range objects.All() {
			rows = append(rows, rowOf(&o))
		}
		switch {
		case len(rows) > 0:
			known = true
		case !known:
			return nil, client.NotFound(ctx, k, name)
		case name != "":
			return nil, fmt.Errorf("%s %s has been deleted", k.Name, name)
		}
		return rows, nil
	})
}

// daemonSetRow is the line of an ExtendedDaemonSet.
func daemonSetRow(u *unstructured.Unstructured) row {
	eds := source.As[edsv1.ExtendedDaemonSet](u)
	s, canary, nodes := &eds.Status, "-", ""
	if s.Canary != nil {
		canary, nodes = s.Canary.ReplicaSet, firstNames(s.Canary.Nodes)
	}
	// A failed canary stays to be seen when its nodes have gone back, and the state is another.
	reason := string(s.Reason)
	if edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionCanaryFailed) {
		reason = cmp.Or(reason, edsv1.ReasonCanaryFailed)
	}
	r := newRow(u)
	r.cells = []string{
		eds.Namespace, eds.Name, count(s.Desired), count(s.Current), count(s.Ready), count(s.UpToDate), count(s.Available),
		count(s.IgnoredUnresponsiveNodes), string(s.State), reason, s.ActiveReplicaSet, canary,
	}
	containers, images := containersOf(&eds.Spec.Template)
	r.wide = []string{nodes, containers, images, metav1.FormatLabelSelector(eds.Spec.Selector)}
	return r
}

// revisionRow is the line of an ExtendedDaemonSetReplicaSet.
func revisionRow(u *unstructured.Unstructured) row {
	ers := source.As[edsv1.ExtendedDaemonSetReplicaSet](u)
	s, r := &ers.Status, newRow(u)
	r.cells = []string{
		ers.Namespace, ers.Name, count(s.Desired), count(s.Current), count(s.Ready), count(s.Available), count(s.IgnoredUnresponsiveNodes), string(s.Status),
	}
	containers, images := containersOf(&ers.Spec.Template)
	hash := cmp.Or(ers.Annotations[edsv1.AnnotationTemplateHash], ers.Spec.TemplateGeneration)
	r.wide = []string{hash, containers, images, metav1.FormatLabelSelector(ers.Spec.Selector)}
	return r
}

func newRow(u *unstructured.Unstructured) row {
	return row{namespace: u.GetNamespace(), name: u.GetName(), created: u.GetCreationTimestamp().Time, content: u.Object}
}

func count(n int32) string { return strconv.Itoa(int(n)) }

// containersOf are the names of a template's containers, and their images.
func containersOf(t *corev1.PodTemplateSpec) (names, images string) {
	var n, i []string
	for _, c := range t.Spec.Containers {
		n, i = append(n, c.Name), append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}

// firstNames are the first of the names, and how many more there are.
func firstNames(names []string) string {
	const few = 3
	names = slices.Sorted(slices.Values(names))
	if more := len(names) - few; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ","), more)
	}
	return strings.Join(names, ",")
}
