// SPDX-License-Identifier: Apache-2.0

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
func imageName(id string) (string, bool) {
	digits, ok := strings.CutPrefix(id, "ami-")
	name, err := hex.DecodeString(digits)
	return string(name), ok && err == nil && len(name) > 0
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
		world: w, page: page, templates: map[string]*template{}, launched: map[string]*launched{}, wanted: map[string]int{}, activities: map[string][]*activity{},
	}
	name := func(r *http.Request) string { return form(r).Get("Action") }
	scaling := w.Serve(name, answerScaling, http.HandlerFunc(d.serveScaling))
	ec2 := w.Serve(name, answerEC2, http.HandlerFunc(d.serveEC2))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch form(r).Get("Version") {
		case "2011-01-01":
			scaling.ServeHTTP(rw, r)
		case "2016-11-15":
			ec2.ServeHTTP(rw, r)
		case "2011-06-15":
			serveSTS(rw, r)
		default:
			http.Error(rw, "no such version", http.StatusBadRequest)
		}
	})
}

// double is what AWS remembers beside the world.
type double struct {
	world *clouds.World
	page  int

	mu        sync.Mutex
	templates map[string]*template // by the set whose own it is
	launched  map[string]*launched // by set and token
	wanted    map[string]int       // the desired capacity, where there was no room for it
	// activities of a set, the newest first.
	activities map[string][]*activity
}

