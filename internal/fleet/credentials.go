// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/internal/outbound"
	"moult.dev/moult/internal/rollout"
)

const (
	// PrometheusSecret is the Secret that the operator may read by the Role of that name.
	PrometheusSecret = "moult-prometheus" //nolint:gosec // It is a name.
	// secretMaxAge is how long a Secret is not read again after a valid answer.
	secretMaxAge = time.Minute

	keyURL, keyToken, keyUsername, keyPassword, keyCA = "url", "token", "username", "password", "ca.crt"
)

// credentials are what a Secret has for requests to one server. They are added to each request.
type credentials struct {
	token, username, password string
	// roots are the authorities to trust instead of the system's; nil for these.
	roots *x509.CertPool
	next  http.RoundTripper
	// name is the Secret's, version is its resourceVersion, and read is when it was read.
	name, version string
	read          time.Time
}

// secretError says why a Secret can't be used. It never has a value of it.
type secretError string

// Error implements error.
func (e secretError) Error() string { return "spec.gates.alerts.secretName: " + string(e) }

// connect sets the server. It reads the gate's Secret if the last query failed, or else once a minute.
func (p *poller) connect(ctx context.Context) (err error) {
	now := p.gates.clock.Now()
	if p.server != nil && (p.secret == nil || now.Sub(p.secret.read) < secretMaxAge) {
		return nil
	}
	httpClient := &http.Client{Transport: p.gates.transport, CheckRedirect: outbound.SameHost}
	if p.gate.SecretName != "" {
		c, err := p.readSecret(ctx)
		if err != nil {
			return err
		}
		c.read = now
		if p.server != nil && c.version == p.secret.version {
			p.secret.read = now
			return nil
		}
		p.secret = c
		httpClient = &http.Client{Transport: c, CheckRedirect: outbound.NoRedirect}
	}
	p.server, err = newPrometheus(p.gate.URL, httpClient)
	return err
}

// readSecret reads the gate's Secret.
func (p *poller) readSecret(ctx context.Context) (*credentials, error) {
	key := client.ObjectKey{Namespace: p.gates.namespace, Name: p.gate.SecretName}
	var s corev1.Secret
	switch err := p.gates.api.Get(ctx, key, &s); {
	case apierrors.IsNotFound(err):
		return nil, secretError(fmt.Sprintf("there is no Secret %s: create it with the keys url, and token or username and password", key))
	case apierrors.IsForbidden(err):
		return nil, secretError(fmt.Sprintf("the operator may not read Secret %s: use %s, or add the name to the Role %[2]s", key, PrometheusSecret))
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s, %w", key, err)
	}
	c, err := newCredentials(s.Data, p.gate.URL)
	if err != nil {
		return nil, secretError(fmt.Sprintf("Secret %s: %v", key, err))
	}
	c.name, c.version, c.next = key.String(), string(s.UID)+s.ResourceVersion, p.gates.transport
	if c.roots != nil {
		c.next = p.gates.transport.Trusting(c.roots)
	}
	return c, nil
}

// newCredentials reads the data of a Secret for requests to an address. The error names the key, and what is right.
func newCredentials(data map[string][]byte, address string) (*credentials, error) {
	value := func(key string) string { return strings.TrimSpace(string(data[key])) }
	to, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("spec.gates.alerts.url is not a URL")
	}
	meant, err := url.Parse(value(keyURL))
	if err != nil || !strings.EqualFold(meant.Host, to.Host) || meant.Scheme != to.Scheme || to.Scheme != "https" {
		return nil, fmt.Errorf("key %s must be https://%s, the scheme and host of spec.gates.alerts.url", keyURL, rollout.Shorten(to.Host, longest))
	}
	c := &credentials{token: value(keyToken), username: value(keyUsername), password: value(keyPassword)}
	switch ca := data[keyCA]; {
	case c.token != "" && c.username+c.password != "":
		return nil, fmt.Errorf("remove key %s, or keys %s and %s: they exclude each other", keyToken, keyUsername, keyPassword)
	case (c.username == "") != (c.password == ""):
		return nil, fmt.Errorf("keys %s and %s are needed together", keyUsername, keyPassword)
	case len(ca) > 0:
		c.roots = x509.NewCertPool()
		if !c.roots.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("key %s must have certificates in PEM", keyCA)
		}
	case c.token+c.username == "":
		return nil, fmt.Errorf("key %s, or keys %s and %s, are missing", keyToken, keyUsername, keyPassword)
	}
	return c, nil
}

// RoundTrip implements http.RoundTripper.
func (c *credentials) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	switch {
	case c.token != "":
		r.Header.Set("Authorization", "Bearer "+c.token)
	case c.username != "":
		r.SetBasicAuth(c.username, c.password)
	}
	response, err := c.next.RoundTrip(r)
	if err == nil && (response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden) {
		_ = response.Body.Close()
		return nil, secretError(fmt.Sprintf("Prometheus answers %d: Secret %s must have a token, or a username and password, that may query it",
			response.StatusCode, c.name))
	}
	return response, err
}

// failed returns the error of a query without the credentials, which a server may repeat. The Secret is read again before the next.
func (c *credentials) failed(err error) error {
	if c == nil {
		return err
	}
	c.read = time.Time{}
	for _, secret := range []string{c.token, c.password, base64.StdEncoding.EncodeToString([]byte(c.username + ":" + c.password))} {
		for _, written := range []string{secret, strings.Trim(strconv.Quote(secret), `"`), url.QueryEscape(secret)} {
			if secret != "" && strings.Contains(err.Error(), written) {
				return errors.New("the error is not shown, because it has the credentials")
			}
		}
	}
	return err
}
