package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/internal/units"
)

const (
	plotWidth  = 66
	plotHeight = 5
)

var eighths = []rune(" ▁▂▃▄▅▆▇█")

// plotProbe draws goodput and round trips over time.
func plotProbe(w io.Writer, series []probe.Point) {
	if len(series) < 2 {
		return
	}
	for _, p := range []struct {
		name  string
		value func(*probe.Point) float64
		show  func(float64) string
	}{
		{"up", func(p *probe.Point) float64 { return p.Up }, units.Rate},
		{"down", func(p *probe.Point) float64 { return p.Down }, units.Rate},
		{"round trip", func(p *probe.Point) float64 { return p.RTT }, units.Seconds},
	} {
		columns, top := squeeze(series, p.value)
		if top == 0 {
			continue
		}
		for i, row := range plotRows(columns, top) {
			label := ""
			switch i {
			case 0:
				label = p.show(top)
			case plotHeight - 1:
				label = p.name
			}
			fmt.Fprintf(w, "%12s │%s\n", label, row)
		}
	}
	fmt.Fprintf(w, "%12s └%s %s\n", "", strings.Repeat("─", plotWidth), units.Seconds(series[len(series)-1].At))
}

// squeeze returns the largest values of as many columns as are drawn, and the largest of all.
func squeeze[T any](series []T, value func(*T) float64) (columns []float64, top float64) {
	columns = make([]float64, plotWidth)
	for i := range columns {
		from, to := i*len(series)/plotWidth, (i+1)*len(series)/plotWidth
		for k := from; k < max(to, from+1) && k < len(series); k++ {
			columns[i] = max(columns[i], value(&series[k]))
		}
		top = max(top, columns[i])
	}
	return columns, top
}

// plotRows returns the rows of a chart, the uppermost first. Whatever is not 0 shows.
func plotRows(columns []float64, top float64) []string {
	rows := make([]string, plotHeight)
	for r := range rows {
		var b strings.Builder
		for _, v := range columns {
			level := v/top*plotHeight*8 - float64((plotHeight-1-r)*8)
			if r == plotHeight-1 && v > 0 {
				level = max(level, 1)
			}
			b.WriteRune(eighths[int(min(max(level, 0), 8))])
		}
		rows[r] = strings.TrimRight(b.String(), " ")
	}
	return rows
}
