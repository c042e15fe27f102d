package main

import (
	"fmt"
	"strings"

	"github.com/fxfer/fxfer/internal/fleet"
	"github.com/fxfer/fxfer/internal/units"
)

// What the simulated hosts have. Their processors are those of this machine.
const (
	workerLine         = 25e9 / 8 // bytes/s
	trunk              = 400e9 / 8
	processorsOfServer = 64
	pathBytes          = 50
	slowList           = 1e-4 // s a file, of a file system over a network
)

// tree is what a simulated fleet sends.
type tree struct {
	name  string
	files int64
	bytes int64
}

var trees = []tree{
	{"10⁹ files of 100 MB, 100 PB", 1e9, 100e15},
	{"10⁹ files of 10 kB, 10 TB", 1e9, 10e12},
}

// of returns the model of a fleet that sends a tree.
func (m *measurement) of(t tree, workers int, changed float64) fleetModel {
	return fleetModel{
		times: m.Times, workers: workers, files: t.files, bytes: t.bytes, names: pathBytes, changed: changed,
		workerLine: workerLine, line: trunk, processors: processorsOfServer,
	}
}

// fleets are the numbers of workers in the charts.
var fleets = []int{1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000}

// waits returns the first three bottlenecks of a thousand workers.
func (m *measurement) waits(t tree, changed float64) []bottleneck {
	key := fmt.Sprint(t.name, changed)
	if m.found[key] == nil {
		m.found[key] = m.of(t, 1000, changed).bottlenecks(3)
	}
	return m.found[key]
}

// words say what a resource is, and what helps when a fleet waits for it.
var words = [resources]struct{ name, remedy string }{
	listing:     {"listing by one worker", "have several workers list: each takes a folder of the first levels, and cuts shards of its own"},
	queueing:    {"the queue", "a disk with fast syncs for the controller's store, larger shards, and fewer synced records: a worker writes one with each renewal of its lease"},
	counting:    {"the controller's records", "write the record of a job once for all shards that have ended meanwhile, not once for each"},
	working:     {"the workers' processors", "more workers, or workers with faster processors"},
	workerLines: {"the workers' lines", "more workers, or faster lines to them"},
	sharedLine:  {"the line to the server", "a faster line: the fleet has nothing to gain there"},
	serving:     {"the server's processors", "several servers in front of one file system, and a job for each part of the tree"},
	finishing:   {"the last task, by one worker", "compare by shards, so that many workers do it, and leave only deletes and the metadata of folders to the last task"},
}

// report returns the page and the charts.
func report(m *measurement) (page string, charts map[string]string) {
	m.found = map[string][]bottleneck{}
	var b strings.Builder
	b.WriteString("# How far a fleet scales\n\n" +
		"`go run ./tests/bench/fleet` measures how long the parts of [a fleet](../fleet.md) take here, and\n" +
		"simulates larger fleets with these figures, in virtual time. `-simulate` repeats the simulation\n" +
		"alone, with the figures of [fleet.json](fleet.json).\n\n")
	m.short(&b)
	m.service(&b)
	m.comparison(&b)
	charts = m.forecast(&b)
	m.limits(&b)
	m.held(&b)
	fmt.Fprintf(&b, "\n%s\n", m.Machine)
	return b.String(), charts
}

// short says what the first three bottlenecks are.
func (m *measurement) short(b *strings.Builder) {
	for _, x := range []struct {
		tree int
		pass int
	}{{0, 0}, {0, 2}, {1, 0}} {
		t, p := trees[x.tree], passes[x.pass]
		found := m.waits(t, p.changed)
		text := fmt.Sprintf("- **%s, %s**: a thousand workers need %s. They wait for ", t.name, p.name, long(found[0].before.total))
		for i, f := range found {
			text += []string{"", ", then for ", ", then for "}[i] + words[f.what].name
		}
		fmt.Fprintf(b, "%s\n", wrap(text+".", "  "))
	}
}

