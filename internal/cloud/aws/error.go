// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"moult.dev/moult/internal/cloud"
)

// rules are the kinds of AWS's answers, by code and message. None is KindConflict: AWS reports a conflict even if an earlier attempt had an effect.
var rules = []cloud.Rule{
	{Text: regexp.MustCompile(`^(Throttl|RequestLimitExceeded|RequestThrottled|TooManyRequests|BandwidthLimitExceeded|EC2Throttled|SlowDown)`), Kind: cloud.KindThrottled},
	{Text: regexp.MustCompile(`^(AccessDenied|ExpiredToken|Unauthorized|AuthFailure|InvalidClientTokenId|UnrecognizedClient|SignatureDoesNotMatch|` +
		`IncompleteSignature|MissingAuthenticationToken|InvalidIdentityToken|RequestExpired|OptInRequired|Blocked|PendingVerification)`), Kind: cloud.KindDenied},
	{Text: regexp.MustCompile(`^InvalidLaunchTemplate|^ValidationError:(?i:.*(below min|min(imum)?[ -]?size))`), Kind: cloud.KindInvalid},
	{Text: regexp.MustCompile(`^[^:]*NotFound|^ValidationError:(?i:.*not found)`), Kind: cloud.KindNotFound},
	{Text: regexp.MustCompile(`^ValidationError:(?i:.*(above max|max(imum)?[ -]?size|maximum (group )?(size|capacity)))`), Kind: cloud.KindFull},
	{Text: regexp.MustCompile(`^(Insufficient|UnfulfillableCapacity|MaxSpotInstanceCountExceeded|\w*LimitExceeded)`), Kind: cloud.KindQuota},
	{Text: regexp.MustCompile(`^(ValidationError|Invalid|Missing|Incorrect|OperationNotPermitted|Unsupported|IdempotentParameterMismatch)`), Kind: cloud.KindInvalid},
}

// classify makes a cloud.Error of an error of the SDK, and returns nil for nil.
func classify(doing string, err error) error {
	if err == nil {
		return nil
	}
	e := &cloud.Error{Kind: cloud.KindUnavailable, Err: fmt.Errorf("%s, %w", doing, err)}
	if response, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && response.Response != nil {
		e.RetryAfter = cloud.RetryAfterSeconds(response.Response.Header)
		if kind := cloud.KindOfStatus(response.HTTPStatusCode()); kind == cloud.KindDenied || kind == cloud.KindThrottled {
			e.Kind = kind
		}
	}
	if answer, ok := errors.AsType[smithy.APIError](err); ok {
		// The rest of the SDK's text, such as the request's id, differs each time.
		text := cloud.CodeAndMessage(answer.ErrorCode(), answer.ErrorMessage())
		e.Kind, e.Err = cloud.KindOfAnswer(rules, text, e.Kind), fmt.Errorf("%s, %s", doing, text)
	} else if strings.Contains(err.Error(), "get identity:") { // there are no credentials
		e.Kind = cloud.KindDenied
	}
	return e
}
