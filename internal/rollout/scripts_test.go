// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

var (
	five = []string{"node-1", "node-2", "node-3", "node-4", "node-5"}
	ten  = append([]string{"node-6", "node-7", "node-8", "node-9", "node-10"}, five...)
)

// walkthroughs are the pages, in the order in which one should read them.
func walkthroughs(t testing.TB) []walkthrough {
	return []walkthrough{
		twoAtATime(), threeRollouts(), fridayNights(), clocksPutBack(t), canary(t), approval(t), canaryFails(t), retries(t),
		sharedBudget(t), zoneByZone(t), workloadsGate(t), alertsGate(t), pausedBudget(t), soakRestarts(t),
		daemonCanary(t), daemonBesidePlan(t),
	}
}

func twoAtATime() walkthrough {
	return walkthrough{
		file: "two-at-a-time", title: "Two at a time",
		intro: "A rollout with a concurrency of 2 and nothing else. Failed nodes keep their slots, and a person tries them again.",
		nodes: five,
		play: func(s script) {
			os := s.wants(&party{name: "os", concurrency: 2}, "two at once, alone on a node")
			s.label("node-4", os, optOut)
			s.event("A person labels node-4 to keep os away.")
			s.acts(os)
			s.passes(4 * time.Minute)
			s.succeeds(os, "node-3")
			s.passes(3 * time.Minute)
			s.fails(os, "node-2")
			s.passes(2 * time.Minute)
			s.succeeds(os, "node-5")
			s.passes(time.Minute)
			s.fails(os, "node-1")
			s.join("node-6", nil)
			s.event("Node node-6 joins.")
			s.acts(os)
			s.passes(time.Hour)
			s.edit("node-2", func(m *machine) { m.retry++ })
			s.event("A person has repaired node-2, and asks to try again there.")
			s.acts(os)
			s.passes(4 * time.Minute)
			s.succeeds(os, "node-2")
			s.passes(4 * time.Minute)
			s.succeeds(os, "node-6")
			s.passes(time.Hour)
			os.generation++
			s.event("A person asks os to try again wherever it failed.")
			s.acts(os)
			s.passes(4 * time.Minute)
			s.succeeds(os, "node-1")
		},
	}
}

func threeRollouts() walkthrough {
	return walkthrough{
		file: "three-rollouts-share-a-fleet", title: "Three rollouts share a fleet",
		intro: "One rollout needs a node for itself. Two others tolerate each other. Claims keep them apart. One operator is killed in the middle: its\n" +
			"claim is on the node, and it goes on from there.",
		nodes: []string{"node-1", "node-2", "node-3"},
		play: func(s script) {
			os := s.wants(&party{name: "os", concurrency: 1}, "one at a time, alone on a node")
			agent := s.wants(&party{name: "agent", concurrency: 3, shared: true}, "three at once, beside others")
			audit := s.wants(&party{name: "audit", concurrency: 3, shared: true}, "three at once, beside others")
			s.acts(os)
			s.acts(agent)
			s.acts(audit)
			s.passes(5 * time.Minute)
			s.succeeds(os, "node-2")
			s.killed(agent, 1)
			s.acts(agent)
			s.acts(audit)
			s.passes(5 * time.Minute)
			s.succeeds(agent, "node-1", "node-2", "node-3")
			s.acts(os)
			s.passes(time.Minute)
			s.succeeds(audit, "node-1", "node-3")
			s.acts(os)
			s.passes(5 * time.Minute)
			s.succeeds(audit, "node-2")
			s.succeeds(os, "node-3")
			s.passes(5 * time.Minute)
			s.succeeds(os, "node-1")
		},
	}
}

