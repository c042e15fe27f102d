package main

import (
	"fmt"
	"slices"
	"strings"
)

const intro = `# Benchmarks

` + "`go run ./tests/bench`" + `, run as root on one machine, writes this page. Both hosts are network
namespaces, joined by the emulated line of ` + "`fxfer lab`" + `. The line costs processor time, and has a
drop-tail queue of one bandwidth-delay product. Everything runs as an ordinary user without
capabilities, except for the column that says so.

- **limit**: what TCP can carry, 1448 of 1538 bytes on the wire.
- **iperf3**: the best of 1, 4, 8, 16 and 32 streams, on the same line in the same run. It counts
  what arrived after the slow start, and data that had arrived out of order before. That can make it
  a little more than the limit.
- **fxfer**: the whole command from process start to exit, cold: it knows nothing about the path.
  Files are encrypted, checked, synced and committed. The printed digests are compared with those of
  ` + "`b3sum`" + `.
- **others**: the whole command, with the settings that were best for it. A command that would take
  more than 1.1 times fxfer's time isn't repeated, and is stopped after 5 s, unless it is near its
  end. Its time is then projected from the rate in the second half of that (≈).

Figures are medians. Contenders take turns. Files are in memory, which is warm. The best of fxfer
and the others is bold.
`

// beginMark and endMark enclose the section of a grid, so that each grid can be measured again
// alone.
func beginMark(g string) string { return "<!-- " + g + ": generated, begin -->" }
func endMark(g string) string   { return "<!-- " + g + ": generated, end -->" }

// replaceSection returns the document with the section of one grid replaced, and with this intro. If the document lacks
// sections or is empty, they are added in the order of all. Text written by hand below the last
// section stays there.
func replaceSection(doc, intro, name, section string, all []string) string {
	sections := map[string]string{}
	own := ""
	for _, g := range all {
		if text, below, found := cutSection(doc, g); found {
			sections[g] = text
			own = below // in the end, of the last section
		}
	}
	sections[name] = strings.Trim(section, "\n")
	var b strings.Builder
	b.WriteString(intro)
	for _, g := range all {
		if text := sections[g]; text != "" {
			fmt.Fprintf(&b, "\n%s\n\n%s\n\n%s\n", beginMark(g), text, endMark(g))
		}
	}
	if own = strings.Trim(own, "\n"); own != "" {
		b.WriteString("\n" + own + "\n")
	}
	return b.String()
}

// cutSection returns the section of a grid in a document, and what is below it.
func cutSection(doc, name string) (section, below string, found bool) {
	_, rest, found := strings.Cut(doc, beginMark(name))
	if !found {
		return "", "", false
	}
	section, below, found = strings.Cut(rest, endMark(name))
	return strings.Trim(section, "\n"), below, found
}

// chartName is the file name of the chart of a grid, beside the document.
func chartName(grid string) string { return "benchmarks-" + grid + ".svg" }

// renderSection returns the Markdown of a measured grid.
func renderSection(g *grid, m *machine, results []result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n\n![%s](%s)\n\n", g.title, g.about, g.measure.axis(), chartName(g.name))
	table(&b, g.measure.table(results))
	if lost := losses(g.measure, results); len(lost) > 0 {
		fmt.Fprintf(&b, "\nWhere fxfer is not the best:\n\n%s", bullets(lost))
	}
	if details := detailTable(results); len(details) > 1 {
		b.WriteString("\nfxfer in detail, as an ordinary user. Memory is the most that was resident; the receiver's is over all rows on the same hosts:\n\n")
		table(&b, details)
	}
	if failed := failures(results); len(failed) > 0 {
		fmt.Fprintf(&b, "\nNot measured:\n\n%s", bullets(failed))
	}
	b.WriteString("\nCommands and settings:\n\n")
	b.WriteString(bullets(commands(results)))
	fmt.Fprintf(&b, "\n%s\n", m)
	return b.String()
}

func table(b *strings.Builder, rows [][]string) {
	for i, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(b, "| --- |%s\n", strings.Repeat(" ---: |", len(row)-1))
		}
	}
}

