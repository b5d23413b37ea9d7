// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"slices"
	"strconv"

	"moult.dev/moult/test/clouds"
)

// template is the launch template of a set, and of those that share it.
type template struct {
	id, name string
	versions []version
	// models are the versions that the world's models of each set are.
	models map[string]map[int]int
}

// version is one of them; its number is its place, from 1.
type version struct {
	image, description, token string
}

// template brings a set's launch template up to what the world says of the set, and a set at $Latest up to the template.
func (d *double) template(s *clouds.Set) *template {
	t := d.templates[s.Name]
	shared := s.Settings["template"]
	if owner, ok := d.world.Set(shared); ok {
		t = d.template(&owner)
	} else if t == nil {
		t = &template{id: TemplateID(s.Name), name: s.Name, models: map[string]map[int]int{}}
		d.templates[s.Name] = t
	}
	if t.models[s.Name] == nil {
		t.models[s.Name] = map[int]int{}
	}
	models := t.models[s.Name]
	// Machines may be of models that no one has asked about while they were the set's.
	machines := d.world.Machines(s.Name)
	slices.SortStableFunc(machines, func(a, b clouds.Machine) int { return a.Model - b.Model })
	for _, m := range append(machines, clouds.Machine{Model: s.Model, Image: s.Image}) {
		if models[m.Model] != 0 {
			continue
		}
		if known := slices.IndexFunc(t.versions, func(v version) bool { return v.image == m.Image }); known >= 0 && shared != "" {
			models[m.Model] = known + 1
			continue
		}
		if s.Settings["alias"] == "" || len(t.versions) == 0 {
			t.versions = append(t.versions, version{image: m.Image})
		}
		models[m.Model] = len(t.versions)
	}
	if s.Settings["alias"] != "" {
		t.versions[models[s.Model]-1].image = s.Image
	}
	if s.Settings["launchTemplate"] == "$Latest" && models[s.Model] != len(t.versions) && d.use(s.Name, t, len(t.versions)) == nil {
		*s, _ = d.world.Set(s.Name)
	}
	return t
}

// spec is the version as it stands in the group.
func (t *template) spec(s *clouds.Set) string {
	if v := s.Settings["launchTemplate"]; v != "" {
		return v
	}
	return strconv.Itoa(t.models[s.Name][s.Model])
}

// number is the number of a version as it may stand in a group; 0 for one that there is not.
func (t *template) number(s *clouds.Set, spec string) int {
	switch spec {
	case "$Latest":
		return len(t.versions)
	case "$Default", "":
		return t.models[s.Name][s.Model]
	}
	n, err := strconv.Atoi(spec)
	if err != nil || n < 1 || n > len(t.versions) {
		return 0
	}
	return n
}

// use makes a version what the set makes machines of.
func (d *double) use(name string, t *template, n int) error {
	return d.world.Edit(name, func(s *clouds.Set) error {
		if t.models[name][s.Model] != n {
			s.Image = t.versions[n-1].image
			s.Model++
			t.models[name][s.Model] = n
		}
		return nil
	})
}

// templateByID finds a template with its set.
func (d *double) templateByID(id string) (*template, *clouds.Set, error) {
	for _, s := range d.world.Sets() {
		if t := d.template(&s); t.id == id || t.name == id {
			return t, &s, nil
		}
	}
	return nil, nil, refusal("InvalidLaunchTemplateId.NotFound", "The specified launch template, with template ID %s, does not exist.", id)
}
