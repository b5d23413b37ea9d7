// SPDX-License-Identifier: Apache-2.0

package show

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/eds/object"
	"moult.dev/moult/internal/cli/target"
)

// changeCause is the annotation of kubectl in which people say why they changed something.
const changeCause = "kubernetes.io/change-cause"

func newHistory(c *command) *cobra.Command {
	return c.completeOne(&cobra.Command{
		Use:   "history [ExtendedDaemonSet name]",
		Short: "Show the revisions of an ExtendedDaemonSet, to which kubectl eds rollback can go back",
		Long: `Show the revisions of an ExtendedDaemonSet that are kept (spec.revisionHistoryLimit), the oldest first, with their images and
the annotation kubernetes.io/change-cause that the ExtendedDaemonSet had when they were made. IN SPEC is true for the one that
spec.template asks for.

The number of a revision is its place in this list: it becomes less when an older one is dropped. Its name stays.`,
		Example: `  kubectl eds history agent -n monitoring
  kubectl eds history agent -o yaml`,
	}, c.history)
}

func (c *command) history(ctx context.Context, client *object.Client, eds *edsv1.ExtendedDaemonSet) error {
	revisions, err := client.Revisions(ctx, eds)
	if err != nil {
		return err
	}
	if len(revisions) == 0 {
		fmt.Fprintf(c.ErrOut, "ExtendedDaemonSet %s/%s has no revisions yet.\n", eds.Namespace, eds.Name)
	}
	p := newPrinter(c.Out, &c.output, columns{
		kind:  target.ReplicaSet,
		cells: []string{"Revision", "Name", "Status", "Reason", "In spec", "Current", "Ready", "Images", "Change cause"},
		wide:  []string{"Template hash", "Containers", "Node selector"},
	})
	return p.print(historyRows(eds, revisions), false, c.clock.Now())
}

// historyRows are the lines of the revisions of an ExtendedDaemonSet.
func historyRows(eds *edsv1.ExtendedDaemonSet, revisions []edsv1.ExtendedDaemonSetReplicaSet) []row {
	inSpec := object.InSpec(eds, revisions)
	rows := []row{}
	for i := range revisions {
		r := &revisions[i]
		r.APIVersion, r.Kind = edsv1.GroupVersion.String(), target.ReplicaSet.Name
		status, reason := string(r.Status.Status), ""
		if failed := object.CanaryFailed(r); failed != nil {
			status, reason = string(edsv1.ReplicaSetCanaryFailed), failed.Reason
		} else if paused := edsv1.FindCondition(r.Status.Conditions, edsv1.ConditionCanaryPaused); paused != nil && paused.Status == metav1.ConditionTrue {
			reason = paused.Reason
		}
		containers, images := containersOf(&r.Spec.Template)
		rows = append(rows, row{
			namespace: r.Namespace, name: r.Name, created: r.CreationTimestamp.Time, content: r,
			cells: []string{
				strconv.Itoa(i + 1), r.Name, status, reason, strconv.FormatBool(i == inSpec), count(r.Status.Current), count(r.Status.Ready),
				images, r.Annotations[changeCause],
			},
			wide: []string{r.Annotations[edsv1.AnnotationTemplateHash], containers, metav1.FormatLabelSelector(r.Spec.Selector)},
		})
	}
	return rows
}
