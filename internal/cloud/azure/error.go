// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strconv"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"moult.dev/moult/internal/cloud"
)

// rules are the kinds of Azure's answers, by code and message. Azure reports a lock or a policy as a conflict, and a subscription without rights as unknown.
var rules = []cloud.Rule{
	{Text: regexp.MustCompile(`(?i)^((Resource)?QuotaExceeded|(Zonal)?AllocationFailed|Overconstrained(Zonal)?AllocationRequest|SkuNotAvailable|SubnetIsFull)\b`),
		Kind: cloud.KindQuota},
	{Text: regexp.MustCompile(`(?i)^OperationNotAllowed:.*(quota|exceeding approved)`), Kind: cloud.KindQuota},
	{Text: regexp.MustCompile(`(?i)^(ScopeLocked|ReadOnlyDisabledSubscription|RequestDisallowedByPolicy|SubscriptionNotFound)\b|^\w*Authorization`), Kind: cloud.KindDenied},
}

// classify makes a cloud.Error of an error of the SDK.
func classify(doing string, err error) error {
	if answer, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return cloud.FromAnswer(doing, answer.StatusCode, answer.RawResponse.Header, textOf(err), rules)
	}
	return cloud.Errorf(cloud.KindOf(err), "%s, %w", doing, err) // Errors of markedCredential and onlyTo have a kind.
}

// tokenErrorKind is KindDenied where the credentials were refused, and KindUnavailable where no server answered.
func tokenErrorKind(err error) cloud.Kind {
	if failed, ok := errors.AsType[*azidentity.AuthenticationFailedError](err); ok {
		if r := failed.RawResponse; r == nil || r.StatusCode == http.StatusTooManyRequests || r.StatusCode >= http.StatusInternalServerError {
			return cloud.KindUnavailable
		}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return cloud.KindUnavailable
	}
	return cloud.KindDenied
}

// textOf is the code and message of an answer in one line.
func textOf(err error) string {
	answer, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok {
		return cloud.OneLine(err.Error())
	}
	var body struct {
		Error struct{ Code, Message string } `json:"error"`
	}
	if text, err := runtime.Payload(answer.RawResponse); err == nil {
		_ = json.Unmarshal(text, &body) // Without a body the status remains.
	}
	code := cmp.Or(body.Error.Code, answer.ErrorCode, strconv.Itoa(answer.StatusCode)+" "+http.StatusText(answer.StatusCode))
	return cloud.OneLine(cloud.CodeAndMessage(code, body.Error.Message))
}