func bullets(lines []string) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "- %s\n", l)
	}
	return b.String()
}

// value returns the figure by which o is compared: bit/s, RTTs, GB/s, or seconds.
func (m measure) value(r *result, o *outcome) float64 {
	s := o.seconds()
	switch {
	case s == 0:
		return 0
	case m == roundTrips:
		return s / r.rtt.Seconds()
	case m == hostCost:
		return float64(r.load.bytes()) / gb / s
	case m == treeTime, m == narrowTime:
		return s
	}
	return float64(r.load.bytes()) * 8 / s
}

// better reports whether a is better than b. 0 means that there is no value.
func (m measure) better(a, b float64) bool {
	if a == 0 || b == 0 {
		return b == 0 && a != 0
	}
	if m == roundTrips || m == treeTime || m == narrowTime {
		return a < b
	}
	return a > b
}

func (m measure) show(v float64) string {
	switch m {
	case roundTrips:
		return fmt.Sprintf("%.1f RTT", v)
	case hostCost:
		return fmt.Sprintf("%.2f GB/s", v)
	case treeTime, narrowTime:
		return showSeconds(v)
	case goodput, transports:
	}
	return showRate(v)
}

// cell shows the result of o, the best in bold.
func (m measure) cell(r *result, o *outcome, bold bool) string {
	switch {
	case o == nil:
		return ""
	case len(o.runs) == 0:
		return "–"
	}
	text := m.show(m.value(r, o))
	switch m {
	case hostCost:
		text += fmt.Sprintf(", %.2f CPU s/GB", o.cpu()/(float64(r.load.bytes())/gb))
	case treeTime:
		text += fmt.Sprintf(", %s files/s", showCount(int(float64(r.load.files)/o.seconds())))
	case goodput, roundTrips, narrowTime, transports:
	}
	if o.projected() {
		text = "≈ " + text
	}
	if bold {
		text = "**" + text + "**"
	}
	if again := o.again(); again > 0 {
		text += "; again " + showSeconds(again)
	}
	return text
}

// showSeconds formats a time with three digits, or more above 1000 s.
func showSeconds(s float64) string {
	switch {
	case s >= 100:
		return fmt.Sprintf("%.0f s", s)
	case s >= 10:
		return fmt.Sprintf("%.1f s", s)
	}
	return fmt.Sprintf("%.2f s", s)
}

// winner returns the name of the best among fxfer and the peers. fxfer with more privileges or
// other flags does not compete. A row without measured peers has no winner.
func (m measure) winner(r *result) string {
	best, top, rivals := "", 0.0, 0
	for i := range r.tools {
		o := &r.tools[i]
		if o.name == fxferNetAdminName || o.name == fxferAutoName || len(o.runs) == 0 {
			continue
		}
		rivals++
		if v := m.value(r, o); m.better(v, top) {
			best, top = o.name, v
		}
	}
	if rivals < 2 {
		return ""
	}
	return best
}

// columns returns the names of all contenders in the results: first those of fxfer, then the peers
// in their order.
func columns(results []result) []string {
	known := []string{fxferName, fxferAutoName, fxferNetAdminName}
	for _, p := range peers() {
		known = append(known, p.name)
	}
	return slices.DeleteFunc(known, func(name string) bool {
		return !slices.ContainsFunc(results, func(r result) bool { return r.tool(name) != nil })
	})
}

// heading returns the title of a contender's column.
func heading(name string) string {
	for _, p := range peers() {
		if p.name == name && p.clear {
			return name + ", in clear"
		}
	}
	return strings.TrimPrefix(name, "fxfer ")
}