// service has the service times.
func (m *measurement) service(b *strings.Builder) {
	t := &m.Times
	b.WriteString("\n## What was measured\n\n" +
		"The controller's store is on a disk, and JetStream syncs each write (`SyncAlways`). Trees are in\n" +
		"memory, so their figures are those of processors. \"Alone\" is one after the other. \"Busy\" is\n" +
		fmt.Sprintf("the time from one end to the next while %d members ask at once.\n\n", crowd))
	rows := [][]string{{"at the queue", "alone", "busy", "a second, at most"}}
	add := func(name string, alone, busy float64) {
		row := []string{name, "–", "–", "–"}
		if alone > 0 {
			row[1] = seconds(alone)
		}
		if busy > 0 {
			row[2], row[3] = seconds(busy), fmt.Sprintf("%.0f", 1/busy)
		}
		rows = append(rows, row)
	}
	add("put the list of a shard, publish its task", t.AddAlone, t.Add)
	add("the same with 20,000 paths (1 MB)", t.AddAlone+listed*t.AddPath, 0)
	add("take a task, write its record, get its list", t.BeginAlone, t.Begin)
	add("the same with 20,000 paths", t.BeginAlone+listed*t.BeginPath, 0)
	add("renew a lease, which a worker does every 6 s", 0, t.Renew)
	add("write the last record, acknowledge the task", t.EndAlone, t.End)
	add("**begin and end: tasks that are acknowledged**", t.BeginAlone+t.EndAlone, t.Begin+t.End)
	add("a record of a shard", 0, t.RecordPut)
	add("the controller counts a shard that has ended", 0, t.Controller)
	add("the controller removes the list of a shard, when the job has ended", 0, t.Clear)
	table(b, rows)
	b.WriteString("\n")
	rows = [][]string{{"at workers and server", "takes", "CPU of the worker", "CPU of the server"}}
	cost := func(name string, c cost) {
		rows = append(rows, []string{name, seconds(c.Wall), seconds(c.Worker), seconds(c.Server)})
	}
	rows = append(rows, []string{fmt.Sprintf("list a file: %s a second", count(1/t.List)), seconds(t.List), "", ""})
	cost("a shard, beside its files", t.Shard)
	cost("a file of 1 KiB", t.File)
	cost("a file that is in place", t.Same)
	cost("a GB of large files", t.Byte.times(1e9))
	cost("a file, for the last task", t.Finish)
	table(b, rows)
	fmt.Fprintf(b, "\n\"Takes\" is reduced to what it would be if both ends had the two processors for themselves.\n"+
		"Meanwhile other work shared the machine: it left **%.1f of %d processors** for these tasks, and the\n"+
		"disk was shared, too. So these are figures of a busy small machine, and an idle one does more.\n", t.Left, processors)
}

// comparison has real fleets beside the model.
func (m *measurement) comparison(b *strings.Builder) {
	b.WriteString("\n## Is the model right?\n\n" +
		"Fleets of real processes on this machine send trees of files of 1 KiB, in " + fmt.Sprint(checkShards) + " shards. Beside each is\n" +
		"what the model says for as many processors as others left meanwhile. Workers and server share them.\n\n")
	rows := [][]string{{"files", "workers", "pass", "processors left", "listed", "by the model", "sent", "by the model", "all", "by the model", "model ÷ real"}}
	var worst, best float64
	for _, c := range m.Checks {
		off := c.Model.Total / c.Real.Total
		if best == 0 {
			best = off
		}
		worst, best = max(worst, off), min(best, off)
		rows = append(rows, []string{
			units.Grouped(int64(c.Files)), fmt.Sprint(c.Workers), c.Pass, fmt.Sprintf("%.1f", c.Left), seconds(c.Real.Listed), seconds(c.Model.Listed),
			seconds(c.Real.Sent), seconds(c.Model.Sent), seconds(c.Real.Total), seconds(c.Model.Total), fmt.Sprintf("%.2f", off),
		})
	}
	table(b, rows)
	fmt.Fprintf(b, "\nThe model says between **%.2f and %.2f** of what was measured. It is most off where several workers\n"+
		"share processors that are taken anyway. It knows nothing of:\n\n"+
		"- file systems that are slower than memory, or that slow each other down;\n"+
		"- the time of lines and syncs between messages, beyond what the queue took here;\n"+
		"- files that are larger than a shard, which a fleet cuts into ranges;\n"+
		"- workers that die, are slow, or have files of very different sizes: all shards are alike;\n"+
		"- whether one server uses %d processors as well as it uses two. Nothing here shows that;\n"+
		"- the server's limit of sessions for one key, 32 unless its configuration says otherwise.\n", best, worst, processorsOfServer)
}

