// SPDX-License-Identifier: Apache-2.0

// Package azure is Azure Resource Manager for tests: virtual machine scale sets, uniform and flexible, in front of a clouds.World. The types of
// Azure's own SDK decode requests and encode answers. Operations, pages and etags are as on the real wire.
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
	"cmp"
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

// What the managed identity endpoint gives.
const (
	// Token is what it gives, and what every request must have.
	Token        = "a-token"
	identityPath = "/msi/token"
)

// Options says how an Azure behaves. Zero values are as Handler has them.
type Options struct {
	// Page is how many machines are on a page. Default 4.
	Page int
	// RetryAfter is how many seconds a throttled client is ordered to wait, and one that asks about an operation. Default: 1 for the first, and the
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
}

// operation is one that a client can ask about.
type operation struct {
	set    string
	task   *clouds.Task
	polled bool // it is InProgress at least once
	forgot bool
}

// Handler is Azure in front of a world.
func Handler(w *clouds.World) http.Handler { return New(w, Options{}) }

// New is Azure in front of a world.
func New(w *clouds.World, o Options) *Azure {
	if o.Page == 0 {
		o.Page = 4
	}
	a := &Azure{world: w, options: o}
	call := func(r *http.Request) string {
		to, _ := find(r)
		return to.name
	}
	a.serve = w.Serve(call, faults, a.refuse, http.HandlerFunc(a.answer))
	return a
}

// ServeHTTP answers a request.
func (a *Azure) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.serve.ServeHTTP(w, r) }

// Env is the environment that makes an operator speak to an Azure at a URL, with the managed identity of the machine, about the scale sets there.
func Env(url string) []string {
	return []string{
		"AZURE_RESOURCE_MANAGER_ENDPOINT=" + url,
		"IDENTITY_ENDPOINT=" + url + identityPath,
		"IDENTITY_HEADER=a-secret-of-the-machine",
		"ARM_SUBSCRIPTION_ID=" + SubscriptionID,
		"ARM_RESOURCE_GROUP=" + ResourceGroup,
	}
}

