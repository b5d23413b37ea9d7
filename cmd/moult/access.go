// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// access asks the API server who sends a request, and what that user may do. Package k8s.io/apiserver could do it too, and would take 5 MiB more of
// the operator's memory.
type access struct {
	clients kubernetes.Interface
	answers *cache.LRUExpireCache
}

// How long an answer of the API server is kept, how many are, and how long one may take.
const (
	keepAnswer   = 10 * time.Second
	mostAnswers  = 4096
	answerWithin = 10 * time.Second
)

var errRefused = errors.New("the token is not valid")

func newAccess(config *rest.Config, c *http.Client) (*access, error) {
	clients, err := kubernetes.NewForConfigAndClient(config, c)
	if err != nil {
		return nil, fmt.Errorf("making a client, %w", err)
	}
	return &access{clients: clients, answers: cache.NewLRUExpireCache(mostAnswers)}, nil
}

// user is who sends a request: nil if it has no bearer token. The error is errRefused if its token is not valid.
func (a *access) user(r *http.Request) (*authenticationv1.UserInfo, error) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if token = strings.TrimSpace(token); token == "" || !strings.EqualFold(scheme, "Bearer") {
		return nil, nil
	}
	status, err := answer(r.Context(), a, sha256.Sum256([]byte(token)), func(ctx context.Context) (*authenticationv1.TokenReviewStatus, error) {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		review, err := a.clients.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("checking a token, %w", err)
		}
		if review.Status.Error != "" { // A part of the API server that checks tokens may fail.
			return nil, fmt.Errorf("%w: %s", errRefused, review.Status.Error)
		}
		return &review.Status, nil
	})
	if err != nil {
		return nil, err
	}
	if !status.Authenticated {
		return nil, errRefused
	}
	return &status.User, nil
}

// allows reports whether a user may do what spec says, except for the user that it names.
func (a *access) allows(ctx context.Context, u *authenticationv1.UserInfo, spec authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	spec.User, spec.UID, spec.Groups, spec.Extra = u.Username, u.UID, u.Groups, map[string]authorizationv1.ExtraValue{}
	for key, values := range u.Extra {
		spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	key, err := json.Marshal(spec)
	if err != nil {
		return false, fmt.Errorf("asking for a right, %w", err)
	}
	return answer(ctx, a, string(key), func(ctx context.Context) (bool, error) {
		review, err := a.clients.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("asking for a right, %w", err)
		}
		return review.Status.Allowed && !review.Status.Denied, nil
	})
}

// answer is what ask returns, or has returned for this key a short while ago. Errors are not kept.
func answer[T any](ctx context.Context, a *access, key any, ask func(context.Context) (T, error)) (T, error) {
	if kept, ok := a.answers.Get(key); ok {
		return kept.(T), nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	given, err := ask(ctx)
	if err == nil {
		a.answers.Add(key, given, keepAnswer)
	}
	return given, err
}

// only lets those through who may send a request to its path.
func (a *access) only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := a.user(r)
		allowed := false
		if user != nil {
			allowed, err = a.allows(r.Context(), user, authorizationv1.SubjectAccessReviewSpec{
				NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: strings.ToLower(r.Method)},
			})
		}
		switch {
		case allowed:
			next.ServeHTTP(w, r)
		case err != nil && !errors.Is(err, errRefused):
			ctrl.Log.WithName("access").Error(err, "a request can't be checked", "path", r.URL.Path)
			http.Error(w, "the API server can't be asked about your rights", http.StatusInternalServerError)
		case user == nil:
			http.Error(w, "a valid bearer token is needed", http.StatusUnauthorized)
		default:
			http.Error(w, "user "+user.Username+" may not "+strings.ToLower(r.Method)+" this path", http.StatusForbidden)
		}
	})
}

// scrapes bounds how many requests for metrics are answered at once. Further ones get the status 503.
const scrapes = 8

// metricsOptions returns how metrics are served. If secure: by TLS, to those whom the API server authenticates and authorizes.
func (s *settings) metricsOptions() metricsserver.Options {
	slots := make(chan struct{}, scrapes)
	return metricsserver.Options{
		BindAddress: s.metricsAddress, SecureServing: s.metricsSecure,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }}, // One request at a time on a connection.
		FilterProvider: func(cfg *rest.Config, c *http.Client) (metricsserver.Filter, error) {
			a, err := newAccess(cfg, c)
			return func(_ logr.Logger, h http.Handler) (http.Handler, error) {
				if s.metricsSecure {
					h = a.only(h)
				}
				return limited(slots, h), nil
			}, err
		},
	}
}

func limited(slots chan struct{}, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			h.ServeHTTP(w, r)
		default:
			http.Error(w, "too many requests for metrics at once", http.StatusServiceUnavailable)
		}
	})
}
