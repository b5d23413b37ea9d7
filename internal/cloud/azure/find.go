// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"moult.dev/moult/internal/cloud"
)

// singly is how many machines of flexible scale sets are read one by one. For more, all machines of the resource group are listed.
const singly = 3

// idOf is how ids begin.
const idOf = `(?i)^/subscriptions/([^/]+)/resourceGroups/([^/]+)/providers/Microsoft\.Compute`

var (
	// uniformID is the id of a machine of a uniform scale set: subscription, group, scale set, instance.
	uniformID = regexp.MustCompile(idOf + `/virtualMachineScaleSets/([^/]+)/virtualMachines/([^/]+)$`)
	// singleID is the id of a machine that may be of a flexible one: subscription, group, name.
	singleID = regexp.MustCompile(idOf + `/virtualMachines/([^/]+)$`)
	// setID is the id of a scale set: subscription, group, name.
	setID = regexp.MustCompile(idOf + `/virtualMachineScaleSets/([^/]+)$`)
)

// Find finds out of which scale sets machines are. The provider id of a uniform one says so. For others it asks Azure.
func (c *Cloud) Find(ctx context.Context, providerIDs []string) (map[string]cloud.Location, error) {
	found := make(map[string]cloud.Location, len(providerIDs))
	single := map[string][]string{} // provider ids by the machine's name in lower case
	names := map[string]string{}
	for _, providerID := range providerIDs {
		scheme, id, _ := strings.Cut(providerID, "://")
		if !strings.EqualFold(scheme, "azure") {
			continue
		}
		if m := uniformID.FindStringSubmatch(id); m != nil && c.isOwn(m) {
			found[providerID] = cloud.Location{ScaleSet: m[3], Machine: m[4]}
		} else if m := singleID.FindStringSubmatch(id); m != nil && c.isOwn(m) {
			key := strings.ToLower(m[3])
			single[key], names[key] = append(single[key], providerID), m[3]
		}
	}
	if len(single) == 0 {
		return found, nil
	}
	sets, err := c.setsOf(ctx, names)
	if err != nil {
		return nil, err
	}
	for key, set := range sets {
		for _, providerID := range single[key] {
			found[providerID] = cloud.Location{ScaleSet: set, Machine: names[key]}
		}
	}
	return found, nil
}

// isOwn reports whether an id's subscription and group are this Cloud's.
func (c *Cloud) isOwn(id []string) bool {
	return strings.EqualFold(id[1], c.subscription) && strings.EqualFold(id[2], c.group)
}

// setsOf says in which scale sets machines are, by their names in lower case, and leaves out machines of no scale set.
func (c *Cloud) setsOf(ctx context.Context, names map[string]string) (map[string]string, error) {
	sets := map[string]string{}
	note := func(m *armcompute.VirtualMachine) {
		if m == nil || m.Properties == nil || m.Properties.VirtualMachineScaleSet == nil {
			return
		}
		key := strings.ToLower(value(m.Name))
		if id := setID.FindStringSubmatch(value(m.Properties.VirtualMachineScaleSet.ID)); id != nil && c.isOwn(id) && names[key] != "" {
			sets[key] = id[3]
		}
	}
	if len(names) <= singly {
		for _, name := range names {
			answer, err := c.singles.Get(ctx, c.group, name, nil)
			if err = classify(err, "reading machine %s", name); cloud.KindOf(err) == cloud.KindNotFound {
				continue
			}
			if err != nil {
				return nil, err
			}
			note(&answer.VirtualMachine)
		}
		return sets, nil
	}
	for pager := c.singles.NewListPager(c.group, nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, classify(err, "listing the machines of resource group %s", c.group)
		}
		for _, m := range page.Value {
			note(m)
		}
	}
	return sets, nil
}
