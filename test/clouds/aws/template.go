// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"slices"
	"strconv"

	"moult.dev/moult/test/clouds"
)

// template is the launch template of a set.
type template struct {
	id       string
	versions []version
	// models are the versions that the world's models of the set are.
	models map[int]int
}

// version is one of them; its number is its place, from 1.
type version struct {
	image, description, token string
}

// template brings a set's launch template up to what the world says of the set.
func (d *double) template(s *clouds.Set) *template {
	t := d.templates[s.Name]
	if t == nil {
		t = &template{id: TemplateID(s.Name), models: map[int]int{}}
		d.templates[s.Name] = t
	}
	// Machines may be of models that nobody has asked about while they were the set's.
	machines := d.world.Machines(s.Name)
	slices.SortStableFunc(machines, func(a, b clouds.Machine) int { return a.Model - b.Model })
	for _, m := range append(machines, clouds.Machine{Model: s.Model, Image: s.Image}) {
		if t.models[m.Model] != 0 {
			continue
		}
		if s.Settings["alias"] == "" || len(t.versions) == 0 {
			t.versions = append(t.versions, version{image: m.Image})
		}
		t.models[m.Model] = len(t.versions)
	}
	if s.Settings["alias"] != "" {
		t.versions[t.models[s.Model]-1].image = s.Image
	}
	return t
}

// spec is the version as it stands in the group.
func (t *template) spec(s *clouds.Set) string {
	if v := s.Settings["launchTemplate"]; v != "" {
		return v
	}
	return strconv.Itoa(t.models[s.Model])
}

// number is the number of a version as it may stand in a group; 0 for one that there is not.
func (t *template) number(s *clouds.Set, spec string) int {
	switch spec {
	case "$Latest", "$Default", "":
		return t.models[s.Model]
	}
	n, err := strconv.Atoi(spec)
	if err != nil || n < 1 || n > len(t.versions) {
		return 0
	}
	return n
}

// use makes a version what the set makes machines of.
func (d *double) use(name string, t *template, n int) error {
	err := d.world.Edit(name, func(s *clouds.Set) error {
		if t.models[s.Model] != n {
			s.Image = t.versions[n-1].image
			s.Model++
			t.models[s.Model] = n
		}
		return nil
	})
	return err
}

// templateByID finds a template with its set.
func (d *double) templateByID(id string) (*template, *clouds.Set) {
	for _, s := range d.world.Sets() {
		if t := d.template(&s); t.id == id || s.Name == id {
			return t, &s
		}
	}
	return nil, nil
}
