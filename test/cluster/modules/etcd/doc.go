// SPDX-License-Identifier: Apache-2.0

// Package etcd pins the etcd that the test cluster stores its objects in. The
// server module's root is the etcd command itself; package cluster builds it.
package etcd
