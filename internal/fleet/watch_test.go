// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"sync"
	"testing"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// refused is an API that lets no one list.
type refused struct{ client.Reader }

func (refused) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("pods is forbidden")
}

// A gate says why it can't see what it looks at.
func TestWatchSaysWhatItFailsOf(t *testing.T) {
	b := newBench(t)
	from := budgetWith(t, "{pods: [{selector: {}}]}")
	b.gates.api = refused{}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.gates.pods.run(ctx) })
	const want = "PodsBlock: reading pods, pods is forbidden"
	b.eventually(want, func() bool { return b.says(from) == want })
	cancel()
	running.Wait()
}

// What an informer has seen last of what it missed counts as gone.
func TestWatchCountsMissedDeletions(t *testing.T) {
	x := labelled(pod("a", "x", "n1"))
	b := newBench(t).synced().sees(x)
	from := budgetWith(t, "{pods: [{selector: {matchLabels: {a: b}}, scope: Cluster}]}")
	if got := b.says(from); got == "" {
		t.Error("the pod does not block")
	}
	if err := b.gates.pods.store.Delete(x); err != nil {
		t.Fatal(err)
	}
	w := b.gates.pods
	w.isRelevant.handler(w.noticeKnown).OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a/x", Obj: x})
	if got := b.says(from); got != "" {
		t.Errorf("it says %q", got)
	}
}
