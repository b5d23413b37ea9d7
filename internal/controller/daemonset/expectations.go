// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// expectations remember what this process has written and the cache does not show yet, so that nothing is done twice and
// nothing is counted as available that is on its way out. A process that starts anew has none: its cache begins with
// what the API server has.
type expectations struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*expected
}

type expected struct {
	// made are pods that were created, by uid, and gone are those that were deleted.
	made map[types.UID]promise
	gone map[types.UID]bool
}

type promise struct {
	node string
	at   time.Time
}

// patience is how long a created pod may take to be seen. After that it has gone without being seen.
const patience = time.Minute

func newExpectations() *expectations { return &expectations{all: map[types.NamespacedName]*expected{}} }

func (e *expectations) of(key types.NamespacedName) *expected {
	if e.all[key] == nil {
		e.all[key] = &expected{made: map[types.UID]promise{}, gone: map[types.UID]bool{}}
	}
	return e.all[key]
}

func (e *expectations) forget(key types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.all, key)
}

// created notes a pod that has been made.
func (e *expectations) created(key types.NamespacedName, pod *corev1.Pod, node string, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.of(key).made[pod.UID] = promise{node, now}
}

// deletes notes a pod that is being deleted.
func (e *expectations) deletes(key types.NamespacedName, pod *corev1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.of(key).gone[pod.UID] = true
}

// keeps takes that back: the API server has refused it.
func (e *expectations) keeps(key types.NamespacedName, pod *corev1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.of(key).gone, pod.UID)
}

// observe drops what the cache shows by now.
func (e *expectations) observe(key types.NamespacedName, pods []*corev1.Pod, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	of := e.all[key]
	if of == nil || len(of.made) == 0 && len(of.gone) == 0 {
		return
	}
	there := make(map[types.UID]bool, len(of.gone))
	for _, pod := range pods {
		delete(of.made, pod.UID)
		if of.gone[pod.UID] && pod.DeletionTimestamp == nil {
			there[pod.UID] = true
		}
	}
	of.gone = there
	for uid, m := range of.made {
		if now.Sub(m.at) > patience {
			delete(of.made, uid)
		}
	}
}

// saw drops a pod that was made and has been seen, if only to go.
func (e *expectations) saw(key types.NamespacedName, pod types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if of := e.all[key]; of != nil {
		delete(of.made, pod)
	}
}

// deleted reports whether the pod is being deleted, though the cache does not show it.
func (e *expectations) deleted(key types.NamespacedName, pod *corev1.Pod) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	of := e.all[key]
	return of != nil && of.gone[pod.UID]
}

// promised is when pods were made that the cache does not show yet, by node.
func (e *expectations) promised(key types.NamespacedName) map[string]time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	of := e.all[key]
	if of == nil || len(of.made) == 0 {
		return nil
	}
	nodes := make(map[string]time.Time, len(of.made))
	for _, m := range of.made {
		nodes[m.node] = m.at
	}
	return nodes
}
