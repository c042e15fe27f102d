package cli

import (
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// pageParts are what pages share. They need nothing from elsewhere and run no script.
var pageParts = template.Must(template.New("parts").Parse(`{{define "style"}}<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}pre{overflow-x:auto;background:#f6f6f6;padding:1em}
svg{width:100%;height:auto}text{font:12px sans-serif;fill:#555}.axis{stroke:#bbb}.up,.down,.rtt{fill:none;stroke-width:1.5}
.up{stroke:#1769aa}.down{stroke:#b3541e}.rtt{stroke:#3a7d34}
polyline{stroke-linecap:round}table{border-collapse:collapse;font-size:13px}td,th{padding:.2em .6em;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}
td:first-child,th:first-child,td:last-child{text-align:left}td:last-child{white-space:normal}.bad{color:#b00020}</style>{{end}}
{{define "charts"}}{{range .}}<h2>{{.Title}}</h2>
<svg viewBox="0 0 800 220" role="img" aria-label="{{.Title}}"><line class="axis" x1="60" y1="190" x2="790" y2="190"/><line class="axis" x1="60" y1="10" x2="60" y2="190"/>
<text x="55" y="18" text-anchor="end">{{.Top}}</text><text x="55" y="190" text-anchor="end">0</text><text x="790" y="208" text-anchor="end">{{.End}}</text><text x="60" y="208">{{.Start}}</text>
{{range .Lines}}<polyline class="{{.Class}}" points="{{.Points}}"/><text x="{{.At}}" y="208" class="{{.Class}}-label">{{.Name}}</text>
{{end}}</svg>
{{end}}{{end}}`))

var probePage = page("probe", `<title>fxfer probe {{.Server}}</title>{{template "style"}}</head>
<body><h1>{{.Server}}</h1>
{{template "charts" .Charts}}<h2>Report</h2><pre>{{.Text}}</pre></body></html>
`)

// page makes a page with the shared parts.
func page(name, text string) *template.Template {
	parts := template.Must(pageParts.Clone())
	return template.Must(parts.New(name).Parse("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">" + text))
}

type pageChart struct {
	Title, Top, Start, End string
	Lines                  []pageLine
}

type pageLine struct {
	Class, Name, Points string
	At                  int
}

// writeProbePage writes the report as a page of its own.
func writeProbePage(w io.Writer, r *fxfer.ProbeReport) error {
	var text strings.Builder
	printProbe(&text, r)
	at := func(p *probe.Point) float64 { return p.At }
	goodput := pageChartOf("Goodput", units.Rate, r.Series, at,
		drawn[probe.Point]{"up", "up", func(p *probe.Point) float64 { return p.Up }},
		drawn[probe.Point]{"down", "down", func(p *probe.Point) float64 { return p.Down }})
	rtt := pageChartOf("Round trip", units.Seconds, r.Series, at,
		drawn[probe.Point]{"rtt", "median of each 100 ms", func(p *probe.Point) float64 { return p.RTT }})
	return probePage.Execute(w, struct {
		Server, Text string
		Charts       []pageChart
	}{r.Server, text.String(), []pageChart{goodput, rtt}})
}

// drawn is a line of a chart.
type drawn[T any] struct {
	class, name string
	value       func(*T) float64
}

// pageChartOf draws lines over at, which begins at 0 and is in seconds.
func pageChartOf[T any](title string, show func(float64) string, series []T, at func(*T) float64, lines ...drawn[T]) pageChart {
	c := pageChart{Title: title}
	var top, end float64
	for i := range series {
		end = max(end, at(&series[i]))
		for _, l := range lines {
			top = max(top, l.value(&series[i]))
		}
	}
	if top <= 0 || end <= 0 {
		return c
	}
	c.Top, c.End = show(top), units.Seconds(end)
	for i, l := range lines {
		var points strings.Builder
		for k := range series {
			fmt.Fprintf(&points, "%.1f,%.1f ", 60+730*at(&series[k])/end, 190-180*l.value(&series[k])/top)
		}
		c.Lines = append(c.Lines, pageLine{l.class, l.name, points.String(), 60 + 200*i})
	}
	return c
}
