// SPDX-License-Identifier: Apache-2.0

package gcp_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/cloud/gcp"
	"moult.dev/moult/test/clouds"
	double "moult.dev/moult/test/clouds/gcp"
)

// limit is how long anything may take on a busy machine.
const limit = 2 * time.Minute

// project is Compute Engine with sets, and ways to speak to it.
type project struct {
	*clouds.World
	url string
}

// newProject starts a double with sets.
func newProject(t *testing.T, sets ...clouds.Set) *project {
	t.Helper()
	w := clouds.New(t.Context(), clouds.Options{Identify: double.Identify, ID: double.ID})
	for _, s := range sets {
		if err := w.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(double.Handler(w))
	t.Cleanup(server.Close)
	server.Config.ErrorLog = nil
	for _, e := range double.Env(server.URL) {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	t.Setenv("HOME", t.TempDir())
	return &project{World: w, url: server.URL}
}

// cloud is the program's side, as a process has it that has just started.
func (p *project) cloud(t *testing.T, locations ...string) *gcp.Cloud {
	t.Helper()
	c, err := gcp.New(t.Context(), &v1alpha1.GCPProvider{Project: double.Project, Locations: locations}, p.url)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// zonal and regional are sets that can be used.
func zonal(name string, capacity int) clouds.Set {
	return clouds.Set{Name: "zones/europe-west1-b/" + name, Image: "image-1", Capacity: capacity, Zones: []string{"europe-west1-b"}}
}

func regional(name string, capacity int) clouds.Set {
	return clouds.Set{
		Name: "regions/europe-west1/" + name, Image: "image-1", Capacity: capacity,
		Zones: []string{"europe-west1-b", "europe-west1-c", "europe-west1-d"},
	}
}

func settings(s clouds.Set, with ...string) clouds.Set {
	s.Settings = map[string]string{}
	for i := 0; i < len(with); i += 2 {
		s.Settings[with[i]] = with[i+1]
	}
	return s
}

// ids are the machines of a set that stay, as the provider names them.
func (p *project) ids(set string) []string {
	var ids []string
	for _, m := range p.Machines(set) {
		if m.State != clouds.Deleting {
			ids = append(ids, "zones/"+m.Zone+"/instances/"+m.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// await returns once something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %v", what, limit)
		case <-tick.C:
		}
	}
}

// over reports whether an error of Poll is how the operation has ended.
func over(err error) bool {
	return slices.Contains([]cloud.Kind{cloud.KindQuota, cloud.KindFull, cloud.KindInvalid, cloud.KindDenied, cloud.KindFailed}, cloud.KindOf(err))
}

// polled asks until an operation has ended, whatever goes wrong on the way.
func polled(t *testing.T, s func() cloud.ScaleSet, o cloud.Operation) (cloud.Progress, error) {
	t.Helper()
	var p cloud.Progress
	var err error
	await(t, "the end of "+o.State, func() bool {
		var next cloud.Operation
		if next, p, err = s().Poll(t.Context(), o); err == nil {
			o = next
		}
		return err == nil && p.Done || over(err)
	})
	return p, err
}

// sent sends an operation until it is taken, whatever goes wrong on the way.
func sent(t *testing.T, s func() cloud.ScaleSet, o cloud.Operation) cloud.Operation {
	t.Helper()
	await(t, "the sending of "+o.State, func() bool {
		next, err := s().Send(t.Context(), o)
		if err == nil {
			o = next
		}
		return err == nil
	})
	return o
}

// prepared describes a set and prepares a change of it.
func prepared(t *testing.T, s cloud.ScaleSet, c cloud.Change) cloud.Operation {
	t.Helper()
	set, err := s.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.Prepare(t.Context(), &set, c)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.State) > 16<<10 {
		t.Fatalf("the state has %d bytes", len(o.State))
	}
	return o
}

// did prepares, sends and polls a change to its end.
func did(t *testing.T, s cloud.ScaleSet, c cloud.Change) (cloud.Progress, error) {
	t.Helper()
	same := func() cloud.ScaleSet { return s }
	return polled(t, same, sent(t, same, prepared(t, s, c)))
}

// wantKind fails the test unless an error is of a kind and says something.
func wantKind(t *testing.T, doing string, err error, kind cloud.Kind, says string) {
	t.Helper()
	if cloud.KindOf(err) != kind {
		t.Fatalf("%s: %s %v, want %s", doing, cloud.KindOf(err), err, kind)
	}
	if err == nil {
		return
	}
	var typed *cloud.Error
	if !errors.As(err, &typed) || !strings.Contains(err.Error(), says) {
		t.Fatalf("%s: %v, want something with %q", doing, err, says)
	}
}
