// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"

	"google.golang.org/api/compute/v1"
	"google.golang.org/api/googleapi"
)

// page is the largest page of the API.
const page = 500

// call is one request of Google's library.
type call[T any] interface {
	Do(...googleapi.CallOption) (T, error)
}

// do sends the request for a zonal group, or that for a regional one.
func do[T any](doing string, g group, zonal, regional call[T]) (answer T, err error) {
	if g.regional {
		zonal = regional
	}
	if answer, err = zonal.Do(); err != nil {
		err = classify(doing, err)
	}
	return answer, err
}

// get reads a group.
func (c *Cloud) get(ctx context.Context, g group) (*compute.InstanceGroupManager, error) {
	return do("reading group "+g.String(), g,
		c.service.InstanceGroupManagers.Get(c.project, g.location, g.name).Context(ctx),
		c.service.RegionInstanceGroupManagers.Get(c.project, g.location, g.name).Context(ctx))
}

// list reads all machines of a group.
func (c *Cloud) list(ctx context.Context, g group) ([]*compute.ManagedInstance, error) {
	var all []*compute.ManagedInstance
	var err error
	if g.regional {
		err = c.service.RegionInstanceGroupManagers.ListManagedInstances(c.project, g.location, g.name).MaxResults(page).
			Pages(ctx, func(p *compute.RegionInstanceGroupManagersListInstancesResponse) error {
				all = append(all, p.ManagedInstances...)
				return nil
			})
	} else {
		err = c.service.InstanceGroupManagers.ListManagedInstances(c.project, g.location, g.name).MaxResults(page).
			Pages(ctx, func(p *compute.InstanceGroupManagersListManagedInstancesResponse) error {
				all = append(all, p.ManagedInstances...)
				return nil
			})
	}
	if err != nil {
		return nil, classify("listing the machines of group "+g.String(), err)
	}
	return all, nil
}

// create adds machines with these names to a group.
func (c *Cloud) create(ctx context.Context, doing string, g group, names []string, request string) (*compute.Operation, error) {
	instances := make([]*compute.PerInstanceConfig, len(names))
	for i, name := range names {
		instances[i] = &compute.PerInstanceConfig{Name: name}
	}
	return do(doing, g,
		c.service.InstanceGroupManagers.CreateInstances(c.project, g.location, g.name,
			&compute.InstanceGroupManagersCreateInstancesRequest{Instances: instances}).RequestId(request).Context(ctx),
		c.service.RegionInstanceGroupManagers.CreateInstances(c.project, g.location, g.name,
			&compute.RegionInstanceGroupManagersCreateInstancesRequest{Instances: instances}).RequestId(request).Context(ctx))
}

// remove deletes machines of a group, and lowers its target size by as many. Machines that are not in the group, or are being deleted already, are skipped.
func (c *Cloud) remove(ctx context.Context, doing string, g group, machines []string, request string) (*compute.Operation, error) {
	return do(doing, g,
		c.service.InstanceGroupManagers.DeleteInstances(c.project, g.location, g.name,
			&compute.InstanceGroupManagersDeleteInstancesRequest{Instances: machines, SkipInstancesOnValidationError: true}).
			RequestId(request).Context(ctx),
		c.service.RegionInstanceGroupManagers.DeleteInstances(c.project, g.location, g.name,
			&compute.RegionInstanceGroupManagersDeleteInstancesRequest{Instances: machines, SkipInstancesOnValidationError: true}).
			RequestId(request).Context(ctx))
}

// set sets the template of a group, on condition that the group has this fingerprint.
func (c *Cloud) set(ctx context.Context, doing string, g group, template, fingerprint, request string) (*compute.Operation, error) {
	change := &compute.InstanceGroupManager{
		Fingerprint: fingerprint,
		Versions:    []*compute.InstanceGroupManagerVersion{{InstanceTemplate: template}},
	}
	return do(doing, g,
		c.service.InstanceGroupManagers.Patch(c.project, g.location, g.name, change).RequestId(request).Context(ctx),
		c.service.RegionInstanceGroupManagers.Patch(c.project, g.location, g.name, change).RequestId(request).Context(ctx))
}

// operation reads an operation on a group.
func (c *Cloud) operation(ctx context.Context, g group, name string) (*compute.Operation, error) {
	return do("reading operation "+name, g,
		c.service.ZoneOperations.Get(c.project, g.location, name).Context(ctx),
		c.service.RegionOperations.Get(c.project, g.location, name).Context(ctx))
}

// autoscaler reads a group's autoscaler.
func (c *Cloud) autoscaler(ctx context.Context, g group, name string) (*compute.Autoscaler, error) {
	return do("reading autoscaler "+name, g,
		c.service.Autoscalers.Get(c.project, g.location, name).Context(ctx),
		c.service.RegionAutoscalers.Get(c.project, g.location, name).Context(ctx))
}
