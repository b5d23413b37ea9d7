// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"moult.dev/moult/test/clouds"
)

// skip is the query parameter that says how many machines were on the pages before.
const skip = "$skiptoken"

func (a *Azure) find(name string) (clouds.Set, error) {
	for _, s := range a.world.Sets() {
		if strings.EqualFold(s.Name, name) {
			return s, nil
		}
	}
	return clouds.Set{}, missing("virtualMachineScaleSets/" + name)
}

func missing(what string) error {
	return &clouds.Refusal{Status: http.StatusNotFound, Code: "ResourceNotFound", Message: "The Resource 'Microsoft.Compute/" + what + "' was not found."}
}

func (a *Azure) get(_ http.ResponseWriter, _ *http.Request, name string) (any, error) {
	s, err := a.find(name)
	return a.resource(&s), err
}

func (a *Azure) update(w http.ResponseWriter, r *http.Request, name string) (any, error) {
	s, err := a.find(name)
	if err != nil {
		return nil, err
	}
	var u armcompute.VirtualMachineScaleSetUpdate
	if err := json.NewDecoder(r.Body).Decode(&u); err != nil {
		return nil, err
	}
	task, err := a.world.EditTask(s.Name, func(s *clouds.Set) error {
		if match := r.Header.Get("If-Match"); match != "" && match != etag(s) {
			return &clouds.Refusal{Status: 412, Code: "PreconditionFailed", Message: "The etag in the If-Match header does not match that of the resource."}
		}
		apply(s, &u)
		return nil
	})
	if err != nil {
		return nil, err
	}
	a.begin(w, r, s.Name, task)
	s, err = a.find(name)
	resource := a.resource(&s)
	resource.Properties.ProvisioningState = text("Updating")
	return resource, err
}

// apply is what a PATCH changes.
func apply(s *clouds.Set, u *armcompute.VirtualMachineScaleSetUpdate) {
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
		s.Image = imageText(p.StorageProfile.ImageReference)
		reset(s, p.StorageProfile)
	}
}

// plainDisk is the OS disk of a set for which no one has said more.
const plainDisk = `{"createOption":"FromImage","caching":"None","managedDisk":{"storageAccountType":"Standard_LRS"}}`

