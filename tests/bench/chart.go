package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// axis describes what the bars of a chart mean.
func (m measure) axis() string {
	switch m {
	case roundTrips:
		return "Whole command in round trips, shorter is better"
	case hostCost:
		return "GB/s of payload, longer is better"
	case treeTime, narrowTime:
		return "Speed, the fastest of each row being 1, longer is better"
	case goodput, transports:
	}
	return "Share of what the line can carry, longer is better"
}

// barColors can be distinguished on white and on black, and by people who do not see red and green.
var barColors = map[string]string{
	iperfName: "#9aa0a6", fxferName: "#1f77d0", fxferNetAdminName: "#7fb2e5", fxferAutoName: "#7fb2e5", fxferQUICName: "#1f77d0", fxferTCPName: "#e08a1e", "tar": "#d1495b",
	"lftp": "#e08a1e", "rsync": "#b0589e", "scp": "#2a9d8f", "smbclient": "#8d6e63", "rclone": "#c9a800",
}

type bar struct {
	name  string
	value float64
	label string
}

// bars returns the bars of a row, in the order of the table.
func (m measure) bars(r *result, names []string) []bar {
	var bars []bar
	fastest := math.Inf(1)
	for i := range r.tools {
		if s := r.tools[i].seconds(); s > 0 {
			fastest = min(fastest, s)
		}
	}
	add := func(name string, v float64, about string) {
		b := bar{name, v, about + m.show(v)}
		switch m {
		case goodput, transports:
			if r.limit == 0 { // without a line there is no limit
				b.value = fastest / (float64(r.load.bytes()) * 8 / v)
				break
			}
			b.value = v / r.limit
			b.label = fmt.Sprintf("%s%.2f", about, b.value)
		case treeTime, narrowTime:
			b.value = fastest / v
		case roundTrips, hostCost:
		}
		bars = append(bars, b)
	}
	if m == goodput && r.best.rate() > 0 {
		add("iperf3", r.best.rate(), "")
	}
	for _, name := range names {
		if o := r.tool(name); o != nil && len(o.runs) > 0 {
			about := ""
			if o.projected() {
				about = "≈ "
			}
			add(name, m.value(r, o), about)
		}
	}
	return bars
}

const (
	chartWidth = 860
	chartLeft  = 20
	chartBars  = 690 // width of the longest bar
	barHeight  = 13
	barStep    = 15
)

// renderChart returns a bar chart of the results as a self-contained SVG. It is readable on light
// and dark backgrounds.
func renderChart(g *grid, results []result) string {
	names := columns(results)
	var rows []barRow
	for i := range results {
		rows = append(rows, barRow{results[i].name, g.measure.bars(&results[i], names)})
	}
	return drawBars(g.title+": "+g.measure.axis(), append([]string{iperfName}, names...), barColors, rows)
}

// barRow is a group of bars below a title.
type barRow struct {
	title string
	bars  []bar
}

// drawBars draws rows of bars as a self-contained SVG. The legend has the names that occur.
func drawBars(title string, names []string, colors map[string]string, rows []barRow) string {
	top := 0.0
	used := map[string]bool{}
	for _, r := range rows {
		for _, b := range r.bars {
			top = max(top, b.value)
			used[b.name] = true
		}
	}
	step := tick(top)
	span := max(step, math.Ceil(top/step-1e-9)*step)

	var legend strings.Builder
	x, y := chartLeft, 52
	for _, name := range names {
		if !used[name] {
			continue
		}
		width := 26 + 7*len(name)
		if x+width > chartWidth-chartLeft {
			x, y = chartLeft, y+18
		}
		fmt.Fprintf(&legend, "<rect x=\"%d\" y=\"%d\" width=\"11\" height=\"11\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
			x, y-10, colors[name], x+16, y, escape(name))
		x += width
	}
	first := y + 16
	var body strings.Builder
	y = first
	for _, r := range rows {
		y += 18
		fmt.Fprintf(&body, "<text class=\"row\" x=\"%d\" y=\"%d\">%s</text>\n", chartLeft, y, escape(r.title))
		y += 6
		for _, b := range r.bars {
			width := max(1, b.value/span*chartBars)
			fmt.Fprintf(&body, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"><title>%s: %s</title></rect>",
				chartLeft, y, width, barHeight, colors[b.name], escape(b.name), escape(b.label))
			fmt.Fprintf(&body, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", chartLeft+width+5, y+11, escape(b.label))
			y += barStep
		}
		y += 6
	}
	var lines strings.Builder
	for v := 0.0; v <= span+step/2; v += step {
		at := chartLeft + v/span*chartBars
		fmt.Fprintf(&lines, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.4g</text>\n",
			at, first, at, y, at, y+14, v)
	}
	height := y + 26
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">
<style>
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-size: 16px; font-weight: 600; }
.row { font-weight: 600; }
line { stroke: #8b949e; stroke-opacity: .35; }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3; } }
</style>
<text class="title" x="%d" y="26">%s</text>
%s%s%s</svg>
`, chartWidth, height, chartWidth, height, escape(title), chartLeft, escape(title),
		legend.String(), lines.String(), body.String())
}

// tick returns the distance between the lines of an axis that ends at top: 1, 2 or 5 times a power
// of ten, so that there are 4 to 10 lines.
func tick(top float64) float64 {
	if top <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(top)))
	for _, f := range []float64{0.1, 0.2, 0.5, 1} {
		if top/(unit*f) <= 10 {
			return unit * f
		}
	}
	return unit
}

func escape(s string) string {
	var b strings.Builder
	// A strings.Builder does not fail.
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}
