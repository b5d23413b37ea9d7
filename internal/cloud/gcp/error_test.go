// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/compute/metadata"
	"google.golang.org/api/compute/v1"
	"google.golang.org/api/googleapi"

	"moult.dev/moult/internal/cloud"
)

func TestClassify(t *testing.T) {
	said := func(code int, reason, message string) error {
		return &googleapi.Error{Code: code, Message: message, Errors: []googleapi.ErrorItem{{Reason: reason, Message: message}}}
	}
	token := func(status int) error {
		return &url.Error{Op: "Get", URL: "x", Err: fmt.Errorf("fetching a token, %w", &auth.Error{Response: &http.Response{StatusCode: status}})}
	}
	tests := map[string]struct {
		err  error
		want cloud.Kind
	}{
		"rate, as of old":         {said(403, "rateLimitExceeded", ""), cloud.KindThrottled},
		"rate of a user":          {said(403, "userRateLimitExceeded", ""), cloud.KindThrottled},
		"rate, as of late":        {said(429, "RESOURCE_EXHAUSTED", ""), cloud.KindThrottled},
		"quota of calls":          {said(403, "quotaExceeded", "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute'"), cloud.KindThrottled},
		"quota of machines":       {said(403, "quotaExceeded", "Quota 'CPUS' exceeded. Limit: 24.0"), cloud.KindQuota},
		"limit":                   {said(403, "limitExceeded", "Exceeded limit 'MAX_INSTANCES_IN_INSTANCE_GROUP'"), cloud.KindQuota},
		"no room":                 {said(503, "", "ZONE_RESOURCE_POOL_EXHAUSTED"), cloud.KindQuota},
		"no rights":               {said(403, "forbidden", "Required 'compute.instanceGroupManagers.update' permission"), cloud.KindDenied},
		"not enabled":             {said(403, "accessNotConfigured", ""), cloud.KindDenied},
		"bad token":               {said(401, "authError", "Invalid Credentials"), cloud.KindDenied},
		"not found":               {said(404, "notFound", ""), cloud.KindNotFound},
		"exists":                  {said(409, "alreadyExists", ""), cloud.KindConflict},
		"in use":                  {said(400, "resourceInUseByAnotherResource", ""), cloud.KindConflict},
		"not ready":               {said(400, "resourceNotReady", ""), cloud.KindConflict},
		"fingerprint":             {said(412, "conditionNotMet", ""), cloud.KindConflict},
		"invalid":                 {said(400, "invalid", ""), cloud.KindInvalid},
		"no such method":          {said(405, "", ""), cloud.KindInvalid},
		"request timeout":         {said(408, "", ""), cloud.KindUnavailable},
		"internal":                {said(500, "internalError", ""), cloud.KindUnavailable},
		"backend":                 {said(503, "backendError", ""), cloud.KindUnavailable},
		"no JSON":                 {&googleapi.Error{Code: 502, Body: "<html>"}, cloud.KindUnavailable},
		"network":                 {&url.Error{Op: "Get", URL: "x", Err: errors.New("connection refused")}, cloud.KindUnavailable},
		"token refused":           {token(403), cloud.KindDenied},
		"token server busy":       {token(429), cloud.KindThrottled},
		"token server down":       {token(503), cloud.KindUnavailable},
		"no service account":      {fmt.Errorf("x, %w", metadata.NotDefinedError("token")), cloud.KindDenied},
		"metadata server refuses": {fmt.Errorf("x, %w", &metadata.Error{Code: 403}), cloud.KindDenied},
		"metadata server down":    {fmt.Errorf("x, %w", &metadata.Error{Code: 500}), cloud.KindUnavailable},
		"exchange is busy":        {errors.New("credentials: status code 429: no"), cloud.KindThrottled},
		"may not impersonate":     {errors.New("impersonate: status code 403: no"), cloud.KindDenied},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := classify("doing", test.err)
			if got := cloud.KindOf(err); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
			if !errors.Is(err, test.err) {
				t.Errorf("%v has lost its cause", err)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{"": 0, "7": 7 * time.Second, "-1": 0, "Fri, 31 Dec 1999 23:59:59 GMT": 0} {
		err := classify("doing", &googleapi.Error{Code: 429, Header: http.Header{"Retry-After": {header}}})
		if got := cloud.RetryAfter(err); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}

func TestEnded(t *testing.T) {
	with := func(code string) *compute.Operation {
		return &compute.Operation{Error: &compute.OperationError{Errors: []*compute.OperationErrorErrors{{Code: code, Message: "words"}, {Code: "OTHER"}}}}
	}
	tests := map[string]struct {
		operation *compute.Operation
		want      cloud.Kind
		says      string
	}{
		"well":         {&compute.Operation{}, "", ""},
		"quota":        {with("QUOTA_EXCEEDED"), cloud.KindQuota, "QUOTA_EXCEEDED: words"},
		"stockout":     {with("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"), cloud.KindQuota, "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS: words"},
		"rate":         {with("RATE_LIMIT_EXCEEDED"), cloud.KindQuota, "RATE_LIMIT_EXCEEDED: words"},
		"rights":       {with("PERMISSIONS_ERROR"), cloud.KindDenied, "PERMISSIONS_ERROR: words"},
		"invalid":      {with("INVALID_USAGE"), cloud.KindInvalid, "INVALID_USAGE: words"},
		"in use":       {with("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"), cloud.KindFailed, "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE: words"},
		"status alone": {&compute.Operation{HttpErrorStatusCode: 409, HttpErrorMessage: "CONFLICT"}, cloud.KindConflict, "409 CONFLICT"},
		"forbidden":    {&compute.Operation{HttpErrorStatusCode: 403, HttpErrorMessage: "FORBIDDEN"}, cloud.KindDenied, "403 FORBIDDEN"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if kind, says := operationError(test.operation); kind != test.want || says != test.says {
				t.Errorf("%s %q, want %s %q", kind, says, test.want, test.says)
			}
		})
	}
}

func TestStateOf(t *testing.T) {
	luckless := &compute.ManagedInstanceLastAttempt{Errors: &compute.ManagedInstanceLastAttemptErrors{
		Errors: []*compute.ManagedInstanceLastAttemptErrorsErrors{{Code: "QUOTA_EXCEEDED", Message: "no"}},
	}}
	tests := map[string]struct {
		instance compute.ManagedInstance
		want     cloud.State
	}{
		"made":              {compute.ManagedInstance{CurrentAction: "CREATING"}, cloud.Creating},
		"made once":         {compute.ManagedInstance{CurrentAction: "CREATING_WITHOUT_RETRIES"}, cloud.Creating},
		"made anew":         {compute.ManagedInstance{CurrentAction: "RECREATING", InstanceStatus: "STOPPING"}, cloud.Creating},
		"can't be made":     {compute.ManagedInstance{CurrentAction: "CREATING", LastAttempt: luckless}, cloud.Failed},
		"has no room":       {compute.ManagedInstance{CurrentAction: "CREATING", InstanceStatus: "PROVISIONING", LastAttempt: luckless}, cloud.Failed},
		"is made after all": {compute.ManagedInstance{CurrentAction: "CREATING", InstanceStatus: "RUNNING", LastAttempt: luckless}, cloud.Creating},
		"verified":          {compute.ManagedInstance{CurrentAction: "VERIFYING", InstanceStatus: "RUNNING"}, cloud.Running},
		"runs":              {compute.ManagedInstance{CurrentAction: "NONE", InstanceStatus: "RUNNING"}, cloud.Running},
		"runs after all":    {compute.ManagedInstance{CurrentAction: "NONE", InstanceStatus: "RUNNING", LastAttempt: luckless}, cloud.Running},
		"begins":            {compute.ManagedInstance{CurrentAction: "NONE", InstanceStatus: "STAGING"}, cloud.Creating},
		"under repair":      {compute.ManagedInstance{CurrentAction: "NONE", InstanceStatus: "REPAIRING"}, cloud.Creating},
		"restarts":          {compute.ManagedInstance{CurrentAction: "RESTARTING", InstanceStatus: "STOPPING"}, cloud.Stopped},
		"stopped":           {compute.ManagedInstance{CurrentAction: "NONE", InstanceStatus: "TERMINATED"}, cloud.Stopped},
		"suspended":         {compute.ManagedInstance{CurrentAction: "NONE", InstanceStatus: "SUSPENDED"}, cloud.Stopped},
		"deleted":           {compute.ManagedInstance{CurrentAction: "DELETING", InstanceStatus: "RUNNING"}, cloud.Deleting},
		"abandoned":         {compute.ManagedInstance{CurrentAction: "ABANDONING", InstanceStatus: "RUNNING"}, cloud.Deleting},
		"goes by itself":    {compute.ManagedInstance{CurrentAction: "NONE", InstanceStatus: "DEPROVISIONING"}, cloud.Deleting},
		"is not there":      {compute.ManagedInstance{CurrentAction: "NONE", LastAttempt: luckless}, cloud.Failed},
		"is not there, yet": {compute.ManagedInstance{CurrentAction: "NONE"}, cloud.Creating},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := (&Cloud{}).machine(&test.instance, "")
			if got.State != test.want || got.State == cloud.Failed && got.Message != "QUOTA_EXCEEDED: no" {
				t.Errorf("%s %q, want %s", got.State, got.Message, test.want)
			}
		})
	}
}

