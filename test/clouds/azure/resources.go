// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8/fake"

	"moult.dev/moult/test/clouds"
)

// skip is the query parameter that says how many machines were on the pages before.
const skip = "$skiptoken"

// forward has a fake server of the SDK answer a request, by what the world says. What operations are asked about by is put beside its answer.
func (a *Azure) forward(w http.ResponseWriter, r *http.Request, name string) error {
	method := map[string]string{
		"Get":             "VirtualMachineScaleSetsClient.Get",
		"Update":          "VirtualMachineScaleSetsClient.BeginUpdate",
		"DeleteInstances": "VirtualMachineScaleSetsClient.BeginDeleteInstances",
		"ListMachines":    "VirtualMachineScaleSetVMsClient.NewListPager",
		"GetMachine":      "VirtualMachinesClient.Get",
		"ListGroup":       "VirtualMachinesClient.NewListPager",
	}[name]
	q := &request{Azure: a, Request: r}
	server := fake.NewServerFactoryTransport(&fake.ServerFactory{
		VirtualMachineScaleSetsServer:   fake.VirtualMachineScaleSetsServer{Get: q.get, BeginUpdate: q.update, BeginDeleteInstances: q.deleteInstances},
		VirtualMachineScaleSetVMsServer: fake.VirtualMachineScaleSetVMsServer{NewListPager: q.list},
		VirtualMachinesServer:           fake.VirtualMachinesServer{Get: q.single, NewListPager: q.group},
	})
	answer, err := server.Do(r.WithContext(context.WithValue(r.Context(), runtime.CtxAPINameKey{}, method)))
	if q.refused != nil {
		return q.refused
	}
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for key, values := range answer.Header {
		if !strings.HasPrefix(strings.ToLower(key), "fake-") {
			w.Header()[key] = values
		}
	}
	maps.Copy(w.Header(), q.operation)
	w.WriteHeader(answer.StatusCode)
	_, err = io.Copy(w, answer.Body)
	return err
}

// request is one request, with what its answer has that the SDK's fakes do not make.
type request struct {
	*Azure
	*http.Request

	operation http.Header
	refused   error
}

// refuse keeps an error as it is, because a fake has but a code for it.
func (q *request) refuse(err error) (e azfake.ErrorResponder) {
	q.refused = err
	e.SetError(err)
	return e
}

func (q *request) find(name string) (clouds.Set, error) {
	for _, s := range q.world.Sets() {
		if strings.EqualFold(s.Name, name) {
			return s, nil
		}
	}
	return clouds.Set{}, &refusal{http.StatusNotFound, "ResourceNotFound", "The Resource 'Microsoft.Compute/virtualMachineScaleSets/" + name + "' was not found."}
}

func (q *request) get(
	_ context.Context, _, name string, _ *armcompute.VirtualMachineScaleSetsClientGetOptions,
) (answer azfake.Responder[armcompute.VirtualMachineScaleSetsClientGetResponse], e azfake.ErrorResponder) {
	s, err := q.find(name)
	if err != nil {
		return answer, q.refuse(err)
	}
	answer.SetResponse(http.StatusOK, armcompute.VirtualMachineScaleSetsClientGetResponse{VirtualMachineScaleSet: q.resource(&s)}, nil)
	return answer, e
}

func (q *request) update(
	_ context.Context, _, name string, u armcompute.VirtualMachineScaleSetUpdate, o *armcompute.VirtualMachineScaleSetsClientBeginUpdateOptions,
) (answer azfake.PollerResponder[armcompute.VirtualMachineScaleSetsClientUpdateResponse], e azfake.ErrorResponder) {
	s, err := q.find(name)
	if err != nil {
		return answer, q.refuse(err)
	}
	task, err := q.world.EditTask(s.Name, func(s *clouds.Set) error {
		if o != nil && o.IfMatch != nil && *o.IfMatch != etag(s) {
			return &refusal{http.StatusPreconditionFailed, "PreconditionFailed", "The etag provided in the If-Match header does not match that of the resource."}
		}
		return apply(s, &u)
	})
	if err != nil {
		return answer, q.refuse(meant(err))
	}
	q.operation = q.begin(q.Request, s.Name, task)
	s, err = q.find(name)
	if err != nil {
		return answer, q.refuse(err)
	}
	resource := q.resource(&s)
	updating := "Updating"
	resource.Properties.ProvisioningState = &updating
	answer.SetTerminalResponse(http.StatusOK, armcompute.VirtualMachineScaleSetsClientUpdateResponse{VirtualMachineScaleSet: resource}, nil)
	return answer, e
}

