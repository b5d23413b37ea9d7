// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/google/go-cmp/cmp"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/test/clouds"
	double "moult.dev/moult/test/clouds/aws"
)

// The double speaks plain HTTP. A bundle of certificates would be parsed for every provider.
func TestMain(m *testing.M) {
	if err := os.Unsetenv("AWS_CA_BUNDLE"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// zones of the test's sets.
var zones = []string{"eu-west-1a", "eu-west-1b", "eu-west-1c"}

// account is a world with the wire in front of it.
type account struct {
	*clouds.World
	t   *testing.T
	url string
}

// start makes an account with one group "workers", of 3 machines in 3 zones and of at most 10, unless change says otherwise.
func start(t *testing.T, change func(*clouds.Set)) *account {
	t.Helper()
	return startWith(t, clouds.Options{}, change)
}

func startWith(t *testing.T, o clouds.Options, change func(*clouds.Set)) *account {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	o.ID, o.Identify = double.InstanceID, double.Identify
	w := clouds.New(ctx, o)
	server := httptest.NewServer(double.HandlerWithPages(w, 2))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		cancel()
		w.Wait()
	})
	s := clouds.Set{Name: "workers", Image: "one", Capacity: 3, Max: 10, Zones: zones, Settings: map[string]string{}}
	if change != nil {
		change(&s)
	}
	if err := w.Create(ctx, s); err != nil {
		t.Fatal(err)
	}
	return &account{w, t, server.URL}
}

// fresh is a provider that remembers nothing.
func (a *account) fresh(load ...func(*config.LoadOptions) error) *Cloud {
	a.t.Helper()
	load = append(load, config.WithBaseEndpoint(a.url), config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("AKIATEST", "test", "")))
	c, err := New(a.t.Context(), &v1alpha1.AWSProvider{Region: double.Region}, load...)
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

func (a *account) workers() cloud.ScaleSet { return a.fresh().ScaleSet("workers") }

func (a *account) set() clouds.Set {
	a.t.Helper()
	s, ok := a.Set("workers")
	if !ok {
		a.t.Fatal("the set is gone")
	}
	return s
}

// edit changes the set of the world.
func (a *account) edit(change func(*clouds.Set)) {
	a.t.Helper()
	if err := a.Edit("workers", func(s *clouds.Set) error { change(s); return nil }); err != nil {
		a.t.Fatal(err)
	}
}

// ids are those of the machines that stay.
func (a *account) ids() []string {
	var all []string
	for _, m := range a.World.Machines("workers") {
		if m.State != clouds.Deleting {
			all = append(all, m.ID)
		}
	}
	return all
}

func (a *account) describe() cloud.Set {
	a.t.Helper()
	s, err := a.workers().Describe(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	return s
}

func (a *account) prepare(c cloud.Change) cloud.Operation {
	a.t.Helper()
	s := a.describe()
	o, err := a.workers().Prepare(a.t.Context(), &s, c)
	if err != nil {
		a.t.Fatal(err)
	}
	return o
}

func (a *account) send(o cloud.Operation) cloud.Operation {
	a.t.Helper()
	o, err := a.workers().Send(a.t.Context(), o)
	if err != nil {
		a.t.Fatal(err)
	}
	return o
}

// ended polls until an operation has ended, with a fresh provider each time.
func (a *account) ended(o cloud.Operation) (cloud.Progress, error) {
	a.t.Helper()
	var p cloud.Progress
	var err error
	a.wait(func() error {
		o, p, err = a.workers().Poll(a.t.Context(), o)
		if err == nil && !p.Done || err != nil && !final(err) {
			return fmt.Errorf("%+v %w", p, errors.Join(err, errors.New("has not ended")))
		}
		return nil
	})
	return p, err
}

func (a *account) done(o cloud.Operation) cloud.Progress {
	a.t.Helper()
	p, err := a.ended(o)
	if err != nil {
		a.t.Fatal(err)
	}
	return p
}

// final reports whether an error of Poll is how an operation has ended.
func final(err error) bool {
	return slices.Contains([]cloud.Kind{cloud.KindQuota, cloud.KindFull, cloud.KindInvalid, cloud.KindDenied, cloud.KindFailed}, cloud.KindOf(err))
}

// wait waits until something is so.
func (a *account) wait(check func() error) {
	a.t.Helper()
	deadline := time.After(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			a.t.Fatal(err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// settled waits until no machine comes or goes, and checks how many there are to be.
func (a *account) settled(capacity int) {
	a.t.Helper()
	a.wait(func() error {
		for _, m := range a.World.Machines("workers") {
			if m.State == clouds.Creating || m.State == clouds.Deleting {
				return fmt.Errorf("machine %s is %s", m.ID, m.State)
			}
		}
		return nil
	})
	if got := a.set().Capacity; got != capacity || len(a.ids()) != capacity {
		a.t.Errorf("capacity %d and %d machines, want %d", got, len(a.ids()), capacity)
	}
}

func expect(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
