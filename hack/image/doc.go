// SPDX-License-Identifier: Apache-2.0

// Package image builds container images from static binaries, with neither a registry nor a container daemon.
//
// An image is one layer of files and a config, for each architecture. It is written as an OCI archive, which `ctr images import`,
// `docker load` (from version 25 on), podman and skopeo read:
//
//	Spec{Tags, Entrypoint, Files, …} ──Build, BuildIndex──▶ NAME.tar{oci-layout, index.json, blobs/}
//
// The same files give the same bytes: paths are sorted, owners are 0 and every timestamp is Spec.Created.
package image
