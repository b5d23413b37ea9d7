// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"testing"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
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
	for _, tc := range []struct {
		api  client.Reader
		want string
	}{
		{b.Client, "PodsBlock: reading pods, there is no cache for them"},
		{refused{}, "PodsBlock: reading pods, pods is forbidden"},
	} {
		if _, refuses := tc.api.(refused); refuses {
			b.gates.pods.from = struct{ cache.Informers }{} // It is not asked.
		}
		b.gates.api = tc.api
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.gates.pods.run(ctx)
		}()
		b.eventually(tc.want, func() bool { return b.says(from) == tc.want })
		cancel()
		<-done
	}
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
	b.gates.pods.handler().OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a/x", Obj: x})
	if got := b.says(from); got != "" {
		t.Errorf("it says %q", got)
	}
}
