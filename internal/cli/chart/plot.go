// Package chart draws measurements: as text on a terminal and as SVG on a page.
package chart

import (
	"fmt"
	"io"
	"strings"
)

// Width is the number of columns of a plot on a terminal, without its labels.
const Width = 66

const height = 5

var eighths = []rune(" ▁▂▃▄▅▆▇█")

// Plot draws one value of a series on a terminal. The labels are the top of the scale and the name.
// Larger values, if there are some, have an arrow, and the largest is the second label. Plot draws
// nothing if all values are 0.
func Plot[T any](w io.Writer, name string, series []T, value func(*T) float64, unit Unit) {
	columns := squeeze(series, value)
	top, most := scale(columns)
	if top == 0 {
		return
	}
	labels := [height]string{0: unit.show(top), height - 1: name}
	if most > top {
		labels[1] = "↑" + unit.show(most)
	}
	for i, row := range rows(columns, top) {
		fmt.Fprintf(w, "%12s │%s\n", labels[i], row)
	}
}

// Axis draws the time axis below plots. It ends with a text, which may be empty.
func Axis(w io.Writer, end string) {
	if end != "" {
		end = " " + end
	}
	fmt.Fprintf(w, "%12s └%s%s\n", "", strings.Repeat("─", Width-len(end)), end)
}

// squeeze returns the largest value for each column.
func squeeze[T any](series []T, value func(*T) float64) []float64 {
	columns := make([]float64, Width)
	for i := range columns {
		from, to := i*len(series)/Width, (i+1)*len(series)/Width
		for k := from; k < max(to, from+1) && k < len(series); k++ {
			columns[i] = max(columns[i], value(&series[k]))
		}
	}
	return columns
}

// rows returns the rows of a plot, uppermost first. Every value above 0 is visible.
func rows(columns []float64, top float64) []string {
	text := make([]string, height)
	for r := range text {
		var b strings.Builder
		for _, v := range columns {
			level := v/top*height*8 - float64((height-1-r)*8)
			if r == height-1 && v > 0 {
				level = max(level, 1)
			}
			if r == 0 && v > top {
				b.WriteRune('↑')
				continue
			}
			b.WriteRune(eighths[int(min(max(level, 0), 8))])
		}
		text[r] = strings.TrimRight(b.String(), " ")
	}
	return text
}