func fridayNights() walkthrough {
	return walkthrough{
		file: "nights-of-friday", title: "Nights of Friday",
		intro: "A Plan's own daily window, and a change of the Plan during a turn. The day of each moment counts. So the window is open on Friday\n" +
			"evening, and on Friday from midnight to four.",
		shows: []shown{{"The strategy, beside the Plan's window", "soak: 10m"}},
		nodes: []string{"node-1", "node-2"}, zone: "Europe/Berlin",
		play: func(s script) {
			window, err := NewWindow([]string{"fri"}, "22:00", "04:00", "Europe/Berlin")
			if err != nil {
				s.fail("%v", err)
			}
			k3s := s.wants(&party{name: "k3s", concurrency: 1, window: window, spec: &v1alpha1.Strategy{Soak: duration(10 * time.Minute)}},
				"one at a time, soaked for ten minutes, on Fridays from 22:00 to 04:00 in Berlin")
			s.acts(k3s)
			s.wakes(k3s)
			s.passes(20 * time.Minute)
			k3s.revision++
			s.event("A person changes k3s: now it wants v2.")
			s.acts(k3s)
			s.event("What ran on node-2 is gone.")
			s.acts(k3s)
			s.passes(97 * time.Minute)
			s.succeeds(k3s, "node-2")
			s.passes(10 * time.Minute)
			s.acts(k3s)
			s.wakes(k3s)
			s.passes(4*time.Hour + time.Minute)
			k3s.revision++
			s.event("A person changes k3s: now it wants v3.")
			s.acts(k3s)
			s.succeeds(k3s, "node-1")
			s.passes(10 * time.Minute)
			s.acts(k3s)
		},
	}
}

func clocksPutBack(t testing.TB) walkthrough {
	const spec = `
windows:
- schedule: 0 22 * * 5,6 # at 22:00 on Fridays and Saturdays
  duration: 6h
  timeZone: Europe/Berlin`
	return walkthrough{
		file: "weekend-nights-and-daylight-saving", title: "Weekend nights, and the clocks are put back",
		intro: "Windows by cron, in a night in which the clocks go back. A window opens by the clock on the wall and stays open for its duration. Six\n" +
			"hours from Saturday 22:00 end at 3:00, because the hour from 2:00 comes twice.",
		shows: []shown{{"The strategy", spec}}, nodes: five, zone: "Europe/Berlin",
		start: time.Date(2026, 10, 23, 10, 0, 0, 0, time.UTC),
		play: func(s script) {
			k3s := s.wants(&party{name: "k3s", concurrency: 1, spec: strategyOf(t, spec)}, "one at a time, in the nights after Friday and Saturday")
			s.acts(k3s)
			s.wakes(k3s)
			s.passes(5 * time.Hour)
			s.succeeds(k3s, "node-2")
			s.passes(90 * time.Minute)
			s.succeeds(k3s, "node-3")
			s.wakes(k3s)
			s.passes(330 * time.Minute)
			s.event("It is half past two for the second time.")
			s.succeeds(k3s, "node-1")
			s.passes(30 * time.Minute)
			s.succeeds(k3s, "node-4")
		},
	}
}

func canary(t testing.TB) walkthrough {
	const spec = `
maxConcurrent: 4
waves:
- name: canary
  size: 1
  soak: 1h
- name: tenth
  size: 10%
  soak: 30m`
	nodes := []string{}
	for _, tens := range []string{"", "1"} {
		for _, name := range ten {
			if tens == "" {
				nodes = append(nodes, name)
			} else {
				nodes = append(nodes, name+"b")
			}
		}
	}
	return walkthrough{
		file: "canary-then-a-tenth-then-all", title: "A canary, then a tenth, then all",
		intro: "Twenty nodes in waves. One node goes first and must be healthy for an hour. Then a tenth goes, which is two nodes. Then the others go,\n" +
			"four at once. The order decides which node is the canary.",
		shows: []shown{{"The strategy", spec}}, nodes: nodes,
		play: func(s script) {
			os := s.wants(&party{name: "os", concurrency: 1, spec: strategyOf(t, spec)}, "in waves")
			s.acts(os)
			s.rest(os, 5*time.Minute)
			s.wakes(os)
			s.rest(os, 5*time.Minute)
			s.wakes(os)
			s.rest(os, 5*time.Minute)
		},
	}
}

