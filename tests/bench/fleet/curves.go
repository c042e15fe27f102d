package main

import (
	"fmt"
	"math"
	"strings"
)

// curve is a line of a chart.
type curve struct {
	name string
	x, y []float64
}

// curveColors can be distinguished on white and on black, and by people who do not see red and green.
var curveColors = []string{"#1f77d0", "#e08a1e", "#2a9d8f", "#b0589e", "#8d6e63", "#c9a800"}

const (
	chartWidth, chartHeight       = 860, 420
	plotLeft, plotRight           = 90, 20
	plotTop, plotBottom           = 80, 50
	plotWidth                     = chartWidth - plotLeft - plotRight
	plotHeight                    = chartHeight - plotTop - plotBottom
	legendX, legendY, legendSpace = 20, 56, 28
)

// drawCurves draws curves over logarithmic axes as a self-contained SVG. showX and showY name the
// powers of ten at the axes.
func drawCurves(title, about string, showX, showY func(float64) string, curves []curve) string {
	left, right, low, high := math.Inf(1), 0.0, math.Inf(1), 0.0
	for _, c := range curves {
		for i := range c.x {
			left, right = min(left, c.x[i]), max(right, c.x[i])
			low, high = min(low, c.y[i]), max(high, c.y[i])
		}
	}
	low, high = math.Floor(math.Log10(low)+1e-9), math.Ceil(math.Log10(high)-1e-9)
	if high == low {
		high++
	}
	left, right = math.Log10(left), math.Log10(right)
	atX := func(x float64) float64 { return plotLeft + (math.Log10(x)-left)/(right-left)*plotWidth }
	atY := func(y float64) float64 { return plotTop + (high-math.Log10(y))/(high-low)*plotHeight }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">
<style>
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-size: 16px; font-weight: 600; }
line { stroke: #8b949e; stroke-opacity: .35; }
polyline { fill: none; stroke-width: 2.5; stroke-linejoin: round; }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3; } }
</style>
<text class="title" x="20" y="26">%s</text>
`, chartWidth, chartHeight, chartWidth, chartHeight, title, title)
	for e := math.Ceil(left - 1e-9); e <= right+1e-9; e++ {
		x := atX(math.Pow(10, e))
		fmt.Fprintf(&b, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
			x, plotTop, x, plotTop+plotHeight, x, plotTop+plotHeight+17, showX(math.Pow(10, e)))
	}
	for e := low; e <= high; e++ {
		y := atY(math.Pow(10, e))
		fmt.Fprintf(&b, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
			plotLeft, y, plotLeft+plotWidth, y, plotLeft-8, y+4, showY(math.Pow(10, e)))
	}
	fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", plotLeft+plotWidth/2, chartHeight-8, about)
	x := legendX
	for i, c := range curves {
		color := curveColors[i%len(curveColors)]
		fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"11\" height=\"11\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n", x, legendY-10, color, x+16, legendY, c.name)
		x += legendSpace + 7*len([]rune(c.name))
		var points []string
		for i := range c.x {
			points = append(points, fmt.Sprintf("%.1f,%.1f", atX(c.x[i]), atY(c.y[i])))
		}
		fmt.Fprintf(&b, "<polyline stroke=\"%s\" points=\"%s\"/>\n", color, strings.Join(points, " "))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
