// SPDX-License-Identifier: Apache-2.0

// Package gcp is Compute Engine's API in front of scale sets in memory: managed instance groups, zonal and regional, and the metadata server that
// gives tokens for it. It speaks the JSON of the real one, as far as managing the machines of groups needs it.
//
// The name of a set is zones/ZONE/NAME or regions/REGION/NAME. Its Image is an instance template, by its name alone where that is one of this project.
// Its Max and Min are an autoscaler's.
package gcp

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"moult.dev/moult/test/clouds"
)

// Project is the only one there is, by its id; in the metadata of machines it stands by its number.
const (
	Project       = "moult-test"
	projectNumber = "424242424242"
)

// token is what calls prove themselves with.
const token = "moult-test-token"

// The Settings of a set that this double respects. Each has a default for a group that can be used.
const (
	// UpdatePolicy is updatePolicy.type. Default OPPORTUNISTIC. "none": the group has no updatePolicy.
	UpdatePolicy = "updatePolicy"
	// Redistribution is updatePolicy.instanceRedistributionType of a regional group. Default NONE.
	Redistribution = "redistribution"
	// Canary is the template of a second version, for one machine. Default: there is none.
	Canary = "canary"
	// TargetSizePolicy is targetSizePolicy.mode. Default: none.
	TargetSizePolicy = "targetSizePolicy"
	// AutoscalerMode is the mode of the autoscaler of a group with Max. Default ON.
	AutoscalerMode = "autoscalerMode"
	// PageSize is how many machines a page has. Default 100.
	PageSize = "pageSize"
	// Forgetful, if "true", lets the group forget the ids of requests at once.
	Forgetful = "forgetful"
	// LateErrors, if "true", lets createInstances find out in its operation that a machine exists, not at once.
	LateErrors = "lateErrors"
	// Lasting is how often an operation is asked for until it is done. Default 2.
	Lasting = "lasting"
)

// Identify says what the Node of a machine is called; for clouds.Options.
func Identify(set, zone, id string) (providerID, nodeName string) {
	_ = set
	return "gce://" + Project + "/" + zone + "/" + id, id
}

// ID names the nth machine of a set; for clouds.Options.
func ID(set string, n int) string {
	return fmt.Sprintf("%s-%04d", last(set), n)
}

// Env is the environment in which the operator speaks to a double at an address such as http://127.0.0.1:1234.
func Env(url string) []string {
	return []string{
		"GCP_COMPUTE_ENDPOINT=" + url,
		"GCE_METADATA_HOST=" + strings.TrimPrefix(url, "http://"),
		"GOOGLE_APPLICATION_CREDENTIALS=",
	}
}

// double is the state of the API beside the world's.
type double struct {
	world *clouds.World

	mu         sync.Mutex
	operations map[string]*operation
	// requests are the operations by the ids of the requests that began them.
	requests map[string]*operation
	// hopeless are machines that groups can't make, by set.
	hopeless map[string][]machine
}

// machine is one that is wanted, and can't be made.
type machine struct{ name, zone, code, message string }

type operation struct {
	name, kind, request string
	group               group
	task                *clouds.Task
	asked               int
	code, message       string
}

// group is a set, as the API names it.
type group struct {
	set                   clouds.Set
	scope, location, name string
}

// Handler answers for the sets of a world.
func Handler(w *clouds.World) http.Handler {
	d := &double{world: w, operations: map[string]*operation{}, requests: map[string]*operation{}, hopeless: map[string][]machine{}}
	api := http.NewServeMux()
	const project = "/compute/v1/projects/" + Project + "/"
	const groups = project + "{scope}/{location}/instanceGroupManagers/{group}"
	api.HandleFunc("GET "+groups, d.of(d.get))
	api.HandleFunc("PATCH "+groups, d.of(d.change(d.patch)))
	api.HandleFunc("POST "+groups+"/listManagedInstances", d.of(d.listManagedInstances))
	api.HandleFunc("POST "+groups+"/createInstances", d.of(d.change(d.createInstances)))
	api.HandleFunc("POST "+groups+"/deleteInstances", d.of(d.change(d.deleteInstances)))
	api.HandleFunc("GET "+project+"{scope}/{location}/autoscalers/{group}", d.of(d.autoscaler))
	api.HandleFunc("GET "+project+"{scope}/{location}/operations/{operation}", d.operation)
	api.HandleFunc("GET "+project+"zones/{zone}/instances", d.instances)
	api.HandleFunc("GET "+project+"zones/{zone}/instances/{instance}", d.instance)
	served := w.Serve(call, faults, refuse, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		r.URL.Path, _, _ = strings.Cut(r.URL.Path, mark)
		if r.Header.Get("Authorization") != "Bearer "+token {
			refuse(rw, &clouds.Refusal{Status: http.StatusUnauthorized, Code: "authError", Message: "Invalid Credentials"})
			return
		}
		api.ServeHTTP(rw, r)
	}))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/compute/") {
			metadata(rw, r)
			return
		}
		r.URL.Path += mark + about(r)
		served.ServeHTTP(rw, r)
	})
}