func approval(t testing.TB) walkthrough {
	const spec = `
maxConcurrent: 2
waves:
- name: canary
  size: 1
  soak: 15m
  approval: Manual`
	return walkthrough{
		file: "a-person-approves", title: "A person approves",
		intro: "After the canary a person must approve before the rollout goes on. An approval counts for one wave and one revision. An approval of an\n" +
			"earlier version does not count.",
		shows: []shown{{"The strategy", spec}}, nodes: five,
		play: func(s script) {
			os := s.wants(&party{name: "os", concurrency: 1, spec: strategyOf(t, spec)}, "a canary first, which a person approves")
			os.approved = "canary@v0"
			s.event("os still has the annotation that approved the version before: moult.dev/approve=canary@v0.")
			s.acts(os)
			s.passes(5 * time.Minute)
			s.succeeds(os, "node-4")
			s.wakes(os)
			s.passes(14 * time.Hour)
			os.approved = os.status.ApproveWith
			s.event("In the morning a person approves: moult.dev/approve=%s.", os.approved)
			s.acts(os)
			s.rest(os, 5*time.Minute)
		},
	}
}

func canaryFails(t testing.TB) walkthrough {
	const spec = `
maxConcurrent: 2
maxFailures: 3
waves:
- name: canary
  size: 2`
	return walkthrough{
		file: "the-canary-fails", title: "The canary fails",
		intro: "A failure in the first wave halts a rollout, although it allows three failures elsewhere. Running turns end. A person corrects the\n" +
			"version, and the rollout begins with the canary again.",
		shows: []shown{{"The strategy", spec}}, nodes: five,
		play: func(s script) {
			os := s.wants(&party{name: "os", concurrency: 1, spec: strategyOf(t, spec)}, "a canary of two nodes first")
			s.acts(os)
			s.passes(3 * time.Minute)
			s.fails(os, "node-2")
			s.passes(3 * time.Minute)
			s.succeeds(os, "node-4")
			s.passes(2 * time.Hour)
			os.revision++
			os.generation++
			s.event("A person has mended the version: os now wants %s.", os.wants())
			s.acts(os)
			s.rest(os, 5*time.Minute)
		},
	}
}

func retries(t testing.TB) walkthrough {
	const spec = `
maxConcurrent: 2
maxFailures: 1
retries:
  limit: 2
  backoff: 1m`
	return walkthrough{
		file: "failures-retries-and-backoff", title: "Failures, retries and backoff",
		intro: "A failed turn is retried after one minute, and after two more. It keeps its slot until then. A node that has failed for good gives its\n" +
			"slot to the next, because the rollout allows one failure. The second failure halts it.",
		shows: []shown{{"The strategy", spec}}, nodes: five,
		play: func(s script) {
			os := s.wants(&party{name: "os", concurrency: 1, spec: strategyOf(t, spec)}, "two at once, with two retries and at most one failure")
			s.acts(os)
			s.passes(2 * time.Minute)
			s.fails(os, "node-2")
			s.wakes(os)
			s.passes(2 * time.Minute)
			s.fails(os, "node-2")
			s.wakes(os)
			s.passes(2 * time.Minute)
			s.fails(os, "node-2")
			s.passes(time.Minute)
			s.succeeds(os, "node-3")
			for range 3 {
				s.passes(2 * time.Minute)
				s.fails(os, "node-5")
				if !s.next[os].IsZero() {
					s.wakes(os)
				}
			}
			s.passes(time.Minute)
			s.succeeds(os, "node-4")
			s.passes(time.Hour)
			os.generation++
			s.event("A person has found the cause, and asks os to try again wherever it failed.")
			s.acts(os)
			s.rest(os, 3*time.Minute)
		},
	}
}

func sharedBudget(t testing.TB) walkthrough {
	const budget = `maxUnavailable: 1`
	return walkthrough{
		file: "two-plans-and-a-cordon-share-a-budget", title: "Two Plans and a cordon by hand share a budget",
		intro: "A budget counts unavailable nodes, whatever made them so. While a person has cordoned a node, two rollouts start nothing. They leave\n" +
			"that node alone too, because the person may be at work there.",
		shows: []shown{{"The budget `all`", budget}}, nodes: five[:3],
		play: func(s script) {
			s.addBudget("all", budgetOf(t, budget))
			s.edit("node-3", func(m *machine) { m.cordoned = true })
			s.event("A person has cordoned node-3.")
			os := s.wants(&party{name: "os", concurrency: 2}, "two at once")
			k3s := s.wants(&party{name: "k3s", concurrency: 1}, "one at a time")
			s.acts(os)
			s.acts(k3s)
			s.passes(5 * time.Minute)
			s.edit("node-3", func(m *machine) { m.cordoned = false })
			s.event("The person uncordons node-3.")
			s.acts(os)
			s.acts(k3s)
			s.rest(os, 5*time.Minute)
			s.acts(k3s)
			s.rest(k3s, 5*time.Minute)
			s.acts(os)
		},
	}
}

