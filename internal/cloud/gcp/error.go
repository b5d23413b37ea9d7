// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/compute/metadata"
	"google.golang.org/api/compute/v1"
	"google.golang.org/api/googleapi"

	"moult.dev/moult/internal/cloud"
)

// rules are the kinds of Compute Engine's answers, by reason or code, and message. Those of operations and machines are in capital letters.
var rules = []cloud.Rule{
	{Text: regexp.MustCompile(`ateLimitExceeded|concurrentLimitExceeded|per minute`), Kind: cloud.KindThrottled},
	{Text: regexp.MustCompile(`^quotaExceeded|^limitExceeded|QUOTA_EXCEEDED|POOL_EXHAUSTED|LIMIT_EXCEEDED|STOCKOUT|INSUFFICIENT_(RESOURCES|CAPACITY)|IP_SPACE_EXHAUSTED`), Kind: cloud.KindQuota},
	{Text: regexp.MustCompile(`^(resourceNotReady|resourceInUse|operationInProgress|conditionNotMet|resourceFingerprintInvalid)`), Kind: cloud.KindConflict},
	{Text: regexp.MustCompile(`^\w*PERMISSION|^FORBIDDEN`), Kind: cloud.KindDenied},
	{Text: regexp.MustCompile(`^(INVALID|UNSUPPORTED)`), Kind: cloud.KindInvalid},
}

// classify makes a cloud.Error of an error of Google's library.
func classify(doing string, err error) error {
	if answer, ok := errors.AsType[*googleapi.Error](err); ok {
		text := answer.Message
		if len(answer.Errors) > 0 {
			text = answer.Errors[0].Reason + ": " + text
		}
		e := cloud.FromAnswer(doing, answer.Code, answer.Header, text, rules)
		e.Err = fmt.Errorf("%s, %w", doing, err)
		return e
	}
	kind := cloud.KindOfStatus(tokenStatus(err))
	if kind != cloud.KindThrottled && kind != cloud.KindUnavailable {
		kind = cloud.KindDenied
	}
	return cloud.Errorf(kind, "%s, %w", doing, err)
}

// operationError is why an operation has failed; empty if it has not.
func operationError(o *compute.Operation) (kind cloud.Kind, text string) {
	switch {
	case len(cloud.Value(o.Error).Errors) > 0:
		text = cloud.CodeAndMessage(o.Error.Errors[0].Code, o.Error.Errors[0].Message)
		return cloud.KindOfAnswer(rules, text, cloud.KindFailed), text
	case o.HttpErrorStatusCode != 0:
		return cloud.KindOfStatus(int(o.HttpErrorStatusCode)), fmt.Sprint(o.HttpErrorStatusCode, " ", o.HttpErrorMessage)
	}
	return "", ""
}

// lastError is why a group's last attempt to make or delete a machine failed; empty where it did not.
func lastError(m *compute.ManagedInstance) string {
	all := cloud.Value(cloud.Value(m.LastAttempt).Errors).Errors
	if len(all) == 0 {
		return ""
	}
	return cloud.CodeAndMessage(all[0].Code, all[0].Message)
}

// exchange matches the errors of token exchanges, which have the status only in their text.
var exchange = regexp.MustCompile(`(?:credentials|impersonate): status code ([0-9]{3})`)

// tokenStatus is the HTTP status with which a token was refused; 0 for other errors.
func tokenStatus(err error) int {
	if refused, ok := errors.AsType[*auth.Error](err); ok && refused.Response != nil {
		return refused.Response.StatusCode
	}
	if machine, ok := errors.AsType[*metadata.Error](err); ok {
		return machine.Code
	}
	if _, ok := errors.AsType[metadata.NotDefinedError](err); ok {
		return http.StatusNotFound
	}
	if text := exchange.FindStringSubmatch(err.Error()); text != nil {
		status, _ := strconv.Atoi(text[1])
		return status
	}
	return 0
}