// mark parts the path of a request from the name of the set that it is about, by which the world finds its faults.
const mark = "//"

// about is the name of the set that a request is about, or its zone where that is all that it says.
func about(r *http.Request) string {
	parts := split(r)
	if len(parts) < 5 {
		return strings.Join(parts[min(1, len(parts)):], "/")
	}
	name := parts[4]
	if parts[3] == "operations" {
		name = name[strings.IndexByte(name, '.')+1:]
	}
	return parts[1] + "/" + parts[2] + "/" + name
}

// split parts the path of a request, from the project on.
func split(r *http.Request) []string {
	path, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/compute/v1/projects/"), mark)
	return strings.Split(path, "/")
}

// call names a call, without saying whether it is zonal.
func call(r *http.Request) string {
	parts := split(r)
	switch {
	case len(parts) == 6:
		return parts[5]
	case parts[3] == "instanceGroupManagers" && r.Method == http.MethodPatch:
		return "patch"
	case parts[3] == "instanceGroupManagers":
		return "get"
	case len(parts) == 4:
		return parts[3] + ".list"
	}
	return parts[3] + ".get"
}

// faults are the answers of Compute Engine to the faults of the wire.
var faults = map[clouds.FaultKind]*clouds.Refusal{
	clouds.Throttled:   {Status: 403, Code: "rateLimitExceeded", Message: "Rate Limit Exceeded"},
	clouds.Conflict:    {Status: 412, Code: "conditionNotMet", Message: "Invalid fingerprint."},
	clouds.Denied:      {Status: 403, Code: "forbidden", Message: "Required 'compute.instanceGroupManagers.get' permission"},
	clouds.Unavailable: {Status: 503, Code: "backendError", Message: "Backend Error"},
}

// refuse writes an error, of the world or of this package.
func refuse(rw http.ResponseWriter, err error) {
	r := &clouds.Refusal{Status: http.StatusBadRequest, Code: "invalid", Message: err.Error()}
	if errors.As(err, &r); r.Code == "rateLimitExceeded" {
		rw.Header().Set("Retry-After", "3")
	}
	clouds.JSON(rw, r.Status, map[string]any{"error": map[string]any{
		"code": r.Status, "message": r.Message, "errors": []any{map[string]any{"domain": "global", "reason": r.Code, "message": r.Message}},
	}})
}

// missing is the answer about what does not exist.
func missing(what string) error {
	return &clouds.Refusal{Status: http.StatusNotFound, Code: "notFound", Message: "The resource '" + what + "' was not found"}
}

// metadata is the metadata server of a machine with a service account.
func metadata(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Metadata-Flavor", "Google")
	switch r.URL.Path {
	case "/computeMetadata/v1/instance/service-accounts/default/token":
		clouds.JSON(rw, http.StatusOK, map[string]any{"access_token": token, "expires_in": 3599, "token_type": "Bearer"})
	case "/computeMetadata/v1/project/project-id":
		_, _ = rw.Write([]byte(Project))
	default:
		http.NotFound(rw, r)
	}
}

// of finds the group that a call is about, and writes the answer.
func (d *double) of(h func(*http.Request, *group) (map[string]any, error)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		defer d.mu.Unlock()
		path := fmt.Sprintf("projects/"+Project+"/%s/%s/instanceGroupManagers/%s", r.PathValue("scope"), r.PathValue("location"), r.PathValue("group"))
		var body map[string]any
		err := missing(path)
		for _, s := range d.world.Sets() {
			if g := groupOf(s); g.path() == path {
				body, err = h(r, &g)
				break
			}
		}
		if err != nil {
			refuse(rw, err)
			return
		}
		clouds.JSON(rw, http.StatusOK, body)
	}
}

