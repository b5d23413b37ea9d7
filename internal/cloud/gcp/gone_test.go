// SPDX-License-Identifier: Apache-2.0

package gcp_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"moult.dev/moult/internal/cloud"
	double "moult.dev/moult/test/clouds/gcp"
)

// A group that a person deletes takes its machines with it.
func TestGroupIsGone(t *testing.T) {
	set := zonal("pool", 3)
	p := newProject(t, set)
	var gone atomic.Bool
	api := double.Handler(p.World)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if gone.Load() && strings.Contains(r.URL.Path, "instanceGroupManagers") {
			http.Error(rw, `{"error":{"code":404,"message":"it was not found","errors":[{"reason":"notFound"}]}}`, http.StatusNotFound)
			return
		}
		api.ServeHTTP(rw, r)
	}))
	defer server.Close()
	p.url = server.URL
	c := p.cloud(t)
	s := c.ScaleSet(set.Name)
	same := func() cloud.ScaleSet { return s }
	id := p.Machines(set.Name)[0].ProviderID
	found, err := c.Find(t.Context(), []string{id})
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	adding := sent(t, same, prepared(t, s, cloud.Change{Add: 1, Token: "a"}))
	deleting := sent(t, same, prepared(t, s, cloud.Change{Delete: p.ids(set.Name)[:1], Token: "b"}))
	image := prepared(t, s, cloud.Change{Image: "image-2", Token: "c"})
	gone.Store(true)
	if _, err := polled(t, same, deleting); err != nil {
		t.Errorf("deleting: %v", err)
	}
	_, err = polled(t, same, adding)
	wantKind(t, "adding", err, cloud.KindFailed, "it has none of them")
	_, err = s.Send(t.Context(), image)
	wantKind(t, "setting the image", err, cloud.KindNotFound, "it was not found")
	_, err = s.Describe(t.Context())
	wantKind(t, "describing", err, cloud.KindNotFound, "it was not found")
	_, err = s.Machines(t.Context())
	wantKind(t, "listing", err, cloud.KindNotFound, "it was not found")
	_, err = p.cloud(t).ScaleSet(set.Name).Prepare(t.Context(), &cloud.Set{}, cloud.Change{Add: 1, Token: "d"})
	wantKind(t, "preparing", err, cloud.KindNotFound, "it was not found")
	// A node that is not known yet has the operator look again.
	found, err = c.Find(t.Context(), []string{"gce://moult-test/europe-west1-b/newer"})
	if err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}
	found, err = c.Find(t.Context(), []string{id})
	if err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}
}
