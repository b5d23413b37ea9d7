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
	"moult.dev/moult/internal/cli/target"
)

// few is how many names a cell holds.
const few = 3

func newGet(c *command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get [ExtendedDaemonSet name]",
		Short: "Show ExtendedDaemonSets: how many pods they have, of which revision, and what they do",
		Long: `Show ExtendedDaemonSets: how many pods they have, how many of these are ready, up to date and available, what the
ExtendedDaemonSet is doing (Running, Canary, Canary Paused, Canary Failed, RollingUpdate Paused, Rollout frozen) and why,
and the names of the active and of the canary's ExtendedDaemonSetReplicaSet.

-o wide shows the canary's nodes, the containers, their images and the selector of nodes, too.`,
		Example: `  kubectl eds get
  kubectl eds get agent -n monitoring --watch
  kubectl eds get -A -o wide`,
	}
	return c.mountGet(cmd, columns{
		kind: target.DaemonSet,
		cells: []string{
			"Namespace", "Name", "Desired", "Current", "Ready", "Up-to-date", "Available", "Ignored unresponsive nodes", "Status", "Reason", "Active RS", "Canary RS",
		},
		wide: []string{"Canary nodes", "Containers", "Images", "Node selector"},
	}, setRow)
}

func newGetERS(c *command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get-ers [ExtendedDaemonSetReplicaSet name]",
		Short: "Show ExtendedDaemonSetReplicaSets, each of which is a revision of an ExtendedDaemonSet",
		Long: `Show ExtendedDaemonSetReplicaSets: how many pods of the revision there are, and whether it is the active one, the canary's,
or none of both (unknown). kubectl eds history NAME shows those of one ExtendedDaemonSet in their order.

-o wide shows the hash of the template, the containers, their images and the selector of nodes, too.`,
		Example: `  kubectl eds get-ers
  kubectl eds get-ers agent-7xk2p -n monitoring -o yaml`,
	}
	return c.mountGet(cmd, columns{
		kind:  object.ReplicaSet,
		cells: []string{"Namespace", "Name", "Desired", "Current", "Ready", "Available", "Ignored unresponsive nodes", "Status"},
		wide:  []string{"Template hash", "Containers", "Images", "Node selector"},
	}, revisionRow)
}

// mountGet gives the cobra command what both kinds share.
func (c *command) mountGet(cmd *cobra.Command, of columns, show func(*unstructured.Unstructured) row) *cobra.Command {
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return errors.New("either one or no arguments are allowed")
		}
		return nil
	}
	c.mount(cmd, of.kind)
	c.addWatch(cmd)
	cmd.Flags().BoolVarP(&c.allNamespaces, "all-namespaces", "A", false, "Show those of all namespaces.")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.get(cmd.Context(), args, of, show) }
	return cmd
}

func (c *command) get(ctx context.Context, args []string, of columns, show func(*unstructured.Unstructured) row) error {
	client, err := object.Connect(c.config)
	if err != nil {
		return err
	}
	if c.allNamespaces {
		client.Namespace = ""
	}
	name, which := "", metav1.ListOptions{}
	if len(args) > 0 {
		if name, err = object.Name(of.kind, args[0]); err != nil {
			return err
		}
		which = object.Named(name)
	}
	p := newPrinter(c.Out, &c.output, of)
	if c.watch {
		return c.followObjects(ctx, client, p, name, which, show)
	}
	single := name != "" && client.Namespace != ""
	var items []unstructured.Unstructured
	if single {
		u, err := client.Object(ctx, of.kind, name)
		if err != nil {
			return err
		}
		items = append(items, *u)
	} else if items, err = client.List(ctx, of.kind, which); err != nil {
		return err
	}
	switch {
	case len(items) == 0 && name != "":
		return client.NotFound(ctx, of.kind, name)
	case len(items) == 0:
		fmt.Fprintln(c.ErrOut, nothing(ctx, client, of.kind))
	}
	rows := []row{}
	for i := range items {
		items[i].SetManagedFields(nil)
		rows = append(rows, show(&items[i]))
	}
	return p.print(rows, single, c.clock.Now())
}

// nothing says that there is nothing to show, and where to look.
func nothing(ctx context.Context, client *object.Client, k *target.Kind) string {
	if client.Namespace == "" {
		return "No " + k.Name + "s in any namespace."
	}
	text := "No " + k.Name + "s in namespace " + client.Namespace + "."
	if others := client.Elsewhere(ctx, k, metav1.ListOptions{}); len(others) > 0 {
		text += " There are some in " + strings.Join(others, ", ") + ": use -n, or -A for all."
	}
	return text
}

// setRow is the line of an ExtendedDaemonSet. Of one whose spec does not fit the type, its status is what there is to show.
func setRow(u *unstructured.Unstructured) row {
	var spec edsv1.ExtendedDaemonSetSpec
	var s edsv1.ExtendedDaemonSetStatus
	object.Part(u, "spec", &spec)
	object.Part(u, "status", &s)
	canary, nodes := "-", ""
	if s.Canary != nil {
		canary, nodes = s.Canary.ReplicaSet, some(s.Canary.Nodes)
	}
	r := newRow(u)
	r.cells = []string{
		u.GetNamespace(), u.GetName(), count(s.Desired), count(s.Current), count(s.Ready), count(s.UpToDate), count(s.Available),
		count(s.IgnoredUnresponsiveNodes), string(s.State), reasonOf(&s), s.ActiveReplicaSet, canary,
	}
	containers, images := of(&spec.Template)
	r.wide = []string{nodes, containers, images, metav1.FormatLabelSelector(spec.Selector)}
	return r
}

// reasonOf is the status's reason, or that a canary has failed: that stays to be seen when its nodes have gone back, and the
// state is another.
func reasonOf(s *edsv1.ExtendedDaemonSetStatus) string {
	if edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionCanaryFailed) {
		return cmp.Or(string(s.Reason), edsv1.ReasonCanaryFailed)
	}
	return string(s.Reason)
}

// revisionRow is the line of an ExtendedDaemonSetReplicaSet.
func revisionRow(u *unstructured.Unstructured) row {
	var spec edsv1.ExtendedDaemonSetReplicaSetSpec
	var s edsv1.ExtendedDaemonSetReplicaSetStatus
	object.Part(u, "spec", &spec)
	object.Part(u, "status", &s)
	r := newRow(u)
	r.cells = []string{
		u.GetNamespace(), u.GetName(), count(s.Desired), count(s.Current), count(s.Ready), count(s.Available),
		count(s.IgnoredUnresponsiveNodes), string(s.Status),
	}
	containers, images := of(&spec.Template)
	hash := cmp.Or(u.GetAnnotations()[edsv1.AnnotationTemplateHash], spec.TemplateGeneration)
	r.wide = []string{hash, containers, images, metav1.FormatLabelSelector(spec.Selector)}
	return r
}

func newRow(u *unstructured.Unstructured) row {
	return row{namespace: u.GetNamespace(), name: u.GetName(), created: u.GetCreationTimestamp().Time, content: u.Object}
}

func count(n int32) string { return strconv.FormatInt(int64(n), 10) }

// of are the names of a template's containers, and their images.
func of(t *corev1.PodTemplateSpec) (names, images string) {
	var n, i []string
	for _, c := range t.Spec.Containers {
		n, i = append(n, c.Name), append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}

// some are the first of the names, and how many more there are.
func some(names []string) string {
	names = slices.Sorted(slices.Values(names))
	text := strings.Join(names[:min(few, len(names))], ",")
	if more := len(names) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
