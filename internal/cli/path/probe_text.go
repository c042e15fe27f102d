package path

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/path/diagnose/words"
	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// rows are the rows of a report: a name, which is empty if the row continues the one before, and a
// text.
type rows []row

type row struct{ Name, Text string }

// add appends a row of the parts that are not empty.
func (all *rows) add(name string, parts ...string) {
	var full []string
	for _, p := range parts {
		if p != "" {
			full = append(full, term.OneLine(p))
		}
	}
	*all = append(*all, row{name, strings.Join(full, ", ")})
}

const (
	rowName = 15 // columns
	rowText = 65
)

// print writes rows with the names on the left. Long texts take several lines.
func (all rows) print(w io.Writer) {
	for _, r := range all {
		for _, line := range term.Wrap(r.Text, rowText) {
			fmt.Fprintf(w, "%-*s%s\n", rowName, r.Name, line)
			r.Name = ""
		}
	}
}

func showRTT(r *probe.RTT) string {
	return fmt.Sprintf("min %s, median %s, 95 %% %s, 99 %% %s, max %s", units.Seconds(r.Min), units.Seconds(r.Median), units.Seconds(r.P95), units.Seconds(r.P99), units.Seconds(r.Max))
}

// printProbe shows a report to people: first the conclusions, then the measurements behind them.
func printProbe(w io.Writer, r *fxfer.ProbeReport) {
	conclusions(r).print(w)
	fmt.Fprintln(w)
	measurements(r).print(w)
	fmt.Fprintln(w)
	if whole(r) {
		printMatrix(w, r)
	} else {
		for _, t := range exchanges(r) {
			t.print(w)
		}
	}
	remarks(r).print(w)
	fmt.Fprintln(w)
	plotProbe(w, r.Series)
}

// buffers describes the buffers of streams, or returns "" where they have none: QUIC.
func buffers(what string, size int64) string {
	if size == 0 {
		return ""
	}
	return what + " buffers " + units.Bytes(size)
}

// conclusions say what limits the path, and what send would do.
func conclusions(r *fxfer.ProbeReport) (all rows) {
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		evidence := words.Evidence(v)
		all.add("limit", evidence[0], words.Name(v))
		for _, e := range evidence[1:] {
			all.add("", e)
		}
		for j := range v.Remedies {
			all.add("", "remedy: "+words.Remedy(&v.Remedies[j], v.Host)+words.Expected(&v.Remedies[j]))
		}
	}
	if len(r.Flows) > 0 {
		all.add("send would", "begin with "+units.Count(int64(r.Choice.Streams), "stream", "streams"), r.Choice.Congestion,
			buffers("send", r.Choice.SndBuf), buffers("receive", r.Choice.RcvBuf))
	}
	if n := r.Choice.Suffice; n > 0 {
		all.add("", sufficient(n)+" what this path carries")
	}
	return all
}

// measurements are round trips, goodput, path MTU and TCP's options.
func measurements(r *fxfer.ProbeReport) (all rows) {
	if r.Idle.Count > 0 {
		all.add("round trip", "idle: "+showRTT(&r.Idle))
	} else {
		all.add("round trip", "not known")
	}
	if r.Loaded.Count > 0 {
		all.add("", "load: "+showRTT(&r.Loaded))
		all.add("bufferbloat", r.Grade, "the median grows by "+units.Seconds(r.Bloat))
	}
	for i := range r.Flows {
		all.addFlow(&r.Flows[i])
	}
	for i := range r.MTU {
		all.addMTU(&r.MTU[i])
	}
	switch {
	case r.TCP.SndMSS == 0:
	case r.Transport == string(fxfer.TransportQUIC):
		all.add("QUIC", fmt.Sprintf("payload of a packet %d bytes", r.TCP.SndMSS), r.TCP.Congestion)
	default:
		all.add("TCP", tcpParts(&r.TCP)...)
	}
	return all
}

