// SPDX-License-Identifier: Apache-2.0

// Package gcp is managed instance groups of Compute Engine, zonal and regional.
package gcp

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/api/compute/v1"
	"google.golang.org/api/impersonate"
	"google.golang.org/api/option"

	"moult.dev/moult/internal/cloud"
)

// Options say where groups are, and by whose rights they are changed.
type Options struct {
	// Project of the groups, by its id. Machines of another one are not found.
	Project string
	// Locations are the zones and regions to look for groups in that are named without one.
	Locations []string
	// ServiceAccount is one to impersonate, by its email address. Empty: the application default credentials are used as they are.
	ServiceAccount string
	// Endpoint is the root of the API, without the version. Default: Google's own. Over http it must be on this host.
	Endpoint string
}

// Cloud is the groups of one project.
type Cloud struct {
	service   *compute.Service
	project   string
	locations []string

	mu sync.Mutex
	// located holds where groups are that were named without that.
	located map[string]group
	// born holds what is asked but once of a machine, by its numeric id.
	born map[uint64]birth
}

var _ cloud.Cloud = (*Cloud)(nil)

// New makes a Cloud. It finds out which credentials there are; KindDenied: none.
func New(ctx context.Context, o Options) (*Cloud, error) {
	var options []option.ClientOption
	if o.Endpoint != "" {
		endpoint, err := apiRoot(o.Endpoint)
		if err != nil {
			return nil, err
		}
		options = append(options, option.WithEndpoint(endpoint))
	}
	if o.ServiceAccount != "" {
		tokens, err := impersonate.CredentialsTokenSource(ctx, impersonate.CredentialsConfig{
			TargetPrincipal: o.ServiceAccount,
			Scopes:          []string{compute.ComputeScope},
		})
		if err != nil {
			return nil, cloud.Errorf(cloud.KindDenied, "impersonating %s, %w", o.ServiceAccount, err)
		}
		options = append(options, option.WithTokenSource(tokens))
	} else {
		options = append(options, option.WithScopes(compute.ComputeScope))
	}
	options = append(options, option.WithUserAgent("moult"), option.WithTelemetryDisabled())
	service, err := compute.NewService(ctx, options...)
	if err != nil {
		return nil, cloud.Errorf(cloud.KindDenied, "finding credentials for Google Cloud, %w", err)
	}
	return &Cloud{
		service: service, project: o.Project, locations: o.Locations,
		located: map[string]group{}, born: map[uint64]birth{},
	}, nil
}

// ScaleSet is the group of that name: zones/ZONE/NAME, regions/REGION/NAME, or NAME in one of the locations.
func (c *Cloud) ScaleSet(name string) cloud.ScaleSet { return &scaleSet{cloud: c, name: name} }

// scaleSet is one group.
type scaleSet struct {
	cloud *Cloud
	name  string
}

// apiRoot completes the address of the API.
func apiRoot(endpoint string) (string, error) {
	u, err := cloud.Endpoint(endpoint)
	if err != nil {
		return "", cloud.Errorf(cloud.KindInvalid, "reading the endpoint of Compute Engine, %w", err)
	}
	return fmt.Sprintf("%s://%s%s/compute/v1/", u.Scheme, u.Host, strings.TrimSuffix(u.Path, "/")), nil
}
