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
	"slices"
	"time"

	"moult.dev/moult/internal/notification"
)

// timeout limits one request.
const timeout = 10 * time.Second

// The outcomes of a request. A refused one would be refused again, though its address and authorization are right.
const (
	outcomeSent    = "sent"
	outcomeFailed  = "failed"
	outcomeRefused = "refused"
)

var refusals = []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}

// send sends one notification. The error has no part of the URL, the header or the answer.
func (c *Controller) send(ctx context.Context, w *webhook, n *notification.Notification) (outcome string, err error) {
	content, contentType := any(n.CloudEvent(c.options.Cluster)), "application/cloudevents+json; charset=utf-8"
	if w.Format == formatSlack {
		content, contentType = n.Slack(), "application/json"
	}
	body, _ := json.Marshal(content) // Both formats always marshal.
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return outcomeFailed, errors.New("the url can't be used")
	}
	request.Header.Set("Content-Type", contentType)
	if w.Authorization != "" {
		request.Header.Set("Authorization", w.Authorization)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return outcomeFailed, withoutURL(err)
	}
	_ = response.Body.Close()
	status := response.StatusCode
	switch err = fmt.Errorf("the answer is %d %s", status, http.StatusText(status)); {
	case status/100 == 2:
		return outcomeSent, nil
	case slices.Contains(refusals, status):
		return outcomeRefused, err
	default:
		return outcomeFailed, err
	}
}

// withoutURL says why a request failed.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[net.Error](err); ok && failed.Timeout() {
		return errors.New("no answer in time")
	}
	if failed, ok := errors.AsType[*net.DNSError](err); ok {
		return errors.New(failed.Err)
	}
	if failed, ok := errors.AsType[*net.OpError](err); ok {
		return failed.Err
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return errors.New("the server's certificate is not trusted")
	}
	return errors.New("the connection ended, or the answer is not HTTP")
}
