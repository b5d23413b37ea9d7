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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
)

func (c *command) newGet() *cobra.Command {
	return c.newGetOf(&cobra.Command{
		Use:   "get [ExtendedDaemonSet name]",
		Short: "Show ExtendedDaemonSets: their pods, their revisions and their state",
		Long: `Show ExtendedDaemonSets: their pods, their state and its reason, and their active and canary ExtendedDaemonSetReplicaSets.
-o wide also shows the canary's nodes, the containers, their images and the selector of nodes.`,
		Example: `  kubectl eds get
  kubectl eds get agent -n monitoring --watch
  kubectl eds get -A -o wide`,
	}, source.DaemonSet, columns{
		cells: []string{
			"Namespace", "Name", "Desired", "Current", "Ready", "Up-to-date", "Available", "Ignored unresponsive nodes", "Status", "Reason", "Active RS", "Canary RS",
		},
		wide: []string{"Canary nodes", "Containers", "Images", "Node selector"},
	}, daemonSetRow)
}

func (c *command) newGetERS() *cobra.Command {
	return c.newGetOf(&cobra.Command{
		Use:   "get-ers [ExtendedDaemonSetReplicaSet name]",
		Short: "Show ExtendedDaemonSetReplicaSets, each of which is a revision of an ExtendedDaemonSet",
		Long: `Show ExtendedDaemonSetReplicaSets. kubectl eds history NAME shows those of one ExtendedDaemonSet, the oldest first.
-o wide also shows the hash of the template, the containers, their images and the selector of nodes.`,
		Example: `  kubectl eds get-ers
  kubectl eds get-ers agent-7xk2p -n monitoring -o yaml`,
	}, source.ReplicaSet, columns{
		cells: []string{"Namespace", "Name", "Desired", "Current", "Ready", "Available", "Ignored unresponsive nodes", "Status"},
		wide:  []string{"Template hash", "Containers", "Images", "Node selector"},
	}, revisionRow)
}

// newGetOf returns the verb that shows objects of one kind.
func (c *command) newGetOf(cmd *cobra.Command, kind *source.Kind, of columns, rowOf func(*unstructured.Unstructured) row) *cobra.Command {
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return errors.New("either one or no arguments are allowed")
		}
		return nil
	}
	s := &listing{command: c, columns: of}
	s.addFlags(cmd, true)
	source.AddAllNamespaces(cmd)
	return source.Verb(c.cluster, cmd, []*source.Kind{kind}, func(ctx context.Context, src *source.Source, named source.Target) error {
		found := false
		s.single = named.Name != "" && src.Namespace != ""
		return s.show(ctx, src, func() ([]row, error) {
			items, err := source.Read[unstructured.Unstructured](ctx, src, kind, source.Named(named.Name))
			switch {
			case err != nil:
				return nil, source.Explain(kind, err)
			case len(items) == 0 && found && named.Name != "":
				return nil, fmt.Errorf("%s %s has been deleted", kind.Name, named.Name)
			case len(items) == 0 && named.Name != "":
				return nil, src.NotFound(ctx, named.Name, kind)
			case len(items) == 0 && !s.watch:
				fmt.Fprintln(c.ErrOut, src.Nothing(kind.Name+"s"))
			}
			found = true
			rows := make([]row, len(items))
			for i := range items {
				rows[i] = rowOf(&items[i])
			}
			return rows, nil
		})
	})
}

// changeCause is kubectl's annotation for the reason of a change.
const changeCause = "kubernetes.io/change-cause"

func (c *command) newHistory() *cobra.Command {
	s := &listing{command: c, columns: columns{
		cells: []string{"Revision", "Name", "Status", "Reason", "In spec", "Current", "Ready", "Images", "Change cause"},
		wide:  []string{"Template hash", "Containers", "Node selector"},
	}}
	return s.one(&cobra.Command{
		Use:   "history [ExtendedDaemonSet name]",
		Short: "Show the revisions of an ExtendedDaemonSet, for kubectl eds rollback",
		Long: `Show the revisions of an ExtendedDaemonSet that are kept, the oldest first. IN SPEC is true for the revision with the template
of the spec. The number of a revision becomes smaller when an older revision is deleted. Its name stays.`,
		Example: `  kubectl eds history agent -n monitoring
  kubectl eds history agent -o yaml`,
	}, false, func(ctx context.Context, src *source.Source, eds *edsv1.ExtendedDaemonSet) error {
		return s.show(ctx, src, func() ([]row, error) {
			revisions, err := readRevisions(ctx, src, eds)
			if err == nil && len(revisions) == 0 {
				fmt.Fprintf(c.ErrOut, "ExtendedDaemonSet %s/%s has no revisions yet.\n", eds.Namespace, eds.Name)
			}
			return historyRows(eds, revisions), err
		})
	})
}

