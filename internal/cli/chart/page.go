package chart

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/fxfer/fxfer/internal/units"
)

// pageParts are the templates that all pages share. A page loads nothing else and runs no script.
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

// Page makes the template of a whole page. The text begins inside <head>, and may use the templates
// "style" and "charts".
func Page(name, text string) *template.Template {
	parts := template.Must(pageParts.Clone())
	return template.Must(parts.New(name).Parse("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">" + text))
}

// Chart is a drawing of lines over time on an HTML page.
type Chart struct {
	Title, Top, Start, End string
	Lines                  []pageLine
}

type pageLine struct {
	Class, Name, Points string
	At                  int
}

// Line is one value of a series.
type Line[T any] struct {
	Class, Name string // the CSS class, and the name in the legend
	Value       func(*T) float64
}

// Of draws lines of a series over time. The function at returns the time of a point in seconds,
// counted from 0. If no value is above 0, the chart has no lines.
func Of[T any](title string, show func(float64) string, series []T, at func(*T) float64, lines ...Line[T]) Chart {
	c := Chart{Title: title}
	var top, end float64
	for i := range series {
		end = max(end, at(&series[i]))
		for _, l := range lines {
			top = max(top, l.Value(&series[i]))
		}
	}
	if top <= 0 || end <= 0 {
		return c
	}
	c.Top, c.End = show(top), units.Seconds(end)
	for i, l := range lines {
		var points strings.Builder
		for k := range series {
			fmt.Fprintf(&points, "%.1f,%.1f ", 60+730*at(&series[k])/end, 190-180*l.Value(&series[k])/top)
		}
		c.Lines = append(c.Lines, pageLine{l.Class, l.Name, points.String(), 60 + 200*i})
	}
	return c
}
