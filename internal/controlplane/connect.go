// SPDX-License-Identifier: Apache-2.0

package controlplane

import "context"

// Connector reaches members of etcd.
type Connector interface {
	// Connect prepares to speak to the member that listens at a URL. It need not reach it yet.
	Connect(endpoint string) (Conn, error)
}

// Conn speaks to one member. No call takes longer than a few seconds.
type Conn interface {
	// Members lists all members, as a quorum knows them: without Leader and Problem. The number identifies the cluster.
	Members(ctx context.Context) (cluster uint64, members []Member, err error)
	// Status is how this member sees itself.
	Status(ctx context.Context) (Status, error)
	// Read reads through this member what a quorum agrees on.
	Read(ctx context.Context) error
	// Alarms are those that are raised, by the member's id.
	Alarms(ctx context.Context) (map[uint64][]string, error)
	// MoveLeader makes the member with that id the leader. Only the leader can.
	MoveLeader(ctx context.Context, to uint64) error
	// Remove removes the member with that id. One that is not there is no error.
	Remove(ctx context.Context, id uint64) error
	// Close ends it.
	Close() error
}

// Status is how a member sees itself.
type Status struct {
	// Member is its id, and Leader that of the one that leads, 0 when none does.
	Member, Leader uint64
	// Errors is what it says is wrong.
	Errors []string
}
