package path

import (
	"io"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/cli/chart"
	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/path/diagnose/words"
	"github.com/fxfer/fxfer/internal/path/explain"
	"github.com/fxfer/fxfer/internal/units"
)

var explainPage = chart.Page("explain", `<title>fxfer explain {{.What}}</title>{{template "style"}}</head>
<body>{{define "rows"}}<dl>{{range .}}<dt>{{.Name}}</dt><dd>{{.Text}}</dd>{{end}}</dl>{{end}}
<h1>What limits <bdi>{{.What}}</bdi></h1>
<p class="quiet">Written {{.Written}}.</p>
{{template "rows" .Summary}}{{template "rows" .Limits}}
{{template "charts" .Charts}}
{{range .Connections}}<h2><bdi>{{.Name}}</bdi></h2>{{template "rows" .Rows}}{{template "rows" .Limits}}{{end}}</body></html>
`)

type explainPageConnection struct {
	Name         string
	Rows, Limits rows
}

// writeExplainPage writes a report as an HTML page.
func writeExplainPage(w io.Writer, r *explain.Report, written time.Time) error {
	data := struct {
		What, Written   string
		Summary, Limits rows
		Charts          []chart.Chart
		Connections     []explainPageConnection
	}{What: r.What, Written: written.Format("2006-01-02 15:04 MST"), Summary: explainSummary(r), Charts: explainCharts(r)}
	if len(r.Verdicts) > 0 {
		data.Limits = verdictRows(r.Verdicts[:1])
	}
	for i := range shownConnections(r) {
		c := &r.Connections[i]
		all := connectionRows(c)
		for j := range all {
			all[j].Name = strings.TrimSpace(all[j].Name)
		}
		data.Connections = append(data.Connections, explainPageConnection{connectionName(c), all, verdictRows(c.Verdicts)})
	}
	return explainPage().Execute(w, data)
}

// verdictRows are limits with all that is known about them.
func verdictRows(all []diagnose.Verdict) (list rows) {
	for i := range all {
		v := &all[i]
		list.add("limit", words.Name(v)+", "+units.Percent(v.Share)+" of the time")
		for _, e := range words.Evidence(v) {
			list.add("", e)
		}
		for j := range v.Remedies {
			list.add("", "remedy: "+words.Remedy(&v.Remedies[j], v.Host)+words.Expected(&v.Remedies[j]))
		}
	}
	return list
}

func explainCharts(r *explain.Report) (charts []chart.Chart) {
	n := len(r.Timeline)
	if n < 2 {
		return nil
	}
	over := chart.Elapsed(r.Timeline[n-1].At)
	for _, v := range []struct {
		title, name string
		unit        chart.Unit
		value       func(*explain.Moment) float64
	}{
		{"Goodput", "all connections", chart.Rate, func(m *explain.Moment) float64 { return m.Rate }},
		{"In flight", "all connections", chart.Bytes, func(m *explain.Moment) float64 { return float64(m.InFlight) }},
		{"Round trip", "the longest", chart.Seconds, func(m *explain.Moment) float64 { return m.RTT }},
	} {
		s := chart.Series{Name: v.name}
		for i := range r.Timeline {
			s.Points = append(s.Points, chart.Value{At: r.Timeline[i].At, Value: v.value(&r.Timeline[i])})
		}
		if c, ok := chart.Draw(v.title, v.unit, over, s); ok {
			charts = append(charts, c)
		}
	}
	return charts
}
