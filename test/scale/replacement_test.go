// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
)

func TestReplacementOptions(t *testing.T) {
	o, err := parse([]string{"--kind", "replacement", "--nodes", "300", "--machine-seconds", "3"})
	if err != nil || o.kind != kindReplacement || o.replacement.cloud != "azure" || o.replacement.machineTime() != 3*time.Second {
		t.Errorf("got %+v, %v", o, err)
	}
	if got := o.idealReplacement(301); got != 10*6*time.Second {
		t.Errorf("the ideal is %s", got)
	}
	if got := o.replacementPatience(300); got != 5*time.Minute+4*time.Minute+150*time.Second {
		t.Errorf("patience is %s", got)
	}
	for surge, want := range map[string]int{"10%": 31, "1%": 4, "100%": 100, "7": 7, "99": 99} {
		if o, err := parse([]string{"--surge", surge}); err != nil || o.replacement.atOnce(305) != want {
			t.Errorf("a surge of %s is %d, want %d; %v", surge, o.replacement.atOnce(305), want, err)
		}
	}
	for _, args := range [][]string{{"--surge", "0"}, {"--surge", "0%"}, {"--surge", "101%"}, {"--surge", "many"}, {"--cloud", "blue"}, {"--machine-seconds", "-1"}} {
		if o, err := parse(args); err == nil {
			t.Errorf("%q is %+v", args, o)
		}
	}
}

func TestMachineTally(t *testing.T) {
	original := []clouds.Machine{{NodeName: "a"}, {NodeName: "b"}}
	good := []string{"a!", "b!", "a x", "b x"}
	for _, test := range []struct {
		name string
		seen []string
		want string
	}{
		{"all are replaced", good, ""},
		{"too many at once", append([]string{"c ="}, good...), "3 nodes were claimed at once, and 2 may be"},
		{"one is not replaced", good[:3], "node b was deleted 0 times"},
		{"one is cordoned twice", append([]string{"a!", "a"}, good...), "node a was cordoned 2 times"},
		{"a new one is replaced", append(append([]string{}, good...), "c", "c!", "c x"), "node c was cordoned 1 times, and should be 0 times"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tally := newMachineTally()
			for _, seen := range test.seen {
				kind := watch.Modified
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: seen[:1]}, Spec: corev1.NodeSpec{Unschedulable: strings.HasSuffix(seen, "!")}}
				if strings.HasSuffix(seen, "!") || strings.HasSuffix(seen, "=") {
					n.Annotations = map[string]string{v1alpha1.AnnotationClaims: "[]"}
				}
				if strings.HasSuffix(seen, "x") {
					kind = watch.Deleted
				}
				tally.see(kind, n)
			}
			err := errors.Join(tally.verify(original, 2)...)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestScaleSetEnd(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*scaleSetEnd)
		want  string
	}{
		{"all are replaced", func(*scaleSetEnd) {}, ""},
		{"one is not", func(e *scaleSetEnd) { e.gone = e.gone[:1] }, "machine 0 was deleted 0 times"},
		{"a new one is", func(e *scaleSetEnd) { e.gone = append(e.gone, clouds.Machine{ID: "2"}) }, "machine 2 was added, and deleted again"},
		{"another image", func(e *scaleSetEnd) { e.now[0].Image = oldImage }, "machine 2 is Running, and of image " + oldImage},
		{"one that goes", func(e *scaleSetEnd) { e.now[0].State = clouds.Deleting }, "machine 2 is Deleting"},
		{"one zone", func(e *scaleSetEnd) { e.now[0].Zone = "z2" }, "the zones are out of balance: [0 2]"},
		{"another capacity", func(e *scaleSetEnd) { e.set.Capacity = 3 }, "there are 2 machines, and the scale set is to have 3; before it were 2"},
		{"too many", func(e *scaleSetEnd) {
			e.journal = []clouds.Call{{Name: "Add", Detail: "pool 2 3"}, {Name: "Delete", Detail: "pool 0 1"}}
		}, "there were 4 machines at once, and may be 3"},
		{"too few", func(e *scaleSetEnd) {
			e.journal = []clouds.Call{{Name: "Kill", Detail: "pool 0"}, {Name: "Heal", Detail: "pool 2"}}
		}, "there were only 1 machines"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := &scaleSetEnd{
				capacity: 2, set: clouds.Set{Name: "pool", Capacity: 2, Zones: []string{"z1", "z2"}},
				original: []clouds.Machine{{ID: "0"}, {ID: "1"}}, gone: []clouds.Machine{{ID: "1"}, {ID: "0"}},
				now: []clouds.Machine{{ID: "2", Zone: "z1", Image: newImage, State: clouds.Running}, {ID: "3", Zone: "z2", Image: newImage, State: clouds.Running}},
				journal: []clouds.Call{
					{Name: "Get", Detail: "GET /x", Outcome: "200"}, {Name: "Edit", Detail: "pool"},
					{Name: "Add", Detail: "pool 2"}, {Name: "Delete", Detail: "pool 0"}, {Name: "Delete", Detail: "pool 1", Outcome: "OperationFails"},
					{Name: "Add", Detail: "pool 3"}, {Name: "Delete", Detail: "pool 1"}, {Name: "Add", Detail: "other 4 5 6"},
				},
			}
			test.spoil(e)
			e.reckon()
			err := errors.Join(e.verify(newImage, 1, 1)...)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestLeftOn(t *testing.T) {
	for want, spoil := range map[string]func(*corev1.Node){
		"":                                func(*corev1.Node) {},
		"is still claimed":                func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationClaims] = "[]" },
		"is unschedulable":                func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"is still kept from the autos":    func(n *corev1.Node) { n.Annotations[scaleDownDisabled] = "true" },
		"is still kept from load balance": func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: "true"} },
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
		spoil(n)
		if why := leftOn(n); (why == "") != (want == "") || !strings.HasPrefix(why, want) {
			t.Errorf("%q should be wrong: %q", want, why)
		}
	}
}