// forecast has the times of passes.
func (m *measurement) forecast(b *strings.Builder) (charts map[string]string) {
	fmt.Fprintf(b, "\n## A billion files, a thousand workers\n\n"+
		"Workers have lines of %s, and share one of %s to a server with %d processors.\n"+
		"All else is as measured above. Each tree is sent when the target is empty, when 1 %% of its files\n"+
		"have changed, and when nothing has.\n\n", units.Rate(workerLine*8), units.Rate(trunk*8), processorsOfServer)
	rows := [][]string{{"1,000 workers", "pass", "shards", "listed", "sent", "all", "the line", "waits for"}}
	for _, t := range trees {
		for _, p := range passes {
			r := m.waits(t, p.changed)[0].before
			rows = append(rows, []string{
				t.name, p.name, units.Grouped(int64(r.shards)), long(r.listed), long(r.sent), long(r.total),
				fmt.Sprintf("%.2f", r.busy[sharedLine]), words[m.waits(t, p.changed)[0].what].name,
			})
		}
	}
	table(b, rows)
	b.WriteString("\n\"The line\" is which part of the shared line is used, on average over the pass. \"Waits for\" is\n" +
		"what would shorten the pass the most if it were twice as fast.\n\n")
	charts = map[string]string{}
	for i, t := range trees {
		var curves []curve
		for _, p := range passes {
			c := curve{name: p.name}
			for _, n := range fleets {
				c.x, c.y = append(c.x, float64(n)), append(c.y, m.of(t, n, p.changed).simulate().total)
			}
			curves = append(curves, c)
		}
		name := []string{"fleet-large.svg", "fleet-small.svg"}[i]
		charts[name] = drawCurves("How long a pass takes: "+t.name, "workers", count, long, curves)
		fmt.Fprintf(b, "![How long a pass takes: %s](%s)\n\n", t.name, name)
	}
	return charts
}

// limits has the bottlenecks.
func (m *measurement) limits(b *strings.Builder) {
	b.WriteString("## The first three bottlenecks\n\n" +
		"Each is what shortens the pass the most if it is twice as fast. Then it takes no time at all, and\n" +
		"the next one is looked for.\n\n")
	rows := [][]string{{"1,000 workers", "pass", "first", "then", "then"}}
	seen := map[resource]bool{}
	var order []resource
	for _, slow := range []bool{false, true} {
		for _, t := range trees {
			for _, p := range passes {
				if slow && p.changed > 0 {
					continue
				}
				name, found := t.name, m.waits(t, p.changed)
				if slow {
					f := m.of(t, 1000, p.changed)
					f.List, f.Finish.Wall = slowList, max(f.Finish.Wall, slowList)
					name, found = name+", slow lists", f.bottlenecks(3)
				}
				row := []string{name, p.name}
				for _, x := range found {
					row = append(row, fmt.Sprintf("%s: %s → %s", words[x.what].name, long(x.before.total), long(x.without)))
					if !seen[x.what] {
						seen[x.what] = true
						order = append(order, x.what)
					}
				}
				rows = append(rows, row)
			}
		}
	}
	table(b, rows)
	fmt.Fprintf(b, "\n\"Slow lists\" is a file system that lists %s files a second, as one over a network may.\n\n", count(1/slowList))
	fmt.Fprintf(b, "Renewing leases is part of the queue's work. 1,000 workers take **%.2f of it** for that, and %s\n"+
		"workers would take all: then workers lose tasks that they do.\n\n", 1000*5/lease*m.Times.Renew, units.Grouped(int64(lease/5/m.Times.Renew)))
	b.WriteString("What helps:\n\n")
	for _, what := range order {
		fmt.Fprintf(b, "%s\n", wrap("- **"+words[what].name+"**: "+words[what].remedy+".", "  "))
	}
}