// remarks are about requests, and what could not be measured.
func remarks(r *fxfer.ProbeReport) (all rows) {
	if r.Rate.Connections > 0 {
		all.add("requests", fmt.Sprintf("%s a second of %s on %s, each waiting for its reply", units.Grouped(int64(r.Rate.PerSecond)), "2 KiB", units.Count(int64(r.Rate.Connections), "connection", "connections")))
	}
	if r.Transport == string(fxfer.TransportQUIC) && len(r.Exchanges) > 0 {
		all.add("note", "QUIC has no TCP_NODELAY: who sets it makes no difference in the tables")
	}
	if r.Stall {
		all.add("stalls", "two writes without TCP_NODELAY wait for a delayed ACK: Nagle's algorithm holds the second back; one write does not")
	}
	for _, n := range r.Notes {
		all.add("note", n)
	}
	return all
}

func sufficient(streams int) string {
	if streams == 1 {
		return "1 stream suffices for"
	}
	return fmt.Sprintf("%d streams suffice for", streams)
}

func (all *rows) addFlow(f *probe.Flow) {
	goodput := fmt.Sprintf("%s with %s", units.Rate(f.Goodput), units.Count(int64(f.Streams), "stream", "streams"))
	if f.Segments == 0 { // it was cut short, or the system does not count them
		all.add("goodput "+string(f.Direction), goodput, "BDP "+units.Bytes(f.BDP))
		return
	}
	all.add("goodput "+string(f.Direction), goodput, f.Congestion,
		fmt.Sprintf("%s of %s segments sent again (after slow start %s)", units.Grouped(f.Retransmitted), units.Grouped(f.Segments), units.Percent(f.Loss)))
	known := func(size int64, what, more string) string {
		if size == 0 { // QUIC has none, and an end that was cut short has not reported it
			return ""
		}
		return what + " " + units.Bytes(size) + more
	}
	all.add("", "BDP "+units.Bytes(f.BDP), known(f.SndWnd, "receiver's window", " (full "+units.Percent(f.RwndLimited)+" of the time)"),
		known(f.SndBuf, "send buffer", " (full "+units.Percent(f.SndbufLimited)+")"), known(f.RcvBuf, "receive buffer", ""))
}

func (all *rows) addMTU(m *probe.PathMTU) {
	name := "path MTU " + string(m.Direction)
	switch {
	case m.MTU == 0:
		all.add(name, "not known")
		return
	case !m.Measured:
		all.add(name, fmt.Sprintf("%d, as TCP believes", m.MTU))
		return
	}
	why := ""
	switch {
	case len(m.Failed) == 0:
	case m.Device:
		why = "the sender's interface takes no more"
	case m.BlackHole && m.Named == 0:
		why = "black hole: what is larger vanishes, and no router says so"
	case m.BlackHole:
		why = fmt.Sprintf("black hole: a router names %d, but that vanishes", m.Named)
	case m.Named > 0:
		why = fmt.Sprintf("a router names %d", m.Named)
	}
	fails := ""
	if len(m.Failed) > 0 {
		fails = numbers(m.Failed[:1]) + " does not"
	}
	all.add(name, strconv.Itoa(m.MTU)+": "+numbers(m.Passed)+" pass", fails, why)
}

func numbers(all []int) string {
	text := make([]string, len(all))
	for i, n := range all {
		text[i] = strconv.Itoa(n)
	}
	return strings.Join(text, " ")
}

func tcpParts(t *probe.TCP) []string {
	scaling := has(t.WindowScaling, "window scaling")
	if t.WindowScaling {
		scaling += fmt.Sprintf(" (%d there, %d here)", t.SndScale, t.RcvScale)
	}
	return []string{scaling, has(t.SACK, "SACK"), has(t.Timestamps, "timestamps"), has(t.ECN, "ECN"), fmt.Sprintf("MSS %d", t.SndMSS), fmt.Sprintf("PMTU %d", t.PMTU), t.Congestion}
}

// exchange is a table of the median times of a message and its reply, by size and by which sides set
// TCP_NODELAY: the first four columns for one write, the others for two.
type exchange struct {
	Title string
	Rows  [][]string // the size, and eight times
}

// sides are the columns of an exchange: who sets TCP_NODELAY.
var sides = []string{"neither", "client", "server", "both"}