func zoneByZone(t testing.TB) walkthrough {
	const budget = `
topologyKey: topology.kubernetes.io/zone
maxDomains: 1`
	return walkthrough{
		file: "zone-by-zone", title: "Zone by zone",
		intro: "A budget allows unavailable nodes in one zone at a time. Within a zone the rollout's own limit counts. A node of another zone that\n" +
			"fails by itself holds up all others. It waits until the first zone is done.",
		shows: []shown{{"The budget `zones`", budget}, {"The strategy", "order:\n- by: Zone\nmaxConcurrent: 3"}},
		nodes: []string{"node-1/a", "node-2/b", "node-3/a", "node-4/b", "node-5/c"},
		play: func(s script) {
			s.addBudget("zones", budgetOf(t, budget))
			os := s.wants(&party{name: "os", spec: strategyOf(t, "order:\n- by: Zone\nmaxConcurrent: 3")}, "three at once, in the order of zones")
			s.acts(os)
			s.passes(5 * time.Minute)
			s.ready("node-4", false)
			s.event("node-4 fails: it is not ready any more.")
			s.succeeds(os, "node-3")
			s.passes(time.Minute)
			s.succeeds(os, "node-1")
			s.passes(5 * time.Minute)
			s.succeeds(os, "node-2")
			s.succeeds(os, "node-4")
			s.passes(5 * time.Minute)
			s.ready("node-4", true)
			s.event("node-4 is ready again: the update has repaired it.")
			s.acts(os)
			s.rest(os, 5*time.Minute)
		},
	}
}

func workloadsGate(t testing.TB) walkthrough {
	const budget = `
maxUnavailable: 2
gates:
  workloads: {}`
	return walkthrough{
		file: "the-workloads-gate", title: "The workloads gate closes and opens",
		intro: "Two nodes may be unavailable. But no further node starts before the last one is drained and its evicted pods are available again. So\n" +
			"nodes are drained one by one.",
		shows: []shown{{"The budget `calm`", budget}}, nodes: five[:3],
		play: func(s script) {
			s.addBudget("calm", budgetOf(t, budget))
			os := s.wants(&party{name: "os", concurrency: 2, drains: true}, "two at once, drained before")
			s.edit("node-1", func(m *machine) { m.evictions = 0 })
			s.event("Nothing runs on node-1 that would have to be evicted.")
			s.acts(os)
			s.event("Draining node-2 evicts a pod of Deployment shop/cart.")
			s.passes(10 * time.Second)
			s.acts(os)
			s.passes(time.Minute)
			s.displaced = map[string]bool{}
			s.event("All pods of shop/cart are available again, on other nodes. A pod of shop/db is still ending on node-2.")
			s.acts(os)
			s.passes(time.Minute)
			s.drained(os, "node-2")
			s.event("It has ended: node-2 is drained, and nothing is missing.")
			s.acts(os)
			s.event("Draining node-3 evicts another.")
			s.passes(2 * time.Minute)
			s.drained(os, "node-3")
			s.succeeds(os, "node-2")
			s.passes(time.Minute)
			s.displaced = map[string]bool{}
			s.event("All pods of shop/cart are available again.")
			s.acts(os)
			s.rest(os, 3*time.Minute)
		},
	}
}