// sampleReplacement is what a run over so many nodes might have found out.
func sampleReplacement(size int) *replacementMeasured {
	of := func(patches, gets int) requests {
		r := newRequests()
		if patches > 0 {
			r.rollout[request{"patch", "nodes"}] = count{all: patches, refused: 1}
		}
		if gets > 0 {
			r.rollout[request{"get", "nodes"}] = count{all: gets}
		}
		return r
	}
	o, _ := parse([]string{"--kind", "replacement"})
	return &replacementMeasured{
		options: o, size: size, start: time.Second / 2, peak: 64 << 20, most: size + 10, fewest: size, claimed: 10, zones: []int{34, 33, 33},
		phases: []*replacementPhase{
			{name: stageFind, took: time.Second, requests: of(0, 0), cpu: time.Second / 10, calls: map[string]int{"Get": 2}},
			{name: stageUpdate, took: 50 * time.Second, requests: of(5*size, size), cpu: time.Second, calls: map[string]int{"Get": size, "DeleteInstances": size / 2}},
			{name: stageIdle, took: time.Minute, requests: of(0, 0), calls: map[string]int{"Get": 6}},
		},
	}
}

func TestPrintReplacement(t *testing.T) {
	var out strings.Builder
	if err := sampleReplacement(100).print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"100 nodes in 3 zones of one scale set, surge 10% (10), 2 pods for each, 2 s to make and to delete a machine; cloud: azure\n",
		"update     50.0      2.0   1.00    10.00           6.00         5.00          150    1.50\n",
		"patch nodes  500   5.000        1\n",
		"DeleteInstances   50   0.500\n",
		"machines of each zone, in the end  34 33 33\n",
		"requests, idle for 60 s, CPU 0.00 s",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

func TestReplacementsJSON(t *testing.T) {
	var out strings.Builder
	if err := printReplacementsJSON(&out, []*replacementMeasured{sampleReplacement(100)}, false); err != nil {
		t.Fatal(err)
	}
	var got replacementSummary
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || strings.Count(out.String(), "\n") != 1 {
		t.Fatalf("got %s, %v", out.String(), err)
	}
	want := replacementSummary{
		Kind: kindReplacement, Cloud: "azure", Nodes: 100, Surge: 10, PodsPerNode: 2, MachineSeconds: 2, IdealSeconds: 40, StartCPUSeconds: 0.5,
		PeakRSSMiB: 64, MachinesAtMost: 110, Stages: map[string]replacementStageSummary{
			stageFind: {Seconds: 1, CPUSeconds: 0.1, CloudCallsPerNode: map[string]float64{"Get": 0.02}},
			stageUpdate: {
				Seconds: 50, CPUSeconds: 1, RequestsPerNode: 6, WritesPerNode: 5, Refused: 1,
				CloudCallsPerNode: map[string]float64{"Get": 1, "DeleteInstances": 0.5},
			},
		},
		Idle: &replacementIdleSummary{Seconds: 60, CloudCalls: map[string]int{"Get": 6}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
