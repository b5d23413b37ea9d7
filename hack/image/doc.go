// SPDX-License-Identifier: Apache-2.0

// Package image builds container images from static binaries, with neither a registry nor a container daemon.
//
// An image is one layer of files and a config. It is written either as a Docker archive, which `ctr images import`
// and `docker load` read, or as an OCI layout:
//
//	Spec{Tags, Entrypoint, Files, …} ──Build──▶ NAME.tar
//	                                 └─BuildLayout──▶ NAME/{oci-layout,index.json,blobs/}
//
// The same files give the same bytes: paths are sorted, owners are 0 and every timestamp is Epoch.
package image