func groupOf(s clouds.Set) group {
	parts := strings.Split(s.Name, "/")
	return group{set: s, scope: parts[0], location: parts[1], name: parts[2]}
}

func (g *group) path() string {
	return "projects/" + Project + "/" + g.scope + "/" + g.location + "/instanceGroupManagers/" + g.name
}

// link is the full URL of something in the project.
func link(format string, args ...any) string {
	return "https://www.googleapis.com/compute/v1/projects/" + Project + "/" + fmt.Sprintf(format, args...)
}

// template is the URL of a set's Image.
func template(image string) string {
	if strings.HasPrefix(image, "projects/") {
		return "https://www.googleapis.com/compute/v1/" + image
	}
	return link("global/instanceTemplates/%s", image)
}

// image is the Image of a template's URL.
func image(template string) string {
	return strings.TrimPrefix(template, "projects/"+Project+"/global/instanceTemplates/")
}

func last(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }

func (g *group) fingerprint() string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "fp%06d", g.set.Version))
}

func (d *double) get(_ *http.Request, g *group) (map[string]any, error) {
	size := g.set.Capacity + len(d.hopeless[g.set.Name])
	status := map[string]any{}
	if g.set.Max > 0 {
		status["autoscaler"] = link("%s/%s/autoscalers/%s", g.scope, g.location, g.name)
	}
	versions := []any{map[string]any{"instanceTemplate": template(g.set.Image), "targetSize": map[string]any{"calculated": size}}}
	if canary := g.set.Settings[Canary]; canary != "" {
		versions = append(versions, map[string]any{"name": "canary", "instanceTemplate": template(canary), "targetSize": map[string]any{"fixed": 1, "calculated": 1}})
	}
	body := map[string]any{
		"kind": "compute#instanceGroupManager", "name": g.name, "selfLink": "https://www.googleapis.com/compute/v1/" + g.path(),
		"baseInstanceName": g.name, "instanceTemplate": template(g.set.Image), "versions": versions,
		"targetSize": size, "fingerprint": g.fingerprint(), "status": status, "listManagedInstancesResults": "PAGINATED",
	}
	policy := map[string]any{"type": cmp.Or(g.set.Settings[UpdatePolicy], "OPPORTUNISTIC"), "minimalAction": "REPLACE"}
	if g.scope == "zones" {
		body["zone"] = link("zones/%s", g.location)
	} else {
		body["region"] = link("regions/%s", g.location)
		policy["instanceRedistributionType"] = cmp.Or(g.set.Settings[Redistribution], "NONE")
		var zones []any
		for _, z := range g.set.Zones {
			zones = append(zones, map[string]any{"zone": link("zones/%s", z)})
		}
		body["distributionPolicy"] = map[string]any{"targetShape": "EVEN", "zones": zones}
	}
	if policy["type"] != "none" {
		body["updatePolicy"] = policy
	}
	if mode := g.set.Settings[TargetSizePolicy]; mode != "" {
		body["targetSizePolicy"] = map[string]any{"mode": mode}
	}
	return body, nil
}

func (d *double) autoscaler(_ *http.Request, g *group) (map[string]any, error) {
	return map[string]any{
		"kind": "compute#autoscaler", "name": g.name, "target": "https://www.googleapis.com/compute/v1/" + g.path(), "status": "ACTIVE",
		"autoscalingPolicy": map[string]any{"mode": cmp.Or(g.set.Settings[AutoscalerMode], "ON"), "minNumReplicas": g.set.Min, "maxNumReplicas": g.set.Max},
	}, nil
}

// action is what a group does with a machine. It goes on trying to make one that has failed.
func action(m clouds.Machine) string {
	switch m.State {
	case clouds.Creating, clouds.Failed:
		return "CREATING"
	case clouds.Deleting:
		return "DELETING"
	}
	return "NONE"
}

// numericID is the id of a machine that tells it from one that has had its name before.
func numericID(m clouds.Machine) string {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, m.Set, "/", m.ID, "/", m.Created.UnixNano())
	return strconv.FormatUint(h.Sum64(), 10)
}