func TestUnfit(t *testing.T) {
	opportunistic := &compute.InstanceGroupManagerUpdatePolicy{Type: "OPPORTUNISTIC"}
	version := func(size *compute.FixedOrPercent) []*compute.InstanceGroupManagerVersion {
		return []*compute.InstanceGroupManagerVersion{{InstanceTemplate: "t", TargetSize: size}}
	}
	tests := map[string]struct {
		group compute.InstanceGroupManager
		fit   bool
	}{
		"a template alone":        {compute.InstanceGroupManager{UpdatePolicy: opportunistic, InstanceTemplate: "t"}, true},
		"no template":             {compute.InstanceGroupManager{UpdatePolicy: opportunistic}, false},
		"one version":             {compute.InstanceGroupManager{UpdatePolicy: opportunistic, Versions: version(nil)}, true},
		"whose size is said back": {compute.InstanceGroupManager{UpdatePolicy: opportunistic, Versions: version(&compute.FixedOrPercent{Calculated: 3})}, true},
		"for all":                 {compute.InstanceGroupManager{UpdatePolicy: opportunistic, Versions: version(&compute.FixedOrPercent{Percent: 100})}, true},
		"for half":                {compute.InstanceGroupManager{UpdatePolicy: opportunistic, Versions: version(&compute.FixedOrPercent{Percent: 50})}, false},
		"for one":                 {compute.InstanceGroupManager{UpdatePolicy: opportunistic, Versions: version(&compute.FixedOrPercent{Fixed: 1})}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := unfitReason(group{}, &test.group); (got == "") != test.fit {
				t.Errorf("unfit because %q", got)
			}
		})
	}
}