func alertsGate(t testing.TB) walkthrough {
	const budget = `
gates:
  alerts:
    url: http://prometheus.monitoring:9090`
	return walkthrough{
		file: "alerts", title: "Alerts, and a Prometheus that does not answer",
		intro: "A budget's gate is closed while Prometheus has alerts. A Prometheus that does not answer closes it too, unless the budget says\n" +
			"`whenUnreachable: Open`. Started turns go on.",
		shows: []shown{{"The budget `quiet`", budget}}, nodes: five[:3],
		play: func(s script) {
			s.addBudget("quiet", budgetOf(t, budget))
			os := s.wants(&party{name: "os", concurrency: 1}, "one at a time")
			s.acts(os)
			s.passes(time.Minute)
			s.alerts = true
			s.event("Prometheus has an alert: CartErrors.")
			s.passes(3 * time.Minute)
			s.succeeds(os, "node-2")
			s.passes(10 * time.Minute)
			s.alerts, s.silent = false, true
			s.event("Prometheus is restarted, and does not answer. What it said last counts for forty seconds.")
			s.passes(time.Minute)
			s.acts(os)
			s.passes(time.Minute)
			s.silent = false
			s.event("Prometheus answers, and has no alert.")
			s.acts(os)
			s.passes(5 * time.Minute)
			s.editBudget(0, func(b *v1alpha1.NodeDisruptionBudgetSpec) { b.Gates.Alerts.WhenUnreachable = v1alpha1.UnreachableOpen })
			s.silent = true
			s.event("A person sets whenUnreachable: Open, and Prometheus does not answer again.")
			s.succeeds(os, "node-3")
			s.rest(os, 5*time.Minute)
		},
	}
}

func pausedBudget(t testing.TB) walkthrough {
	return walkthrough{
		file: "a-paused-budget-stops-everything", title: "A paused budget stops everything",
		intro: "One budget that selects all nodes, with `paused: true`. No rollout starts anything, and no turn starts over. Running turns end.",
		shows: []shown{{"The budget `freeze`", "paused: true"}}, nodes: five[:3],
		play: func(s script) {
			s.addBudget("freeze", budgetOf(t, "paused: false"))
			s.event("There is a budget freeze, which is not paused yet.")
			os := s.wants(&party{name: "os", concurrency: 1}, "one at a time")
			k3s := s.wants(&party{name: "k3s", concurrency: 1}, "one at a time")
			s.acts(os)
			s.acts(k3s)
			s.passes(time.Minute)
			s.editBudget(0, func(b *v1alpha1.NodeDisruptionBudgetSpec) { b.Paused = true })
			s.event("A person pauses the budget.")
			os.revision++
			s.event("Another changes os, unaware of that: now it wants v2.")
			s.acts(os)
			s.passes(4 * time.Minute)
			s.succeeds(os, "node-2")
			s.succeeds(k3s, "node-3")
			s.passes(2 * time.Hour)
			s.editBudget(0, func(b *v1alpha1.NodeDisruptionBudgetSpec) { b.Paused = false })
			s.event("The budget is not paused any more.")
			s.acts(os)
			s.acts(k3s)
		},
	}
}

func soakRestarts(t testing.TB) walkthrough {
	const spec = `
waves:
- name: canary
  size: 1
  soak: 30m`
	const budget = `
minReadySeconds: 120`
	return walkthrough{
		file: "the-soak-begins-anew", title: "The soak begins anew when a node flaps",
		intro: "A wave has soaked when all of its nodes were updated and healthy for the whole time. A node that becomes not ready starts the clock\n" +
			"again. The node's condition says since when it is ready, so a restart of the operator changes nothing.",
		shows: []shown{{"The strategy", spec}, {"The budget `steady`", budget}}, nodes: five[:3],
		play: func(s script) {
			s.addBudget("steady", budgetOf(t, budget))
			os := s.wants(&party{name: "os", concurrency: 1, spec: strategyOf(t, spec)}, "a canary first, which soaks for half an hour")
			s.acts(os)
			s.passes(3 * time.Minute)
			s.succeeds(os, "node-2")
			s.passes(20 * time.Minute)
			s.ready("node-2", false)
			s.event("node-2 is not ready any more.")
			s.acts(os)
			s.passes(2 * time.Minute)
			s.ready("node-2", true)
			s.event("node-2 is ready again.")
			s.acts(os)
			s.wakes(os)
			s.passes(10 * time.Minute)
			s.ready("node-2", false)
			s.event("node-2 is not ready again, while Moult is being restarted.")
			s.passes(time.Minute)
			s.ready("node-2", true)
			s.passes(4 * time.Minute)
			s.event("node-2 has been ready for four minutes, and Moult is back.")
			s.acts(os)
			s.wakes(os)
			s.rest(os, 3*time.Minute)
		},
	}
}

