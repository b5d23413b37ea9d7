// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/google/go-cmp/cmp"

	"moult.dev/moult/internal/cloud"
)

func TestReference(t *testing.T) {
	const long = "/subscriptions/x/resourceGroups/g/providers/Microsoft.Compute/galleries/g/images/d"
	for image, want := range map[string]string{
		"a":                              "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/images/a",
		"kube-ubuntu-1.31.2-a-b":         "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/images/kube-ubuntu-1.31.2-a-b",
		long:                             long,
		strings.ToLower(long):            strings.ToLower(long),
		long + "/versions/1.2.3":         long + "/versions/1.2.3",
		"p:o:s:v":                        "p:o:s:v",
		"/CommunityGalleries/g/Images/i": "/CommunityGalleries/g/Images/i",
		"/sharedGalleries/g/images/i":    "/sharedGalleries/g/images/i",
		"":                               "", "a/b": "", "/a": "", "a:b": "",
		"a:b:c:d:e": "", "a::c:d": "", "a b": "", "/subscriptions/x": "", long + "/": "", "a?b": "", "p:o/x:s:v": "", "//x": "",
	} {
		got, err := fullReference("s", "g", image)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", image, got, err, want)
		}
		if want != "" && imageText(imageReference(got, nil)) != want {
			t.Errorf("%q comes back as %q", want, imageText(imageReference(got, nil)))
		}
	}
	for name, empty := range map[string]*armcompute.ImageReference{"none": nil, "empty": {}} {
		if text := imageText(empty); text != "" || cloud.LastPart(text) != "" {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// TestStorage says again all of the disks that a scale set has, but for an ephemeral OS disk.
func TestStorage(t *testing.T) {
	const (
		data = `"dataDisks":[{"caching":"ReadOnly","createOption":"Empty","diskSizeGB":64,"lun":1,"managedDisk":{"storageAccountType":"Premium_LRS"}}],` +
			`"diskControllerType":"NVMe"`
		os = `"caching":"ReadWrite","deleteOption":"Detach","diskSizeGB":128,"image":{"uri":"https://x"},` +
			`"managedDisk":{"diskEncryptionSet":{"id":"/e"},"securityProfile":{"securityEncryptionType":"VMGuestStateOnly"},"storageAccountType":"Premium_LRS"},` +
			`"storageFaultDomainAlignment":"Aligned","vhdContainers":["https://y"],"writeAcceleratorEnabled":true`
		image = `"imageReference":{"id":"/subscriptions/b"}`
	)
	for name, tc := range map[string]struct{ before, want string }{
		"all":       {`{` + data + `,"imageReference":{"id":"/subscriptions/a"},"osDisk":{"createOption":"FromImage","name":"n","osType":"Linux",` + os + `}}`, `{` + data + `,` + image + `,"osDisk":{` + os + `}}`},
		"ephemeral": {`{` + data + `,"osDisk":{"caching":"ReadOnly","createOption":"FromImage","diffDiskSettings":{"option":"Local"}}}`, `{` + data + `,` + image + `}`},
		"no disks":  {`{}`, `{` + image + `}`},
		"nothing":   {`null`, `{` + image + `}`},
	} {
		set := &armcompute.VirtualMachineScaleSet{}
		if err := json.Unmarshal([]byte(`{"properties":{"virtualMachineProfile":{"storageProfile":`+tc.before+`}}}`), set); err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(storageUpdate(set, "/subscriptions/b"))
		if diff := cmp.Diff(tc.want, string(got)); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if got := storageUpdate(&armcompute.VirtualMachineScaleSet{}, "/subscriptions/b"); got.OSDisk != nil || got.ImageReference == nil {
		t.Errorf("%+v", got)
	}
}

// TestNothingThere reads answers in which nothing is that need not be.
func TestNothingThere(t *testing.T) {
	set := &armcompute.VirtualMachineScaleSet{Properties: &armcompute.VirtualMachineScaleSetProperties{}}
	if d := describe("s", set); d.Unfit == "" || d.Busy != "" || d.Image != "" {
		t.Errorf("%+v", d)
	}
	set.Properties.Overprovision = new(bool)
	for _, is := range []bool{false, true} {
		*set.Properties.Overprovision = is
		if d := describe("s", set); d.Overprovisions != is {
			t.Errorf("overprovision %v: %+v", is, d)
		}
	}
	s := &scaleSet{Cloud: &Cloud{}, name: "s"}
	m := s.machine(&armcompute.VirtualMachineScaleSetVM{Properties: &armcompute.VirtualMachineScaleSetVMProperties{
		InstanceView: &armcompute.VirtualMachineScaleSetVMInstanceView{Statuses: []*armcompute.InstanceViewStatus{nil, {}}},
		OSProfile:    &armcompute.OSProfile{},
	}}, set)
	if m.State != cloud.Running || m.ID != "" || m.Zone != "" || m.UpToDate {
		t.Errorf("%+v", m)
	}
}

func TestStates(t *testing.T) {
	for _, test := range []struct {
		provisioning, power string
		want                cloud.State
	}{
		{"Succeeded", "PowerState/running", cloud.Running}, {"Updating", "", cloud.Running}, {"Creating", "PowerState/starting", cloud.Creating},
		{"Deleting", "PowerState/running", cloud.Deleting}, {"Failed", "PowerState/running", cloud.Failed}, {"Succeeded", "PowerState/deallocated", cloud.Stopped},
		{"Succeeded", "PowerState/stopped", cloud.Stopped}, {"", "", cloud.Running},
	} {
		got := stateOf(&armcompute.VirtualMachineScaleSetVM{Properties: &armcompute.VirtualMachineScaleSetVMProperties{
			ProvisioningState: &test.provisioning,
			InstanceView:      &armcompute.VirtualMachineScaleSetVMInstanceView{Statuses: []*armcompute.InstanceViewStatus{{Code: &test.power}}},
		}})
		if got != test.want {
			t.Errorf("%s, %s: %s, want %s", test.provisioning, test.power, got, test.want)
		}
	}
}

func TestClassify(t *testing.T) {
	for _, test := range []struct {
		status        int
		code, message string
		header        string
		want          cloud.Kind
		after         time.Duration
	}{
		{429, "OperationNotAllowed", "too many requests, quota of the API", "7", cloud.KindThrottled, 7 * time.Second},
		{429, "", "", "", cloud.KindThrottled, 0},
		{409, "OperationNotAllowed", "results in exceeding approved Total Regional Cores quota", "", cloud.KindQuota, 0},
		{409, "OperationNotAllowed", "another operation is in progress", "", cloud.KindConflict, 0},
		{409, "Conflict", "", "", cloud.KindConflict, 0},
		{412, "PreconditionFailed", "", "", cloud.KindConflict, 0},
		{409, "SkuNotAvailable", "", "", cloud.KindQuota, 0},
		{400, "QuotaExceeded", "", "", cloud.KindQuota, 0},
		{409, "AllocationFailed", "", "", cloud.KindQuota, 0},
		{409, "ZonalAllocationFailed", "", "", cloud.KindQuota, 0},
		{400, "SubnetIsFull", "", "", cloud.KindQuota, 0},
		{401, "InvalidAuthenticationToken", "", "", cloud.KindDenied, 0},
		{403, "AuthorizationFailed", "", "", cloud.KindDenied, 0},
		{404, "ResourceNotFound", "", "", cloud.KindNotFound, 0},
		{404, "ResourceGroupNotFound", "", "", cloud.KindNotFound, 0},
		{404, "SubscriptionNotFound", "", "", cloud.KindDenied, 0}, // So are those answered who have no right there.
		{400, "InvalidParameter", "", "", cloud.KindInvalid, 0},
		{500, "InternalExecutionError", "", "", cloud.KindUnavailable, 0},
		{503, "ServiceUnavailable", "", "30", cloud.KindUnavailable, 30 * time.Second},
		{408, "", "", "", cloud.KindUnavailable, 0},
		{502, "", "", "", cloud.KindUnavailable, 0},
	} {
		body := fmt.Sprintf(`{"error":{"code":%q,"message":%q}}`, test.code, test.message)
		answer := &http.Response{
			StatusCode: test.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)),
			Request: &http.Request{Method: http.MethodGet, URL: &url.URL{}},
		}
		if test.header != "" {
			answer.Header.Set("Retry-After", test.header)
		}
		err := classify("doing this", runtime.NewResponseError(answer))
		said := strings.HasPrefix(err.Error(), "doing this, ") && strings.Contains(err.Error(), test.message)
		if cloud.KindOf(err) != test.want || cloud.RetryAfter(err) != test.after || !said {
			t.Errorf("%d %s: %v, %s after %s; want %s after %s", test.status, test.code, err, cloud.KindOf(err), cloud.RetryAfter(err), test.want, test.after)
		}
	}
	if got := cloud.KindOfAnswer(rules, "LinkedAuthorizationFailed: no", cloud.KindFailed); got != cloud.KindDenied {
		t.Error(got)
	}
	for _, err := range []error{io.ErrUnexpectedEOF, errors.New("nonsense")} {
		if got := cloud.KindOf(classify("doing this", err)); got != cloud.KindUnavailable {
			t.Errorf("%v: %s", err, got)
		}
	}
}
