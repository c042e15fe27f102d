package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// column is a figure in the tables of a sharing.
type column struct {
	title string
	scene int // whose figure it is
	value func(*figures) float64
	show  func(v float64, sc *scene) string
}

var (
	goodputColumn = column{title: "goodput", value: func(f *figures) float64 { return f.goodput }, show: asRate}
	limitColumn   = column{title: ofLimit, value: func(f *figures) float64 { return f.goodput / f.limit }, show: asRatio}
	medianColumn  = column{title: "ping, median", value: func(f *figures) float64 { return f.median }, show: asDelay}
	p99Column     = column{title: "ping, p99", value: func(f *figures) float64 { return f.p99 }, show: asDelay}
	byUsColumn    = column{title: byUs, value: func(f *figures) float64 { return f.byUs }, show: asDelay}
	droppedColumn = column{title: "dropped at the queue", value: func(f *figures) float64 { return f.dropped }, show: asPercent}
	againColumn   = column{title: again, value: func(f *figures) float64 { return f.resent }, show: asPercent}
	udpColumn     = column{title: "2 Mbit/s of UDP loses", value: func(f *figures) float64 { return f.udpLost }, show: asPercent}
	jainColumn    = column{title: "Jain's index", value: func(f *figures) float64 { return f.jain }, show: asRatio}
	yieldColumn   = column{title: "has yielded after", value: func(f *figures) float64 { return f.yields }, show: asTime}
	backColumn    = column{title: "is back after", value: func(f *figures) float64 { return f.back }, show: asTime}
	drainColumn   = column{title: "queue drained after", value: func(f *figures) float64 { return f.drains }, show: asTime}
	regainColumn  = column{title: "full again after", value: func(f *figures) float64 { return f.regains }, show: asTime}
)

// keepsShare is the share of their goodput that flows keep.
func keepsShare(title string, scene int) column {
	return column{title, scene, func(f *figures) float64 { return f.flow / f.flowAlone }, asRatio}
}

// keepsColumn has the goodput of flows alone and beside the player.
func keepsColumn(title string, scene int) column {
	return column{title: title, scene: scene, value: func(f *figures) float64 { return f.flow }}
}

func beside(title string, scene int) column {
	return column{title, scene, func(f *figures) float64 { return f.goodput }, asRate}
}

func othersDropped(title string, scene int) column {
	return column{title, scene, func(f *figures) float64 { return f.othersDropped }, asPercent}
}

func asRate(v float64, _ *scene) string    { return showRate(v) }
func asRatio(v float64, _ *scene) string   { return fmt.Sprintf("%.3f", v) }
func asPercent(v float64, _ *scene) string { return fmt.Sprintf("%.2f %%", 100*v) }
func asTime(v float64, _ *scene) string    { return fmt.Sprintf("%.1f s", v) }

// asDelay shows a delay, and how much of the round trip that is.
func asDelay(v float64, sc *scene) string {
	return fmt.Sprintf("%+.1f ms (%.0f %%)", 1000*v, 100*v/sc.link.RTT.Seconds())
}

// of returns the median of a column over the runs, or NaN if there are none.
func (c *column) of(r *sharedResult) float64 { return medianOf(r.takes[c.scene], c.value) }

func medianOf(runs []figures, value func(*figures) float64) float64 {
	if len(runs) == 0 {
		return math.NaN()
	}
	var all []float64
	for i := range runs {
		all = append(all, value(&runs[i]))
	}
	return median(all)
}

// cell returns the figure of a row, with a mark and the goal if the row misses that.
func (c *column) cell(r *sharedResult) string {
	v := c.of(r)
	sc := &r.row.scenes[c.scene]
	var text string
	switch {
	case math.IsNaN(v):
		return "–"
	case math.IsInf(v, 1):
		text = "never"
	case c.show == nil:
		text = showRate(medianOf(r.takes[c.scene], func(f *figures) float64 { return f.flowAlone })) + " → " + showRate(v)
	default:
		text = c.show(v, sc)
	}
	for _, want := range r.row.goals {
		if want.column == c.title && !want.met(v) {
			sign := "≥"
			if want.most {
				sign = "≤"
			}
			text += fmt.Sprintf(" ✗ (%s %s)", sign, c.show(want.bound, sc))
		}
	}
	return text
}

// sharedSection returns the Markdown of a grid. Its rows are those measured now, in reps runs each, and
// otherwise those of an older section, so that a page can be measured in parts. The page of neighbours has
// a chart, so it has those measured now alone.
func sharedSection(g *sharing, m *machine, results []sharedResult, reps int, old string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n", g.title, g.about)
	older := olderRows(old)
	if g.page == neighboursPage {
		older = nil
		fmt.Fprintf(&b, "\n![%s](%s)\n\nIn short, for an office:\n", officeAxis, officeChartName)
		sharedTables(&b, g.rows, officeColumns, results, "", nil)
		b.WriteString("\nAll figures:\n")
	}
	measured := fmt.Sprintf("%s, %d×", m.date.Format("2 January"), reps)
	sharedTables(&b, g.rows, g.columns, results, measured, older)
	if failed := sharedFailures(results); len(failed) > 0 {
		fmt.Fprintf(&b, "\nNot measured:\n\n%s", bullets(failed))
	}
	fmt.Fprintf(&b, "\nThe figures are medians of the runs. The newest rows: %s\n", m)
	return b.String()
}

