// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"moult.dev/moult/internal/cloud"
)

// noRoom are the codes of Azure for no capacity, and no quota, in lower case.
var noRoom = []string{
	"quotaexceeded", "resourcequotaexceeded", "allocationfailed", "zonalallocationfailed", "overconstrainedallocationrequest",
	"overconstrainedzonalallocationrequest", "skunotavailable", "subnetisfull",
}

// longest is how long the text of an answer may be that is passed on.
const longest = 500

// classify says what an answer that is an error means, said with what was asked for. Nil stays nil.
func classify(err error, doing string, args ...any) error {
	if err == nil {
		return nil
	}
	doing = fmt.Sprintf(doing, args...)
	e := &cloud.Error{Kind: cloud.KindUnavailable}
	var answer *azcore.ResponseError
	var failed *azidentity.AuthenticationFailedError
	var proof *tokenError
	switch {
	case errors.As(err, &answer):
		e.Kind, e.RetryAfter = kindOf(answer), retryAfter(answer.RawResponse)
		e.Err = fmt.Errorf("%s, %s", doing, textOf(answer))
		return e
	case errors.As(err, &failed):
		// Without an answer, and after 429 and 5xx, nothing is said about who asks.
		if r := failed.RawResponse; r != nil && r.StatusCode != http.StatusTooManyRequests && r.StatusCode < http.StatusInternalServerError {
			e.Kind = cloud.KindDenied
		}
		e.Err = fmt.Errorf("%s, proving who asks, %s", doing, oneLine(failed.Error()))
		return e
	case errors.As(err, &proof) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
		// No credential is there at all.
		e.Kind = cloud.KindDenied
		e.Err = fmt.Errorf("%s, proving who asks, %s", doing, oneLine(err.Error()))
		return e
	}
	e.Err = fmt.Errorf("%s, %w", doing, err)
	return e
}

// kindOf is what the code of an answer says, or else its status.
func kindOf(answer *azcore.ResponseError) cloud.Kind {
	status := answer.StatusCode
	if status == http.StatusTooManyRequests {
		return cloud.KindThrottled
	}
	if saysNoRoom(answer.ErrorCode, textOf(answer)) {
		return cloud.KindQuota
	}
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden || isLockOrPolicy(answer.ErrorCode) || isUnknownSubscription(answer.ErrorCode):
		return cloud.KindDenied
	case status == http.StatusNotFound:
		return cloud.KindNotFound
	case status == http.StatusConflict || status == http.StatusPreconditionFailed:
		return cloud.KindConflict
	case status >= http.StatusInternalServerError || status == http.StatusRequestTimeout || status < http.StatusBadRequest:
		return cloud.KindUnavailable
	default:
		return cloud.KindInvalid
	}
}

// saysNoRoom reports whether a code, with the text beside it, says that there is no room or no quota.
func saysNoRoom(code, message string) bool {
	code = strings.ToLower(code)
	message = strings.ToLower(message)
	return slices.Contains(noRoom, code) ||
		code == "operationnotallowed" && (strings.Contains(message, "quota") || strings.Contains(message, "exceeding approved"))
}

// isLockOrPolicy reports whether a code says that a lock or a policy is in the way, which Azure answers as if others were at work.
func isLockOrPolicy(code string) bool {
	return slices.Contains([]string{"scopelocked", "readonlydisabledsubscription", "requestdisallowedbypolicy"}, strings.ToLower(code))
}

// isUnknownSubscription reports whether a code says that there is no such subscription, which Azure answers also to those who have no right in it. It says nothing of what
// is there.
func isUnknownSubscription(code string) bool { return strings.EqualFold(code, "SubscriptionNotFound") }

// kindOfFailure is the kind of the error that an operation has ended with in Azure: only those that Poll may end with.
func kindOfFailure(code, message string) cloud.Kind {
	switch lower := strings.ToLower(code); {
	case saysNoRoom(code, message):
		return cloud.KindQuota
	case strings.Contains(lower, "authorization") || isLockOrPolicy(code):
		return cloud.KindDenied
	default:
		return cloud.KindFailed
	}
}

// azureError is an error as Azure writes it.
type azureError struct {
	Code    string       `json:"code"`
	Message string       `json:"message"`
	Details []azureError `json:"details"`
}

// inner is the most particular of the errors that lie in each other.
func (s azureError) inner() azureError {
	if len(s.Details) > 0 && s.Details[0].Code != "" {
		return s.Details[0].inner()
	}
	return s
}

// errorIn reads the error in an answer.
func errorIn(r *http.Response) azureError {
	if r == nil || r.Body == nil {
		return azureError{}
	}
	body, err := runtime.Payload(r)
	if err != nil {
		return azureError{}
	}
	var wrapped struct {
		azureError
		Error *azureError `json:"error"`
	}
	if json.Unmarshal(body, &wrapped) != nil {
		return azureError{}
	}
	if wrapped.Error != nil {
		return *wrapped.Error
	}
	return wrapped.azureError
}

// textOf is what an answer says, in one line.
func textOf(answer *azcore.ResponseError) string {
	s := errorIn(answer.RawResponse)
	code := cmp.Or(s.Code, answer.ErrorCode, strconv.Itoa(answer.StatusCode)+" "+http.StatusText(answer.StatusCode))
	if s.Message == "" {
		return oneLine(code)
	}
	return oneLine(code + ": " + s.Message)
}

func oneLine(message string) string {
	message = strings.Join(strings.Fields(message), " ")
	if len(message) > longest {
		message = strings.ToValidUTF8(message[:longest], "") + "..."
	}
	return message
}

// retryAfter is how long an answer asks to wait, in the three ways that Azure says it.
func retryAfter(r *http.Response) time.Duration {
	if r == nil {
		return 0
	}
	for _, header := range []struct {
		name string
		unit time.Duration
	}{{"retry-after-ms", time.Millisecond}, {"x-ms-retry-after-ms", time.Millisecond}, {"Retry-After", time.Second}} {
		if n, err := strconv.Atoi(r.Header.Get(header.name)); err == nil && n > 0 {
			return min(time.Duration(n)*header.unit, time.Hour)
		}
	}
	return 0
}
