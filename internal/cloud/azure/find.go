// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"regexp"
	"strings"

	"moult.dev/moult/internal/cloud"
)

// idOf is how provider ids begin.
const idOf = `(?i)^azure:///subscriptions/([^/]+)/resourceGroups/([^/]+)/providers/Microsoft\.Compute`

var (
	// uniformID is the id of a machine of a uniform scale set: subscription, group, scale set, instance.
	uniformID = regexp.MustCompile(idOf + `/virtualMachineScaleSets/([\w-][\w.-]{0,79})/virtualMachines/([^/]+)$`)
	// singleID is the id of a machine that may be in a flexible one: subscription, group, name.
	singleID = regexp.MustCompile(idOf + `/virtualMachines/([^/]+)$`)
)

// Find implements cloud.Cloud. The provider id of a machine names its uniform scale set. For other ids Find lists all machines of the resource group.
func (c *Cloud) Find(ctx context.Context, providerIDs []string) (map[string]string, error) {
	found := make(map[string]string, len(providerIDs))
	singles := map[string]string{} // provider ids by the machine's name in lower case
	for _, providerID := range providerIDs {
		if m := uniformID.FindStringSubmatch(providerID); m != nil && c.isOwn(m) {
			found[providerID] = m[3]
		} else if m := singleID.FindStringSubmatch(providerID); m != nil && c.isOwn(m) {
			singles[strings.ToLower(m[3])] = providerID
		}
	}
	if len(singles) == 0 {
		return found, nil
	}
	for pager := c.singles.NewListPager(c.group, nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, classify("listing the machines of resource group "+c.group, err)
		}
		for _, m := range page.Value {
			set := cloud.Value(cloud.Value(cloud.Value(m).Properties).VirtualMachineScaleSet).ID
			if providerID, ok := singles[strings.ToLower(cloud.Value(cloud.Value(m).Name))]; ok && set != nil {
				found[providerID] = cloud.LastPart(*set)
			}
		}
	}
	return found, nil
}

// isOwn reports whether an id's subscription and group are this Cloud's.
func (c *Cloud) isOwn(id []string) bool {
	return strings.EqualFold(id[1], c.subscription) && strings.EqualFold(id[2], c.group)
}