func exchanges(r *fxfer.ProbeReport) []exchange {
	if !slices.ContainsFunc(r.Exchanges, func(l probe.Latency) bool { return l.Count > 0 }) { // there was no time for any
		return nil
	}
	all := []exchange{{Title: "Request and reply, one connection: median by who sets TCP_NODELAY"}, {Title: "The same with a new connection each time, TLS included"}}
	for t, perConnection := range []int{0, 1} {
		for _, size := range probe.Sizes {
			cells := []string{fmt.Sprintf("%d KiB", size>>10)}
			for _, way := range probe.Ways()[:8] {
				way.TLS, way.PerConnection, way.Size = true, perConnection, size
				cells = append(cells, median(r.Exchanges, &way))
			}
			all[t].Rows = append(all[t].Rows, cells)
		}
	}
	return all
}

func (t *exchange) print(w io.Writer) {
	fmt.Fprintf(w, "%s\n\n%7s  %-36s  %s\n", t.Title, "", "one write", "header and body in two")
	for _, cells := range append([][]string{slices.Concat([]string{"message"}, sides, sides)}, t.Rows...) {
		fmt.Fprintf(w, "%7s", cells[0])
		for _, c := range cells[1:5] {
			fmt.Fprintf(w, "%9s", c)
		}
		fmt.Fprint(w, " ")
		for _, c := range cells[5:] {
			fmt.Fprintf(w, "%9s", c)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}

// cellOf returns the cell of a table that was measured in the way of l, or nil.
func cellOf(all []probe.Latency, l *probe.Latency) *probe.Latency {
	for i := range all {
		c := &all[i]
		if c.Count > 0 && c.Size == l.Size && c.TLS == l.TLS && c.PerConnection == l.PerConnection && c.Split == l.Split &&
			c.ClientND == l.ClientND && c.ServerND == l.ServerND && c.ClientCork == l.ClientCork && c.ServerCork == l.ServerCork {
			return c
		}
	}
	return nil
}

func median(all []probe.Latency, l *probe.Latency) string {
	if c := cellOf(all, l); c != nil {
		return units.Seconds(c.Median)
	}
	return "-"
}

// serviceRows say what one side sees.
func serviceRows(s *probe.ServiceView) (all rows) {
	all.add("connect", fmt.Sprintf("median %s of %d", units.Seconds(s.Connect.Median), s.Connect.Count), "min "+units.Seconds(s.Connect.Min), "max "+units.Seconds(s.Connect.Max))
	if s.MinRTT > 0 {
		all.add("round trip", "least "+units.Seconds(s.MinRTT), "smoothed "+units.Seconds(s.RTT)+", as TCP sees it")
		all.add("TCP", append(tcpParts(&s.TCP), "receiver's window "+units.Bytes(s.SndWnd))...)
	}
	switch {
	case len(s.Flows) > 0:
		all.add("service", s.Guess)
	case s.FirstByte == 0:
		all.add("service", "says nothing", s.Guess)
	case s.Asked != "":
		all.add("service", s.Guess, fmt.Sprintf("first byte %s after %q", units.Seconds(s.FirstByte), s.Asked), strconv.Quote(s.Banner))
	default:
		all.add("service", s.Guess, "first byte "+units.Seconds(s.FirstByte)+" after connecting", strconv.Quote(s.Banner))
	}
	if f := s.Flight; f != nil {
		least := ""
		if f.AtLeast {
			least = "at least "
		}
		all.add("first flight", fmt.Sprintf("%s%d segments: median of %d, after %q", least, f.Segments, f.Runs, f.Asked), fmt.Sprintf("%d to %d", f.Least, f.Most))
	}
	for i := range s.Flows {
		f := &s.Flows[i]
		resent := ""
		if f.Segments > 0 {
			resent = units.Percent(f.Loss) + " of the segments sent again"
		}
		all.add("goodput "+string(f.Direction), units.Rate(f.Goodput)+" with 1 stream", f.Congestion, resent)
	}
	if s.Note != "" {
		all.add("note", s.Note)
	}
	all.add("note", "goodput of others than iperf3, path MTU and what limits need fxfer there, too")
	return all
}
