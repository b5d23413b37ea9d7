// SPDX-License-Identifier: Apache-2.0

package docs

// Metrics returns the page of the metrics, with the tables that the tests of the two endpoints keep.
func Metrics(registered, ksmetrics string) string {
	return "# Metrics\n\n[Operate Moult](../operations/operate.md#metrics) says how to scrape them.\n\n## /metrics\n\n" +
		"Beside these there are controller-runtime's (`controller_runtime_*`, `workqueue_*`, `rest_client_*`). Only the operator that leads has those of rollouts and budgets.\n\n" +
		registered +
		"\n## /ksmetrics\n\nWhat ExtendedDaemonSets and their revisions say of themselves, under the names of Datadog's controller. Each operator has them.\n\n" +
		ksmetrics
}
