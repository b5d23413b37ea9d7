// SPDX-License-Identifier: Apache-2.0

package azure_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/clouds/azure"
)

// client speaks to an Azure on loopback, as anybody does who knows the wire.
type client struct {
	t   *testing.T
	url string
}

const (
	group   = "/subscriptions/" + azure.SubscriptionID + "/resourceGroups/" + azure.ResourceGroup + "/providers/Microsoft.Compute"
	version = "api-version=2026-04-01"
)

func serve(t *testing.T, o azure.Options, sets ...clouds.Set) (*clouds.World, *azure.Azure, *client) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := clouds.New(ctx, clouds.Options{Identify: azure.Identify, CreateTime: 10 * time.Millisecond, DeleteTime: 10 * time.Millisecond})
	t.Cleanup(func() {
		cancel()
		w.Wait()
	})
	for _, s := range sets {
		if err := w.Create(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	a := azure.New(w, o)
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return w, a, &client{t, server.URL}
}

// do sends a request, and returns status, headers and the decoded answer.
func (c *client) do(method, path, body string, headers ...string) (int, http.Header, map[string]any) {
	c.t.Helper()
	if !strings.HasPrefix(path, "http") {
		path = c.url + path
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+azure.Token)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	var decoded map[string]any
	if len(text) > 0 {
		if err := json.Unmarshal(text, &decoded); err != nil {
			c.t.Fatalf("%s: %v", text, err)
		}
	}
	return answer.StatusCode, answer.Header, decoded
}

// at is a value deep in an answer.
func at(v any, path ...string) any {
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

// ends follows an operation to its end, and returns its status, its code, and how often it was InProgress.
func (c *client) ends(headers http.Header) (string, any, int) {
	c.t.Helper()
	where := headers.Get("Azure-AsyncOperation")
	for polls := range 100_000 {
		status, _, body := c.do(http.MethodGet, where, "")
		if status != http.StatusOK {
			c.t.Fatalf("%s: %d, %v", where, status, body)
		}
		if s := at(body, "status"); s != "InProgress" {
			return s.(string), at(body, "error", "code"), polls
		}
		time.Sleep(time.Millisecond)
	}
	c.t.Fatal("it does not end")
	return "", nil, 0
}

func TestRefusals(t *testing.T) {
	w, _, c := serve(t, azure.Options{}, clouds.Set{Name: "s", Image: "a", Capacity: 2, Max: 3})
	set := group + "/virtualMachineScaleSets/s"
	operation := "/subscriptions/" + azure.SubscriptionID + "/providers/Microsoft.Compute/locations/x/operations/9"
	const twoImages = `{"properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":{"id":"/x","communityGalleryImageId":"/y"}}}}}`
	for name, test := range map[string]struct {
		method, path, body string
		headers            []string
		fault              clouds.FaultKind
		status             int
		code               string
	}{
		"no token":           {http.MethodGet, set + "?" + version, "", []string{"Authorization", "Bearer x"}, "", 401, "InvalidAuthenticationToken"},
		"no version":         {http.MethodGet, set, "", nil, "", 400, "MissingApiVersionParameter"},
		"other subscription": {http.MethodGet, strings.Replace(set, "0001", "0002", 1) + "?" + version, "", nil, "", 404, "SubscriptionNotFound"},
		"other group":        {http.MethodGet, strings.Replace(set, "/Moult/", "/x/", 1) + "?" + version, "", nil, "", 404, "ResourceGroupNotFound"},
		"no set":             {http.MethodGet, set + "x?" + version, "", nil, "", 404, "ResourceNotFound"},
		"no such call":       {http.MethodPut, set + "?" + version, "{}", nil, "", 404, "InvalidResourceType"},
		"etag":               {http.MethodPatch, set + "?" + version, `{"sku":{"capacity":3}}`, []string{"If-Match", `"7"`}, "", 412, "PreconditionFailed"},
		"too many":           {http.MethodPatch, set + "?" + version, `{"sku":{"capacity":4}}`, nil, "", 400, "InvalidParameter"},
		"two images":         {http.MethodPatch, set + "?" + version, twoImages, nil, "", 400, "InvalidParameter"},
		"no machine":         {http.MethodPost, set + "/delete?" + version, `{"instanceIds":["0","9"]}`, nil, "", 400, "InvalidParameter"},
		"no operation":       {http.MethodGet, operation + "?" + version, "", nil, "", 404, "NotFound"},
		"throttled":          {http.MethodGet, set + "?" + version, "", nil, clouds.Throttled, 429, "OperationNotAllowed"},
		"denied":             {http.MethodGet, set + "?" + version, "", nil, clouds.Denied, 403, "AuthorizationFailed"},
		"conflict":           {http.MethodGet, set + "?" + version, "", nil, clouds.Conflict, 409, "Conflict"},
		"unavailable":        {http.MethodGet, set + "?" + version, "", nil, clouds.Unavailable, 500, "InternalExecutionError"},
		"quota":              {http.MethodPatch, set + "?" + version, `{"sku":{"capacity":3}}`, nil, clouds.Quota, 409, "OperationNotAllowed"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &client{t, c.url}
			if test.fault != "" {
				w.Fault(clouds.Fault{Kind: test.fault, Times: 1})
			}
			before, _ := w.Set("s")
			status, headers, body := c.do(test.method, test.path, test.body, test.headers...)
			if status != test.status || at(body, "error", "code") != test.code {
				t.Errorf("%d, %v; want %d, %s", status, body, test.status, test.code)
			}
			if (status == http.StatusTooManyRequests) != (headers.Get("Retry-After") != "") {
				t.Errorf("Retry-After %q", headers.Get("Retry-After"))
			}
			if after, _ := w.Set("s"); cmp.Diff(before, after) != "" {
				t.Errorf("it has done something:\n%s", cmp.Diff(before, after))
			}
		})
	}
}

func TestOperations(t *testing.T) {
	w, a, c := serve(t, azure.Options{Polls: 3}, clouds.Set{Name: "s", Image: "a", Capacity: 2, Tags: map[string]string{"x": "y"}})
	set := group + "/virtualMachineScaleSets/S"
	_, _, before := c.do(http.MethodGet, set+"?"+version, "")
	etag := before["etag"].(string)

	status, headers, body := c.do(http.MethodPatch, set+"?"+version, `{"sku":{"capacity":4},"tags":{"z":"1"}}`, "If-Match", etag)
	if status != http.StatusOK || at(body, "properties", "provisioningState") != "Updating" || at(body, "sku", "capacity") != 4.0 {
		t.Fatalf("%d, %v", status, body)
	}
	if status, _, _ := c.do(http.MethodPatch, set+"?"+version, `{"sku":{"capacity":5}}`, "If-Match", etag); status != http.StatusPreconditionFailed {
		t.Errorf("the same etag is good twice: %d", status)
	}
	if end, code, polls := c.ends(headers); end != "Succeeded" || code != nil || polls < 3 {
		t.Errorf("%s, %v after %d polls", end, code, polls)
	}
	_, _, after := c.do(http.MethodGet, set+"?"+version, "")
	state := at(after, "properties", "provisioningState")
	if diff := cmp.Diff(map[string]any{"z": "1"}, after["tags"]); diff != "" || after["etag"] == etag || state != "Succeeded" {
		t.Errorf("%v", after)
	}

	// Two deletions at once are two operations.
	status, first, _ := c.do(http.MethodPost, set+"/delete?"+version, `{"instanceIds":["0"]}`)
	if status != http.StatusAccepted {
		t.Errorf("status %d", status)
	}
	w.Fault(clouds.Fault{Kind: clouds.OperationFails, Call: "Delete", Times: 1})
	_, second, _ := c.do(http.MethodPost, set+"/delete?"+version, `{"instanceIds":["1"]}`)
	if end, code, _ := c.ends(second); end != "Failed" || code != "OSProvisioningTimedOut" {
		t.Errorf("%s, %v", end, code)
	}
	if end, _, _ := c.ends(first); end != "Succeeded" {
		t.Errorf("%s", end)
	}
	_, _, now := c.do(http.MethodGet, set+"?"+version, "")
	if at(now, "properties", "provisioningState") != "Failed" || at(now, "sku", "capacity") != 3.0 {
		t.Errorf("%v", now)
	}
	a.Forget()
	if status, _, _ := c.do(http.MethodGet, first.Get("Azure-AsyncOperation"), ""); status != http.StatusNotFound {
		t.Errorf("status %d", status)
	}
}

// A PATCH of the image resets the disks that it does not name, but for an ephemeral OS disk.
func TestImageResetsDisks(t *testing.T) {
	for name, test := range map[string]struct {
		osDisk, says string
		want         any
	}{
		"not said":  {`{"createOption":"FromImage","caching":"ReadOnly"}`, ``, "None"},
		"said":      {`{"createOption":"FromImage","caching":"ReadOnly"}`, `,"osDisk":{"caching":"ReadWrite"}`, "ReadWrite"},
		"ephemeral": {`{"createOption":"FromImage","caching":"ReadOnly","diffDiskSettings":{"option":"Local"}}`, ``, "ReadOnly"},
	} {
		t.Run(name, func(t *testing.T) {
			settings := map[string]string{"osDisk": test.osDisk, "dataDisks": `[{"lun":1,"createOption":"Empty"}]`}
			_, _, c := serve(t, azure.Options{}, clouds.Set{Name: "s", Image: "a", Settings: settings})
			set := group + "/virtualMachineScaleSets/s?" + version
			patch := `{"properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":{"id":"/x"}` + test.says + `}}}}`
			if status, _, body := c.do(http.MethodPatch, set, patch); status != http.StatusOK {
				t.Fatalf("%d, %v", status, body)
			}
			_, _, body := c.do(http.MethodGet, set, "")
			storage := at(body, "properties", "virtualMachineProfile", "storageProfile")
			if at(storage, "osDisk", "caching") != test.want || at(storage, "dataDisks") != nil || at(storage, "osDisk", "createOption") != "FromImage" {
				t.Errorf("%v", storage)
			}
		})
	}
}

func TestPages(t *testing.T) {
	_, _, c := serve(t, azure.Options{Page: 2}, clouds.Set{Name: "s", Image: "a", Capacity: 5})
	next, sizes := group+"/virtualMachineScaleSets/s/virtualMachines?"+version+"&$expand=instanceView", []int{}
	for next != "" {
		status, _, body := c.do(http.MethodGet, next, "")
		if status != http.StatusOK {
			t.Fatalf("%d, %v", status, body)
		}
		page := body["value"].([]any)
		if at(page[0], "properties", "instanceView") == nil {
			t.Error("the next page is without what was asked for")
		}
		sizes = append(sizes, len(page))
		next, _ = body["nextLink"].(string)
	}
	if diff := cmp.Diff([]int{2, 2, 1}, sizes); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
}

func TestIdentity(t *testing.T) {
	_, _, c := serve(t, azure.Options{})
	env := map[string]string{}
	for _, variable := range azure.Env(c.url) {
		key, value, _ := strings.Cut(variable, "=")
		env[key] = value
	}
	status, _, body := c.do(http.MethodGet, env["IDENTITY_ENDPOINT"]+"?resource=x&api-version=2019-08-01", "", "X-IDENTITY-HEADER", env["IDENTITY_HEADER"])
	if status != http.StatusOK || body["access_token"] != azure.Token {
		t.Errorf("%d, %v", status, body)
	}
	if status, _, _ := c.do(http.MethodGet, env["IDENTITY_ENDPOINT"]+"?resource=x", "", "X-IDENTITY-HEADER", "guessed"); status != http.StatusBadRequest {
		t.Errorf("status %d", status)
	}
}

func TestNames(t *testing.T) {
	for name, test := range map[string]struct {
		identify           func(set, zone, id string) (string, string)
		id, provider, node string
	}{
		"uniform":   {azure.Identify, "37", "virtualMachineScaleSets/Pool/virtualMachines/37", "pool000011"},
		"flexible":  {azure.IdentifyFlexible, "0a1b2c3d", "virtualMachines/Pool_0a1b2c3d", "pool-0a1b2c3d"},
		"no number": {azure.Identify, "0a1b2c3d", "virtualMachines/Pool_0a1b2c3d", "pool-0a1b2c3d"},
	} {
		provider, node := test.identify("Pool", "", test.id)
		want := "azure://" + strings.Replace(group, azure.ResourceGroup, strings.ToLower(azure.ResourceGroup), 1) + "/" + test.provider
		if provider != want || node != test.node {
			t.Errorf("%s: %s, %s; want %s, %s", name, provider, node, want, test.node)
		}
	}
}