// apply is what a PATCH changes.
func apply(s *clouds.Set, u *armcompute.VirtualMachineScaleSetUpdate) error {
	if u.Tags != nil {
		s.Tags = map[string]string{}
		for key, tag := range u.Tags {
			if key != "max" || s.Max == 0 || value(tag) != strconv.Itoa(s.Max) {
				s.Tags[key] = value(tag)
			}
		}
	}
	if u.SKU != nil && u.SKU.Capacity != nil {
		s.Capacity = int(*u.SKU.Capacity)
	}
	if u.Properties != nil && u.Properties.VirtualMachineProfile != nil {
		p := u.Properties.VirtualMachineProfile
		if p.StorageProfile == nil || p.StorageProfile.ImageReference == nil {
			return &refusal{http.StatusBadRequest, "InvalidParameter", "This Azure changes nothing of a machine profile but its image."}
		}
		image := imageText(p.StorageProfile.ImageReference)
		if image == "" {
			return &refusal{http.StatusBadRequest, "InvalidParameter", "The value of parameter imageReference is invalid."}
		}
		s.Image = image
		reset(s, p.StorageProfile)
	}
	return nil
}

// plainDisk is the OS disk of a set for which nobody has said more.
const plainDisk = `{"createOption":"FromImage","caching":"None","managedDisk":{"storageAccountType":"Standard_LRS"}}`

// reset makes of a set's disks what a PATCH of the image says, and nothing else of what they were.
func reset(s *clouds.Set, u *armcompute.VirtualMachineScaleSetUpdateStorageProfile) {
	if s.Settings == nil {
		s.Settings = map[string]string{}
	}
	delete(s.Settings, "dataDisks")
	if len(u.DataDisks) > 0 {
		s.Settings["dataDisks"] = encoded(u.DataDisks)
	}
	before := disk[armcompute.VirtualMachineScaleSetOSDisk](s, "osDisk", plainDisk)
	switch {
	case u.OSDisk != nil:
		after := map[string]any{"createOption": before.CreateOption}
		decode("osDisk", encoded(u.OSDisk), &after)
		s.Settings["osDisk"] = encoded(after)
	case before.DiffDiskSettings == nil:
		delete(s.Settings, "osDisk")
	}
}

// disk is a setting that is JSON.
func disk[T any](s *clouds.Set, name, otherwise string) (v T) {
	decode(name, cmp.Or(s.Settings[name], otherwise), &v)
	return v
}

func decode(name, text string, to any) {
	if err := json.Unmarshal([]byte(text), to); err != nil {
		panic("the setting " + name + ", " + err.Error())
	}
}

