// SPDX-License-Identifier: Apache-2.0

// Package aws is the wire of EC2 Auto Scaling, EC2 and STS in front of a world of scale sets: as much of it as replacing machines takes, as the SDK
// speaks it.
//
//	world := clouds.New(ctx, clouds.Options{ID: aws.InstanceID, Identify: aws.Identify})
//	server := httptest.NewServer(aws.Handler(world))
//	cmd.Env = append(cmd.Env, aws.Env(server.URL)...)
//
// Each set is an Auto Scaling group with a launch template of its own, whose versions are its images: one that is put into the world's set is a new
// version, as if a person had made it and set the group to it.
//
// Settings of a set:
//
//   - launchTemplate: $Latest or $Default, instead of the version's number; image is then always that of the newest version.
//   - template: the set whose launch template it has, instead of one of its own. An image that there is a version of is that version.
//   - alias: the version names a parameter of Systems Manager, so that another image is no other version.
//   - policy: "mixed" for a mixed instances policy of on-demand and spot, which LaunchInstances refuses, "spot" for one of spot alone.
//   - suspended: the processes that are suspended, between commas.
//   - refresh: the status of an instance refresh. Busy is InProgress.
//   - room: how many instances a LaunchInstances launches at most.
//   - noLaunchInstances, launchConfiguration, warmPool, weights, lifetime: the group is, or has, that, if it is not empty.
//   - decrementsTwice: terminating an instance that is terminating lowers the capacity again.
//
// # What is not as in AWS
//
// An instance that fails stays, unhealthy, and no other takes its place. No process runs that rebalances zones. Rights are not looked at, nor are
// signatures. An AMI's id is its name in hexadecimal digits.
package aws

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"moult.dev/moult/test/clouds"
)

// Region is where everything is.
const Region = "eu-west-1"

// InstanceID names the nth machine of a set; see clouds.Options.ID.
func InstanceID(set string, n int) string {
	sum := sha256.Sum256([]byte(set))
	return fmt.Sprintf("i-%x%09x", sum[:4], n)
}

// Identify says how the cluster calls an instance; see clouds.Options.Identify.
func Identify(_, zone, id string) (providerID, nodeName string) {
	return "aws:///" + zone + "/" + id, id + "." + Region + ".compute.internal"
}

// ImageID is the id of the AMI of that name.
func ImageID(name string) string { return "ami-" + hex.EncodeToString([]byte(name)) }

// imageName is the name of an AMI by its id.
func imageName(id string) string {
	name, _ := hex.DecodeString(strings.TrimPrefix(id, "ami-"))
	return string(name)
}

// TemplateID is the id of a set's launch template.
func TemplateID(set string) string {
	sum := sha256.Sum256([]byte(set))
	return fmt.Sprintf("lt-%x", sum[:8])
}

// Env is the environment of a program that is to speak to a Handler at that address.
func Env(url string) []string {
	return []string{
		"AWS_ENDPOINT_URL=" + url, "AWS_REGION=" + Region, "AWS_ACCESS_KEY_ID=AKIATEST", "AWS_SECRET_ACCESS_KEY=test", "AWS_SESSION_TOKEN=",
		"AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null",
	}
}

// Handler answers for a world. Calls are named after their action, such as "LaunchInstances".
func Handler(w *clouds.World) http.Handler { return HandlerWithPages(w, 100) }

// HandlerWithPages is a Handler whose pages are no longer than that.
func HandlerWithPages(w *clouds.World, page int) http.Handler {
	d := &double{
		world: w, page: page, templates: map[string]*template{}, launched: map[string]*launched{}, activities: map[string][]*activity{},
	}
	// A call of STS has no name: it is not recorded, and no fault applies to it.
	name := func(r *http.Request) string { return strings.TrimPrefix(form(r).Get("Action"), "AssumeRole") }
	scaling := w.Serve(name, scalingFaults, refuseScaling, d.serve(d.scaling(), refuseScaling, func(action string, answer fields) string {
		return element(action+"Response", fields{action + "Result": answer}, "member")
	}))
	ec2 := w.Serve(name, ec2Faults, refuseEC2, d.serve(d.ec2(), refuseEC2, func(action string, answer fields) string {
		return element(action+"Response", answer, "item")
	}))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if form(r).Get("Version") == "2016-11-15" {
			ec2.ServeHTTP(rw, r)
			return
		}
		scaling.ServeHTTP(rw, r)
	})
}

// actions are what a service does, by name.
type actions map[string]func(url.Values) (fields, error)

// serve answers for a service.
func (d *double) serve(all actions, refuse func(http.ResponseWriter, error), text func(action string, answer fields) string) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		f := form(r)
		action := f.Get("Action")
		do, ok := all[action]
		if !ok {
			refuse(rw, refusal("InvalidAction", "Could not find operation %s", action))
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		answer, err := do(f)
		if err != nil {
			refuse(rw, err)
			return
		}
		write(rw, http.StatusOK, text(action, answer))
	})
}

// double is what AWS remembers beside the world.
type double struct {
	world *clouds.World
	page  int

	mu        sync.Mutex
	templates map[string]*template // by the set whose own it is
	launched  map[string]*launched // by set and token
	// activities of a set, the newest first.
	activities map[string][]*activity
}