// held has what the controller keeps.
func (m *measurement) held(b *strings.Builder) {
	b.WriteString("\n## What the controller holds\n\n")
	most := 0.0 // shards
	rows := [][]string{{"tree", "shards", "memory", "lists on its disk", "work of removing the lists"}}
	for _, t := range []tree{{"10⁶ files of 100 MB, 100 TB", 1e6, 100e12}, trees[1], trees[0], {"10¹⁰ files of 100 MB, 1 EB", 1e10, 1e18}} {
		f := m.of(t, 1000, 0)
		f.List, f.Add, f.AddAlone, f.AddPath = 0, 0, 0, 0 // only what is held is asked
		r := f.simulate()
		rows = append(rows, []string{t.name, units.Grouped(int64(r.shards)), units.Bytes(int64(r.memory)), units.Bytes(int64(r.lists)), long(r.clear)})
		most = max(most, float64(r.shards))
	}
	table(b, rows)
	fmt.Fprintf(b, "\nMemory is that of the process: %s without jobs, and **%.0f bytes for each shard** of the jobs under\n"+
		"way, those of JetStream included. A job that has ended takes %.0f bytes. From 50,000 shards on,\n"+
		"shards become twice as large with each 50,000, so the memory grows with the logarithm of the tree's\n"+
		"size. The lists have one path of each file, of %d bytes here. They are the one thing that grows with\n"+
		"the number of files. When a job has ended, the controller removes them one after the other. It removes\n"+
		"1,000 for each lease, and looks after other jobs in between: with a lease of 30 s, those of the largest\n"+
		"tree are gone after %s.\n", units.Bytes(int64(m.Times.MemoryBase)), m.Times.MemoryPerShard, m.Times.MemoryPerJob, pathBytes, long(most/1000*fleet.DefaultLease.Seconds()))
}

// table writes a table of Markdown.
func table(b *strings.Builder, rows [][]string) {
	for i, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString("|" + strings.Repeat(" --- |", len(row)) + "\n")
		}
	}
}

// wrap breaks a paragraph into lines.
func wrap(text, indent string) string {
	var b strings.Builder
	width := 0
	for word := range strings.FieldsSeq(text) {
		n := len([]rune(word))
		switch {
		case width == 0:
		case width+1+n > 98:
			b.WriteString("\n" + indent)
			width = len(indent)
		default:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(word)
		width += n
	}
	return b.String()
}

// seconds shows a short time.
func seconds(s float64) string {
	switch {
	case s <= 0:
		return "0"
	case s < 1e-3:
		return fmt.Sprintf("%.2g µs", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.3g ms", s*1e3)
	}
	return fmt.Sprintf("%.1f s", s)
}

// long shows a time of up to years.
func long(s float64) string {
	switch {
	case s < 120:
		return seconds(s)
	case s < 2*3600:
		return fmt.Sprintf("%.0f min", s/60)
	case s < 2*86400:
		return fmt.Sprintf("%.1f h", s/3600)
	case s < 730*86400:
		return fmt.Sprintf("%.0f days", s/86400)
	}
	return fmt.Sprintf("%.1f years", s/86400/365)
}

func count(x float64) string { return units.Grouped(int64(x + 0.5)) }
