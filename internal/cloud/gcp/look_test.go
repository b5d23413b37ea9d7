// SPDX-License-Identifier: Apache-2.0

package gcp_test

import (
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/test/clouds"
	double "moult.dev/moult/test/clouds/gcp"
)

func TestDescribe(t *testing.T) {
	bounded := func(s clouds.Set, most int) clouds.Set { s.Max = most; return s }
	const image = "projects/moult-test/global/instanceTemplates/image-1"
	zones := []string{"europe-west1-b", "europe-west1-c", "europe-west1-d"}
	want := func(name string, change func(*cloud.Set)) cloud.Set {
		s := cloud.Set{Name: name, Image: image, ImageName: "image-1", Model: image, Capacity: 2, Version: "ZnAwMDAwMDE="}
		s.Zones = zones
		if strings.HasPrefix(name, "zones/") {
			s.Zones = zones[:1]
		}
		if change != nil {
			change(&s)
		}
		return s
	}
	const z, r = "zones/europe-west1-b/pool", "regions/europe-west1/pool"
	tests := map[string]struct {
		set    clouds.Set
		name   string
		want   cloud.Set
		kind   cloud.Kind
		unfit  string
		others []clouds.Set
	}{
		"zonal":    {set: zonal("pool", 2), name: z, want: want(z, nil)},
		"regional": {set: regional("pool", 2), name: r, want: want(r, nil)},
		"zonal by its name alone": {
			set: zonal("pool", 2), name: "pool", want: want(z, nil),
		},
		"regional by its name alone": {
			set: regional("pool", 2), name: "pool", want: want(r, nil),
		},
		"a name in two places":   {set: zonal("pool", 2), others: []clouds.Set{regional("pool", 1)}, name: "pool", kind: cloud.KindInvalid},
		"a name in no place":     {set: zonal("pool", 2), name: "pond", kind: cloud.KindNotFound},
		"no such group":          {set: zonal("pool", 2), name: "zones/europe-west1-c/pool", kind: cloud.KindNotFound},
		"no name of a group":     {set: zonal("pool", 2), name: "europe-west1-b/pool", kind: cloud.KindNotFound},
		"maximum":                {set: bounded(zonal("pool", 2), 5), name: z, want: want(z, func(s *cloud.Set) { s.Max = 5 })},
		"maximum of a region":    {set: bounded(regional("pool", 2), 5), name: r, want: want(r, func(s *cloud.Set) { s.Max = 5 })},
		"autoscaler that is off": {set: settings(bounded(zonal("pool", 2), 5), double.AutoscalerMode, "OFF"), name: z, want: want(z, nil)},
		"a template elsewhere": {
			set: func() clouds.Set {
				s := zonal("pool", 2)
				s.Image = "projects/images/regions/europe-west1/instanceTemplates/t-2"
				return s
			}(),
			name: z,
			want: want(z, func(s *cloud.Set) {
				s.Image, s.ImageName = "projects/images/regions/europe-west1/instanceTemplates/t-2", "t-2"
				s.Model = s.Image
			}),
		},
		"replaces by itself":         {set: settings(zonal("pool", 2), double.UpdatePolicy, "PROACTIVE"), name: z, want: want(z, nil), unfit: "OPPORTUNISTIC"},
		"no update policy":           {set: settings(zonal("pool", 2), double.UpdatePolicy, "none"), name: z, want: want(z, nil), unfit: "OPPORTUNISTIC"},
		"canary":                     {set: settings(zonal("pool", 2), double.Canary, "image-2"), name: z, want: want(z, nil), unfit: "canary"},
		"redistributes":              {set: settings(regional("pool", 2), double.Redistribution, "PROACTIVE"), name: r, want: want(r, nil), unfit: "Redistribution"},
		"all machines at once":       {set: settings(zonal("pool", 2), double.TargetSizePolicy, "BULK"), name: z, want: want(z, nil), unfit: "BULK"},
		"machines one after another": {set: settings(zonal("pool", 2), double.TargetSizePolicy, "INDIVIDUAL"), name: z, want: want(z, nil)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newProject(t, append(test.others, test.set)...)
			s := p.cloud(t, "europe-west1-b", "europe-west1").ScaleSet(test.name)
			got, err := s.Describe(t.Context())
			wantKind(t, "describing", err, test.kind, "")
			if !strings.Contains(got.Unfit, test.unfit) || (got.Unfit == "") != (test.unfit == "") {
				t.Errorf("unfit because %q, want something with %q", got.Unfit, test.unfit)
			}
			got.Unfit = ""
			if diff := gocmp.Diff(test.want, got); diff != "" {
				t.Errorf("set (-want +got):\n%s", diff)
			}
		})
	}
}

// An autoscaler that may not be read bounds nothing; one that can't be read at present is an error.
func TestAutoscalerUnreadable(t *testing.T) {
	set := zonal("pool", 2)
	set.Max = 4
	p := newProject(t, set)
	s := p.cloud(t).ScaleSet(set.Name)
	p.Fault(clouds.Fault{Kind: clouds.Denied, Call: "autoscalers.get", Times: 1})
	if got, err := s.Describe(t.Context()); err != nil || got.Max != 0 {
		t.Errorf("denied: maximum %d, %v", got.Max, err)
	}
	p.Fault(clouds.Fault{Kind: clouds.Unavailable, Call: "autoscalers.get", Times: 1})
	_, err := s.Describe(t.Context())
	wantKind(t, "describing", err, cloud.KindUnavailable, "autoscaler")
}

