// SPDX-License-Identifier: Apache-2.0

//go:build all

package etcd

import (
	"context"
	"testing"
	"time"
)

// A member that was told of a cluster that does not know of it yet ends, and joins all the same.
func TestAPIJoinBeforeItIsKnown(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := Start(t, "one")
	m := c.add("two")
	m.others, m.state = "one="+c.member("one").peer()+",two="+m.peer(), "existing"
	if err := c.Resume("two"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-m.exited:
	case <-ctx.Done():
		t.Fatal("it runs in a cluster that does not know of it")
	}
	client, err := c.Client("one")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.MemberAddAsLearner(ctx, []string{m.peer()}); err != nil {
		t.Fatal(err)
	}
	if err := c.Promote(ctx, "two", "one"); err != nil {
		t.Fatal(err)
	}
	// One that was stopped stays so.
	c.Stop("two")
	if err := c.restart("two"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-m.exited:
	default:
		t.Error("it was started again, and should be stopped")
	}
}