func daemonCanary(t testing.TB) walkthrough {
	const spec = `
waves:
- name: canary
  soak: 10m`
	return walkthrough{
		file: "a-daemon-canary-then-one-at-a-time", title: "A daemon: a canary, then one node at a time",
		intro: "An ExtendedDaemonSet replaces its pod on every node, and takes no node for that. The canary runs on one chosen node. Then one pod goes\n" +
			"at a time, broken ones first. A node that is not ready holds up no other.",
		shows: []shown{{"The strategy", "canary:\n  replicas: 1\n  duration: 10m\nrollingUpdate:\n  maxUnavailable: 1"}}, nodes: append([]string{"node-6"}, five...),
		play: func(s script) {
			agent := s.wants(&party{
				name: "agent", concurrency: 1, beside: true, patient: true, soakLast: true, picked: map[string]bool{"node-3": true}, spec: strategyOf(t, spec),
			}, "one at a time, after a canary on node-3")
			s.serve(agent, "node-4", false)
			s.event("The pod of agent on node-4 is not available: the old version restarts there again and again.")
			s.ready("node-5", false)
			s.event("node-5 is not ready.")
			s.acts(agent)
			s.passes(time.Minute)
			s.serves(agent, "node-3")
			s.wakes(agent)
			s.passes(time.Minute)
			s.serves(agent, "node-4")
			s.passes(time.Minute)
			s.ready("node-6", false)
			s.event("node-6 is not ready any more, before its new pod is available.")
			s.acts(agent)
			s.passes(time.Minute)
			s.serves(agent, "node-1")
			s.passes(time.Minute)
			s.ready("node-5", true)
			s.serve(agent, "node-5", true)
			s.event("node-5 is ready again, and so is the old pod on it.")
			s.serves(agent, "node-2")
			s.passes(time.Minute)
			s.serves(agent, "node-5")
			s.passes(time.Hour)
			s.ready("node-6", true)
			s.event("node-6 is ready again.")
			s.serves(agent, "node-6")
		},
	}
}

func daemonBesidePlan(t testing.TB) walkthrough {
	const budget = `maxUnavailable: 1`
	return walkthrough{
		file: "a-daemon-beside-a-plan", title: "A daemon beside a Plan",
		intro: "A budget allows one unavailable node. A Plan takes it. An ExtendedDaemonSet makes no node unavailable, and goes on elsewhere. Each\n" +
			"keeps off the other's nodes, and both stop when the budget is paused.",
		shows: []shown{{"The budget `all`", budget}}, nodes: five[:4],
		play: func(s script) {
			s.addBudget("all", budgetOf(t, budget))
			os := s.wants(&party{name: "os", concurrency: 2, drains: true}, "two at once, drained before")
			agent := s.wants(&party{name: "agent", concurrency: 1, beside: true, patient: true}, "one at a time")
			s.acts(os)
			s.acts(agent)
			s.passes(time.Minute)
			s.serves(agent, "node-1")
			s.passes(time.Minute)
			s.succeeds(os, "node-4")
			s.event("By its order os would take node-2, but the new pod of agent is just starting there.")
			s.acts(agent)
			s.passes(time.Minute)
			s.editBudget(0, func(b *v1alpha1.NodeDisruptionBudgetSpec) { b.Paused = true })
			s.event("A person pauses the budget.")
			s.serves(agent, "node-2")
			s.acts(os)
			s.passes(time.Hour)
			s.editBudget(0, func(b *v1alpha1.NodeDisruptionBudgetSpec) { b.Paused = false })
			s.event("The budget is not paused any more.")
			s.acts(agent)
			s.acts(os)
			s.passes(time.Minute)
			s.serves(agent, "node-4")
			s.succeeds(os, "node-3")
			s.acts(agent)
			s.serves(agent, "node-3")
			s.rest(os, 4*time.Minute)
		},
	}
}