// reset makes of a set's disks what a PATCH of the image says, and nothing else of what they were.
func reset(s *clouds.Set, u *armcompute.VirtualMachineScaleSetUpdateStorageProfile) {
	delete(s.Settings, "dataDisks")
	if len(u.DataDisks) > 0 {
		s.Settings["dataDisks"] = encoded(u.DataDisks)
	}
	before := disk[armcompute.VirtualMachineScaleSetOSDisk](s, "osDisk", plainDisk)
	if u.OSDisk != nil {
		after := map[string]any{"createOption": before.CreateOption}
		decode("osDisk", encoded(u.OSDisk), &after)
		s.Settings["osDisk"] = encoded(after)
	} else if before.DiffDiskSettings == nil {
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
	text, _ := json.Marshal(v) // what was JSON can be encoded
	return string(text)
}

func (a *Azure) deleteInstances(w http.ResponseWriter, r *http.Request, name string) (any, error) {
	s, err := a.find(name)
	if err != nil {
		return nil, err
	}
	var ids struct{ InstanceIDs []string }
	if err := json.NewDecoder(r.Body).Decode(&ids); err != nil {
		return nil, err
	}
	for i, id := range ids.InstanceIDs {
		ids.InstanceIDs[i] = strings.TrimPrefix(id, flexibleName(s.Name, ""))
	}
	task, err := a.world.Delete(s.Name, ids.InstanceIDs, true)
	if err == nil {
		a.begin(w, r, s.Name, task)
	}
	return nil, err
}

func (a *Azure) list(_ http.ResponseWriter, r *http.Request, name string) (any, error) {
	s, err := a.find(name)
	if err == nil && flexible(&s) {
		return nil, &clouds.Refusal{
			Status: http.StatusBadRequest, Code: "OperationNotAllowed",
			Message: "Operation 'VirtualMachineScaleSets.virtualMachines.GET' is not allowed on Virtual Machine Scale Set '" + s.Name + "'.",
		}
	}
	var all []*armcompute.VirtualMachineScaleSetVM
	for _, m := range a.world.Machines(s.Name) {
		all = append(all, machine(&s, &m, r.URL.Query().Get("$expand") == "instanceView"))
	}
	return page(a, r, all), err
}

// page answers with the page of a list that is asked for, and where the next one is.
func page[T any](a *Azure, r *http.Request, all []T) any {
	query := r.URL.Query()
	part, next := clouds.Page(all, query.Get(skip), a.options.Page)
	answer := map[string]any{"value": part}
	if next != "" {
		query.Set(skip, next)
		answer["nextLink"] = base(r) + r.URL.Path + "?" + query.Encode()
	}
	return answer
}

func (a *Azure) single(_ http.ResponseWriter, _ *http.Request, name string) (any, error) {
	for _, vm := range a.singles() {
		if strings.EqualFold(*vm.Name, name) {
			return vm, nil
		}
	}
	return nil, missing("virtualMachines/" + name)
}

func (a *Azure) listGroup(_ http.ResponseWriter, r *http.Request, _ string) (any, error) {
	all, query := a.singles(), r.URL.Query()
	if filter := query.Get("$filter"); filter != "" {
		all = slices.DeleteFunc(all, func(vm *armcompute.VirtualMachine) bool {
			set := vm.Properties.VirtualMachineScaleSet
			return set == nil || !strings.EqualFold(filter, "'virtualMachineScaleSet/id' eq '"+*set.ID+"'")
		})
	} else if query.Get("$expand") != "" {
		return nil, &clouds.Refusal{Status: http.StatusBadRequest, Code: "BadRequest", Message: "$expand needs a $filter."}
	}
	return page(a, r, all), nil
}

// singles are the machines of flexible scale sets, and one, lonely, that is in none.
func (a *Azure) singles() []*armcompute.VirtualMachine {
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
	for _, s := range a.world.Sets() {
		if !flexible(&s) {
			continue
		}
		for _, m := range a.world.Machines(s.Name) {
			vm, member := one(flexibleName(s.Name, m.ID), s.Name), machine(&s, &m, true)
			p := member.Properties
			vm.Zones = member.Zones
			vm.Properties.ProvisioningState, vm.Properties.TimeCreated, vm.Properties.OSProfile = p.ProvisioningState, p.TimeCreated, p.OSProfile
			vm.Properties.StorageProfile, vm.Properties.InstanceView = p.StorageProfile, &armcompute.VirtualMachineInstanceView{Statuses: p.InstanceView.Statuses}
			all = append(all, vm)
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
func (a *Azure) resource(s *clouds.Set) armcompute.VirtualMachineScaleSet {
	yes, capacity := true, int64(s.Capacity)
	mode, upgrade := armcompute.OrchestrationModeUniform, armcompute.UpgradeMode(cmp.Or(s.Settings["upgrade"], "Manual"))
	if flexible(s) {
		mode = armcompute.OrchestrationModeFlexible
	}
	p := &armcompute.VirtualMachineScaleSetProperties{
		ProvisioningState: text(a.provisioning(s)),
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
			status.Code, status.Message = text("ProvisioningState/failed/"+failure(s)), &m.Message
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
	for _, name := range names {
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

// imageText is an image of Azure as the world has it.
func imageText(r *armcompute.ImageReference) string {
	if r.Publisher != nil {
		return strings.Join([]string{*r.Publisher, *r.Offer, *r.SKU, *r.Version}, ":")
	}
	id := cmp.Or(value(r.ID), value(r.CommunityGalleryImageID), value(r.SharedGalleryImageID))
	if len(id) > len(images()) && strings.EqualFold(id[:len(images())], images()) {
		return id[len(images()):]
	}
	return id
}

func text(s string) *string { return &s }

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
