// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// reviewer is an API server that knows the tokens "reader" and "other". The reader may get /metrics and /ksmetrics.
func reviewer(w http.ResponseWriter, r *http.Request) {
	var answer any
	switch {
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		review := &authenticationv1.TokenReview{}
		_ = json.NewDecoder(r.Body).Decode(review)
		review.Status.Authenticated = review.Spec.Token == "reader" || review.Spec.Token == "other"
		review.Status.User.Username, answer = review.Spec.Token, review
	case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
		review := &authorizationv1.SubjectAccessReview{}
		_ = json.NewDecoder(r.Body).Decode(review)
		a := review.Spec.NonResourceAttributes
		review.Status.Allowed = review.Spec.User == "reader" && a != nil && a.Verb == "get" && strings.HasSuffix(a.Path, "metrics")
		answer = review
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(answer)
}

// Metrics are served by TLS to those who may read them, and outside of a Pod in plain text to all.
func TestMetricsAreSecure(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(reviewer))
	t.Cleanup(api.Close)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	t.Cleanup(client.CloseIdleConnections)
	for _, secure := range []bool{true, false} {
		s := &settings{metricsAddress: "127.0.0.1:0", metricsSecure: secure}
		o := s.metricsOptions()
		o.CertDir = t.TempDir()
		server, err := metricsserver.NewServer(o, &rest.Config{Host: api.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, api.Client())
		if err != nil {
			t.Fatal(err)
		}
		if err := server.AddExtraHandler("/ksmetrics", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ks") })); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- server.Start(ctx) }()
		address := ""
		if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			address = server.(interface{ GetBindAddr() string }).GetBindAddr()
			return address != "", nil
		}); err != nil {
			t.Fatal(err)
		}
		scheme := map[bool]string{true: "https://", false: "http://"}[secure]
		for _, path := range []string{"/metrics", "/ksmetrics"} {
			for token, want := range map[string]int{"": 401, "nobody": 401, "other": 403, "reader": 200} {
				if !secure {
					want = 200
				}
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+address+path, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				if token != "" {
					r.Header.Set("Authorization", "Bearer "+token)
				}
				answer, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = answer.Body.Close()
				if answer.StatusCode != want {
					t.Errorf("secure %t, %s as %q: %d, want %d", secure, path, token, answer.StatusCode, want)
				}
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// More requests than are answered at once get an error, and are not kept.
func TestScrapesAreBounded(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	h := limited(make(chan struct{}, 1), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-goOn
	}))
	get := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
		return w.Code
	}
	first := make(chan int)
	go func() { first <- get() }()
	<-began
	if code := get(); code != http.StatusServiceUnavailable {
		t.Errorf("the second gets %d", code)
	}
	close(goOn)
	if code := <-first; code != http.StatusOK {
		t.Errorf("the first gets %d", code)
	}
}
