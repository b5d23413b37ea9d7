// SPDX-License-Identifier: Apache-2.0

package controlplane

import "context"

// Connector reaches members of etcd.
type Connector interface {
	// Connect prepares to speak to the member that listens at a URL. It need not reach the member yet.
	Connect(endpoint string) (Conn, error)
}

// Conn speaks to one member. No call takes longer than a few seconds.
type Conn interface {
	// Members lists all members, as a quorum knows them, without Leader and Problem. The number identifies the cluster.
	Members(ctx context.Context) (cluster uint64, members []Member, err error)
	// Status is this member's view of itself.
	Status(ctx context.Context) (Status, error)
	// Read reads a key through this member, which needs a quorum.
	Read(ctx context.Context) error
	// Alarms are the raised alarms, by the member's id.
	Alarms(ctx context.Context) (map[uint64][]string, error)
	// MoveLeader makes the member with that id the leader. Only the leader can.
	MoveLeader(ctx context.Context, to uint64) error
	// Remove removes the member with that id. It is no error when there is none.
	Remove(ctx context.Context, id uint64) error
	// Close ends the connection.
	Close() error
}

// Status is a member's view of itself.
type Status struct {
	// Member is its id, and Leader the id of the leader, 0 when there is none.
	Member, Leader uint64
	// Errors are the problems that it reports.
	Errors []string
}