// Identify is how Azure's cloud provider names the Nodes of a uniform scale set; for clouds.Options.
func Identify(set, _, id string) (providerID, nodeName string) {
	n, _ := strconv.ParseInt(id, 10, 64) // ids are numbers
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

// routes are the calls, by method and path. The answer of a handler without a body is 202.
var routes = []route{
	{"Get", "GET", resource(`/virtualMachineScaleSets/([^/]+)`), (*Azure).get},
	{"Update", "PATCH", resource(`/virtualMachineScaleSets/([^/]+)`), (*Azure).update},
	{"DeleteInstances", "POST", resource(`/virtualMachineScaleSets/([^/]+)/delete`), (*Azure).deleteInstances},
	{"ListMachines", "GET", resource(`/virtualMachineScaleSets/([^/]+)/virtualMachines`), (*Azure).list},
	{"ListGroup", "GET", resource(`/virtualMachines()`), (*Azure).listGroup},
	{"GetMachine", "GET", resource(`/virtualMachines/([^/]+)`), (*Azure).single},
	{"GetOperation", "GET", regexp.MustCompile(`(?i)^/subscriptions/` + SubscriptionID + `/providers/Microsoft\.Compute/locations/[^/]+/operations/([^/]+)$`),
		(*Azure).progress},
	{"", "GET", regexp.MustCompile("^" + identityPath + "()$"), (*Azure).identity},
}

type route struct {
	name, method string
	path         *regexp.Regexp
	answer       func(a *Azure, w http.ResponseWriter, r *http.Request, name string) (any, error)
}

// resource is the path of something in the resource group.
func resource(path string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)^/subscriptions/` + SubscriptionID + `/resourceGroups/` + ResourceGroup + `/providers/Microsoft\.Compute` + path + `$`)
}

// find returns the route of a request, and the name in its path.
func find(r *http.Request) (to route, name string) {
	for _, to := range routes {
		if m := to.path.FindStringSubmatch(r.URL.Path); m != nil && to.method == r.Method {
			return to, m[1]
		}
	}
	unknown := func(*Azure, http.ResponseWriter, *http.Request, string) (any, error) {
		return nil, &clouds.Refusal{Status: http.StatusNotFound, Code: "InvalidResourceType", Message: "The resource type could not be found: " + r.URL.Path}
	}
	return route{name: "Unknown", answer: unknown}, ""
}

// answer answers a request that no fault has hit.
func (a *Azure) answer(w http.ResponseWriter, r *http.Request) {
	to, name := find(r)
	if to.name != "" && r.Header.Get("Authorization") != "Bearer "+Token {
		a.refuse(w, &clouds.Refusal{Status: http.StatusUnauthorized, Code: "InvalidAuthenticationToken", Message: "The access token is invalid."})
		return
	}
	switch body, err := to.answer(a, w, r, name); {
	case err != nil:
		a.refuse(w, err)
	case body == nil:
		w.WriteHeader(http.StatusAccepted)
	default:
		clouds.JSON(w, http.StatusOK, body)
	}
}

// identity is the endpoint for tokens of a machine's managed identity, as App Service has it.
func (a *Azure) identity(_ http.ResponseWriter, r *http.Request, _ string) (any, error) {
	return map[string]any{
		"access_token": Token,
		"expires_on":   strconv.FormatInt(time.Now().Add(24*time.Hour).Unix(), 10),
		"resource":     r.URL.Query().Get("resource"),
		"token_type":   "Bearer",
	}, nil
}

// faults are the answers of Azure to the faults of the wire.
var faults = map[clouds.FaultKind]*clouds.Refusal{
	clouds.Throttled:   {Status: 429, Code: "OperationNotAllowed", Message: "The server rejected the request because too many requests have been received."},
	clouds.Conflict:    {Status: 409, Code: "Conflict", Message: "The request failed due to conflict with a concurrent request."},
	clouds.Denied:      {Status: 403, Code: "AuthorizationFailed", Message: "The client does not have authorization to perform the action over the scope."},
	clouds.Unavailable: {Status: 500, Code: "InternalExecutionError", Message: "An internal execution error occurred. Please retry later."},
}

// refuse writes an error, of the world or of this package.
func (a *Azure) refuse(w http.ResponseWriter, err error) {
	r := &clouds.Refusal{Status: http.StatusBadRequest, Code: "InvalidParameter", Message: err.Error()}
	switch {
	case errors.As(err, &r):
	case errors.Is(err, clouds.ErrQuota):
		r = &clouds.Refusal{Status: 409, Code: "OperationNotAllowed", Message: "Operation could not be completed as it results in exceeding approved Cores quota."}
	case errors.Is(err, clouds.ErrNotFound):
		r.Message = "This is not an active Virtual Machine Scale Set VM instanceId: " + r.Message
	}
	if r.Status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", strconv.Itoa(max(a.options.RetryAfter, 1)))
	}
	w.Header().Set("X-Ms-Error-Code", r.Code)
	clouds.JSON(w, r.Status, map[string]any{"error": map[string]string{"code": r.Code, "message": r.Message}})
}

// begin begins an operation, and writes the header by which clients ask about it. Its path names the set, so that faults of a set hit it.
func (a *Azure) begin(w http.ResponseWriter, r *http.Request, set string, task *clouds.Task) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.operations = append(a.operations, &operation{set: set, task: task})
	w.Header().Set("Azure-Asyncoperation", base(r)+"/subscriptions/"+SubscriptionID+"/providers/Microsoft.Compute/locations/"+Location+
		"/operations/"+set+"."+strconv.Itoa(len(a.operations)-1)+"?"+r.URL.RawQuery)
}

// base is the beginning of this server's URLs.
func base(r *http.Request) string {
	if r.TLS != nil || r.URL.Scheme == "https" {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// progress answers how an operation stands.
func (a *Azure) progress(w http.ResponseWriter, _ *http.Request, id string) (any, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, err := strconv.Atoi(id[strings.LastIndex(id, ".")+1:])
	if err != nil || n < 0 || n >= len(a.operations) || a.operations[n].forgot {
		return nil, &clouds.Refusal{Status: http.StatusNotFound, Code: "NotFound", Message: "The operation " + id + " could not be found."}
	}
	o := a.operations[n]
	if a.options.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(a.options.RetryAfter))
	}
	done, failed := o.task.Done()
	switch {
	case !o.polled || !done:
		o.polled = true
		return map[string]any{"name": id, "status": "InProgress"}, nil
	case failed != nil:
		s, _ := a.world.Set(o.set)
		return map[string]any{"name": id, "status": "Failed", "error": map[string]string{"code": failure(&s), "message": failed.Error()}}, nil
	}
	return map[string]any{"name": id, "status": "Succeeded"}, nil
}

// failure is the code that operations of a set fail with.
func failure(s *clouds.Set) string { return cmp.Or(s.Settings["failure"], "OSProvisioningTimedOut") }

// provisioning is the provisioning state of a scale set.
func (a *Azure) provisioning(s *clouds.Set) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.Busy {
		return "Updating"
	}
	state := "Succeeded"
	for _, o := range a.operations {
		if o.set != s.Name {
			continue
		}
		switch done, err := o.task.Done(); {
		case !done:
			return "Updating"
		case err != nil:
			state = "Failed"
		default:
			state = "Succeeded"
		}
	}
	return state
}
