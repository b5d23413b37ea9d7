// SPDX-License-Identifier: Apache-2.0

// Package aws is the wire of EC2 Auto Scaling, EC2 and STS in front of a world of scale sets: as much of it as replacing machines takes, as the SDK
// speaks it.
//
//	world := clouds.New(ctx, clouds.Options{ID: aws.InstanceID, Identify: aws.Identify})
//	server := httptest.NewServer(aws.Handler(world))
//	cmd.Env = append(cmd.Env, aws.Env(server.URL)...)
//
// Each set is an Auto Scaling group with a launch template of its own, whose versions are its images: one that is put into the world's set is a new
// version, as if somebody had made it and set the group to it.
//
// Settings of a set:
//
//   - launchTemplate: $Latest or $Default, instead of the version's number; image is then always that of the newest version.
//   - template: the set whose launch template it has, instead of one of its own. An image that there is a version of is that version.
//   - alias: the version names a parameter of Systems Manager, so that another image is no other version.
//   - policy: "mixed" for a mixed instances policy of on-demand and spot, which LaunchInstances does not take, "spot" for one of spot alone.
//   - suspended: the processes that are suspended, between commas.
//   - refresh: the status of an instance refresh. Busy is InProgress.
//   - room: how many instances a LaunchInstances launches at most.
//   - noLaunchInstances, launchConfiguration, warmPool, weights, lifetime: the group is, or has, that, if it is not empty.
//   - decrementsTwice: terminating an instance that is terminating lowers the capacity again.
//
// # What is not as in AWS
//
// An instance that fails stays, unhealthy, and no other takes its place. No process runs that rebalances zones. Rights are not looked at, nor are
// signatures. An AMI's id is its name in hexadecimal digits.
package aws