// historyRows returns the rows of the revisions of an ExtendedDaemonSet.
func historyRows(eds *edsv1.ExtendedDaemonSet, revisions []edsv1.ExtendedDaemonSetReplicaSet) []row {
	inSpec := revisionInSpec(eds, revisions)
	rows := make([]row, len(revisions))
	for i := range revisions {
		r := &revisions[i]
		r.APIVersion, r.Kind = edsv1.GroupVersion.String(), source.ReplicaSet.Name
		status, reason := string(r.Status.Status), ""
		if failed := canaryFailure(r); failed != nil {
			status, reason = string(edsv1.ReplicaSetCanaryFailed), failed.Reason
		} else if paused := edsv1.TrueCondition(r.Status.Conditions, edsv1.ConditionCanaryPaused); paused != nil {
			reason = paused.Reason
		}
		containers, images := containersOf(&r.Spec.Template)
		rows[i] = row{
			object: r,
			cells: []string{
				strconv.Itoa(i + 1), r.Name, status, reason, strconv.FormatBool(r == inSpec), count(r.Status.Current), count(r.Status.Ready),
				images, r.Annotations[changeCause],
			},
			wide: []string{r.Spec.TemplateGeneration, containers, metav1.FormatLabelSelector(r.Spec.Selector)},
		}
	}
	return rows
}

// daemonSetRow returns the row of an ExtendedDaemonSet.
func daemonSetRow(u *unstructured.Unstructured) row {
	eds := source.As[edsv1.ExtendedDaemonSet](u)
	s, canary, nodes := &eds.Status, "-", ""
	if s.Canary != nil {
		canary, nodes = s.Canary.ReplicaSet, text.Some(3, slices.Sorted(slices.Values(s.Canary.Nodes)), ",")
	}
	// When the canary's nodes have the active revision again, the state is another one. The failure still shows as the reason.
	reason := string(s.Reason)
	if edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionCanaryFailed) {
		reason = cmp.Or(reason, edsv1.ReasonCanaryFailed)
	}
	containers, images := containersOf(&eds.Spec.Template)
	return row{
		object: u,
		cells: []string{
			eds.Namespace, eds.Name, count(s.Desired), count(s.Current), count(s.Ready), count(s.UpToDate), count(s.Available),
			count(s.IgnoredUnresponsiveNodes), string(s.State), reason, s.ActiveReplicaSet, canary,
		},
		wide: []string{nodes, containers, images, metav1.FormatLabelSelector(eds.Spec.Selector)},
	}
}

// revisionRow returns the row of an ExtendedDaemonSetReplicaSet.
func revisionRow(u *unstructured.Unstructured) row {
	ers := source.As[edsv1.ExtendedDaemonSetReplicaSet](u)
	s := &ers.Status
	containers, images := containersOf(&ers.Spec.Template)
	return row{
		object: u,
		cells: []string{
			ers.Namespace, ers.Name, count(s.Desired), count(s.Current), count(s.Ready), count(s.Available), count(s.IgnoredUnresponsiveNodes), string(s.Status),
		},
		wide: []string{ers.Spec.TemplateGeneration, containers, images, metav1.FormatLabelSelector(ers.Spec.Selector)},
	}
}

func count(n int32) string { return strconv.Itoa(int(n)) }

// containersOf returns the names of a template's containers, and their images.
func containersOf(t *corev1.PodTemplateSpec) (names, images string) {
	var n, i []string
	for _, c := range t.Spec.Containers {
		n, i = append(n, c.Name), append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}
