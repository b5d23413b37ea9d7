// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/test/clouds"
	double "moult.dev/moult/test/clouds/aws"
)

func TestNewReadsTheEnvironment(t *testing.T) {
	a := start(t, nil)
	for _, e := range double.Env(a.url) {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	for _, p := range []v1alpha1.AWSProvider{{}, {Region: "us-east-1"}, {RoleARN: "arn:aws:iam::000000000000:role/moult"}} {
		c, err := New(t.Context(), &p)
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.ScaleSet("workers").Describe(t.Context())
		if err != nil || s.Capacity != 3 {
			t.Errorf("%+v: %+v %v", p, s, err)
		}
	}
	t.Setenv("AWS_REGION", "")
	if _, err := New(t.Context(), &v1alpha1.AWSProvider{}); cloud.KindOf(err) != cloud.KindInvalid {
		t.Errorf("without a region: %v", err)
	}
}

func TestCredentialsThatAreMissing(t *testing.T) {
	a := start(t, nil)
	for _, e := range double.Env(a.url) {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	c, err := New(t.Context(), &v1alpha1.AWSProvider{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ScaleSet("workers").Describe(t.Context()); cloud.KindOf(err) != cloud.KindDenied {
		t.Errorf("without credentials: %v", err)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	a := start(t, func(s *clouds.Set) { s.Capacity, s.Max = 120, 200 })
	if err := a.Create(t.Context(), clouds.Set{Name: "others", Image: "x", Capacity: 1, Zones: zones}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	asked := []string{
		"", "azure:///subscriptions/s/x", "gce://p/z/i-0", "aws:///eu-west-1a/fargate-ip-10-0-0-1", "aws:///eu-west-1a/i-00000000000000000", "aws://i-1", "i-2",
	}
	for _, set := range []string{"workers", "others"} {
		for _, m := range a.World.Machines(set) {
			asked = append(asked, m.ProviderID)
			want[m.ProviderID] = set
		}
	}
	got, err := a.fresh().Find(t.Context(), append(asked, asked...))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "locations", want, got)
	last := slices.Max(slices.Collect(maps.Keys(want)))
	a.Fault(clouds.Fault{Kind: clouds.Throttled, Call: "DescribeAutoScalingInstances", Set: last})
	if got, err := a.fresh().Find(t.Context(), asked); cloud.KindOf(err) != cloud.KindThrottled || len(got) < instancesPerCall || len(got) == len(want) {
		t.Errorf("before an error: %d of %d, error %v", len(got), len(want), err)
	}
	a.ClearFaults()
	got, err = a.fresh().Find(t.Context(), nil)
	if err != nil || len(got) != 0 {
		t.Errorf("nothing: %v %v", got, err)
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	lt := double.TemplateID("workers")
	base := cloud.Set{
		Name: "workers", Image: lt + ":1", ImageName: "one", ImageID: double.ImageID("one"), Model: lt + ":1/" + double.ImageID("one"),
		Capacity: 3, Max: 10, Zones: zones,
	}
	for _, tc := range []struct {
		name   string
		change func(*clouds.Set)
		want   func(*cloud.Set)
	}{
		{"plain", func(*clouds.Set) {}, func(*cloud.Set) {}},
		{"a new image", func(s *clouds.Set) { s.Image = "two" }, func(s *cloud.Set) {
			s.Image, s.ImageName, s.ImageID, s.Model = lt+":2", "two", double.ImageID("two"), lt+":2/"+double.ImageID("two")
		}},
		{"$Latest", func(s *clouds.Set) { s.Settings["launchTemplate"] = "$Latest" }, func(*cloud.Set) {}},
		{"the tag max", func(s *clouds.Set) { s.Tags = map[string]string{"max": "7"} }, func(s *cloud.Set) { s.Max = 7 }},
		{"a tag max above", func(s *clouds.Set) { s.Tags = map[string]string{"max": "70"} }, func(*cloud.Set) {}},
		{"a tag max of words", func(s *clouds.Set) { s.Tags = map[string]string{"max": "many"} }, func(s *cloud.Set) {
			s.Unfit = `its tag max is "many", which is no number of machines`
		}},
		{"refreshed", func(s *clouds.Set) { s.Busy = true }, func(s *cloud.Set) { s.Busy, s.BusyByOthers = "instance refresh refresh-1 is InProgress", true }},
		{"rolled back", func(s *clouds.Set) { s.Settings["refresh"] = "RollbackInProgress" }, func(s *cloud.Set) {
			s.Busy, s.BusyByOthers = "instance refresh refresh-1 is RollbackInProgress", true
		}},
		{"refreshed once", func(s *clouds.Set) { s.Settings["refresh"] = "Cancelled" }, func(*cloud.Set) {}},
		{"launch configuration", func(s *clouds.Set) { s.Settings["launchConfiguration"] = "old" }, func(s *cloud.Set) {
			s.Image, s.ImageName, s.ImageID, s.Model = "", "", "", ""
			s.Unfit = "it has no launch template: give it one in place of its launch configuration"
		}},
		{"warm pool", func(s *clouds.Set) { s.Settings["warmPool"] = "1" }, func(s *cloud.Set) {
			s.Unfit = "it has a warm pool, whose machines may be of another image"
		}},
		{"lifetime", func(s *clouds.Set) { s.Settings["lifetime"] = "1" }, func(s *cloud.Set) {
			s.Unfit = "it replaces machines by itself: its maximum instance lifetime is set"
		}},
		{"no launching", func(s *clouds.Set) { s.Settings["suspended"] = "AZRebalance,Launch" }, func(s *cloud.Set) {
			s.Unfit = "its process Launch is suspended"
		}},
		{"no terminating", func(s *clouds.Set) { s.Settings["suspended"] = "Terminate" }, func(s *cloud.Set) {
			s.Unfit = "its process Terminate is suspended"
		}},
		{"a version that is not there", func(s *clouds.Set) { s.Settings["launchTemplate"] = "9" }, func(s *cloud.Set) {
			s.Image, s.ImageName, s.ImageID, s.Model = "", "", "", ""
			s.Unfit = "reading launch template " + lt + ":9, InvalidLaunchTemplateId.VersionNotFound: " +
				"Could not find the specified version 9 for the launch template with ID " + lt + "."
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := start(t, nil)
			a.edit(tc.change)
			want := base
			tc.want(&want)
			expect(t, "the set", want, a.describe())
		})
	}
}

func TestDescribeMixed(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	plain := a.describe()
	a.edit(func(s *clouds.Set) { s.Settings["policy"] = "spot" })
	mixed := a.describe()
	if !strings.HasPrefix(mixed.Model, plain.Model+"/") || mixed.Image != plain.Image || mixed.Unfit != "" {
		t.Errorf("%+v", mixed)
	}
	a.edit(func(s *clouds.Set) { s.Settings["policy"] = "mixed" })
	if got := a.describe().Unfit; !strings.HasPrefix(got, "its mixed instances policy has on-demand and spot instances") {
		t.Error(got)
	}
	a.edit(func(s *clouds.Set) { s.Settings["weights"] = "1" })
	if got := a.describe().Unfit; !strings.HasPrefix(got, "its capacity is no number of machines") {
		t.Error(got)
	}
}

// A group whose overrides make machines of something else than its launch template is not touched.
func TestUnfitOverrides(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]types.LaunchTemplateOverrides{
		"": {InstanceType: aws.String("m7i.large")},
		"an override of its mixed instances policy has a launch template or an image of its own: make a group of each": {
			LaunchTemplateSpecification: &types.LaunchTemplateSpecification{LaunchTemplateId: aws.String("lt-2")},
		},
	} {
		expect(t, "why it is unfit", want, unfitReason(&types.AutoScalingGroup{MixedInstancesPolicy: &types.MixedInstancesPolicy{LaunchTemplate: &types.LaunchTemplate{
			LaunchTemplateSpecification: &types.LaunchTemplateSpecification{LaunchTemplateId: aws.String("lt-1")}, Overrides: []types.LaunchTemplateOverrides{o},
		}}}))
	}
}

func TestNoSuchGroup(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	s := a.fresh().ScaleSet("nobody")
	if _, err := s.Describe(t.Context()); cloud.KindOf(err) != cloud.KindNotFound {
		t.Error(err)
	}
	if _, err := s.Machines(t.Context()); cloud.KindOf(err) != cloud.KindNotFound {
		t.Error(err)
	}
}

func TestMachines(t *testing.T) {
	t.Parallel()
	a := start(t, func(s *clouds.Set) { s.Capacity = 7 })
	worlds := a.World.Machines("workers")
	for n, change := range []func(*clouds.Machine){
		func(m *clouds.Machine) { m.State = "Standby" },
		func(m *clouds.Machine) { m.State = "Pending:Wait" },
		func(m *clouds.Machine) { m.State = "Terminating:Wait" },
		func(m *clouds.Machine) { m.State, m.Message = clouds.Failed, "it does not boot" },
		func(m *clouds.Machine) { m.Protected = true },
		func(m *clouds.Machine) { m.State = "Detached" },
	} {
		if err := a.EditMachine("workers", worlds[n].ID, change); err != nil {
			t.Fatal(err)
		}
	}
	a.edit(func(s *clouds.Set) { s.Image = "two" })
	added, _, err := a.Add("workers", zones[1], nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	c := a.fresh()
	got, err := c.ScaleSet("workers").Machines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const aside = "it is in standby, where the capacity does not count it: put it back into service, or terminate it"
	var want []cloud.Machine
	for n, state := range []cloud.Machine{
		{State: cloud.Stopped, Aside: aside}, {State: cloud.Creating}, {State: cloud.Deleting}, {State: cloud.Failed, Message: "it does not boot"},
		{State: cloud.Running}, {}, {State: cloud.Running},
	} {
		if m := worlds[n]; state.State != "" {
			state.ID, state.ProviderID, state.Zone, state.Created = m.ID, m.ProviderID, m.Zone, m.Created.UTC().Truncate(1e6)
			want = append(want, state)
		}
	}
	if n := len(got); n != len(want)+1 || !got[n-1].UpToDate || got[n-1].ID != added[0].ID || got[n-1].Zone != zones[1] {
		t.Fatalf("%d machines, want %d: %+v", n, len(want)+1, got)
	}
	expect(t, "the machines", want, got[:len(want)])
	expect(t, "the questions for protection", 0, a.Calls()["DescribeInstanceAttribute"])
}

func TestParameterForAnImage(t *testing.T) {
	t.Parallel()
	a := start(t, func(s *clouds.Set) { s.Settings["alias"] = "1" })
	c := a.fresh()
	look := func(image string, upToDate bool) {
		t.Helper()
		s, err := c.ScaleSet("workers").Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lt := double.TemplateID("workers")
		expect(t, "the image", []string{lt + ":1", image, lt + ":1/" + double.ImageID(image)}, []string{s.Image, s.ImageName, s.Model})
		machines, err := c.ScaleSet("workers").Machines(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range machines {
			expect(t, "whether "+m.ID+" is up to date", upToDate, m.UpToDate)
		}
	}
	look("one", true)
	a.edit(func(s *clouds.Set) { s.Image = "two" })
	look("two", false)
}

func TestUpToDate(t *testing.T) {
	t.Parallel()
	spec := func(id, version string) *types.LaunchTemplateSpecification {
		return &types.LaunchTemplateSpecification{LaunchTemplateId: aws.String(id), Version: aws.String(version)}
	}
	made := template{id: "lt-1", version: "7", image: "ami-1"}
	for _, tc := range []struct {
		name     string
		instance types.Instance
		image    string
		want     bool
	}{
		{"the version", types.Instance{LaunchTemplate: spec("lt-1", "7")}, "ami-1", true},
		{"the version, an image that is not known", types.Instance{LaunchTemplate: spec("lt-1", "7")}, "", true},
		{"the version, another image", types.Instance{LaunchTemplate: spec("lt-1", "7")}, "ami-2", false},
		{"its root volume was replaced", types.Instance{LaunchTemplate: spec("lt-1", "7"), ImageId: aws.String("ami-2")}, "ami-1", false},
		{"another version", types.Instance{LaunchTemplate: spec("lt-1", "6")}, "ami-1", false},
		{"another template", types.Instance{LaunchTemplate: spec("lt-3", "7")}, "ami-1", false},
		{"a launch configuration", types.Instance{LaunchConfigurationName: aws.String("old")}, "ami-1", false},
		{"nothing", types.Instance{}, "ami-1", false},
	} {
		if got := upToDate(made, &tc.instance, tc.image); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

func TestStates(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		lifecycle types.LifecycleState
		health    string
		vm        ec2types.InstanceStateName
		want      cloud.State
	}{
		{"Pending", "", "", cloud.Creating},
		{"Pending:Wait", "Healthy", "running", cloud.Creating},
		{"Pending:Proceed", "Healthy", "pending", cloud.Creating},
		{"InService", "Healthy", "running", cloud.Running},
		{"InService", "HEALTHY", "", cloud.Running},
		{"InService", "Unhealthy", "running", cloud.Failed},
		{"InService", "Healthy", "stopping", cloud.Stopped},
		{"InService", "Healthy", "stopped", cloud.Stopped},
		{"InService", "Healthy", "shutting-down", cloud.Deleting},
		{"InService", "Unhealthy", "terminated", cloud.Deleting},
		{"EnteringStandby", "Healthy", "running", cloud.Stopped},
		{"Standby", "Healthy", "running", cloud.Stopped},
		{"Terminating", "Healthy", "running", cloud.Deleting},
		{"Terminating:Wait", "Healthy", "running", cloud.Deleting},
		{"ReplacingRootVolume:Wait", "Healthy", "running", cloud.Failed},
		{"Quarantined", "Healthy", "running", cloud.Failed},
	} {
		i := &types.Instance{LifecycleState: tc.lifecycle, HealthStatus: aws.String(tc.health)}
		if got, _ := stateOf(i, ec2types.Instance{State: &ec2types.InstanceState{Name: tc.vm}}); got != tc.want {
			t.Errorf("%s %s %s: %s", tc.lifecycle, tc.health, tc.vm, got)
		}
	}
}

func TestUnfitness(t *testing.T) {
	t.Parallel()
	spec := &types.LaunchTemplateSpecification{LaunchTemplateName: aws.String("workers")}
	for _, tc := range []struct {
		group types.AutoScalingGroup
		want  string
	}{
		{types.AutoScalingGroup{LaunchTemplate: spec}, ""},
		{types.AutoScalingGroup{LaunchTemplate: spec, DesiredCapacityType: aws.String("units")}, ""},
		{types.AutoScalingGroup{LaunchTemplate: spec, DesiredCapacityType: aws.String("vcpu")}, "its capacity is no number of machines"},
		{types.AutoScalingGroup{LaunchTemplate: spec, Operator: &types.Operator{Principal: aws.String("eks.amazonaws.com")}}, "it is managed by eks.amazonaws.com"},
		{types.AutoScalingGroup{}, "it has no launch template"},
	} {
		if got := unfitReason(&tc.group); !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
	expect(t, "a template by name", "workers:$Default", specificationText(spec))
}

func TestErrorsOfReads(t *testing.T) {
	t.Parallel()
	for fault, kind := range map[clouds.FaultKind]cloud.Kind{
		clouds.Throttled: cloud.KindThrottled, clouds.Denied: cloud.KindDenied, clouds.Unavailable: cloud.KindUnavailable, clouds.Conflict: cloud.KindUnavailable,
		clouds.DropBefore: cloud.KindUnavailable, clouds.DropAfter: cloud.KindUnavailable, clouds.Truncated: cloud.KindUnavailable,
	} {
		for _, call := range []string{
			"DescribeAutoScalingGroups", "DescribeAutoScalingInstances", "DescribeInstanceRefreshes", "DescribeInstances", "DescribeImages",
			"DescribeLaunchTemplateVersions",
		} {
			t.Run(string(fault)+" "+call, func(t *testing.T) {
				t.Parallel()
				a := start(t, nil)
				look := func() (errs []error) {
					_, err := a.workers().Describe(t.Context())
					errs = append(errs, err)
					_, err = a.workers().Machines(t.Context())
					errs = append(errs, err)
					_, err = a.fresh().Find(t.Context(), []string{a.World.Machines("workers")[0].ProviderID})
					return append(errs, err)
				}
				a.Fault(clouds.Fault{Kind: fault, Call: call})
				failed := 0
				for _, err := range look() {
					if err != nil {
						failed++
						if cloud.KindOf(err) != kind {
							t.Errorf("%s: %v", cloud.KindOf(err), err)
						}
					}
				}
				if failed == 0 {
					t.Error("nothing has failed")
				}
				a.ClearFaults()
				for _, err := range look() {
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}