func encoded(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// meant is how Azure says an error of the world.
func meant(err error) error {
	switch {
	case errors.Is(err, clouds.ErrQuota):
		return &refusal{http.StatusConflict, "OperationNotAllowed", "Operation could not be completed as it results in exceeding approved Cores quota."}
	case errors.Is(err, clouds.ErrNotFound):
		return &refusal{http.StatusBadRequest, "InvalidParameter", "This is not an active Virtual Machine Scale Set VM instanceId: " + err.Error()}
	case errors.Is(err, clouds.ErrFull), errors.Is(err, clouds.ErrMin), errors.Is(err, clouds.ErrInvalid):
		return &refusal{http.StatusBadRequest, "InvalidParameter", "sku.capacity is out of range: " + err.Error()}
	default:
		return err
	}
}

func (q *request) deleteInstances(
	_ context.Context, _, name string, ids armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs,
	_ *armcompute.VirtualMachineScaleSetsClientBeginDeleteInstancesOptions,
) (answer azfake.PollerResponder[armcompute.VirtualMachineScaleSetsClientDeleteInstancesResponse], e azfake.ErrorResponder) {
	s, err := q.find(name)
	if err != nil {
		return answer, q.refuse(err)
	}
	machines := make([]string, 0, len(ids.InstanceIDs))
	for _, id := range ids.InstanceIDs {
		if flexible(&s) {
			machines = append(machines, strings.TrimPrefix(value(id), flexibleName(s.Name, "")))
		} else {
			machines = append(machines, value(id))
		}
	}
	task, err := q.world.Delete(s.Name, machines, true)
	if err != nil {
		return answer, q.refuse(meant(err))
	}
	q.operation = q.begin(q.Request, s.Name, task)
	answer.SetTerminalResponse(http.StatusAccepted, armcompute.VirtualMachineScaleSetsClientDeleteInstancesResponse{}, nil)
	return answer, e
}

func (q *request) list(
	_, name string, o *armcompute.VirtualMachineScaleSetVMsClientListOptions,
) (answer azfake.PagerResponder[armcompute.VirtualMachineScaleSetVMsClientListResponse]) {
	s, err := q.find(name)
	if err != nil {
		q.refused = err
		return answer
	}
	var all []*armcompute.VirtualMachineScaleSetVM
	for _, m := range q.world.Machines(s.Name) {
		all = append(all, machine(&s, &m, o != nil && value(o.Expand) == "instanceView"))
	}
	page, next := q.page(len(all))
	answer.AddPage(http.StatusOK, armcompute.VirtualMachineScaleSetVMsClientListResponse{
		VirtualMachineScaleSetVMListResult: armcompute.VirtualMachineScaleSetVMListResult{Value: all[page[0]:page[1]], NextLink: next},
	}, nil)
	return answer
}

// page is which of so many are on the page that is asked for, and where the next one is.
func (q *request) page(n int) (page [2]int, next *string) {
	from, err := strconv.Atoi(q.URL.Query().Get(skip))
	if err != nil || from > n {
		from = min(from, n)
	}
	to := min(from+q.options.Page, n)
	if to < n {
		at := *q.URL
		at.Host, at.Scheme = q.Host, "http"
		if q.TLS != nil || q.URL.Scheme == "https" {
			at.Scheme = "https"
		}
		query := at.Query()
		query.Set(skip, strconv.Itoa(to))
		at.RawQuery = query.Encode()
		link := at.String()
		next = &link
	}
	return [2]int{from, to}, next
}

func (q *request) single(
	_ context.Context, _, name string, _ *armcompute.VirtualMachinesClientGetOptions,
) (answer azfake.Responder[armcompute.VirtualMachinesClientGetResponse], e azfake.ErrorResponder) {
	for _, vm := range q.singles() {
		if strings.EqualFold(*vm.Name, name) {
			answer.SetResponse(http.StatusOK, armcompute.VirtualMachinesClientGetResponse{VirtualMachine: *vm}, nil)
			return answer, e
		}
	}
	return answer, q.refuse(&refusal{http.StatusNotFound, "ResourceNotFound", "The Resource 'Microsoft.Compute/virtualMachines/" + name + "' was not found."})
}

func (q *request) group(_ string, _ *armcompute.VirtualMachinesClientListOptions) (answer azfake.PagerResponder[armcompute.VirtualMachinesClientListResponse]) {
	all := q.singles()
	page, next := q.page(len(all))
	answer.AddPage(http.StatusOK, armcompute.VirtualMachinesClientListResponse{
		VirtualMachineListResult: armcompute.VirtualMachineListResult{Value: all[page[0]:page[1]], NextLink: next},
	}, nil)
	return answer
}

// singles are the machines of flexible scale sets, and one, lonely, that is in none.
func (q *request) singles() []*armcompute.VirtualMachine {
	one := func(name, set string) *armcompute.VirtualMachine {
		vm := &armcompute.VirtualMachine{
			ID: text(groupID() + "/providers/Microsoft.Compute/virtualMachines/" + name), Name: &name, Location: text(Location),
			Properties: &armcompute.VirtualMachineProperties{},
		}
		if set != "" {
			vm.Properties.VirtualMachineScaleSet = &armcompute.SubResource{ID: text(setID(set))}
		}
		return vm
	}
	all := []*armcompute.VirtualMachine{one("lonely", "")}
	for _, s := range q.world.Sets() {
		if !flexible(&s) {
			continue
		}
		for _, m := range q.world.Machines(s.Name) {
			all = append(all, one(flexibleName(s.Name, m.ID), s.Name))
		}
	}
	return all
}

func setID(name string) string {
	return groupID() + "/providers/Microsoft.Compute/virtualMachineScaleSets/" + name
}

func flexible(s *clouds.Set) bool {
	return s.Settings["mode"] == string(armcompute.OrchestrationModeFlexible)
}

func etag(s *clouds.Set) string { return fmt.Sprintf("\"%d\"", s.Version) }

// resource is a scale set as Azure shows it.
func (q *request) resource(s *clouds.Set) armcompute.VirtualMachineScaleSet {
	yes, capacity := true, int64(s.Capacity)
	mode, upgrade := armcompute.OrchestrationModeUniform, armcompute.UpgradeModeManual
	if flexible(s) {
		mode = armcompute.OrchestrationModeFlexible
	}
	if u := s.Settings["upgrade"]; u != "" {
		upgrade = armcompute.UpgradeMode(u)
	}
	p := &armcompute.VirtualMachineScaleSetProperties{
		ProvisioningState: text(q.provisioning(s)),
		OrchestrationMode: &mode,
		UpgradePolicy:     &armcompute.UpgradePolicy{Mode: &upgrade},
	}
	if s.Settings["osUpgrades"] == "true" {
		p.UpgradePolicy.AutomaticOSUpgradePolicy = &armcompute.AutomaticOSUpgradePolicy{EnableAutomaticOSUpgrade: &yes}
	}
	if s.Settings["rebalancing"] == "true" {
		p.ResiliencyPolicy = &armcompute.ResiliencyPolicy{AutomaticZoneRebalancingPolicy: &armcompute.AutomaticZoneRebalancingPolicy{Enabled: &yes}}
	}
	if s.Settings["profile"] != "false" {
		p.VirtualMachineProfile = &armcompute.VirtualMachineScaleSetVMProfile{
			OSProfile: &armcompute.VirtualMachineScaleSetOSProfile{ComputerNamePrefix: &s.Name},
			StorageProfile: &armcompute.VirtualMachineScaleSetStorageProfile{
				ImageReference: imageReference(s.Image),
				DataDisks:      disk[[]*armcompute.VirtualMachineScaleSetDataDisk](s, "dataDisks", "null"),
				OSDisk:         disk[*armcompute.VirtualMachineScaleSetOSDisk](s, "osDisk", plainDisk),
			},
		}
		if s.Settings["model"] == "strict" {
			p.VirtualMachineProfile.UserData = text(strconv.Itoa(s.Model))
		}
	}
	tags := map[string]*string{}
	for key, tag := range s.Tags {
		tags[key] = &tag
	}
	if _, ok := tags["max"]; !ok && s.Max > 0 {
		tags["max"] = text(strconv.Itoa(s.Max))
	}
	return armcompute.VirtualMachineScaleSet{
		ID: text(setID(s.Name)), Name: &s.Name, Location: text(Location), Etag: text(etag(s)), Tags: tags, Zones: zones(s.Zones...), Properties: p,
		SKU: &armcompute.SKU{Name: text("Standard_D2s_v5"), Tier: text("Standard"), Capacity: &capacity},
	}
}

// machine is a machine as Azure shows it.
func machine(s *clouds.Set, m *clouds.Machine, view bool) *armcompute.VirtualMachineScaleSetVM {
	latest := m.Image == s.Image
	if s.Settings["model"] == "strict" {
		latest = m.Model == s.Model
	}
	state := m.State
	if state == clouds.Running {
		state = "Succeeded"
	}
	p := &armcompute.VirtualMachineScaleSetVMProperties{
		ProvisioningState: &state, TimeCreated: &m.Created, OSProfile: &armcompute.OSProfile{ComputerName: text(strings.ToUpper(m.NodeName))},
		StorageProfile: &armcompute.StorageProfile{ImageReference: imageReference(m.Image)},
	}
	if s.Settings["told"] != "false" {
		p.LatestModelApplied = &latest
	}
	if m.Protected {
		p.ProtectionPolicy = &armcompute.VirtualMachineScaleSetVMProtectionPolicy{ProtectFromScaleSetActions: &m.Protected}
	}
	if view {
		status := &armcompute.InstanceViewStatus{Code: text("ProvisioningState/" + strings.ToLower(state))}
		if m.State == clouds.Failed {
			code := s.Settings["failure"]
			if code == "" {
				code = "OSProvisioningTimedOut"
			}
			status.Code, status.Message = text("ProvisioningState/failed/"+code), &m.Message
		}
		p.InstanceView = &armcompute.VirtualMachineScaleSetVMInstanceView{Statuses: []*armcompute.InstanceViewStatus{
			status, {Code: text("PowerState/running"), DisplayStatus: text("VM running")},
		}}
	}
	vm := &armcompute.VirtualMachineScaleSetVM{Location: text(Location), Properties: p}
	if m.Zone != "" {
		vm.Zones = zones(m.Zone)
	}
	id := m.ID
	if flexible(s) {
		id = flexibleName(s.Name, m.ID)
		p.VirtualMachineResourceID = text(groupID() + "/providers/Microsoft.Compute/virtualMachines/" + id)
	}
	vm.InstanceID, vm.Name = &id, text(s.Name+"_"+m.ID)
	vm.ID = text(setID(s.Name) + "/virtualMachines/" + id)
	return vm
}

// zones are numbers to Azure.
func zones(names ...string) []*string {
	var all []*string
	for _, name := range slices.Clone(names) {
		all = append(all, text(strings.TrimPrefix(name, Location+"-")))
	}
	return all
}

// images is where the image resources are that bare names stand for.
func images() string { return groupID() + "/providers/Microsoft.Compute/images/" }

// imageReference is an image of the world as Azure shows it.
func imageReference(image string) *armcompute.ImageReference {
	lower := strings.ToLower(image)
	switch parts := strings.Split(image, ":"); {
	case image == "":
		return nil
	case len(parts) == 4:
		return &armcompute.ImageReference{Publisher: &parts[0], Offer: &parts[1], SKU: &parts[2], Version: &parts[3]}
	case strings.HasPrefix(lower, "/communitygalleries/"):
		return &armcompute.ImageReference{CommunityGalleryImageID: &image}
	case strings.HasPrefix(lower, "/sharedgalleries/"):
		return &armcompute.ImageReference{SharedGalleryImageID: &image}
	case strings.HasPrefix(image, "/"):
		return &armcompute.ImageReference{ID: &image}
	default:
		return &armcompute.ImageReference{ID: text(images() + image)}
	}
}

// imageText is an image of Azure as the world has it; empty for what is none.
func imageText(r *armcompute.ImageReference) string {
	var all []string
	if r.Publisher != nil && r.Offer != nil && r.SKU != nil && r.Version != nil {
		all = append(all, strings.Join([]string{*r.Publisher, *r.Offer, *r.SKU, *r.Version}, ":"))
	}
	for _, id := range []*string{r.ID, r.CommunityGalleryImageID, r.SharedGalleryImageID} {
		if value(id) != "" {
			all = append(all, *id)
		}
	}
	if len(all) != 1 {
		return ""
	}
	if len(all[0]) > len(images()) && strings.EqualFold(all[0][:len(images())], images()) {
		return all[0][len(images()):]
	}
	return all[0]
}

func text(s string) *string { return &s }

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
