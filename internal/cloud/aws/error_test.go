// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"moult.dev/moult/internal/cloud"
)

func TestKinds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		code, message string
		status        int
		want          cloud.Kind
	}{
		{"Throttling", "Rate exceeded", 400, cloud.KindThrottled},
		{"ThrottlingException", "", 400, cloud.KindThrottled},
		{"RequestLimitExceeded", "", 503, cloud.KindThrottled},
		{"SomethingNew", "", 429, cloud.KindThrottled},
		{"ResourceContention", "", 500, cloud.KindUnavailable},
		{"ScalingActivityInProgress", "", 400, cloud.KindUnavailable},
		{"LimitExceeded", "", 400, cloud.KindQuota},
		{"InsufficientInstanceCapacity", "", 500, cloud.KindQuota},
		{"InsufficientCapacityOnOutpost", "", 400, cloud.KindQuota},
		{"VcpuLimitExceeded", "", 400, cloud.KindQuota},
		{"FleetLimitExceeded", "", 400, cloud.KindQuota},
		{"AccessDenied", "", 403, cloud.KindDenied},
		{"AccessDeniedException", "", 400, cloud.KindDenied},
		{"UnauthorizedOperation", "", 403, cloud.KindDenied},
		{"ExpiredToken", "", 403, cloud.KindDenied},
		{"ExpiredTokenException", "", 400, cloud.KindDenied},
		{"SomethingNew", "", 403, cloud.KindDenied},
		{"ValidationError", "AutoScalingGroup name not found - AutoScalingGroup x not found", 400, cloud.KindNotFound},
		{"ValidationError", "Instance Id not found - No managed instance found for instance ID i-1", 400, cloud.KindNotFound},
		{"ValidationError", "New SetDesiredCapacity value 5 is above max value 4 for the AutoScalingGroup.", 400, cloud.KindFull},
		{"ValidationError", "The requested capacity exceeds the maximum size of the group", 400, cloud.KindFull},
		{"ValidationError", "1 validation error detected", 400, cloud.KindInvalid},
		{"InvalidLaunchTemplateId.VersionNotFound", "", 400, cloud.KindInvalid},
		{"InvalidAMIID.NotFound", "", 400, cloud.KindNotFound},
		{"InvalidAMIID.Malformed", "", 400, cloud.KindInvalid},
		{"OperationNotPermitted", "", 400, cloud.KindInvalid},
		{"UnsupportedOperation", "", 400, cloud.KindInvalid},
		{"IdempotentCallInProgress", "", 409, cloud.KindUnavailable},
		{"InternalFailure", "", 500, cloud.KindUnavailable},
		{"SomethingNew", "", 400, cloud.KindUnavailable},
	} {
		err := classify("doing", &smithyhttp.ResponseError{
			Response: &smithyhttp.Response{Response: &http.Response{StatusCode: tc.status, Header: http.Header{"Retry-After": {"3"}}}},
			Err:      &smithy.GenericAPIError{Code: tc.code, Message: tc.message},
		})
		if got := cloud.KindOf(err); got != tc.want {
			t.Errorf("%s %q %d: %s, want %s", tc.code, tc.message, tc.status, got, tc.want)
		}
		if got, want := err.Error(), "doing, "+cloud.CodeAndMessage(tc.code, tc.message); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := cloud.RetryAfter(err); got != 3*time.Second {
			t.Errorf("after %s", got)
		}
	}
	for _, tc := range []struct {
		err  error
		want cloud.Kind
	}{
		{context.DeadlineExceeded, cloud.KindUnavailable},
		{errors.New("get identity: get credentials: there are none"), cloud.KindDenied},
	} {
		if got := cloud.KindOf(classify("doing", tc.err)); got != tc.want {
			t.Errorf("%v: %s", tc.err, got)
		}
	}
}