func (m measure) table(results []result) [][]string {
	if m == transports {
		return transportTable(results)
	}
	names := columns(results)
	head := []string{""}
	if m == goodput {
		head = append(head, "limit", "iperf3")
	}
	for _, name := range names {
		head = append(head, heading(name))
		switch {
		case name == fxferName && m == goodput:
			head = append(head, "of the limit", "of iperf3")
		case name == fxferName && m == treeTime:
			head = append(head, "of tar's time")
		case name == fxferName && m == narrowTime:
			head = append(head, "of rsync's time", "fxfer says")
		case name == fxferAutoName:
			head = append(head, "times as fast")
		}
	}
	rows := [][]string{head}
	for i := range results {
		r := &results[i]
		row := []string{r.name}
		if m == goodput {
			row = append(row, showRate(r.limit), r.best.String())
		}
		winner := m.winner(r)
		for _, name := range names {
			o := r.tool(name)
			row = append(row, m.cell(r, o, name == winner))
			switch {
			case name == fxferName && m == goodput:
				row = append(row, m.ratios(r, o)...)
			case name == fxferName && m == treeTime:
				row = append(row, showRatio(o, r.tool("tar")))
			case name == fxferName && m == narrowTime:
				row = append(row, showRatio(o, r.tool("rsync")), said(o))
			case name == fxferAutoName:
				row = append(row, showRatio(r.tool(fxferName), o))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// said lists what fxfer named as the cause of slowness in its runs, each once.
func said(o *outcome) string {
	if o == nil {
		return ""
	}
	var all []string
	for i := range o.runs {
		all = append(all, o.runs[i].summary.says())
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// transportTable has a line for each transport of each row.
func transportTable(results []result) [][]string {
	rows := [][]string{{"", "goodput", "of the limit", "runs", "sender, CPU s/GB", "receiver, CPU s/GB", "streams", "connections", "sent again"}}
	for i := range results {
		r := &results[i]
		for j := range r.tools {
			o := &r.tools[j]
			if len(o.runs) == 0 {
				continue
			}
			size := float64(r.load.bytes())
			perGB := func(seconds func(*run) float64) string { return fmt.Sprintf("%.2f", o.median(seconds)/(size/gb)) }
			share := "–"
			if r.limit > 0 {
				share = fmt.Sprintf("%.3f", transports.value(r, o)/r.limit)
			}
			rows = append(rows, []string{
				r.name + ", " + strings.TrimPrefix(o.name, "fxfer over "), showRate(transports.value(r, o)), share, runTimes(o),
				perGB(func(r *run) float64 { return r.sender }), perGB(func(r *run) float64 { return r.receiver }),
				fmt.Sprint(o.median(func(r *run) float64 { return float64(r.summary.Streams) })),
				fmt.Sprint(o.median(func(r *run) float64 { return float64(r.summary.connections()) })), sentAgain(o),
			})
		}
	}
	return rows
}

// sentAgain is the median share of resent segments, or their number if there is no link.
func sentAgain(o *outcome) string {
	if o.runs[0].sent == 0 {
		return fmt.Sprint(o.median(func(r *run) float64 { return float64(r.summary.Retransmits) }))
	}
	return fmt.Sprintf("%.2f %%", 100*o.median(func(r *run) float64 { return float64(r.summary.Retransmits) / float64(max(1, r.sent)) }))
}

// ratios are those of fxfer to the limit and to the best of iperf3.
func (m measure) ratios(r *result, o *outcome) []string {
	cells := []string{"–", "–"}
	if o == nil || len(o.runs) == 0 {
		return cells
	}
	v := m.value(r, o)
	cells[0] = fmt.Sprintf("%.3f", v/r.limit)
	if best := r.best.rate(); best > 0 {
		cells[1] = fmt.Sprintf("%.3f", v/best)
	}
	return cells
}

// showRatio formats a's time as a multiple of b's. It returns "" if one of them has none.
func showRatio(a, b *outcome) string {
	if a == nil || b == nil || b.seconds() == 0 || a.seconds() == 0 {
		return ""
	}
	return fmt.Sprintf("%.3f", a.seconds()/b.seconds())
}

// rate is the median in bit/s, or 0 if there are no runs.
func (b *bestOf) rate() float64 {
	if b == nil {
		return 0
	}
	return median(b.rates)
}

// String returns the rate and the number of streams.
func (b *bestOf) String() string {
	if b.rate() == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%d)", showRate(b.rate()), b.streams)
}

// losses lists where fxfer is not the best.
func losses(m measure, results []result) []string {
	var lines []string
	for i := range results {
		r := &results[i]
		name := m.winner(r)
		fxfer := r.tool(fxferName)
		if name == "" || name == fxferName || fxfer == nil {
			continue
		}
		theirs, ours := m.value(r, r.tool(name)), m.value(r, fxfer)
		if ours == 0 {
			continue // reported as not measured
		}
		lines = append(lines, fmt.Sprintf("%s: %s has %s, fxfer %s", r.name, name, m.show(theirs), m.show(ours)))
	}
	for i := range results {
		r := &results[i]
		for j := range r.tools {
			o, fxfer := &r.tools[j], r.tool(fxferName)
			if fxfer != nil && o.again() > 0 && o.again() < fxfer.again() {
				lines = append(lines, fmt.Sprintf("%s, again: %s has %s, fxfer %s", r.name, o.name, m.show(o.again()), m.show(fxfer.again())))
			}
		}
	}
	return lines
}

func detailTable(results []result) [][]string {
	rows := [][]string{{"", "runs", "at the limit", "streams", "congestion control", "sent again", "dropped by the queue", "sender", "receiver", "digests"}}
	for i := range results {
		r := &results[i]
		o := r.tool(fxferName)
		if o == nil || len(o.runs) == 0 {
			continue
		}
		d := &r.fxfer
		row := []string{r.name, runTimes(o), "–", "–", "–", "–", dropped(o), showMiB(d.senderPeak), showMiB(d.receiverPeak), "–"}
		if r.limit > 0 {
			row[2] = fmt.Sprintf("%.2f s", secondsAt(r.load.bytes(), r.limit))
		} else {
			row[6] = "–"
		}
		switch {
		case d.checked && r.load.tree():
			row[9] = "content as sent"
		case d.checked:
			row[3], row[4], row[5], row[9] = fmt.Sprint(d.streams), d.congestion, fmt.Sprintf("%.0f", median(d.retransmits)), "as b3sum"
		}
		rows = append(rows, row)
	}
	return rows
}

func runTimes(o *outcome) string {
	var times []string
	for _, r := range o.runs {
		if r.projected {
			return fmt.Sprintf("≈ %.0f s", r.seconds)
		}
		times = append(times, fmt.Sprintf("%.2f", r.seconds))
	}
	return strings.Join(times, ", ") + " s"
}

// dropped is the median share of segments that a full queue dropped.
func dropped(o *outcome) string {
	var shares []float64
	for _, r := range o.runs {
		if r.sent > 0 {
			shares = append(shares, float64(r.dropped)/float64(r.sent))
		}
	}
	return fmt.Sprintf("%.2f %%", 100*median(shares))
}

func showMiB(bytes int64) string {
	if bytes == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20))
}

// failures lists what could not be measured, each reason once.
func failures(results []result) []string {
	var lines []string
	rows := map[string][]string{}
	add := func(row, what string) {
		if rows[what] == nil {
			lines = append(lines, what)
		}
		rows[what] = append(rows[what], row)
	}
	for i := range results {
		r := &results[i]
		if r.failed != nil {
			add(r.name, r.failed.Error())
		}
		if r.best != nil && r.best.err != nil {
			add(r.name, r.best.err.Error())
		}
		for _, o := range r.tools {
			if o.err != nil {
				add(r.name, o.name+": "+o.err.Error())
			}
		}
	}
	for i, what := range lines {
		where := strings.Join(rows[what], "; ")
		if len(rows[what]) == len(results) && len(results) > 1 {
			where = "everywhere"
		}
		lines[i] = strings.ReplaceAll(what, "\n", "; ") + " (" + where + ")"
	}
	return lines
}

// commands lists fxfer's command of each row and the settings of the others.
func commands(results []result) []string {
	var lines []string
	for _, r := range results {
		if r.fxfer.command != "" {
			lines = append(lines, fmt.Sprintf("%s: %#q", r.name, r.fxfer.command))
		}
	}
	for _, p := range peers() {
		if slices.ContainsFunc(results, func(r result) bool { return r.tool(p.name) != nil }) {
			lines = append(lines, p.name+": "+p.settings)
		}
	}
	return lines
}
