// SPDX-License-Identifier: Apache-2.0

package azure_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/cloud/azure"
	"moult.dev/moult/test/clouds"
	double "moult.dev/moult/test/clouds/azure"
)

// eventually is how long a test waits for what must come.
const eventually = 2 * time.Minute

// account is a world of Azure with ways to speak to it.
type account struct {
	*clouds.World
	azure *double.Azure
	// over makes a provider that remembers nothing.
	over func(t *testing.T) *azure.Cloud
}

// bearer is a credential that is always there.
type bearer struct{}

func (bearer) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: double.Token, ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// inProcess sends requests to a handler, and what it panics with is a connection that ends.
type inProcess struct{ http.Handler }

func (p inProcess) Do(r *http.Request) (answer *http.Response, err error) {
	body := []byte{}
	if r.Body != nil {
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	request := r.Clone(r.Context())
	request.Body, request.Host, request.RequestURI = io.NopCloser(bytes.NewReader(body)), r.URL.Host, r.URL.RequestURI()
	recorder := httptest.NewRecorder()
	defer func() {
		if broken := recover(); broken != nil {
			answer, err = nil, io.ErrUnexpectedEOF
			if recorder.Body.Len() > 0 {
				answer, err = recorder.Result(), nil
				answer.Body, answer.Request = io.NopCloser(io.MultiReader(recorder.Body, torn{})), r
			}
		}
	}()
	p.ServeHTTP(recorder, request)
	answer = recorder.Result()
	answer.Request = r
	return answer, nil
}

// torn is the end of a connection that ends too early.
type torn struct{}

func (torn) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// world is one of Azure's kind, without sets.
func world(t *testing.T, o clouds.Options) *clouds.World {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	if o.Identify == nil {
		o.Identify = double.Identify
	}
	w := clouds.New(ctx, o)
	t.Cleanup(func() {
		cancel()
		w.Wait()
	})
	return w
}

// open is an account with these sets, spoken to in process.
func open(t *testing.T, o clouds.Options, sets ...clouds.Set) *account {
	t.Helper()
	w := world(t, o)
	for _, s := range sets {
		if err := w.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	a := double.New(w, double.Options{})
	return &account{World: w, azure: a, over: func(t *testing.T) *azure.Cloud { return provider(t, azure.Options{Transport: inProcess{a}}) }}
}

// overHTTP is the same account, spoken to over loopback, by the machine's managed identity.
func overHTTP(t *testing.T, a *account) *account {
	t.Helper()
	server := httptest.NewServer(a.azure)
	t.Cleanup(server.Close)
	for _, variable := range double.Env(server.URL) {
		key, value, _ := strings.Cut(variable, "=")
		t.Setenv(key, value)
	}
	return &account{World: a.World, azure: a.azure, over: func(t *testing.T) *azure.Cloud {
		t.Helper()
		credential, err := azure.Credential(v1alpha1.AzureCredentialManaged, "")
		if err != nil {
			t.Fatal(err)
		}
		return provider(t, azure.Options{Endpoint: server.URL, Credential: credential})
	}}
}

func provider(t *testing.T, o azure.Options) *azure.Cloud {
	t.Helper()
	o.SubscriptionID, o.ResourceGroup = double.SubscriptionID, double.ResourceGroup
	if o.Credential == nil {
		o.Credential = bearer{}
	}
	c, err := azure.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// both runs a test in process and over loopback.
func both(t *testing.T, o clouds.Options, sets []clouds.Set, test func(t *testing.T, a *account)) {
	t.Run("in process", func(t *testing.T) { test(t, open(t, o, sets...)) })
	t.Run("loopback", func(t *testing.T) { test(t, overHTTP(t, open(t, o, sets...))) })
}

// uniform is a set "s" of three machines.
func uniform() clouds.Set {
	return clouds.Set{
		Name: "s", Image: "a", Capacity: 3, Max: 6, Zones: []string{"westeurope-1", "westeurope-2", "westeurope-3"}, Tags: map[string]string{"team": "x"},
	}
}

// flexible is the same, of machines of their own.
func flexible() clouds.Set {
	s := uniform()
	s.Settings = map[string]string{"mode": "Flexible", "told": "false"}
	return s
}

// machine is what the double calls the nth machine of a set.
func machine(s clouds.Set, id string) string {
	if s.Settings["mode"] == "Flexible" {
		return s.Name + "_" + id
	}
	return id
}

func describe(t *testing.T, s cloud.ScaleSet) *cloud.Set {
	t.Helper()
	set, err := s.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &set
}

func prepare(t *testing.T, s cloud.ScaleSet, c cloud.Change) cloud.Operation {
	t.Helper()
	if c.Token == "" {
		c.Token = "t1"
	}
	o, err := s.Prepare(t.Context(), describe(t, s), c)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func send(t *testing.T, s cloud.ScaleSet, o cloud.Operation) cloud.Operation {
	t.Helper()
	sent, err := s.Send(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return sent
}

// finish polls an operation until it has ended, each time with what the poll before has returned, and returns the error that it has ended with.
func finish(t *testing.T, s cloud.ScaleSet, o cloud.Operation) (cloud.Progress, error) {
	t.Helper()
	for deadline := time.Now().Add(eventually); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		next, progress, err := s.Poll(t.Context(), o)
		switch cloud.KindOf(err) {
		case "":
			if progress.Done {
				return progress, nil
			}
		case cloud.KindQuota, cloud.KindFull, cloud.KindInvalid, cloud.KindDenied, cloud.KindFailed:
			return progress, err
		default:
			t.Logf("polling: %v", err)
		}
		if len(next.State) > 16<<10 {
			t.Fatalf("the state has %d bytes", len(next.State))
		}
		o = next
	}
	t.Fatal("the operation does not end")
	return cloud.Progress{}, errors.New("unreachable")
}

// settle sends an operation as often as it must be sent, as a caller does that knows nothing but what it had written down before.
func settle(t *testing.T, s cloud.ScaleSet, o cloud.Operation) (cloud.Operation, []cloud.Kind) {
	t.Helper()
	var kinds []cloud.Kind
	for range 10 {
		sent, err := s.Send(t.Context(), o)
		if err == nil {
			return sent, kinds
		}
		kinds = append(kinds, cloud.KindOf(err))
		if cloud.KindOf(err) == cloud.KindConflict {
			return o, kinds
		}
	}
	t.Fatalf("the operation is not taken: %v", kinds)
	return o, nil
}
