// SPDX-License-Identifier: Apache-2.0

// Package gcp is managed instance groups of Compute Engine, zonal and regional.
//
//	cloud.go       New, and what is kept of an operation
//	client.go      the calls, each for zonal and regional groups
//	describe.go    Describe: the settings of a group
//	machines.go    Find: the groups of nodes; Machines: the instances of a group
//	change.go      machines are added and deleted, and the template is set
//	names.go       names of groups, templates, machines and requests
//	error.go       the kinds of Compute Engine's answers
package gcp

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/api/compute/v1"
	"google.golang.org/api/impersonate"
	"google.golang.org/api/option"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
)

// Cloud is the groups of one project. It finds no machines of other projects.
type Cloud struct {
	service   *compute.Service
	project   string
	locations []string
}

// New makes a Cloud. The endpoint is the root of the API, without the version. Default: Google's own. It must be https, except on this machine.
// Without a service account the application default credentials are used as they are. KindDenied: there are no credentials.
func New(ctx context.Context, p *v1alpha1.GCPProvider, endpoint string) (*Cloud, error) {
	options := []option.ClientOption{option.WithUserAgent("moult"), option.WithTelemetryDisabled(), option.WithScopes(compute.ComputeScope)}
	if endpoint != "" {
		root, err := apiRoot(endpoint)
		if err != nil {
			return nil, err
		}
		options = append(options, option.WithEndpoint(root))
	}
	if p.ServiceAccount != "" {
		tokens, err := impersonate.CredentialsTokenSource(ctx, impersonate.CredentialsConfig{
			TargetPrincipal: p.ServiceAccount,
			Scopes:          []string{compute.ComputeScope},
		})
		if err != nil {
			return nil, cloud.Errorf(cloud.KindDenied, "impersonating %s, %w", p.ServiceAccount, err)
		}
		options = append(options, option.WithTokenSource(tokens))
	}
	service, err := compute.NewService(ctx, options...)
	if err != nil {
		return nil, cloud.Errorf(cloud.KindDenied, "finding credentials for Google Cloud, %w", err)
	}
	return &Cloud{service: service, project: p.Project, locations: p.Locations}, nil
}

// apiRoot completes the address of the API.
func apiRoot(endpoint string) (string, error) {
	u, err := cloud.Endpoint(endpoint)
	if err != nil {
		return "", cloud.Errorf(cloud.KindInvalid, "reading the endpoint of Compute Engine, %w", err)
	}
	return fmt.Sprintf("%s://%s%s/compute/v1/", u.Scheme, u.Host, strings.TrimSuffix(u.Path, "/")), nil
}

// ScaleSet is the group of that name: zones/ZONE/NAME, regions/REGION/NAME, or NAME in one of the locations.
func (c *Cloud) ScaleSet(name string) cloud.ScaleSet {
	return cloud.NewScaleSet(&scaleSet{cloud: c, name: name})
}

// Look implements cloud.Cloud.
func (c *Cloud) Look(name string) cloud.ScaleSet {
	return cloud.NewScaleSet(&scaleSet{c, name, cloud.Seen[group, []*compute.ManagedInstance]{}})
}

// scaleSet is one group.
type scaleSet struct {
	cloud *Cloud
	name  string
	seen  cloud.Seen[group, []*compute.ManagedInstance]
}

// list reads all machines of a group.
func (s *scaleSet) list(ctx context.Context, g group) ([]*compute.ManagedInstance, error) {
	return s.seen.Read(g, func() ([]*compute.ManagedInstance, error) { return s.cloud.list(ctx, g) })
}

// read finds the group, and reads it.
func (s *scaleSet) read(ctx context.Context) (group, *compute.InstanceGroupManager, error) {
	c := s.cloud
	if g, ok := groupOf(s.name, groupName); ok {
		m, err := c.get(ctx, g)
		return g, m, err
	}
	var found []group
	var m *compute.InstanceGroupManager
	for _, location := range c.locations {
		g := group{regional: strings.Count(location, "-") == 1, location: location, name: s.name} // a region has one hyphen, a zone two
		now, err := c.get(ctx, g)
		if cloud.IgnoreNotFound(err) != nil {
			return group{}, nil, err
		}
		if err == nil {
			found, m = append(found, g), now
		}
	}
	switch {
	case len(found) == 0:
		return group{}, nil, cloud.Errorf(cloud.KindNotFound,
			"no managed instance group %s in project %s, locations %q; other names are zones/ZONE/NAME and regions/REGION/NAME", s.name, c.project, c.locations)
	case len(found) > 1:
		return group{}, nil, cloud.Errorf(cloud.KindInvalid, "there are several managed instance groups %s: name one of %v", s.name, found)
	}
	return found[0], m, nil
}

// memory is what is kept of an operation.
type memory struct {
	cloud.Memory
	// Group is the name of the group, with its location.
	Group string `json:"group,omitempty"`
	// Base is the beginning of the names of machines to add.
	Base string `json:"base,omitempty"`
	// Fingerprint is the group's before its template is set.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Operation is Compute Engine's own, until it is over. The group may still be adding or deleting machines then.
	Operation string `json:"operation,omitempty"`
}
