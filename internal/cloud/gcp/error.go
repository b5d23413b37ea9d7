// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/compute/metadata"
	"google.golang.org/api/compute/v1"
	"google.golang.org/api/googleapi"

	"moult.dev/moult/internal/cloud"
)

// classify says of an error what kind it is. doing is what was tried.
func classify(doing string, err error) error {
	if answer, ok := errors.AsType[*googleapi.Error](err); ok {
		return &cloud.Error{Kind: kindOf(answer), RetryAfter: cloud.RetryAfterSeconds(answer.Header), Err: fmt.Errorf("%s, %w", doing, err)}
	}
	kind := cloud.KindUnavailable
	if tokenRefused(err) {
		kind = cloud.KindDenied
	}
	return &cloud.Error{Kind: kind, Err: fmt.Errorf("%s, %w", doing, err)}
}

// kindOf goes by the status of an answer, and by the reason where that says more.
func kindOf(e *googleapi.Error) cloud.Kind {
	var reasons []string
	for _, item := range e.Errors {
		reasons = append(reasons, item.Reason)
	}
	has := func(these ...string) bool {
		return slices.ContainsFunc(these, func(r string) bool { return slices.Contains(reasons, r) })
	}
	switch {
	case has("rateLimitExceeded", "userRateLimitExceeded", "concurrentLimitExceeded", "operationRateLimitExceeded"), e.Code == http.StatusTooManyRequests:
		return cloud.KindThrottled
	case has("quotaExceeded", "limitExceeded"):
		if strings.Contains(e.Message, "per minute") { // a quota of calls
			return cloud.KindThrottled
		}
		return cloud.KindQuota
	case saysNoRoom(e.Message):
		return cloud.KindQuota
	case has("resourceNotReady", "resourceInUse", "resourceInUseByAnotherResource", "operationInProgress", "conditionNotMet", "resourceFingerprintInvalid"):
		return cloud.KindConflict
	}
	switch e.Code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return cloud.KindDenied
	case http.StatusNotFound, http.StatusGone:
		return cloud.KindNotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		return cloud.KindConflict
	case http.StatusRequestTimeout:
		return cloud.KindUnavailable
	}
	if e.Code >= 400 && e.Code < 500 {
		return cloud.KindInvalid
	}
	return cloud.KindUnavailable
}

// kindOfFailure says what kind of end a code is, of an operation or of an attempt to make a machine.
func kindOfFailure(code string) cloud.Kind {
	code = strings.ToUpper(code)
	switch {
	case saysNoRoom(code), strings.Contains(code, "RATE_LIMIT"):
		return cloud.KindQuota
	case strings.Contains(code, "PERMISSION"), code == "FORBIDDEN":
		return cloud.KindDenied
	case strings.HasPrefix(code, "INVALID"), strings.HasPrefix(code, "UNSUPPORTED"):
		return cloud.KindInvalid
	}
	return cloud.KindFailed
}

// saysNoRoom reports whether a text says that there is no room, or no quota.
func saysNoRoom(text string) bool {
	return slices.ContainsFunc([]string{"QUOTA_EXCEEDED", "POOL_EXHAUSTED", "LIMIT_EXCEEDED", "STOCKOUT", "INSUFFICIENT_RESOURCES"},
		func(s string) bool { return strings.Contains(text, s) })
}

// operationError is the error that an operation has ended with, nil if it has ended well.
func operationError(o *compute.Operation) error {
	if o.Error == nil || len(o.Error.Errors) == 0 {
		switch o.HttpErrorStatusCode {
		case 0:
			return nil
		case http.StatusForbidden:
			return cloud.Errorf(cloud.KindDenied, "%s", o.HttpErrorMessage)
		}
		return cloud.Errorf(cloud.KindFailed, "%d %s", o.HttpErrorStatusCode, o.HttpErrorMessage)
	}
	var said []string
	for _, e := range o.Error.Errors {
		said = append(said, codeAndMessage(e.Code, e.Message))
	}
	return cloud.Errorf(kindOfFailure(o.Error.Errors[0].Code), "%s", strings.Join(said, "; "))
}

// lastError is what a group says of its last attempt to make or to delete a machine: a code, and a text with it for people. Empty: nothing.
func lastError(m *compute.ManagedInstance) (code, text string) {
	if m.LastAttempt == nil || m.LastAttempt.Errors == nil || len(m.LastAttempt.Errors.Errors) == 0 {
		return "", ""
	}
	e := m.LastAttempt.Errors.Errors[0]
	return e.Code, codeAndMessage(e.Code, e.Message)
}

func codeAndMessage(code, message string) string {
	if message == "" {
		return code
	}
	return code + ": " + message
}

// tokenRefused reports whether an error says that there is no token to be had, rather than that whoever gives them does not answer.
func tokenRefused(err error) bool {
	if refused, ok := errors.AsType[*auth.Error](err); ok && refused.Response != nil {
		return isRefusal(refused.Response.StatusCode)
	}
	if machine, ok := errors.AsType[*metadata.Error](err); ok {
		return isRefusal(machine.Code)
	}
	if _, ok := errors.AsType[metadata.NotDefinedError](err); ok {
		return true
	}
	// Exchanges of tokens say it in words alone.
	said := exchange.FindStringSubmatch(err.Error())
	if said == nil {
		return false
	}
	status, err := strconv.Atoi(said[1])
	return err == nil && isRefusal(status)
}

var exchange = regexp.MustCompile(`(?:credentials|impersonate): status code ([0-9]{3})`)

func isRefusal(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout
}
