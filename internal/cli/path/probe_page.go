package path

import (
	"io"
	"time"

	"github.com/fxfer/fxfer/internal/cli/chart"
	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

var probePage = chart.Page("probe", `<title>fxfer probe {{.Server}}</title>{{template "style"}}</head>
<body>{{define "rows"}}<dl>{{range .}}<dt>{{.Name}}</dt><dd>{{.Text}}</dd>{{end}}</dl>{{end}}
<h1>Path to {{.Server}}</h1>
<p class="quiet">Measured {{.Ended}}. Up is from this host to the server.</p>
{{template "rows" .Conclusions}}
{{template "charts" .Charts}}<h2>Measurements</h2>
{{template "rows" .Measurements}}
{{range .Exchanges}}<h2>{{.Title}}</h2>
<div class="sheet" tabindex="0" role="region" aria-label="{{.Title}}"><table><thead><tr><th></th><th class="group" colspan="4" scope="colgroup">one write</th><th class="group" colspan="4" scope="colgroup">header and body in two</th></tr>
<tr><th scope="col">message</th>{{range $.Sides}}<th class="number" scope="col">{{.}}</th>{{end}}{{range $.Sides}}<th class="number" scope="col">{{.}}</th>{{end}}</tr></thead>
<tbody>{{range .Rows}}<tr>{{range $i, $c := .}}<td{{if $i}} class="number"{{end}}>{{$c}}</td>{{end}}</tr>
{{end}}</tbody></table></div>
{{end}}{{range .Sheets}}<h2>{{.Title}}</h2>
<div class="sheet" tabindex="0" role="region" aria-label="{{.Title}}"><table><thead><tr><th></th>{{range .Columns}}<th class="number" scope="col">{{.}}</th>{{end}}</tr></thead>
<tbody>{{range .Rows}}<tr>{{range $i, $c := .}}<td{{if $i}} class="number"{{end}}>{{$c}}</td>{{end}}</tr>
{{end}}</tbody></table></div>
{{end}}{{template "rows" .Remarks}}</body></html>
`)

// plotProbe draws goodput and round-trip times over time.
func plotProbe(w io.Writer, series []probe.Point) {
	if len(series) < 2 {
		return
	}
	chart.Plot(w, "up", series, func(p *probe.Point) float64 { return p.Up }, chart.Rate)
	chart.Plot(w, "down", series, func(p *probe.Point) float64 { return p.Down }, chart.Rate)
	chart.Plot(w, "round trip", series, func(p *probe.Point) float64 { return p.RTT }, chart.Seconds)
	chart.Axis(w, units.Seconds(series[len(series)-1].At))
}

// writeProbePage writes the report of a probe that ended at that time as an HTML page.
func writeProbePage(w io.Writer, r *fxfer.ProbeReport, ended time.Time) error {
	series := func(name string, value func(*probe.Point) float64) chart.Series {
		s := chart.Series{Name: name}
		for i := range r.Series {
			s.Points = append(s.Points, chart.Value{At: r.Series[i].At, Value: value(&r.Series[i])})
		}
		return s
	}
	var charts []chart.Chart
	if n := len(r.Series); n > 0 {
		over := chart.Elapsed(r.Series[n-1].At)
		if c, ok := chart.Draw("Goodput", chart.Rate, over, series("up", func(p *probe.Point) float64 { return p.Up }), series("down", func(p *probe.Point) float64 { return p.Down })); ok {
			charts = append(charts, c)
		}
		if c, ok := chart.Draw("Round trip", chart.Seconds, over, series("median of each 100 ms", func(p *probe.Point) float64 { return p.RTT })); ok {
			charts = append(charts, c)
		}
	}
	short, long := exchanges(r), []sheet(nil)
	if whole(r) {
		short, long = nil, sheets(r)
	}
	return probePage().Execute(w, struct {
		Server, Ended                      string
		Charts                             []chart.Chart
		Conclusions, Measurements, Remarks rows
		Exchanges                          []exchange
		Sheets                             []sheet
		Sides                              []string
	}{r.Server, ended.Format("2006-01-02 15:04 MST"), charts, conclusions(r), measurements(r), remarks(r), short, long, sides})
}
