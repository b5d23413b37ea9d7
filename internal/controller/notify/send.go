// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"moult.dev/moult/internal/notification"
	"moult.dev/moult/internal/outbound"
)

// timeout limits one request.
const timeout = 10 * time.Second

// sender sends notifications of a cluster.
type sender struct {
	client  *http.Client
	cluster string
}

func newSender(transport http.RoundTripper, cluster string) *sender {
	return &sender{&http.Client{
		Transport: transport, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, cluster}
}

// failure says why a webhook did not take a notification. It has no part of the URL, the header or the answer.
type failure string

// Error implements error.
func (f failure) Error() string { return string(f) }

// send sends one notification. refused means that another attempt would fail too.
func (s *sender) send(ctx context.Context, w *webhook, n *notification.Notification) (refused bool, err error) {
	body, err := json.Marshal(w.body(n, s.cluster))
	if err != nil {
		return true, failure("it can't be encoded")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return false, failure("the url can't be used")
	}
	request.Header.Set("Content-Type", contentTypes[w.Format])
	if w.Authorization != "" {
		request.Header.Set("Authorization", w.Authorization)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return false, explained(err)
	}
	_ = response.Body.Close()
	switch status := response.StatusCode; status / 100 {
	case 2:
		return false, nil
	case 3:
		return false, failure(fmt.Sprintf("the answer is %d, and a redirect is not followed", status))
	default:
		return isRefused(status), failure(fmt.Sprintf("the answer is %d %s", status, http.StatusText(status)))
	}
}

// explained says why a request failed, in fixed words.
func explained(err error) error {
	_, dns := errors.AsType[*net.DNSError](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	late, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, outbound.ErrLocal):
		return failure("the address is " + outbound.ErrLocal.Error())
	case isNet && late.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return failure("no answer in time")
	case dns:
		return failure("the host's name has no address")
	case certificate:
		return failure("the server's certificate is not trusted")
	case errors.Is(err, syscall.ECONNREFUSED):
		return failure("the connection is refused")
	case strings.Contains(err.Error(), "malformed HTTP"):
		return failure("the answer is not HTTP")
	default:
		return failure("the connection failed")
	}
}
