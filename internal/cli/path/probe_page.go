package path

import (
	"io"
	"strings"

	"github.com/fxfer/fxfer/internal/cli/chart"
	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

var probePage = chart.Page("probe", `<title>fxfer probe {{.Server}}</title>{{template "style"}}</head>
<body><h1>{{.Server}}</h1>
{{template "charts" .Charts}}<h2>Report</h2><pre>{{.Text}}</pre></body></html>
`)

// plotProbe draws goodput and round-trip times over time.
func plotProbe(w io.Writer, series []probe.Point) {
	if len(series) < 2 {
		return
	}
	chart.Plot(w, "up", series, func(p *probe.Point) float64 { return p.Up }, units.Rate)
	chart.Plot(w, "down", series, func(p *probe.Point) float64 { return p.Down }, units.Rate)
	chart.Plot(w, "round trip", series, func(p *probe.Point) float64 { return p.RTT }, units.Seconds)
	chart.Axis(w, " "+units.Seconds(series[len(series)-1].At))
}

// writeProbePage writes the report as an HTML page.
func writeProbePage(w io.Writer, r *fxfer.ProbeReport) error {
	var text strings.Builder
	printProbe(&text, r)
	at := func(p *probe.Point) float64 { return p.At }
	goodput := chart.Of("Goodput", units.Rate, r.Series, at,
		chart.Line[probe.Point]{Class: "up", Name: "up", Value: func(p *probe.Point) float64 { return p.Up }},
		chart.Line[probe.Point]{Class: "down", Name: "down", Value: func(p *probe.Point) float64 { return p.Down }})
	rtt := chart.Of("Round trip", units.Seconds, r.Series, at,
		chart.Line[probe.Point]{Class: "rtt", Name: "median of each 100 ms", Value: func(p *probe.Point) float64 { return p.RTT }})
	return probePage.Execute(w, struct {
		Server, Text string
		Charts       []chart.Chart
	}{r.Server, text.String(), []chart.Chart{goodput, rtt}})
}
