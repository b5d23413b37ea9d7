// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

func newEvents(c command) *cobra.Command {
	var output flags.Output
	cmd := help("events ROLLOUT",
		`Show the Events of a rollout and of its nodes, the oldest first.
The API server keeps Events for an hour, unless it is set otherwise.`,
		`  kubectl moult events k3s-agent -n system-upgrade
  kubectl moult events nr/bottlerocket -o yaml`)
	output.Add(cmd, flags.JSON, flags.YAML, flags.Name)
	return source.VerbOn(c.cluster, cmd, source.Rollouts, func(ctx context.Context, src *source.Source, o source.Object) error {
		events, err := c.eventsOf(ctx, src, o)
		switch {
		case err != nil:
			return err
		case output.Structured():
			return output.Print(c.Out, flags.List(events))
		}
		rows := [][]string{{"LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"}}
		for _, e := range events {
			of := strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
			rows = append(rows, []string{text.Since(&metav1.Time{Time: lastSeen(&e)}, c.clock.Now()), e.Type, e.Reason, of, strings.TrimSpace(e.Message)})
		}
		return c.printRows(rows, "No Events.")
	})
}

// eventsOf returns the Events of a rollout and of its nodes, the oldest first.
func (c *command) eventsOf(ctx context.Context, src *source.Source, o source.Object) ([]corev1.Event, error) {
	s, err := c.read(ctx, src, o.Target())
	if err != nil {
		return nil, err
	}
	isNode := func(name string) bool {
		return slices.ContainsFunc(s.rollouts[0].Nodes, func(n view.Node) bool { return n.Node == name })
	}
	events := []corev1.Event{}
	for field, value := range map[string]string{"involvedObject.uid": string(o.GetUID()), "involvedObject.kind": source.Node.Name} {
		err := source.Each(ctx, src.Core.Events(""), source.FieldIs(field, value), func(e *corev1.Event) {
			if e.InvolvedObject.Kind == source.Node.Name && !isNode(e.InvolvedObject.Name) {
				return
			}
			e.APIVersion, e.Kind = corev1.SchemeGroupVersion.String(), "Event"
			events = append(events, *e)
		})
		if err != nil {
			return nil, fmt.Errorf("listing Events, %w", err)
		}
	}
	slices.SortFunc(events, func(a, b corev1.Event) int {
		return cmp.Or(lastSeen(&a).Compare(lastSeen(&b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return events, nil
}

// lastSeen is when an Event happened last.
func lastSeen(e *corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
}
