// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"moult.dev/moult/test/clouds"
)

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// known answers a request that was seen before, or that can't be taken now, and reports whether it was one.
func (d *double) known(rw http.ResponseWriter, r *http.Request, g *group) bool {
	id := r.URL.Query().Get("requestId")
	if id != "" && !uuid.MatchString(id) {
		refuse(rw, http.StatusBadRequest, "invalid", "Invalid value for field 'requestId': '"+id+"'.")
		return true
	}
	if o, ok := d.requests[id]; ok && id != "" {
		reply(rw, http.StatusOK, o.body())
		return true
	}
	if g.set.Busy {
		refuse(rw, http.StatusBadRequest, "resourceNotReady", "The resource '"+g.path()+"' is not ready")
		return true
	}
	return false
}

// begin begins an operation.
func (d *double) begin(rw http.ResponseWriter, r *http.Request, g *group, o *operation) {
	o.name = fmt.Sprintf("operation-%d.%s", len(d.operations)+1, g.name)
	o.group, o.request = *g, r.URL.Query().Get("requestId")
	d.operations[o.name] = o
	if o.request != "" && g.set.Settings[Forgetful] != "true" {
		d.requests[o.request] = o
	}
	reply(rw, http.StatusOK, o.body())
}

// body is an operation as it stands.
func (o *operation) body() map[string]any {
	lasting, _ := strconv.Atoi(cmp.Or(o.group.set.Settings[Lasting], "2"))
	status := "PENDING"
	switch {
	case o.asked >= lasting:
		status = "DONE"
	case o.asked > 0:
		status = "RUNNING"
	}
	b := map[string]any{
		"kind": "compute#operation", "name": o.name, "operationType": o.kind, "status": status, "clientOperationId": o.request,
		"targetLink":                           "https://www.googleapis.com/compute/v1/" + o.group.path(),
		"selfLink":                             link("%s/%s/operations/%s", o.group.scope, o.group.location, o.name),
		strings.TrimSuffix(o.group.scope, "s"): link("%s/%s", o.group.scope, o.group.location),
	}
	if status != "DONE" {
		return b
	}
	code, message := o.code, o.message
	if code == "" && o.task != nil {
		if _, err := o.task.Done(); err != nil {
			code, message = "INTERNAL_ERROR", err.Error()
		}
	}
	if code != "" {
		b["error"] = map[string]any{"errors": []any{map[string]any{"code": code, "message": message}}}
		b["httpErrorStatusCode"], b["httpErrorMessage"] = http.StatusBadRequest, "BAD REQUEST"
	}
	return b
}

func (d *double) operation(rw http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o, ok := d.operations[r.PathValue("operation")]
	if !ok || o.group.scope != r.PathValue("scope") || o.group.location != r.PathValue("location") {
		refuse(rw, http.StatusNotFound, "notFound", "The resource '"+r.URL.Path+"' was not found")
		return
	}
	o.asked++
	reply(rw, http.StatusOK, o.body())
}

// read reads the body of a request.
func read(rw http.ResponseWriter, r *http.Request, body any) bool {
	if err := json.NewDecoder(r.Body).Decode(body); err != nil {
		refuse(rw, http.StatusBadRequest, "parseError", "Parse Error, "+err.Error())
		return false
	}
	return true
}

