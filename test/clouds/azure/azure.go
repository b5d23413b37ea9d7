// SPDX-License-Identifier: Apache-2.0

// Package azure is Azure Resource Manager for tests: virtual machine scale sets, uniform and flexible, in front of a clouds.World. Requests are
// decoded, and answers are encoded, by the fake servers of Azure's own SDK. These keep one operation and one list per scale set in mind; so each
// request has one of its own here, and operations, pages and etags are as on the real wire.
//
// A World's names are Azure's so: Set.Image is an image as internal/cloud/azure writes it, or a bare name, which is the image resource of that name;
// Set.Zones are such as westeurope-1; Set.Max is the tag max. Set.Settings may have
//
//	mode             Flexible: machines are virtual machines of their own. Default Uniform
//	upgrade          the mode of the upgrade policy. Default Manual
//	osUpgrades       true: automatic OS upgrades are on
//	rebalancing      true: automatic zone rebalancing is on
//	model            strict: a machine is of the latest model only if none was set since. Default: if its image is the set's
//	told             false: Azure does not tell whether machines are of the latest model
//	profile          false: the set has no machine profile
//	osDisk           the OS disk of new machines, as JSON. What of it a PATCH of the image does not say again is reset, unless it is ephemeral
//	dataDisks        their data disks, as JSON; the same
//	failure          the code that operations fail with. Default OSProvisioningTimedOut
//
// Calls are named Get, Update, DeleteInstances, ListMachines, GetOperation, GetMachine and ListGroup.
package azure

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"moult.dev/moult/test/clouds"
)

// Where all scale sets are.
const (
	SubscriptionID = "00000000-0000-0000-0000-000000000001"
	ResourceGroup  = "Moult"
	Location       = "westeurope"
)

// What the managed identity endpoint asks for, and gives.
const (
	identityHeader = "a-secret-of-the-machine"
	// Token is what it gives, and what every request must bear.
	Token        = "a-token"
	identityPath = "/msi/token"
)

// Options says how an Azure behaves. Zero values are as Handler has them.
type Options struct {
	// Page is how many machines are on a page. Default 4.
	Page int
	// Polls is how often an operation is InProgress at least, whatever it does. Default 1.
	Polls int
	// RetryAfter is how many seconds a throttled client is told to wait, and one that asks about an operation. Default: 1 for the first, and the
	// second is told nothing.
	RetryAfter int
}

// Azure is an Azure Resource Manager. It is safe for concurrent use.
type Azure struct {
	world   *clouds.World
	options Options
	serve   http.Handler

	mu         sync.Mutex
	operations []*operation
	last       map[string]*operation // by scale set
}

// operation is one that a client can ask about.
type operation struct {
	set    string
	task   *clouds.Task // nil: it is done already
	polls  int
	forgot bool
}

// Handler is Azure in front of a world.
func Handler(w *clouds.World) http.Handler { return New(w, Options{}) }

// New is Azure in front of a world.
func New(w *clouds.World, o Options) *Azure {
	if o.Page == 0 {
		o.Page = 4
	}
	if o.Polls == 0 {
		o.Polls = 1
	}
	a := &Azure{world: w, options: o, last: map[string]*operation{}}
	a.serve = w.Serve(call, a.fault, http.HandlerFunc(a.answer))
	return a
}

// ServeHTTP answers a request.
func (a *Azure) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.serve.ServeHTTP(w, r) }

// Env is the environment that makes an operator speak to an Azure at a URL, with the managed identity of the machine, about the scale sets there.
func Env(url string) []string {
	return []string{
		"AZURE_RESOURCE_MANAGER_ENDPOINT=" + url,
		"IDENTITY_ENDPOINT=" + url + identityPath,
		"IDENTITY_HEADER=" + identityHeader,
		"ARM_SUBSCRIPTION_ID=" + SubscriptionID,
		"ARM_RESOURCE_GROUP=" + ResourceGroup,
	}
}

// Identify is how Azure's cloud provider names the Nodes of a uniform scale set; for clouds.Options.
func Identify(set, _, id string) (providerID, nodeName string) {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return IdentifyFlexible(set, "", id)
	}
	return providerIDOf("virtualMachineScaleSets/" + set + "/virtualMachines/" + id), fmt.Sprintf("%s%06s", strings.ToLower(set), strconv.FormatInt(n, 36))
}

// IdentifyFlexible is how it names those of a flexible one.
func IdentifyFlexible(set, _, id string) (providerID, nodeName string) {
	return providerIDOf("virtualMachines/" + flexibleName(set, id)), strings.ToLower(set) + "-" + strings.ToLower(id)
}

// providerIDOf is a provider id, which has the resource group in lower case.
func providerIDOf(rest string) string {
	return "azure:///subscriptions/" + SubscriptionID + "/resourceGroups/" + strings.ToLower(ResourceGroup) + "/providers/Microsoft.Compute/" + rest
}

// Forget makes Azure know nothing any more of the operations that it was asked for.
func (a *Azure) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.operations {
		o.forgot = true
	}
}

func groupID() string { return "/subscriptions/" + SubscriptionID + "/resourceGroups/" + ResourceGroup }

// flexibleName is the name of a machine of a flexible scale set.
func flexibleName(set, id string) string { return set + "_" + id }

// in is how paths begin of what is in a resource group.
const in = `(?i)^/subscriptions/([^/]+)/resourceGroups/([^/]+)/providers/Microsoft\.Compute`

