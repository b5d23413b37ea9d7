// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"moult.dev/moult/api/v1alpha1"
)

// HistoryColumns are the titles of HistoryRows.
var HistoryColumns = []string{"Revision", "Created by", "Approved by", "Created", "Started", "Ended", "Result", "Nodes", "Failed", "Turn p50/p95", "Waits"}

// HistoryRows show runs, one a row.
func HistoryRows(runs []v1alpha1.Run) (rows [][]string) {
	for _, r := range runs {
		var failed, waits []string
		for _, f := range r.Failures {
			failed = append(failed, fmt.Sprintf("%s %d", f.Reason, f.Nodes))
		}
		for _, w := range r.Waits {
			waits = append(waits, string(w.Reason)+" "+people(w.Seconds))
		}
		if r.Waiting != nil {
			waits = append(waits, string(r.Waiting.Reason)+" since "+stamp(&r.Waiting.Since))
		}
		turns, result := "", string(r.Result)
		if t := r.Turns; t != nil {
			turns = people(int64(t.MedianSeconds)) + "/" + people(int64(t.P95Seconds))
		}
		for _, state := range r.Ongoing {
			result += " " + string(state)
		}
		rows = append(rows, []string{
			r.Revision, r.CreatedBy, r.ApprovedBy, stamp(&r.CreatedAt), stamp(r.StartedAt), stamp(r.EndedAt),
			cmp.Or(strings.TrimSpace(result), "Running"),
			fmt.Sprintf("%d/%d", r.Updated, r.Total), strings.Join(failed, ", "), turns, strings.Join(waits, ", "),
		})
	}
	return rows
}

func stamp(t *metav1.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04")
}

// people shows seconds as kubectl does.
func people(seconds int64) string {
	return duration.HumanDuration(time.Duration(seconds) * time.Second)
}

// lead shows a lead time, if any run was complete.
func lead(complete int, seconds int64) string {
	if complete == 0 {
		return "-"
	}
	return people(seconds)
}

// Report sums up the histories of rollouts.
type Report struct {
	Since metav1.Time `json:"since"`
	// Months are those in which runs ended, the newest first. Total is of all of them.
	Months []ReportMonth `json:"months"`
	Total  ReportMonth   `json:"total"`
	// Versions is how many nodes have which version now.
	Versions []ReportVersion `json:"versions"`
}

// ReportMonth sums up the runs that ended in one month.
type ReportMonth struct {
	Month      string `json:"month"`
	Complete   int    `json:"complete"`
	Superseded int    `json:"superseded"`
	// Failed is how many of them had a failed node, or were halted.
	Failed         int `json:"failed"`
	FailurePercent int `json:"failurePercent"`
	// Lead time is that from createdAt to endedAt of complete runs.
	LeadMedianSeconds  int64 `json:"leadMedianSeconds"`
	LeadLongestSeconds int64 `json:"leadLongestSeconds"`
}

// ReportVersion is how many nodes of a rollout have a version. Version is empty for those that are not updated, if theirs is not known.
type ReportVersion struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Version   string `json:"version,omitempty"`
	Nodes     int32  `json:"nodes"`
}

// NewReport sums up the runs that ended at this time or later, and the nodes of today.
func NewReport(rollouts []Rollout, since time.Time) Report {
	report := Report{Since: metav1.Time{Time: since.UTC().Truncate(time.Second)}, Months: []ReportMonth{}, Versions: []ReportVersion{}}
	var all []v1alpha1.Run
	months := map[string][]v1alpha1.Run{}
	for _, r := range rollouts {
		for _, run := range r.History {
			if run.EndedAt != nil && !run.EndedAt.Time.Before(since) {
				month := run.EndedAt.UTC().Format("2006-01")
				all, months[month] = append(all, run), append(months[month], run)
			}
		}
		versions := r.Versions
		if len(versions) == 0 {
			versions = []v1alpha1.HostVersion{{Version: r.Version, Nodes: r.Counts.Updated}, {Nodes: r.Counts.Total - r.Counts.Updated}}
		}
		for _, v := range versions {
			if v.Nodes > 0 {
				report.Versions = append(report.Versions, ReportVersion{r.Kind, r.Namespace, r.Name, v.Version, v.Nodes})
			}
		}
	}
	for _, month := range slices.Backward(slices.Sorted(maps.Keys(months))) {
		report.Months = append(report.Months, summed(month, months[month]))
	}
	report.Total = summed("total", all)
	return report
}

func summed(month string, runs []v1alpha1.Run) ReportMonth {
	m := ReportMonth{Month: month}
	var leads []int64
	for _, r := range runs {
		if r.FailedAt != nil || r.HaltedAt != nil {
			m.Failed++
		}
		if r.Result == v1alpha1.RunComplete {
			leads = append(leads, int64(r.EndedAt.Sub(r.CreatedAt.Time)/time.Second))
		}
	}
	m.Complete, m.Superseded = len(leads), len(runs)-len(leads)
	if n := len(runs); n > 0 {
		m.FailurePercent = (m.Failed*100 + n/2) / n
	}
	if n := len(leads); n > 0 {
		slices.Sort(leads)
		m.LeadMedianSeconds, m.LeadLongestSeconds = leads[(n-1)/2], leads[n-1]
	}
	return m
}

// Tables show the report: the months, and the versions. The first row of each has the titles.
func (r *Report) Tables() [][][]string {
	months := [][]string{{"Month", "Complete", "Superseded", "Failed", "Failure rate", "Lead time median", "Lead time longest"}}
	for _, m := range append(slices.Clone(r.Months), r.Total) {
		months = append(months, []string{
			m.Month, fmt.Sprint(m.Complete), fmt.Sprint(m.Superseded), fmt.Sprint(m.Failed), fmt.Sprintf("%d%%", m.FailurePercent),
			lead(m.Complete, m.LeadMedianSeconds), lead(m.Complete, m.LeadLongestSeconds),
		})
	}
	versions := [][]string{{"Kind", "Namespace", "Name", "Version", "Nodes"}}
	for _, v := range r.Versions {
		versions = append(versions, []string{v.Kind, v.Namespace, v.Name, cmp.Or(v.Version, "other"), fmt.Sprint(v.Nodes)})
	}
	return [][][]string{months, versions}
}
