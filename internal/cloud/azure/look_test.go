// SPDX-License-Identifier: Apache-2.0

package azure_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/cloud/azure"
	"moult.dev/moult/test/clouds"
	double "moult.dev/moult/test/clouds/azure"
)

const group = "/subscriptions/" + double.SubscriptionID + "/resourceGroups/" + double.ResourceGroup + "/providers/Microsoft.Compute"

func TestDescribe(t *testing.T) {
	setting := func(key, value string) func(*clouds.Set) {
		return func(s *clouds.Set) { s.Settings = map[string]string{key: value} }
	}
	for name, test := range map[string]struct {
		edit  func(*clouds.Set)
		want  func(*cloud.Set)
		unfit string
	}{
		"plain":       {},
		"flexible":    {edit: setting("mode", "Flexible")},
		"no zones":    {edit: func(s *clouds.Set) { s.Zones = nil }},
		"no limit":    {edit: func(s *clouds.Set) { s.Max = 0 }, want: func(s *cloud.Set) { s.Max = 0 }},
		"MAX":         {edit: func(s *clouds.Set) { s.Max, s.Tags = 0, map[string]string{"MAX": " 7 "} }, want: func(s *cloud.Set) { s.Max = 7 }},
		"busy":        {edit: func(s *clouds.Set) { s.Busy = true }, want: func(s *cloud.Set) { s.Busy = "its provisioning state is Updating" }},
		"no image":    {edit: func(s *clouds.Set) { s.Image = "" }, want: func(s *cloud.Set) { s.Image, s.ImageName = "", "" }},
		"marketplace": {edit: func(s *clouds.Set) { s.Image = "p:o:s:1.0" }, want: func(s *cloud.Set) { s.Image, s.ImageName = "p:o:s:1.0", "1.0" }},
		"community": {
			edit: func(s *clouds.Set) { s.Image = "/CommunityGalleries/g/Images/i/Versions/2" },
			want: func(s *cloud.Set) { s.Image, s.ImageName = "/CommunityGalleries/g/Images/i/Versions/2", "2" },
		},
		"of AKS": {edit: func(s *clouds.Set) { s.Max, s.Tags = 0, map[string]string{"aks-managed-poolName": "p", "max": "9"} },
			want: func(s *cloud.Set) { s.Max = 9 }, unfit: "it is a node pool of AKS"},
		"automatic":   {edit: setting("upgrade", "Automatic"), unfit: "its upgrade policy is Automatic"},
		"rolling":     {edit: setting("upgrade", "Rolling"), unfit: "its upgrade policy is Rolling"},
		"os upgrades": {edit: setting("osUpgrades", "true"), unfit: "automatic OS upgrades are on"},
		"rebalancing": {edit: setting("rebalancing", "true"), unfit: "automatic zone rebalancing is on"},
		"no profile":  {edit: setting("profile", "false"), want: func(s *cloud.Set) { s.Image, s.ImageName = "", "" }, unfit: "it has no machine profile"},
		"max is no number": {
			edit: func(s *clouds.Set) { s.Max, s.Tags = 0, map[string]string{"max": "many"} },
			want: func(s *cloud.Set) { s.Max = 0 }, unfit: `its tag max is "many"`,
		},
		"max is none": {
			edit: func(s *clouds.Set) { s.Max, s.Tags = 0, map[string]string{"max": "0"} },
			want: func(s *cloud.Set) { s.Max = 0 }, unfit: `its tag max is "0"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := uniform()
			if test.edit != nil {
				test.edit(&set)
			}
			want := cloud.Set{
				Name: "s", Image: group + "/images/a", ImageName: "a", Capacity: 3, Max: 6, Version: `"1"`,
			}
			if test.want != nil {
				test.want(&want)
			}
			a := open(t, clouds.Options{}, set)
			got := describe(t, a.over(t).ScaleSet("s"))
			if !strings.HasPrefix(got.Unfit, test.unfit) || (got.Unfit == "") != (test.unfit == "") {
				t.Errorf("unfit %q, want %q", got.Unfit, test.unfit)
			}
			if diff := cmp.Diff(want, *got, cmpopts.IgnoreFields(cloud.Set{}, "Model", "Unfit")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got.Model == "" {
				t.Error("no model")
			}
		})
	}
}

func TestDescribeNothing(t *testing.T) {
	both(t, clouds.Options{}, nil, func(t *testing.T, a *account) {
		s := a.over(t).ScaleSet("s")
		if _, err := s.Describe(t.Context()); cloud.KindOf(err) != cloud.KindNotFound {
			t.Errorf("%v, want not found", err)
		}
		if _, err := s.Machines(t.Context()); cloud.KindOf(err) != cloud.KindNotFound {
			t.Errorf("%v, want not found", err)
		}
	})
}

func TestModel(t *testing.T) {
	set := uniform()
	set.Settings = map[string]string{"model": "strict"}
	a := open(t, clouds.Options{}, set)
	s := a.over(t).ScaleSet("s")
	first := describe(t, s).Model
	for _, test := range []struct {
		name string
		edit func(*clouds.Set)
		same bool
	}{
		{"tags", func(s *clouds.Set) { s.Tags["x"] = "y" }, true},
		{"capacity", func(s *clouds.Set) { s.Capacity = 4 }, true},
		{"something else", func(s *clouds.Set) { s.Model++ }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := a.Edit("s", func(s *clouds.Set) error { test.edit(s); return nil }); err != nil {
				t.Fatal(err)
			}
			if now := describe(t, s).Model; (now == first) != test.same {
				t.Errorf("model %s, was %s", now, first)
			}
		})
	}
	machines, err := s.Machines(t.Context())
	if err != nil || machines[0].UpToDate {
		t.Errorf("a machine of the model before is up to date: %v, %v", machines, err)
	}
}

func TestMachines(t *testing.T) {
	for name, test := range map[string]struct {
		set  clouds.Set
		id   func(int) string
		node func(int) string
	}{
		"uniform": {
			uniform(), func(n int) string { return fmt.Sprintf("virtualMachineScaleSets/s/virtualMachines/%d", n) },
			func(n int) string { return fmt.Sprintf("s00000%d", n) },
		},
		"flexible": {
			flexible(), func(n int) string { return fmt.Sprintf("virtualMachines/s_%d", n) },
			func(n int) string { return fmt.Sprintf("s-%d", n) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := clouds.Options{CreateTime: time.Hour}
			if name == "flexible" {
				o.Identify = double.IdentifyFlexible
			}
			test.set.Capacity, test.set.Max = 9, 0 // three pages
			both(t, o, []clouds.Set{test.set}, func(t *testing.T, a *account) {
				s := a.over(t).ScaleSet("s")
				if err := a.Edit("s", func(s *clouds.Set) error { s.Image = "b"; return nil }); err != nil {
					t.Fatal(err)
				}
				if _, err := a.Scale("s", 10); err != nil {
					t.Fatal(err)
				}
				if err := a.EditMachine("s", "1", func(m *clouds.Machine) { m.State, m.Message = clouds.Failed, "no disk" }); err != nil {
					t.Fatal(err)
				}
				if err := a.EditMachine("s", "2", func(m *clouds.Machine) { m.Protected = true }); err != nil {
					t.Fatal(err)
				}
				var want []cloud.Machine
				for n := range 10 {
					want = append(want, cloud.Machine{
						ID: machine(test.set, fmt.Sprint(n)), NodeName: test.node(n), Zone: fmt.Sprintf("westeurope-%d", n%3+1), State: cloud.Running,
						ProviderID: "azure://" + strings.Replace(group, double.ResourceGroup, strings.ToLower(double.ResourceGroup), 1) + "/" + test.id(n),
					})
				}
				want[1].State, want[1].Message = cloud.Failed, "OSProvisioningTimedOut: no disk"
				want[2].Protected = name != "flexible" // A virtual machine of its own has no such protection.
				want[9].State, want[9].UpToDate = cloud.Creating, true
				got, err := s.Machines(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(cloud.Machine{}, "Created")); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				for _, m := range got {
					if m.Created.IsZero() {
						t.Errorf("machine %s was never made", m.ID)
					}
				}
				// What is said of machines is what their Nodes are named.
				for i, m := range a.Machines("s") {
					if m.ProviderID != got[i].ProviderID || m.NodeName != got[i].NodeName {
						t.Errorf("node %s of %s, and machine %s of %s", m.NodeName, m.ProviderID, got[i].NodeName, got[i].ProviderID)
					}
				}
			})
		})
	}
}

// TestPagesThatFail reads no half of the machines.
func TestPagesThatFail(t *testing.T) {
	for _, fault := range []clouds.FaultKind{clouds.Throttled, clouds.Unavailable, clouds.DropBefore, clouds.DropAfter, clouds.Truncated} {
		t.Run(string(fault), func(t *testing.T) {
			set := uniform()
			set.Capacity, set.Max = 9, 0
			a := open(t, clouds.Options{}, set)
			s := a.over(t).ScaleSet("s")
			// Two calls pass, and the third fails.
			a.Fault(clouds.Fault{Kind: clouds.Twice, Call: "ListMachines", Times: 2})
			a.Fault(clouds.Fault{Kind: fault, Call: "ListMachines", Times: 1})
			if machines, err := s.Machines(t.Context()); err == nil {
				t.Errorf("%d machines, and no error", len(machines))
			}
			if machines, err := s.Machines(t.Context()); err != nil || len(machines) != 9 {
				t.Errorf("%d machines, %v", len(machines), err)
			}
		})
	}
}

func TestFind(t *testing.T) {
	uni, flex := uniform(), flexible()
	flex.Name = "Flex"
	both(t, clouds.Options{}, []clouds.Set{uni, flex}, func(t *testing.T, a *account) {
		c := a.over(t)
		where := "azure://" + group
		other := strings.ReplaceAll(where, double.SubscriptionID, "00000000-0000-0000-0000-000000000002")
		ids := map[string]string{
			where + "/virtualMachineScaleSets/s/virtualMachines/0":                               "s",
			strings.ToLower(where) + "/virtualmachinescalesets/s/virtualmachines/1":              "s",
			where + "/virtualMachines/Flex_0":                                                    "Flex",
			"azure://" + strings.ToUpper(group) + "/VIRTUALMACHINES/Flex_1":                      "Flex",
			where + "/virtualMachines/lonely":                                                    "",
			where + "/virtualMachines/gone":                                                      "",
			other + "/virtualMachineScaleSets/s/virtualMachines/0":                               "",
			strings.ReplaceAll(where, double.ResourceGroup, "other") + "/virtualMachines/Flex_0": "",
			"aws:///eu-west-1a/i-0":                                                              "",
			"azure://":                                                                           "",
			"":                                                                                   "",
		}
		var asked []string
		want := map[string]string{}
		for id, name := range ids {
			asked = append(asked, id)
			if name != "" {
				want[id] = name
			}
		}
		flex0, gone := where+"/virtualMachines/Flex_0", where+"/virtualMachines/gone"
		for _, test := range []struct {
			asked []string
			want  map[string]string
		}{{asked, want}, {[]string{flex0, gone}, map[string]string{flex0: want[flex0]}}} {
			got, err := c.Find(t.Context(), test.asked)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
		before := a.Calls()
		if _, err := c.Find(t.Context(), []string{where + "/virtualMachineScaleSets/s/virtualMachines/0"}); err != nil || cmp.Diff(before, a.Calls()) != "" {
			t.Errorf("a machine of a uniform set is read: %v, %v", a.Calls(), err)
		}
		a.Fault(clouds.Fault{Kind: clouds.Throttled})
		if _, err := c.Find(t.Context(), []string{where + "/virtualMachines/Flex_2"}); cloud.KindOf(err) != cloud.KindThrottled {
			t.Errorf("%v, want throttled", err)
		}
	})
}

func TestNew(t *testing.T) {
	good := azure.Options{SubscriptionID: "s", ResourceGroup: "g", Credential: bearer{}}
	for name, test := range map[string]struct {
		edit func(*azure.Options)
		want string
	}{
		"public":       {func(*azure.Options) {}, ""},
		"government":   {func(o *azure.Options) { o.Endpoint = "https://management.usgovcloudapi.net/" }, ""},
		"own":          {func(o *azure.Options) { o.Endpoint = "https://arm.stack.example" }, ""},
		"loopback":     {func(o *azure.Options) { o.Endpoint = "http://127.0.0.1:1" }, ""},
		"loopback 6":   {func(o *azure.Options) { o.Endpoint = "http://[::1]:1" }, ""},
		"in the clear": {func(o *azure.Options) { o.Endpoint = "http://arm.example" }, "must be an https URL"},
		"no url":       {func(o *azure.Options) { o.Endpoint = "arm.example" }, "must be an https URL"},
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			test.edit(&o)
			_, err := azure.New(o)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
