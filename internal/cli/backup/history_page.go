package backup

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/backup"
	"github.com/fxfer/fxfer/internal/cli/chart"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/units"
)

var historyPage = chart.Page("history", `<title>fxfer history{{with .Job}}: {{.}}{{end}}</title>{{template "style"}}</head>
<body><h1>{{if .Job}}Backups of <bdi>{{.Job}}</bdi>{{else}}Transfers{{end}}</h1>
<p class="quiet">Since {{.Since}}, written {{.Written}}.{{if gt (len .Rows) 1}} The newest is first.{{end}}</p>
{{if .Rows}}{{template "charts" .Charts}}<h2>{{len .Rows}} in all</h2>
<div class="sheet" tabindex="0" role="region" aria-label="Transfers"><table><thead><tr><th scope="col">began</th><th scope="col">what</th><th scope="col">outcome</th>
<th scope="col" class="number">size</th><th scope="col" class="number">written</th><th scope="col" class="number">sent</th><th scope="col" class="number">time</th><th scope="col" class="number">goodput</th><th scope="col">limit</th></tr></thead><tbody>
{{range .Rows}}<tr><td>{{.Began}}</td><td class="name"><bdi>{{.Name}}</bdi>{{with .Error}}<div class="bad">{{.}}</div>{{end}}</td><td{{if .Bad}} class="bad"{{end}}>{{.Outcome}}</td>{{range .Numbers}}<td class="number">{{.}}</td>{{end}}<td>{{.Limiter}}</td></tr>
{{end}}</tbody></table></div>{{else}}<p>No {{if .Job}}backup{{else}}transfer{{end}} began since then.</p>{{end}}</body></html>
`)

type historyPageRow struct {
	Began, Name, Outcome, Error, Limiter string
	Numbers                              []string
	Bad                                  bool
}

// writeHistoryPage writes the history as an HTML page. Records are in the order of time.
func writeHistoryPage(w io.Writer, job string, since, now time.Time, records []backup.Record) error {
	data := struct {
		Job, Since, Written string
		Charts              []chart.Chart
		Rows                []historyPageRow
	}{Job: job, Since: since.Local().Format("2006-01-02 15:04"), Written: now.Local().Format("2006-01-02 15:04 MST")}
	for i := range records {
		r := &records[i]
		data.Rows = append(data.Rows, historyPageRow{
			Began: r.Started.Local().Format(time.DateTime), Name: historyName(r), Outcome: outcomeText(r), Error: term.OneLine(r.Cause()), Limiter: term.OneLine(r.Limiter),
			Numbers: []string{units.Bytes(r.Bytes), units.Bytes(r.Written), units.Bytes(r.Sent), units.Time(r.Duration()), units.Rate(r.Goodput)}, Bad: unsuccessful(r),
		})
	}
	slices.Reverse(data.Rows)
	if n := len(records); n > 0 {
		over := chart.Calendar(records[0].Started, records[n-1].Started)
		for _, v := range historyValues {
			if c, ok := chart.Draw(strings.ToUpper(v.name[:1])+v.name[1:], v.unit, over, historySeries(records, v.value)...); ok {
				data.Charts = append(data.Charts, c)
			}
		}
	}
	return historyPage().Execute(w, data)
}

func unsuccessful(r *backup.Record) bool {
	return r.Outcome != backup.Good && r.Outcome != backup.Skipped
}

// historySeries returns a series for each job, and one for each verb of plain transfers. Only the
// runs of a job can be compared, so a line joins them. The jobs with the fewest runs share the
// last series if there are many.
func historySeries(records []backup.Record, value func(*backup.Record) float64) (all []chart.Series) {
	count := map[string]int{}
	for i := range records {
		count[historyGroup(&records[i])]++
	}
	groups := slices.SortedFunc(maps.Keys(count), func(a, b string) int { return cmp.Or(count[b]-count[a], strings.Compare(a, b)) })
	if len(groups) > chart.Colours {
		groups = groups[:chart.Colours-1]
	}
	for _, g := range groups {
		all = append(all, chart.Series{Name: g, Style: chart.Dots})
	}
	others := chart.Series{Name: "others", Style: chart.Dots}
	for i := range records {
		r := &records[i]
		s := &others
		if k := slices.Index(groups, historyGroup(r)); k >= 0 {
			s = &all[k]
			if r.Job != "" {
				s.Style = chart.Joined
			}
		}
		s.Points = append(s.Points, chart.Value{At: r.Started.Sub(records[0].Started).Seconds(), Value: value(r), Bad: unsuccessful(r)})
	}
	if len(others.Points) > 0 {
		all = append(all, others)
	}
	return all
}

func historyGroup(r *backup.Record) string {
	if r.Job != "" {
		return r.Job
	}
	return "plain " + r.Verb
}