func TestMachines(t *testing.T) {
	for _, set := range []clouds.Set{zonal("pool", 5), regional("pool", 5)} {
		t.Run(set.Name, func(t *testing.T) {
			p := newProject(t, settings(set, double.PageSize, "2"), zonal("other", 3))
			if err := p.Edit(set.Name, func(s *clouds.Set) error { s.Image = "image-2"; return nil }); err != nil {
				t.Fatal(err)
			}
			if _, task, err := p.Add(set.Name, "", []string{"pool-new"}, 1); err != nil {
				t.Fatal(err)
			} else {
				await(t, "a new machine", func() bool { done, _ := task.Done(); return done })
			}
			state := func(id, state, message string) {
				if err := p.EditMachine(set.Name, id, func(m *clouds.Machine) { m.State, m.Message = state, message }); err != nil {
					t.Fatal(err)
				}
			}
			state("pool-0001", clouds.Failed, "no luck")
			state("pool-0002", clouds.Deleting, "")
			state("pool-0003", clouds.Creating, "")
			s := p.cloud(t).ScaleSet(set.Name)
			got, err := s.Machines(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{
				"pool-0000": "Running", "pool-0001": "Failed INTERNAL_ERROR: no luck", "pool-0002": "Deleting", "pool-0003": "Creating",
				"pool-0004": "Running", "pool-new": "Running current",
			}
			said := map[string]string{}
			for _, m := range got {
				text := string(m.State)
				if m.UpToDate {
					text += " current"
				}
				if m.Message != "" {
					text += " " + m.Message
				}
				said[m.NodeName] = text
			}
			if diff := gocmp.Diff(want, said); diff != "" {
				t.Errorf("machines (-want +got):\n%s", diff)
			}
			for _, m := range got {
				i := slices.IndexFunc(p.Machines(set.Name), func(o clouds.Machine) bool { return o.ID == m.NodeName })
				o := p.Machines(set.Name)[i]
				if m.ID != "zones/"+o.Zone+"/instances/"+o.ID || m.ProviderID != o.ProviderID || m.Zone != o.Zone {
					t.Errorf("%+v, want it to be %+v", m, o)
				}
			}
		})
	}
}

func TestFind(t *testing.T) {
	p := newProject(t, settings(zonal("pool", 5), double.PageSize, "2"), regional("ring", 4), regional("unused", 1))
	c := p.cloud(t)
	var nodes []string
	want := map[string]string{}
	for _, set := range []string{"zones/europe-west1-b/pool", "regions/europe-west1/ring"} {
		for _, m := range p.Machines(set) {
			nodes = append(nodes, m.ProviderID)
			want[m.ProviderID] = set
		}
	}
	strangers := []string{
		"", "gce://", "gce://moult-test/europe-west1-b", "gce://other/europe-west1-b/pool-0000", "aws:///eu-west-1a/i-0",
		"gce://moult-test/europe-west1-b/gone", "gce://moult-test/" + double.LonerZone + "/" + double.Loner,
	}
	check := func(what string, most map[string]int) {
		t.Helper()
		before := p.Calls()
		got, err := c.Find(t.Context(), append(nodes, strangers...))
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		for call, n := range p.Calls() {
			if n-before[call] > most[call] {
				t.Errorf("%s: %d of %s, want %d", what, n-before[call], call, most[call])
			}
		}
	}
	// One machine of each group is asked about, the stranger, and the one that is gone.
	check("at first", map[string]int{"instances.get": 4, "listManagedInstances": 3 + 1})
	strangers = strangers[:5]
	check("again", map[string]int{"instances.get": 2, "listManagedInstances": 3 + 1})
	if _, _, err := p.Add("zones/europe-west1-b/pool", "", []string{"pool-new"}, 1); err != nil {
		t.Fatal(err)
	}
	await(t, "a new machine", func() bool { return p.Machines("zones/europe-west1-b/pool")[5].State == clouds.Running })
	nodes = append(nodes, "gce://moult-test/europe-west1-b/pool-new")
	want[nodes[len(nodes)-1]] = "zones/europe-west1-b/pool"
	check("with a new machine", map[string]int{"instances.get": 2, "listManagedInstances": 3 + 1})
	// A machine that was of no group is of one that has it later.
	lone := "zones/" + double.LonerZone + "/lone"
	if err := p.Create(t.Context(), clouds.Set{Name: lone, Image: "a", Zones: []string{double.LonerZone}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Add(lone, "", []string{double.Loner}, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ScaleSet(lone).Machines(t.Context()); err != nil {
		t.Fatal(err)
	}
	nodes = append(nodes, "gce://moult-test/"+double.LonerZone+"/"+double.Loner)
	want[nodes[len(nodes)-1]] = lone
	check("with one that was of none", map[string]int{"instances.get": 3, "listManagedInstances": 3 + 1 + 1})
	p.Fault(clouds.Fault{Kind: clouds.Throttled})
	nodes = append(nodes, "gce://moult-test/europe-west1-b/newer")
	_, err := c.Find(t.Context(), nodes)
	wantKind(t, "finding", err, cloud.KindThrottled, "Rate Limit")
}