// form reads the form of a request, and leaves it there to be read again.
func form(r *http.Request) url.Values {
	body, _ := io.ReadAll(r.Body) // a client that has gone does not read the answer
	r.Body = io.NopCloser(bytes.NewReader(body))
	values, _ := url.ParseQuery(string(body))
	return values
}

// list reads a list of a form: NAME.member.1 of Auto Scaling, NAME.1 of EC2.
func list(f url.Values, name string) []string {
	var all []string
	for n := 1; ; n++ {
		key := name + "." + strconv.Itoa(n)
		if !f.Has(key) {
			return all
		}
		all = append(all, f.Get(key))
	}
}

// number reads a number of a form.
func number(f url.Values, name string) int {
	n, _ := strconv.Atoi(f.Get(name)) // the SDK writes only numbers
	return n
}

func refusal(code, format string, args ...any) error {
	return &clouds.Refusal{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
}

// refusalOf is the answer to an error, of the world or of this package.
func refusalOf(err error) *clouds.Refusal {
	r := &clouds.Refusal{Status: http.StatusBadRequest, Code: "ValidationError", Message: err.Error()}
	switch {
	case errors.As(err, &r):
	case errors.Is(err, clouds.ErrFull):
		r.Message = "New SetDesiredCapacity value is above max value for the AutoScalingGroup."
	case errors.Is(err, clouds.ErrMin):
		r.Message = "Currently, desiredSize equals minSize. Terminating instance without replacement will violate group's min size constraint. " +
			"Either set shouldDecrementDesiredCapacity flag to false or lower group's min size."
	}
	return r
}

// request is the id of every request.
const request = "00000000-0000-4000-8000-000000000000"

// refuseScaling writes an error of Auto Scaling or STS.
func refuseScaling(rw http.ResponseWriter, err error) {
	r := refusalOf(err)
	write(rw, r.Status, element("ErrorResponse", fields{"Error": fields{"Type": "Sender", "Code": r.Code, "Message": r.Message}, "RequestId": request}, ""))
}

// refuseEC2 writes an error of EC2.
func refuseEC2(rw http.ResponseWriter, err error) {
	r := refusalOf(err)
	write(rw, r.Status, element("Response", fields{"Errors": fields{"Error": fields{"Code": r.Code, "Message": r.Message}}, "RequestID": request}, ""))
}

// The answers of Auto Scaling and EC2 to the faults of the wire.
var (
	scalingFaults = map[clouds.FaultKind]*clouds.Refusal{
		clouds.Throttled:   {Status: 400, Code: "Throttling", Message: "Rate exceeded"},
		clouds.Conflict:    {Status: 500, Code: "ResourceContention", Message: "You already have a pending update to an Amazon EC2 Auto Scaling resource"},
		clouds.Denied:      {Status: 403, Code: "AccessDenied", Message: "User is not authorized to perform this"},
		clouds.Unavailable: {Status: 500, Code: "InternalFailure", Message: "We encountered an internal error"},
	}
	ec2Faults = map[clouds.FaultKind]*clouds.Refusal{
		clouds.Throttled:   {Status: 503, Code: "RequestLimitExceeded", Message: "Request limit exceeded."},
		clouds.Conflict:    {Status: 400, Code: "ResourceInUse", Message: "The resource is in use."},
		clouds.Denied:      {Status: 403, Code: "UnauthorizedOperation", Message: "You are not authorized to perform this operation."},
		clouds.Unavailable: {Status: 500, Code: "InternalError", Message: "An internal error has occurred"},
	}
)

func write(rw http.ResponseWriter, status int, answer string) {
	rw.Header().Set("Content-Type", "text/xml")
	rw.WriteHeader(status)
	_, _ = io.WriteString(rw, xml.Header+answer) // a client that has gone does not read it
}

// fields are the elements in an element of XML, in any order.
type fields map[string]any

// element is a value as XML. A list has an element called item for each value. There is no element for nil and the empty string.
func element(name string, value any, item string) string { //nolint:unparam // The linter does not see that it names the elements of lists.
	var text strings.Builder
	switch v := value.(type) {
	case fields:
		for key, field := range v {
			text.WriteString(element(key, field, item))
		}
	case []fields:
		for _, each := range v {
			text.WriteString(element(item, each, item))
		}
	case []string:
		for _, each := range v {
			text.WriteString(element(item, each, item))
		}
	case nil:
		return ""
	default:
		_ = xml.EscapeText(&text, fmt.Append(nil, v)) // a Builder never fails
		if text.Len() == 0 {
			return ""
		}
	}
	return "<" + name + ">" + text.String() + "</" + name + ">"
}

// assumeRole is STS.
func (d *double) assumeRole(f url.Values) (fields, error) {
	return fields{
		"Credentials": fields{
			"AccessKeyId": "ASIATEST", "SecretAccessKey": "test", "SessionToken": "assumed " + f.Get("RoleArn"), "Expiration": "2099-01-01T00:00:00Z",
		},
		"AssumedRoleUser": fields{"Arn": f.Get("RoleArn") + "/" + f.Get("RoleSessionName"), "AssumedRoleId": "AROATEST"},
	}, nil
}