var (
	ofSet       = regexp.MustCompile(in + `/virtualMachineScaleSets/([^/]+)(/virtualMachines|/delete)?$`)
	ofGroup     = regexp.MustCompile(in + `/virtualMachines(?:/([^/]+))?$`)
	ofOperation = regexp.MustCompile(`(?i)^/subscriptions/([^/]+)/providers/Microsoft\.Compute/locations/[^/]+/operations/([^/]+)$`)
)

// call names a request; one for a token has no name.
func call(r *http.Request) string {
	if r.URL.Path == identityPath {
		return ""
	}
	if m := ofSet.FindStringSubmatch(r.URL.Path); m != nil {
		switch method, rest := r.Method, strings.ToLower(m[4]); {
		case rest == "/delete" && method == http.MethodPost:
			return "DeleteInstances"
		case rest == "/virtualmachines" && method == http.MethodGet:
			return "ListMachines"
		case rest == "" && method == http.MethodGet:
			return "Get"
		case rest == "" && method == http.MethodPatch:
			return "Update"
		}
	}
	if m := ofGroup.FindStringSubmatch(r.URL.Path); m != nil && r.Method == http.MethodGet {
		if m[3] == "" {
			return "ListGroup"
		}
		return "GetMachine"
	}
	if ofOperation.MatchString(r.URL.Path) && r.Method == http.MethodGet {
		return "GetOperation"
	}
	return "Unknown"
}

// answer answers a request that no fault has hit.
func (a *Azure) answer(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == identityPath {
		identity(w, r)
		return
	}
	if err := a.allowed(r); err != nil {
		refuse(w, err)
		return
	}
	var err error
	switch name := call(r); name {
	case "Get", "Update", "DeleteInstances", "ListMachines", "GetMachine", "ListGroup":
		err = a.forward(w, r, name)
	case "GetOperation":
		err = a.progress(w, ofOperation.FindStringSubmatch(r.URL.Path)[2])
	default:
		err = &refusal{http.StatusNotFound, "InvalidResourceType", "The resource type could not be found: " + r.Method + " " + r.URL.Path}
	}
	if err != nil {
		refuse(w, err)
	}
}

// allowed says why a request is none that may be answered.
func (a *Azure) allowed(r *http.Request) error {
	if r.Header.Get("Authorization") != "Bearer "+Token {
		return &refusal{http.StatusUnauthorized, "InvalidAuthenticationToken", "The access token is invalid."}
	}
	if r.URL.Query().Get("api-version") == "" {
		return &refusal{http.StatusBadRequest, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests."}
	}
	subscription, group := "", ""
	if m := ofSet.FindStringSubmatch(r.URL.Path); m != nil {
		subscription, group = m[1], m[2]
	} else if m := ofGroup.FindStringSubmatch(r.URL.Path); m != nil {
		subscription, group = m[1], m[2]
	} else if m := ofOperation.FindStringSubmatch(r.URL.Path); m != nil {
		subscription, group = m[1], ResourceGroup
	}
	switch {
	case !strings.EqualFold(subscription, SubscriptionID):
		return &refusal{http.StatusNotFound, "SubscriptionNotFound", "The subscription '" + subscription + "' could not be found."}
	case !strings.EqualFold(group, ResourceGroup):
		return &refusal{http.StatusNotFound, "ResourceGroupNotFound", "Resource group '" + group + "' could not be found."}
	}
	return nil
}

// identity is the endpoint for tokens of a machine's managed identity, as App Service has it.
func identity(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Identity-Header") != identityHeader || r.URL.Query().Get("resource") == "" {
		refuse(w, &refusal{http.StatusBadRequest, "invalid_request", "The identity endpoint needs its header, and a resource."})
		return
	}
	write(w, http.StatusOK, map[string]any{
		"access_token": Token,
		"expires_on":   strconv.FormatInt(time.Now().Add(24*time.Hour).Unix(), 10),
		"resource":     r.URL.Query().Get("resource"),
		"token_type":   "Bearer",
	})
}

// fault is how Azure says what the wire's faults are.
func (a *Azure) fault(w http.ResponseWriter, kind clouds.FaultKind) {
	switch kind {
	case clouds.Throttled:
		w.Header().Set("Retry-After", strconv.Itoa(max(a.options.RetryAfter, 1)))
		refuse(w, &refusal{http.StatusTooManyRequests, "OperationNotAllowed", "The server rejected the request because too many requests have been received."})
	case clouds.Conflict:
		refuse(w, &refusal{http.StatusConflict, "Conflict", "The request failed due to conflict with a concurrent request."})
	case clouds.Denied:
		refuse(w, &refusal{http.StatusForbidden, "AuthorizationFailed", "The client does not have authorization to perform the action over the scope."})
	case clouds.Invalid:
		refuse(w, &refusal{http.StatusBadRequest, "InvalidParameter", "The image of the scale set is not there any more."})
	default:
		refuse(w, &refusal{http.StatusInternalServerError, "InternalExecutionError", "An internal execution error occurred. Please retry later."})
	}
}

// refusal is an answer that is an error.
type refusal struct {
	status        int
	code, message string
}

func (r *refusal) Error() string { return r.code + ": " + r.message }

func refuse(w http.ResponseWriter, err error) {
	var r *refusal
	if !errors.As(err, &r) {
		r = &refusal{http.StatusBadRequest, "BadRequest", err.Error()}
	}
	w.Header().Set("X-Ms-Error-Code", r.code)
	write(w, r.status, map[string]any{"error": map[string]string{"code": r.code, "message": r.message}})
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who does not read it has gone
}
