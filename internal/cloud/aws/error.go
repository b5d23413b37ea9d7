// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"moult.dev/moult/internal/cloud"
)

// kinds are the error codes that no rule of kindOf covers.
var kinds = map[string]cloud.Kind{
	"RequestLimitExceeded":     cloud.KindThrottled,
	"RequestThrottled":         cloud.KindThrottled,
	"TooManyRequestsException": cloud.KindThrottled,
	"BandwidthLimitExceeded":   cloud.KindThrottled,
	"EC2ThrottledException":    cloud.KindThrottled,
	"SlowDown":                 cloud.KindThrottled,

	"ResourceContention":        cloud.KindConflict,
	"ScalingActivityInProgress": cloud.KindConflict,
	"ResourceInUse":             cloud.KindConflict,
	"InstanceRefreshInProgress": cloud.KindConflict,

	"UnfulfillableCapacity":        cloud.KindQuota,
	"MaxSpotInstanceCountExceeded": cloud.KindQuota,

	"AuthFailure":                 cloud.KindDenied,
	"InvalidClientTokenId":        cloud.KindDenied,
	"UnrecognizedClientException": cloud.KindDenied,
	"SignatureDoesNotMatch":       cloud.KindDenied,
	"IncompleteSignature":         cloud.KindDenied,
	"MissingAuthenticationToken":  cloud.KindDenied,
	"InvalidIdentityToken":        cloud.KindDenied,
	"RequestExpired":              cloud.KindDenied,
	"OptInRequired":               cloud.KindDenied,
	"Blocked":                     cloud.KindDenied,
	"PendingVerification":         cloud.KindDenied,

	"OperationNotPermitted":       cloud.KindInvalid,
	"UnsupportedOperation":        cloud.KindInvalid,
	"IdempotentParameterMismatch": cloud.KindInvalid,
	"Unsupported":                 cloud.KindInvalid,
}

var (
	aboveMaximum = regexp.MustCompile(`(?i)above max|max(imum)?[ -]?size|maximum (group )?(size|capacity)`)
	belowMinimum = regexp.MustCompile(`(?i)below min|min(imum)?[ -]?size`)
	noRoom       = regexp.MustCompile(`(?i)insufficient|LimitExceeded|sufficient .*capacity|exceed\w* .*(limit|quota)|(limit|quota) .*exceed|vCPU`)
)

// kindOf is the kind of an answer with a code and a message.
func kindOf(code, message string, status int) cloud.Kind {
	if k, ok := kinds[code]; ok {
		return k
	}
	switch {
	case strings.HasPrefix(code, "Throttl"):
		return cloud.KindThrottled
	case strings.HasPrefix(code, "AccessDenied"), strings.HasPrefix(code, "ExpiredToken"), strings.HasPrefix(code, "Unauthorized"):
		return cloud.KindDenied
	case strings.Contains(code, "NotFound"):
		return cloud.KindNotFound
	case code == "ValidationError":
		return kindOfInvalid(message)
	case strings.HasPrefix(code, "Insufficient"), strings.HasSuffix(code, "LimitExceeded"):
		return cloud.KindQuota
	case strings.HasPrefix(code, "Invalid"), strings.HasPrefix(code, "Missing"), strings.HasPrefix(code, "Incorrect"):
		return cloud.KindInvalid
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return cloud.KindDenied
	case status == http.StatusTooManyRequests:
		return cloud.KindThrottled
	}
	return cloud.KindUnavailable
}

// kindOfInvalid tells validation errors apart, all of which have one code.
func kindOfInvalid(message string) cloud.Kind {
	switch {
	case strings.Contains(strings.ToLower(message), "not found"):
		return cloud.KindNotFound
	case belowMinimum.MatchString(message):
		return cloud.KindInvalid
	case aboveMaximum.MatchString(message):
		return cloud.KindFull
	}
	return cloud.KindInvalid
}

// classify makes an error of this repository of one of the SDK, while doing something.
func classify(doing string, err error) error {
	e := &cloud.Error{Kind: cloud.KindUnavailable, Err: fmt.Errorf("%s, %w", doing, err)}
	var response *smithyhttp.ResponseError
	status := 0
	if errors.As(err, &response) && response.Response != nil {
		status = response.HTTPStatusCode()
		e.RetryAfter = cloud.RetryAfterSeconds(response.Response.Header)
	}
	var answer smithy.APIError
	switch {
	case errors.As(err, &answer):
		e.Kind = kindOf(answer.ErrorCode(), answer.ErrorMessage(), status)
		// The rest of the SDK's text, such as the request's id, differs each time.
		e.Err = &answered{text: fmt.Sprintf("%s, %s: %s", doing, answer.ErrorCode(), answer.ErrorMessage()), err: err}
	case strings.Contains(err.Error(), "get identity:"):
		e.Kind = cloud.KindDenied
	}
	return e
}

// answered is an answer in fewer words.
type answered struct {
	text string
	err  error
}

func (a *answered) Error() string { return a.text }
func (a *answered) Unwrap() error { return a.err }

// conflict is a conflict after which the operation has had no effect and never will. A conflict that AWS answers says nothing of an earlier attempt, whose
// answer was lost.
type conflict struct{ error }

func (c conflict) Unwrap() error { return c.error }

func conflictf(format string, args ...any) error {
	return &cloud.Error{Kind: cloud.KindConflict, Err: conflict{fmt.Errorf(format, args...)}}
}

// sendError is the error that Send returns. After a conflict that AWS answers, the operation is sent again.
func sendError(err error) error {
	var c conflict
	if cloud.KindOf(err) == cloud.KindConflict && !errors.As(err, &c) {
		return &cloud.Error{Kind: cloud.KindUnavailable, RetryAfter: cloud.RetryAfter(err), Err: err}
	}
	return err
}
