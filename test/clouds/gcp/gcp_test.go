// SPDX-License-Identifier: Apache-2.0

package gcp_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/clouds/gcp"
)

type asked struct {
	method, path, body string
	// with are headers, in pairs.
	with []string
}

// ask sends a request and returns the status of the answer, and the answer.
func ask(t *testing.T, url string, a asked) (int, map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), a.method, url+a.path, strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(a.with); i += 2 {
		r.Header.Set(a.with[i], a.with[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	body := map[string]any{}
	if err := json.Unmarshal(text, &body); err != nil {
		body["text"] = string(text)
	}
	return answer.StatusCode, body
}

// What the SDK would never ask, or never wrongly, is refused.
func TestRefusals(t *testing.T) {
	w := clouds.New(t.Context(), clouds.Options{Identify: gcp.Identify, ID: gcp.ID})
	for _, s := range []clouds.Set{
		{Name: "zones/europe-west1-b/pool", Image: "a", Capacity: 1, Zones: []string{"europe-west1-b"}},
		{Name: "plain", Image: "a", Capacity: 2, Zones: []string{"europe-west1-b", "europe-west1-c"}},
	} {
		if err := w.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(gcp.Handler(w))
	defer server.Close()
	const flavor = "Metadata-Flavor"
	const tokens = "/computeMetadata/v1/instance/service-accounts/default/token"
	_, token := ask(t, server.URL, asked{"GET", tokens, "", []string{flavor, "Google"}})
	with := []string{"Authorization", "Bearer " + token["access_token"].(string)}
	const zonal, regional = "/compute/v1/projects/moult-test/zones/europe-west1-b/", "/compute/v1/projects/moult-test/regions/europe-west1/"
	const pool, id = zonal + "instanceGroupManagers/pool", "?requestId=11111111-2222-5333-8444-555555555555"
	const elsewhere = `{"instances":["zones/x/instances/pool-0000"],"skipInstancesOnValidationError":true}`
	const stale = `{"fingerprint":"x","versions":[{"instanceTemplate":"projects/p/global/instanceTemplates/t"}]}`
	tests := map[string]struct {
		asked  asked
		status int
		reason string
	}{
		"a token, without the header":  {asked{"GET", tokens, "", nil}, 403, ""},
		"other metadata":               {asked{"GET", "/computeMetadata/v1/other", "", []string{flavor, "Google"}}, 404, ""},
		"no token":                     {asked{"GET", pool, "", nil}, 401, "authError"},
		"a group":                      {asked{"GET", pool, "", with}, 200, ""},
		"a plain group":                {asked{"GET", regional + "instanceGroupManagers/plain", "", with}, 200, ""},
		"of another project":           {asked{"GET", strings.Replace(pool, "moult-test", "other", 1), "", with}, 404, "notFound"},
		"in another place":             {asked{"GET", regional + "instanceGroupManagers/pool", "", with}, 404, "notFound"},
		"no autoscaler":                {asked{"GET", zonal + "autoscalers/pool", "", with}, 404, "notFound"},
		"no operation":                 {asked{"GET", zonal + "operations/operation-1.pool", "", with}, 404, "notFound"},
		"no instance":                  {asked{"GET", zonal + "instances/other", "", with}, 404, "notFound"},
		"no id of a request":           {asked{"POST", pool + "/createInstances?requestId=1", `{"instances":[{"name":"a"}]}`, with}, 400, "invalid"},
		"no name":                      {asked{"POST", pool + "/createInstances" + id, `{"instances":[{"name":"A"}]}`, with}, 400, "invalid"},
		"no JSON":                      {asked{"POST", pool + "/createInstances" + id, `{`, with}, 400, "parseError"},
		"a name that is taken":         {asked{"POST", pool + "/createInstances" + id, `{"instances":[{"name":"pool-0000"}]}`, with}, 400, "invalid"},
		"no member":                    {asked{"POST", pool + "/deleteInstances" + id, `{"instances":["zones/europe-west1-b/instances/x"]}`, with}, 400, "invalid"},
		"a machine elsewhere":          {asked{"POST", pool + "/deleteInstances" + id, elsewhere, with}, 400, "invalid"},
		"no versions":                  {asked{"PATCH", pool + id, `{"fingerprint":"x"}`, with}, 400, "invalid"},
		"an old fingerprint":           {asked{"PATCH", pool + id, stale, with}, 412, "conditionNotMet"},
		"what there is not, at all":    {asked{"DELETE", pool, "", with}, 405, ""},
		"what there is not, of a zone": {asked{"GET", zonal + "disks", "", with}, 404, ""},
	}
	before := w.Machines("zones/europe-west1-b/pool")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			status, body := ask(t, server.URL, test.asked)
			reason := ""
			if e, ok := body["error"].(map[string]any); ok {
				reason = e["errors"].([]any)[0].(map[string]any)["reason"].(string)
			}
			if status != test.status || reason != test.reason {
				t.Errorf("%d %q, want %d %q: %v", status, reason, test.status, test.reason, body)
			}
		})
	}
	if diff := cmp.Diff(before, w.Machines("zones/europe-west1-b/pool")); diff != "" {
		t.Errorf("something was done (-before +after):\n%s", diff)
	}
}

// Faults of the wire find the set that they are for, however it is named.
func TestFaultsBySet(t *testing.T) {
	w := clouds.New(t.Context(), clouds.Options{Identify: gcp.Identify, ID: gcp.ID})
	zones := []string{"europe-west1-b", "europe-west1-c"}
	for _, name := range []string{"regions/europe-west1/one", "two", "three"} {
		if err := w.Create(t.Context(), clouds.Set{Name: name, Image: "a", Capacity: 1, Zones: zones}); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(gcp.Handler(w))
	defer server.Close()
	for _, set := range []string{"regions/europe-west1/one", "two"} {
		w.Fault(clouds.Fault{Kind: clouds.Throttled, Set: set})
	}
	with := []string{"Authorization", "Bearer moult-test-token"}
	const region = "/compute/v1/projects/moult-test/regions/europe-west1/"
	for path, want := range map[string]int{
		"instanceGroupManagers/one": 403, "instanceGroupManagers/two": 403, "instanceGroupManagers/three": 200,
		"operations/operation-1.one": 403, "operations/operation-1.two": 403, "operations/operation-1.three": 404,
	} {
		if got, body := ask(t, server.URL, asked{"GET", region + path, "", with}); got != want {
			t.Errorf("%s: %d, want %d: %v", path, got, want, body)
		}
	}
	if diff := cmp.Diff(map[string]int{"get": 3, "operations.get": 3}, w.Calls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