func (d *double) createInstances(rw http.ResponseWriter, r *http.Request, g *group) {
	var body struct {
		Instances []struct{ Name string }
	}
	if d.known(rw, r, g) || !read(rw, r, &body) {
		return
	}
	var names []string
	for _, i := range body.Instances {
		if !regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`).MatchString(i.Name) {
			refuse(rw, http.StatusBadRequest, "invalid", "Invalid value for field 'instances[].name': '"+i.Name+"'.")
			return
		}
		names = append(names, i.Name)
	}
	exists := slices.ContainsFunc(d.hopeless[g.set.Name], func(m machine) bool { return slices.Contains(names, m.name) })
	o := &operation{kind: "compute.instanceGroupManagers.createInstances"}
	var err error
	if exists {
		err = clouds.ErrExists
	} else {
		_, o.task, err = d.world.Add(g.set.Name, "", names, len(names))
	}
	switch {
	case errors.Is(err, clouds.ErrExists) && g.set.Settings[LateErrors] == "true":
		o.code, o.message = "RESOURCE_ALREADY_EXISTS", err.Error()
	case errors.Is(err, clouds.ErrQuota):
		// The group wants them, and goes on trying.
		for i, name := range names {
			d.hopeless[g.set.Name] = append(d.hopeless[g.set.Name],
				machine{name: name, zone: g.set.Zones[i%len(g.set.Zones)], code: "QUOTA_EXCEEDED", message: "Quota 'CPUS' exceeded.  Limit: 24.0 in region."})
		}
	case errors.Is(err, clouds.ErrFull):
		refuse(rw, http.StatusForbidden, "limitExceeded", err.Error())
		return
	case err != nil:
		refuse(rw, http.StatusBadRequest, "invalid", err.Error())
		return
	}
	d.begin(rw, r, g, o)
}

func (d *double) deleteInstances(rw http.ResponseWriter, r *http.Request, g *group) {
	var body struct {
		Instances                      []string
		SkipInstancesOnValidationError bool
	}
	if d.known(rw, r, g) || !read(rw, r, &body) {
		return
	}
	o := &operation{kind: "compute.instanceGroupManagers.deleteInstances"}
	there := map[string]clouds.Machine{}
	for _, m := range d.world.Machines(g.set.Name) {
		there[fmt.Sprintf("zones/%s/instances/%s", m.Zone, m.ID)] = m
	}
	var ids []string
	var hopeless []string
	for _, url := range body.Instances {
		zone := strings.Split(url, "/")
		if len(zone) < 4 || g.scope == "zones" && zone[len(zone)-3] != g.location {
			refuse(rw, http.StatusBadRequest, "invalid", "Invalid value for field 'instances': '"+url+"'.")
			return
		}
		m, ok := there[strings.Join(zone[len(zone)-4:], "/")]
		lost := slices.ContainsFunc(d.hopeless[g.set.Name], func(m machine) bool { return m.name == last(url) })
		switch {
		case lost:
			hopeless = append(hopeless, last(url))
		case ok && m.Protected:
			o.code, o.message = "INVALID_USAGE", "Resource cannot be deleted if it's protected against deletion."
		case ok && m.State != clouds.Deleting:
			ids = append(ids, m.ID)
		case !body.SkipInstancesOnValidationError:
			refuse(rw, http.StatusBadRequest, "invalid", "The instance '"+url+"' is not a member of "+g.name)
			return
		}
	}
	if len(ids) > 0 {
		task, err := d.world.Delete(g.set.Name, ids, true)
		if err != nil {
			refuse(rw, http.StatusBadRequest, "invalid", err.Error())
			return
		}
		o.task = task
	}
	d.hopeless[g.set.Name] = slices.DeleteFunc(d.hopeless[g.set.Name], func(m machine) bool { return slices.Contains(hopeless, m.name) })
	d.begin(rw, r, g, o)
}

func (d *double) patch(rw http.ResponseWriter, r *http.Request, g *group) {
	var body struct {
		Fingerprint string
		Versions    []struct{ InstanceTemplate string }
	}
	if d.known(rw, r, g) || !read(rw, r, &body) {
		return
	}
	if len(body.Versions) != 1 || !strings.HasPrefix(body.Versions[0].InstanceTemplate, "projects/") {
		refuse(rw, http.StatusBadRequest, "invalid", "Invalid value for field 'resource.versions'.")
		return
	}
	stale := errors.New("stale")
	err := d.world.Edit(g.set.Name, func(s *clouds.Set) error {
		now := groupOf(*s)
		if body.Fingerprint != now.fingerprint() {
			return stale
		}
		s.Image = image(body.Versions[0].InstanceTemplate)
		return nil
	})
	switch {
	case errors.Is(err, stale):
		refuse(rw, http.StatusPreconditionFailed, "conditionNotMet", "Invalid fingerprint.")
	case err != nil:
		refuse(rw, http.StatusBadRequest, "invalid", err.Error())
	default:
		d.begin(rw, r, g, &operation{kind: "compute.instanceGroupManagers.patch"})
	}
}