// olderRows returns the cells of the rows in Markdown, by their names.
func olderRows(section string) map[string][]string {
	rows := map[string][]string{}
	for line := range strings.Lines(section) {
		if cells, isRow := strings.CutPrefix(strings.TrimSpace(line), "| "); isRow {
			row := strings.Split(strings.TrimSuffix(cells, " |"), " | ")
			rows[row[0]] = row
		}
	}
	return rows
}

// sharedTables writes a table for each group of rows. The last column says when they were measured,
// unless that is empty. A row that failed is the older one, if there is one.
func sharedTables(b *strings.Builder, rows []sharedRow, columns []column, results []sharedResult, measured string, older map[string][]string) {
	for len(rows) > 0 {
		n := 0
		head := []string{rows[0].group}
		for _, c := range columns {
			head = append(head, c.title)
		}
		if measured != "" {
			head = append(head, "measured")
		}
		lines := [][]string{head}
		for ; n < len(rows) && rows[n].group == rows[0].group; n++ {
			i := slices.IndexFunc(results, func(r sharedResult) bool { return r.row.fullName() == rows[n].fullName() })
			kept := older[rows[n].name]
			switch {
			case i >= 0 && (results[i].failed == nil || kept == nil):
				line := []string{rows[n].name}
				for _, c := range columns {
					line = append(line, c.cell(&results[i]))
				}
				if measured != "" {
					line = append(line, measured)
				}
				lines = append(lines, line)
			case kept != nil:
				lines = append(lines, kept)
			}
		}
		if len(lines) > 1 {
			b.WriteString("\n")
			table(b, lines)
		}
		rows = rows[n:]
	}
}

// sharedFailures lists why rows were not measured, each reason once with its rows.
func sharedFailures(results []sharedResult) []string {
	var order []string
	rows := map[string][]string{}
	for i := range results {
		if err := results[i].failed; err != nil {
			if rows[err.Error()] == nil {
				order = append(order, err.Error())
			}
			rows[err.Error()] = append(rows[err.Error()], results[i].row.fullName())
		}
	}
	for i, reason := range order {
		order[i] = fmt.Sprintf("%s: %s", strings.Join(rows[reason], "; "), reason)
	}
	return order
}

const (
	neighboursIntro = `# Neighbours on a line

` + "`go run ./tests/bench -grid neighbours`" + `, run as root on one machine, writes this page. Both hosts are
network namespaces, joined by the emulated line of ` + "`fxfer lab`" + `, with a drop-tail queue of one
bandwidth-delay product. All who send run as an ordinary user. rsync and lftp don't encrypt.

- **goodput**: payload that arrived in the time of the scene, slow start included.
- **ping**: how much longer a ping takes than on the idle line, and how much of the round trip that
  is.
- **dropped at the queue**: the share of the sender's segments that the queue dropped.
- **sent again**: the share of segments that the sender's kernel sent again.
- **A flow keeps**: its goodput alone → beside the sender, at the same age.
- **its drops**: the share of the flow's segments that the queue dropped.

` + "`-rows REGEXP`" + ` measures some rows, and leaves the others out.
`
	windowIntro = `# The path window

` + "`go run ./tests/bench -grid window`" + `, run as root on one machine, writes this page. Both hosts are
network namespaces, joined by the emulated line of ` + "`fxfer lab`" + `. Its drop-tail queue holds one
bandwidth-delay product (BDP), unless the row says otherwise. fxfer runs as an ordinary user, cold,
and without other flags than those that a row names. The limit is what TCP can carry: 1448 of 1538
bytes on the wire.

- **ping**: how much longer a ping takes than on the idle line, and how much of the round trip that
  is.
- **sent again**: the share of segments that the sender's kernel, or QUIC, sent again.
- **dropped at the queue**: the share of fxfer's segments that the queue dropped.
- **keeps**: the goodput of the others beside fxfer, as a share of what they get alone.
- **delay by fxfer**: by how much the median ping is longer than with the others alone.
- **Jain's index** of the sessions' goodput, after 10 s.
- **✗** misses the goal in brackets.
- **measured**: the day, and how many runs.

` + "`-rows REGEXP`" + ` measures some rows again; the others stay as they are.
`
	officeChartName = "neighbours.svg"
	officeAxis      = "What one who sends takes of an idle line, and what flows keep beside it, as a share of what they get alone"
)

// officeColumns are the figures of greatest interest.
var officeColumns = []column{
	goodputColumn, {title: "ping beside it", value: medianColumn.value, show: asDelay}, droppedColumn, keepsColumn("a cubic flow that was there first", 1),
}

// officeColors are those of the bars of officeChart.
var officeColors = map[string]string{"its share of an idle line": "#1f77d0", "a cubic flow keeps": "#2a9d8f", "a BBR flow keeps": "#c9a800"}

// officeChart shows each row of the neighbours as three bars.
func officeChart(results []sharedResult) string {
	kinds := []struct {
		name   string
		column column
	}{
		{"its share of an idle line", column{value: limitColumn.value}}, {"a cubic flow keeps", keepsShare("", 1)}, {"a BBR flow keeps", keepsShare("", 2)},
	}
	var rows []barRow
	for i := range results {
		r := &results[i]
		row := barRow{title: r.row.fullName()}
		if v := medianColumn.of(r); !math.IsNaN(v) {
			row.title += fmt.Sprintf(": %+.1f ms, %.2f %% dropped", 1000*v, 100*droppedColumn.of(r))
		}
		for _, k := range kinds {
			if v := k.column.of(r); !math.IsNaN(v) {
				row.bars = append(row.bars, bar{k.name, v, fmt.Sprintf("%.2f", v)})
			}
		}
		rows = append(rows, row)
	}
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return drawBars(officeAxis, names, officeColors, rows)
}