func (d *double) listManagedInstances(r *http.Request, g *group) (map[string]any, error) {
	var all []map[string]any
	attempt := func(code, message string) map[string]any {
		return map[string]any{"errors": map[string]any{"errors": []any{map[string]any{"code": code, "message": message}}}}
	}
	for _, m := range d.world.Machines(g.set.Name) {
		i := map[string]any{"name": m.ID, "instance": link("zones/%s/instances/%s", m.Zone, m.ID), "currentAction": action(m)}
		switch m.State {
		case clouds.Running:
			i["instanceStatus"], i["id"] = "RUNNING", numericID(m)
		case clouds.Deleting:
			i["instanceStatus"], i["id"] = "STOPPING", numericID(m)
		case clouds.Failed:
			i["lastAttempt"] = attempt("INTERNAL_ERROR", m.Message)
		}
		if m.State != clouds.Deleting {
			i["version"] = map[string]any{"instanceTemplate": template(m.Image)}
		}
		all = append(all, i)
	}
	for _, m := range d.hopeless[g.set.Name] {
		all = append(all, map[string]any{
			"name": m.name, "instance": link("zones/%s/instances/%s", m.zone, m.name), "currentAction": "CREATING",
			"version": map[string]any{"instanceTemplate": template(g.set.Image)}, "lastAttempt": attempt(m.code, m.message),
		})
	}
	return page(r, "managedInstances", all, g.set.Settings[PageSize]), nil
}

// page answers with a part of a list, in the order of names. The token is the last name of the page before, so that no change of the list hides one.
func page(r *http.Request, key string, all []map[string]any, size string) map[string]any {
	name := func(i map[string]any) string { return i["name"].(string) }
	slices.SortFunc(all, func(a, b map[string]any) int { return strings.Compare(name(a), name(b)) })
	limit, _ := strconv.Atoi(cmp.Or(size, "100"))
	if asked, err := strconv.Atoi(r.URL.Query().Get("maxResults")); err == nil {
		limit = min(limit, asked)
	}
	token := r.URL.Query().Get("pageToken")
	all = slices.DeleteFunc(all, func(i map[string]any) bool { return name(i) <= token })
	body := map[string]any{key: all}
	if len(all) > limit {
		body[key], body["nextPageToken"] = all[:limit], name(all[limit-1])
	}
	return body
}

// instanceOf is a machine as the API of instances shows it.
func instanceOf(m clouds.Machine, g group) map[string]any {
	return map[string]any{
		"kind": "compute#instance", "name": m.ID, "id": numericID(m), "zone": link("zones/%s", m.Zone), "status": "RUNNING",
		"creationTimestamp": m.Created.Format("2006-01-02T15:04:05.000-07:00"), "deletionProtection": m.Protected,
		"metadata": map[string]any{"items": []any{
			map[string]any{"key": "instance-template", "value": "projects/" + projectNumber + "/global/instanceTemplates/" + last(m.Image)},
			map[string]any{"key": "created-by", "value": "projects/" + projectNumber + strings.TrimPrefix(g.path(), "projects/"+Project)},
		}},
	}
}

func (d *double) inZone(zone string) []map[string]any {
	var all []map[string]any
	for _, s := range d.world.Sets() {
		for _, m := range d.world.Machines(s.Name) {
			if m.Zone == zone && m.State != clouds.Creating && m.State != clouds.Failed {
				all = append(all, instanceOf(m, groupOf(s)))
			}
		}
	}
	if zone == LonerZone {
		all = append(all, map[string]any{"name": Loner, "id": "1", "metadata": map[string]any{}})
	}
	return all
}

// Loner is a machine in LonerZone that is of no group.
const (
	Loner     = "loner"
	LonerZone = "nowhere-west1-z"
)

func (d *double) instances(rw http.ResponseWriter, r *http.Request) {
	clouds.JSON(rw, http.StatusOK, page(r, "items", d.inZone(r.PathValue("zone")), ""))
}

func (d *double) instance(rw http.ResponseWriter, r *http.Request) {
	for _, i := range d.inZone(r.PathValue("zone")) {
		if i["name"] == r.PathValue("instance") {
			clouds.JSON(rw, http.StatusOK, i)
			return
		}
	}
	refuse(rw, missing(r.URL.Path))
}
