// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"moult.dev/moult/test/clouds"
)

// change is a handler of a request that begins an operation. It answers a request that it knows with that request's operation. do reads the body.
func (d *double) change(do func(body *json.Decoder, g *group) (*operation, error)) func(*http.Request, *group) (map[string]any, error) {
	return func(r *http.Request, g *group) (map[string]any, error) {
		id := r.URL.Query().Get("requestId")
		if o, ok := d.requests[id]; ok {
			return o.body(), nil
		}
		if g.set.Busy {
			return nil, &clouds.Refusal{Status: http.StatusBadRequest, Code: "resourceNotReady", Message: "The resource '" + g.path() + "' is not ready"}
		}
		o, err := do(json.NewDecoder(r.Body), g)
		if err != nil {
			return nil, err
		}
		o.name = fmt.Sprintf("operation-%d.%s", len(d.operations)+1, g.name)
		o.group, o.request = *g, id
		d.operations[o.name] = o
		if id != "" && g.set.Settings[Forgetful] != "true" {
			d.requests[id] = o
		}
		return o.body(), nil
	}
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
	if !ok {
		refuse(rw, missing(r.URL.Path))
		return
	}
	o.asked++
	clouds.JSON(rw, http.StatusOK, o.body())
}

func (d *double) createInstances(r *json.Decoder, g *group) (*operation, error) {
	var body struct {
		Instances []struct{ Name string }
	}
	if err := r.Decode(&body); err != nil {
		return nil, err
	}
	var names []string
	for _, i := range body.Instances {
		names = append(names, i.Name)
	}
	o := &operation{kind: "compute.instanceGroupManagers.createInstances"}
	err := clouds.ErrExists
	if !slices.ContainsFunc(d.hopeless[g.set.Name], func(m machine) bool { return slices.Contains(names, m.name) }) {
		_, o.task, err = d.world.Add(g.set.Name, "", names, len(names))
	}
	switch {
	case errors.Is(err, clouds.ErrExists) && g.set.Settings[LateErrors] == "true":
		o.code, o.message, err = "RESOURCE_ALREADY_EXISTS", err.Error(), nil
	case errors.Is(err, clouds.ErrQuota):
		// The group keeps them as its own, and tries again.
		for i, name := range names {
			d.hopeless[g.set.Name] = append(d.hopeless[g.set.Name],
				machine{name: name, zone: g.set.Zones[i%len(g.set.Zones)], code: "QUOTA_EXCEEDED", message: "Quota 'CPUS' exceeded.  Limit: 24.0 in region."})
		}
		err = nil
	case errors.Is(err, clouds.ErrFull):
		err = &clouds.Refusal{Status: http.StatusForbidden, Code: "limitExceeded", Message: err.Error()}
	}
	return o, err
}

func (d *double) deleteInstances(r *json.Decoder, g *group) (*operation, error) {
	var body struct{ Instances []string }
	if err := r.Decode(&body); err != nil {
		return nil, err
	}
	o := &operation{kind: "compute.instanceGroupManagers.deleteInstances"}
	there := map[string]clouds.Machine{}
	for _, m := range d.world.Machines(g.set.Name) {
		there[fmt.Sprintf("zones/%s/instances/%s", m.Zone, m.ID)] = m
	}
	var ids []string
	for _, url := range body.Instances {
		lost := func(m machine) bool { return m.name == last(url) }
		m, ok := there[url[max(strings.LastIndex(url, "zones/"), 0):]]
		switch {
		case slices.ContainsFunc(d.hopeless[g.set.Name], lost):
			d.hopeless[g.set.Name] = slices.DeleteFunc(d.hopeless[g.set.Name], lost)
		case ok && m.Protected:
			o.code, o.message = "INVALID_USAGE", "Resource cannot be deleted if it's protected against deletion."
		case ok && m.State != clouds.Deleting:
			ids = append(ids, m.ID)
		}
	}
	var err error
	if len(ids) > 0 {
		o.task, err = d.world.Delete(g.set.Name, ids, true)
	}
	return o, err
}

func (d *double) patch(r *json.Decoder, g *group) (*operation, error) {
	var body struct {
		Fingerprint string
		Versions    []struct{ InstanceTemplate string }
	}
	if err := r.Decode(&body); err != nil {
		return nil, err
	}
	return &operation{kind: "compute.instanceGroupManagers.patch"}, d.world.Edit(g.set.Name, func(s *clouds.Set) error {
		now := groupOf(*s)
		if body.Fingerprint != now.fingerprint() {
			return faults[clouds.Conflict]
		}
		s.Image = image(body.Versions[0].InstanceTemplate)
		return nil
	})
}