// form reads what a request asks for, and leaves it there to be read again.
func form(r *http.Request) url.Values {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	values, err := url.ParseQuery(string(body))
	if err != nil {
		return nil
	}
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
func number(f url.Values, name string) (int, error) {
	n, err := strconv.Atoi(f.Get(name))
	if err != nil {
		return 0, refuse("ValidationError", "%s is %q, which is no number", name, f.Get(name))
	}
	return n, nil
}

// paged cuts a page out of a list, and says how the next one is asked for.
func paged[T any](f url.Values, all []T, size int) (page []T, next string) {
	from, err := strconv.Atoi(f.Get("NextToken"))
	if err != nil || from > len(all) {
		from = 0
	}
	to := min(from+size, len(all))
	if to < len(all) {
		next = strconv.Itoa(to)
	}
	return all[from:to], next
}

// refusal is an answer that is an error.
type refusal struct {
	code, message string
	status        int
}

func (r *refusal) Error() string { return r.code + ": " + r.message }

func refuse(code, format string, args ...any) error {
	return &refusal{code: code, message: fmt.Sprintf(format, args...), status: http.StatusBadRequest}
}

// refusalOf makes an answer of what the world says.
func refusalOf(err error) *refusal {
	var r *refusal
	switch {
	case errors.As(err, &r):
	case errors.Is(err, clouds.ErrFull):
		r = &refusal{"ValidationError", "New SetDesiredCapacity value is above max value for the AutoScalingGroup.", http.StatusBadRequest}
	case errors.Is(err, clouds.ErrMin):
		r = &refusal{"ValidationError", "Currently, desiredSize equals minSize. Terminating instance without replacement will violate group's min size constraint. " +
			"Either set shouldDecrementDesiredCapacity flag to false or lower group's min size.", http.StatusBadRequest}
	case errors.Is(err, clouds.ErrNotFound):
		r = &refusal{"ValidationError", "AutoScalingGroup name not found - " + err.Error(), http.StatusBadRequest}
	case errors.Is(err, clouds.ErrInvalid):
		r = &refusal{"ValidationError", err.Error(), http.StatusBadRequest}
	case errors.Is(err, clouds.ErrQuota):
		r = &refusal{"LimitExceeded", err.Error(), http.StatusBadRequest}
	default:
		r = &refusal{"InternalFailure", err.Error(), http.StatusInternalServerError}
	}
	return r
}

// scalingError is how Auto Scaling and STS refuse.
type scalingError struct {
	XMLName xml.Name `xml:"ErrorResponse"`
	Type    string   `xml:"Error>Type"`
	Code    string   `xml:"Error>Code"`
	Message string   `xml:"Error>Message"`
	Request string   `xml:"RequestId"`
}

// ec2Error is how EC2 does.
type ec2Error struct {
	XMLName xml.Name `xml:"Response"`
	Code    string   `xml:"Errors>Error>Code"`
	Message string   `xml:"Errors>Error>Message"`
	Request string   `xml:"RequestID"`
}

// request is the id of every request.
const request = "00000000-0000-4000-8000-000000000000"

func refuseScaling(rw http.ResponseWriter, r *refusal) {
	write(rw, r.status, scalingError{Type: "Sender", Code: r.code, Message: r.message, Request: request})
}

func refuseEC2(rw http.ResponseWriter, r *refusal) {
	write(rw, r.status, ec2Error{Code: r.code, Message: r.message, Request: request})
}

func answerScaling(rw http.ResponseWriter, f clouds.FaultKind) {
	switch f {
	case clouds.Throttled:
		refuseScaling(rw, &refusal{"Throttling", "Rate exceeded", http.StatusBadRequest})
	case clouds.Conflict:
		refuseScaling(rw, &refusal{"ResourceContention", "You already have a pending update to an Amazon EC2 Auto Scaling resource", http.StatusInternalServerError})
	case clouds.Denied:
		refuseScaling(rw, &refusal{"AccessDenied", "User is not authorized to perform this", http.StatusForbidden})
	case clouds.Invalid:
		refuseScaling(rw, &refusal{"ValidationError", "You must use a valid fully-formed launch template.", http.StatusBadRequest})
	default:
		refuseScaling(rw, &refusal{"InternalFailure", "We encountered an internal error", http.StatusInternalServerError})
	}
}

func answerEC2(rw http.ResponseWriter, f clouds.FaultKind) {
	switch f {
	case clouds.Throttled:
		refuseEC2(rw, &refusal{"RequestLimitExceeded", "Request limit exceeded.", http.StatusServiceUnavailable})
	case clouds.Conflict:
		refuseEC2(rw, &refusal{"ResourceInUse", "The resource is in use.", http.StatusBadRequest})
	case clouds.Denied:
		refuseEC2(rw, &refusal{"UnauthorizedOperation", "You are not authorized to perform this operation.", http.StatusForbidden})
	case clouds.Invalid:
		refuseEC2(rw, &refusal{"InvalidParameterValue", "The launch template is not valid.", http.StatusBadRequest})
	default:
		refuseEC2(rw, &refusal{"InternalError", "An internal error has occurred", http.StatusInternalServerError})
	}
}

func write(rw http.ResponseWriter, status int, answer any) {
	data, err := xml.Marshal(answer)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	rw.Header().Set("Content-Type", "text/xml")
	rw.WriteHeader(status)
	_, _ = rw.Write(append([]byte(xml.Header), data...)) // who does not read it has gone
}

// result is what an action of Auto Scaling or STS answers with, in an element that is named after it.
type result struct {
	XMLName xml.Name
	Result  any
	Request string `xml:"ResponseMetadata>RequestId"`
}

// MarshalXML writes a result in an element of its action's name.
func (r result) MarshalXML(e *xml.Encoder, _ xml.StartElement) error {
	action := r.XMLName.Local
	outer := xml.StartElement{Name: xml.Name{Local: action + "Response"}}
	if err := e.EncodeToken(outer); err != nil {
		return err
	}
	if r.Result != nil {
		if err := e.EncodeElement(r.Result, xml.StartElement{Name: xml.Name{Local: action + "Result"}}); err != nil {
			return err
		}
	}
	metadata := struct {
		Request string `xml:"RequestId"`
	}{r.Request}
	if err := e.EncodeElement(metadata, xml.StartElement{Name: xml.Name{Local: "ResponseMetadata"}}); err != nil {
		return err
	}
	return e.EncodeToken(outer.End())
}

func serveSTS(rw http.ResponseWriter, r *http.Request) {
	f := form(r)
	if f.Get("Action") != "AssumeRole" {
		refuseScaling(rw, &refusal{"InvalidAction", "Could not find operation " + f.Get("Action"), http.StatusBadRequest})
		return
	}
	type credentials struct {
		AccessKeyID string `xml:"AccessKeyId"`
		Secret      string `xml:"SecretAccessKey"`
		Token       string `xml:"SessionToken"`
		Expiration  string
	}
	answer := struct {
		Credentials credentials
		ARN         string `xml:"AssumedRoleUser>Arn"`
		ID          string `xml:"AssumedRoleUser>AssumedRoleId"`
	}{credentials{"ASIATEST", "test", "assumed " + f.Get("RoleArn"), "2099-01-01T00:00:00Z"}, f.Get("RoleArn") + "/" + f.Get("RoleSessionName"), "AROATEST"}
	write(rw, http.StatusOK, result{XMLName: xml.Name{Local: "AssumeRole"}, Result: answer, Request: request})
}
