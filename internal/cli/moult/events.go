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
	"k8s.io/apimachinery/pkg/fields"

	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
)

func newEvents(c command) *cobra.Command {
	var output flags.Output
	cmd := &cobra.Command{
		Use:   "events ROLLOUT",
		Short: "Show the Events of a rollout and of its nodes, the oldest first",
		Long: `Show the Events of a rollout and of its nodes, the oldest first.
The API server keeps Events for an hour, unless it is set otherwise.`,
		Example: `  kubectl moult events k3s-agent -n system-upgrade
  kubectl moult events nr/bottlerocket -o yaml`,
	}
	output.Add(cmd, flags.JSON, flags.YAML, flags.Name)
	return source.Verb(c.cluster, cmd, source.Rollouts, func(ctx context.Context, src *source.Source, named source.Target) error {
		events, err := c.eventsOf(ctx, src, named)
		switch {
		case err != nil:
			return err
		case output.Structured():
			return output.Print(c.Out, flags.List(events))
		case len(events) == 0:
			fmt.Fprintln(c.ErrOut, "No Events.")
			return nil
		}
		rows := [][]string{{"LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"}}
		for i := range events {
			e := &events[i]
			of := strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
			rows = append(rows, []string{text.Since(&metav1.Time{Time: lastSeen(e)}, c.clock.Now()), e.Type, e.Reason, of, strings.TrimSpace(e.Message)})
		}
		return c.printTable(rows)
	})
}

// eventsOf returns the Events of a rollout and of its nodes, the oldest first.
func (c *command) eventsOf(ctx context.Context, src *source.Source, named source.Target) ([]corev1.Event, error) {
	k, o, err := src.Find(ctx, named, source.Rollouts...)
	if err != nil {
		return nil, err
	}
	s, err := readShown(ctx, src, source.Target{Kind: k, Name: named.Name}, c.clock.Now())
	if err != nil {
		return nil, err
	}
	c.note(src)
	nodes := map[string]bool{}
	for i := range s.rollouts {
		for j := range s.rollouts[i].Nodes {
			nodes[s.rollouts[i].Nodes[j].Node] = true
		}
	}
	events := []corev1.Event{}
	for field, value := range map[string]string{"involvedObject.uid": string(o.GetUID()), "involvedObject.kind": source.Node.Name} {
		options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(field, value).String()}
		err := source.Each(ctx, src.Core.Events(""), options, func(e *corev1.Event) {
			if e.InvolvedObject.Kind == source.Node.Name && !nodes[e.InvolvedObject.Name] {
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
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}
