// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/nodeturn"
	unit "moult.dev/moult/internal/rollout"
)

// What happens to several nodes of a rollout within some seconds is one Event, whichever pass it happened in. The end of its last turn is not delayed.
func TestMentioned(t *testing.T) {
	e, rollout := &Engine{}, &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: "os"}}
	for _, node := range []string{"b", "a"} {
		p := &Pass[*nodeturn.Turn]{Engine: e, Key: types.NamespacedName{Name: "1"}}
		p.Mention(events.HostsUpdated(&v1alpha1.NodeRollout{}, "1.2"), node)
		p.Mention(events.HostsRebooting(rollout, ""), "c")
	}
	(&Pass[*nodeturn.Turn]{Engine: e, Key: types.NamespacedName{Name: "2"}}).Mention(events.HostsStarted(rollout), "d")
	p := &Pass[*nodeturn.Turn]{Engine: e, Key: types.NamespacedName{Name: "1"}, Object: rollout, Now: now}
	p.Turns = []*nodeturn.Turn{{Unit: unit.Unit{State: v1alpha1.UnitUpdating}}}
	want := []events.Event{
		{Object: rollout, Type: "Normal", Reason: "Rebooting", Message: "Hosts are ordered to reboot into their update: Nodes c"},
		{Object: rollout, Type: "Normal", Reason: "Updated", Message: "Updated to 1.2: Nodes a,b"},
	}
	if diff := cmp.Diff(want, p.Mentioned()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if again := p.Mentioned(); again != nil {
		t.Errorf("mentioned twice: %v", again)
	}
	p.Mention(events.HostsUpdated(rollout, "1.2"), "c")
	if soon := p.Mentioned(); soon != nil || !p.Wake.Equal(now.Add(mentionEvery)) {
		t.Errorf("mentioned %v, wakes at %s", soon, p.Wake)
	}
	p.Turns = nil
	if last := p.Mentioned(); len(last) != 1 {
		t.Errorf("mentioned %v", last)
	}
}

// Nothing is kept of a rollout that is gone.
func TestMentionsForgotten(t *testing.T) {
	e, key := &Engine{Waiting: &fleet.Waiters{}}, types.NamespacedName{Name: "os"}
	p := &Pass[*nodeturn.Turn]{Engine: e, Key: key, Now: now}
	p.Mention(events.HostsStarted(&v1alpha1.NodeRollout{}), "a")
	p.Mentioned()
	p.Mention(events.HostsStarted(&v1alpha1.NodeRollout{}), "b")
	if e.Forget(key); len(e.mentions.next)+len(e.mentions.last) > 0 {
		t.Errorf("it keeps %v and %v", e.mentions.next, e.mentions.last)
	}
}
