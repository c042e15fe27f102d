// Package path contains the commands about paths: plan, probe, doctor and lab.
package path

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/internal/path/plan"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Larger values are typing mistakes, and would overflow integers.
const (
	maxPlanRate = 1_000_000_000_000_000 // bit/s
	maxPlanRTT  = time.Hour
	maxPlanKm   = 1_000_000
)

// planFlags describe the planned transfer. Zero fields were not given.
type planFlags struct {
	rate     int64 // bit/s
	rtt      time.Duration
	km       int
	window   int64
	streams  int
	loss     float64
	mtu      int
	size     int64
	within   time.Duration
	disk     int64 // bit/s
	cpu      int64 // bit/s
	json     bool
	lossText string // as the user wrote it
	line     string
	lineRTT  time.Duration // of --line, before the fibre of --distance
	legs     []string
}

// NewPlan returns the command that computes what a line can carry.
func NewPlan() *cobra.Command {
	f := planFlags{streams: 1, mtu: 1500}
	c := &cobra.Command{
		Use:   "plan {--bandwidth RATE --rtt TIME | --line NAME | --leg LINE...}",
		Short: "Compute what a line can carry, and how long a transfer takes",
		Long: `Plan computes what TCP can carry over a line, and what limits it, without
sending a packet: the bandwidth-delay product (BDP), the rate that a window
allows, the share that headers and loss cost, how long a transfer takes, and
whether that fits a backup window. It also shows how many streams, or which
buffers, would fill the line, for several kinds of hosts.

Without --window, plan assumes windows as large as the line needs. Each stream
has its own window. Loss is assumed to hit CUBIC, the default of Linux; the
table of hosts shows others.

--distance is the length of the fibre. With --line, which names for example a
satellite or a mobile network, it is the fibre behind that line. --disk and
--cpu bound what the hosts take; "fxfer doctor --share" measures a disk.

Stock Linux allows 2.80 MB in flight: two thirds of a send buffer of 4 MiB
(tcp_wmem). Half of its receive buffer of 6 MiB (tcp_rmem) is a window of 3.15
MB. Tuned Linux has the buffers that the last lines show.

With --leg, data goes from an origin over relays, such as caches, to a receiver.
The first leg leaves the origin, and the last one ends at the receiver. Each is
a TCP connection of its own. It begins with the initial windows of its hosts:
initcwnd of the sender (10 segments if not given), initrwnd of the receiver
(44). Plan computes how long an object takes if no relay has it, and if the last
one has it; what one connection over the whole path would take; and which window
of which host to raise. A leg can be a name from "lab lines". On the last leg,
data goes to the customer of that line; on any other, it comes from that
customer.`,
		Example: `  fxfer plan --bandwidth 1gbit --rtt 15ms --size 2TB --window-of-time 8h
  fxfer plan --bandwidth 1gbit --rtt 15ms --window 17520 --streams 4
  fxfer plan --bandwidth 10gbit --distance 4000km --loss 0.01% --size 50TB
  fxfer plan --line lte --distance 2000km --disk 150MB/s --size 5GB
  fxfer plan --leg 80ms,1gbit --leg 20ms,100mbit,initcwnd=3 --size 265KB
  fxfer plan --leg 30ms,1gbit --leg leo --size 5MB`,
		SuggestFor: []string{"bdp", "calc", "calculate", "estimate"},
		Args:       option.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("leg") {
				return planLegs(c, f)
			}
			if err := f.applyLine(c.Flags()); err != nil {
				return err
			}
			if err := f.check(c); err != nil {
				return err
			}
			p := newPlanned(f)
			if f.json {
				term.JSON(c.OutOrStdout(), p.json())
				return nil
			}
			p.print(c.OutOrStdout())
			return nil
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	option.Add(flags, &f.rate, "bandwidth", "rate", "", "rate of the slowest link, such as 1gbit", parseBandwidth)
	option.Add(flags, &f.rtt, "rtt", "time", "", "round-trip time as ping shows it, such as 15ms", parseRTT)
	option.Add(flags, &f.km, "distance", "km", "", "estimate the RTT from a distance, such as 1000km", parseDistance)
	option.Add(flags, &f.window, "window", "size", "", "TCP window of a stream, such as 17520 or 64KiB", parseWindow)
	option.Add(flags, &f.streams, "streams", "n", "1", "number of parallel streams", option.ParseCount)
	option.Add(flags, &f.loss, "loss", "share", "0%", "share of packets lost, such as 0.01%", parseLoss)
	option.Add(flags, &f.size, "size", "size", "", "how much to send, such as 2TB", parseSomeSize)
	option.Add(flags, &f.within, "window-of-time", "time", "", "how long it may take, such as 8h", parseSomeTime)
	option.Add(flags, &f.disk, "disk", "rate", "", "what the slower disk carries, such as 150MB/s", parseBandwidth)
	option.Add(flags, &f.cpu, "cpu", "rate", "", "what the slower CPU carries, such as 5gbit", parseBandwidth)
	option.Add(flags, &f.mtu, "mtu", "bytes", "1500", "largest IP packet", parseMTU)
	flags.StringVar(&f.line, "line", "", "`name` of a line from \"lab lines\"; data goes to its\ncustomer, and the other flags change it")
	flags.StringArrayVar(&f.legs, "leg", nil, "`line` between two hosts, such as leo, or\n20ms,100mbit,loss=0.1%,initcwnd=3,initrwnd=44,\nwindow=64KiB; repeatable")
	flags.BoolVar(&f.json, "json", false, "print JSON on standard output")
	return c
}

func planLegs(c *cobra.Command, f planFlags) error {
	p, err := newPlannedLegs(c.Flags(), f)
	if err != nil {
		return err
	}
	if f.json {
		term.JSON(c.OutOrStdout(), p.json())
		return nil
	}
	p.print(c.OutOrStdout())
	return nil
}

// applyLine gives the flags that were not given the values of --line.
func (f *planFlags) applyLine(flags *pflag.FlagSet) error {
	if f.line == "" {
		return nil
	}
	l, err := lab.PresetLink(f.line)
	if err != nil {
		return exit.Usage("", "--line: %w", err)
	}
	values := presetFlags(l)
	for _, names := range [][2]string{{"bandwidth", "down"}, {"rtt", "rtt"}, {"loss", "loss"}, {"mtu", "mtu"}} {
		value, ok := values[names[1]]
		if !ok || flags.Changed(names[0]) {
			continue
		}
		if names[0] == "rtt" && f.km > 0 {
			f.lineRTT = l.RTT
			continue
		}
		if err := flags.Set(names[0], value); err != nil {
			return fmt.Errorf("--line %s: --%s: %w", f.line, names[0], err)
		}
	}
	return nil
}

func (f *planFlags) check(c *cobra.Command) error {
	const example = "for example: fxfer plan --bandwidth 1gbit --rtt 15ms --size 2TB"
	switch {
	case f.rate == 0:
		return exit.Usage(example, "--bandwidth is missing: how fast is the line?")
	case f.rtt == 0 && f.km == 0:
		return exit.Usage(example+", or --distance 1000km for --rtt", "--rtt is missing: how long is the way?")
	case f.rtt > 0 && f.km > 0:
		return exit.Usage("leave --distance out: a measured round trip is better", "--rtt and --distance exclude each other")
	}
	f.lossText = c.Flags().Lookup("loss").Value.String()
	return nil
}

func parseBandwidth(s string) (int64, error) {
	n, err := units.ParseRate(s)
	if err == nil && n > maxPlanRate {
		return 0, fmt.Errorf("%q is more than a line carries", s)
	}
	return n, err
}

func parseRTT(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d > maxPlanRTT {
		return 0, fmt.Errorf("%q is not the time of a round trip such as 15ms or 0.2s", s)
	}
	return d, nil
}

func parseDistance(s string) (int, error) {
	digits, ok := strings.CutSuffix(s, "km")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n <= 0 || n > maxPlanKm {
		return 0, fmt.Errorf("%q is not a distance such as 1000km", s)
	}
	return n, nil
}

func parseWindow(s string) (int64, error) {
	n, err := units.ParseSize(s)
	if err == nil && (n == 0 || n > plan.MaxWindow) {
		return 0, fmt.Errorf("%q is not a window of TCP: it is from 1 byte to just below 1 GiB", s)
	}
	return n, err
}

func parseLoss(s string) (float64, error) {
	share, err := units.ParsePercent(s)
	if err == nil && share > plan.MaxLoss {
		return 0, fmt.Errorf("%q is too much: the formulas hold up to %.0f%%", s, 100*plan.MaxLoss)
	}
	return share, err
}

func parseSomeSize(s string) (int64, error) {
	n, err := units.ParseSize(s)
	if err == nil && n == 0 {
		return 0, fmt.Errorf("%q is nothing to send", s)
	}
	return n, err
}

func parseSomeTime(s string) (time.Duration, error) {
	d, err := units.ParseTime(s)
	if err == nil && d == 0 {
		return 0, fmt.Errorf("%q is not a length of time: expected more than 0", s)
	}
	return d, err
}

func parseMTU(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < plan.MinMTU || n > plan.MaxMTU {
		return 0, fmt.Errorf("%q is not a number of bytes from %d to %d", s, plan.MinMTU, plan.MaxMTU)
	}
	return n, nil
}

// planned is a plan: the transfer as the user described it, and as other kinds of hosts would do
// it.
type planned struct {
	flags   planFlags
	t       plan.Transfer
	buffers plan.Buffers // for the number of streams that the user asked for
	hosts   []plannedHost
}

type plannedHost struct {
	name string
	t    plan.Transfer
}

func newPlanned(f planFlags) *planned {
	rtt := f.rtt
	if f.km > 0 {
		rtt = f.lineRTT + plan.RTTOver(float64(f.km))
	}
	path := plan.Path{Rate: float64(f.rate), RTT: rtt, Loss: f.loss, MTU: f.mtu}
	p := &planned{
		flags: f, buffers: plan.BuffersFor(path, f.streams),
		t: plan.Transfer{Path: path, Window: f.window, Streams: f.streams, Size: f.size, Within: f.within, Disk: float64(f.disk), CPU: float64(f.cpu)},
	}
	if f.window > 0 {
		p.hosts = append(p.hosts, plannedHost{"your window", p.t})
	}
	for _, h := range plan.Hosts(p.buffers) {
		t := p.t
		t.Window, t.Control = h.Window, h.Control
		p.hosts = append(p.hosts, plannedHost{h.Name, t})
	}
	return p
}

// print shows the plan to people: the answer, the reason, advice, and then the figures behind them.
func (p *planned) print(w io.Writer) {
	fmt.Fprintln(w, p.answer())
	label := func(label, text string) { fmt.Fprintf(w, "%-10s %s\n", label, text) }
	label("limiter", p.limiter())
	what := "do"
	for _, advice := range p.advice() {
		label(what, advice)
		what = ""
	}
	fmt.Fprintln(w)
	p.printPath(label)
	fmt.Fprintln(w)
	p.printHosts(w)
	fmt.Fprintln(w)
	p.printBuffers(label)
}

// answer returns the answer to the user's question.
func (p *planned) answer() string {
	rate, why := p.t.Rate()
	unless := ""
	if p.t.Window == 0 && why == plan.LineRate {
		unless = ", if the hosts' windows allow it"
	}
	switch {
	case p.t.Size == 0 && p.t.Within > 0:
		return fmt.Sprintf("%s moves %s at %s%s.", units.Span(p.t.Within), units.Bytes(int64(p.t.Moves())), units.Rate(rate), unless)
	case p.t.Size == 0:
		verb := "carries"
		if p.t.Streams > 1 {
			verb = "carry"
		}
		return fmt.Sprintf("%s %s %s%s.", units.Count(int64(p.t.Streams), "stream", "streams"), verb, units.Rate(rate), unless)
	}
	took := p.t.Time()
	if p.t.SlowStart() > took/20 {
		rate = float64(p.t.Size) * 8 / took.Seconds()
	}
	text := fmt.Sprintf("%s takes %s at %s%s", units.Bytes(p.t.Size), units.Span(took), units.Rate(rate), unless)
	switch {
	case p.t.Within == 0:
		return text + "."
	case p.t.Fits():
		return fmt.Sprintf("%s: it fits the %s window, with %s to spare.", text, units.Span(p.t.Within), units.Span(p.t.Within-took))
	}
	return fmt.Sprintf("%s: it does not fit the %s window.", text, units.Span(p.t.Within))
}

// limiter says what limits the rate.
func (p *planned) limiter() string {
	rate, _ := p.t.Rate()
	each, _ := p.t.EachRate()
	times, line := "", units.Rate(p.t.Path.Goodput())
	if p.t.Streams > 1 {
		times = fmt.Sprintf(" a stream, %s together", units.Rate(rate))
	}
	switch p.t.Limiter() {
	case plan.Ramp:
		return fmt.Sprintf("slow start: a stream begins with %d segments (initcwnd, initrwnd) and doubles them each %s",
			plan.DefaultInitial, units.Time(p.t.Path.RTT))
	case plan.Window:
		return fmt.Sprintf("window: %s in each round trip of %s make %s%s; the line carries %s",
			showWindow(p.t.Window), units.Time(p.t.Path.RTT), units.Rate(each), times, line)
	case plan.Loss:
		return fmt.Sprintf("random loss: at %s CUBIC gets %s%s; the line carries %s", p.flags.lossText, units.Rate(each), times, line)
	case plan.Disk, plan.CPU:
		return fmt.Sprintf("%s: %s; the line carries %s", p.t.Limiter(), units.Rate(rate), line)
	case plan.LineRate:
	}
	return fmt.Sprintf("line rate: %s, of which TCP carries %s", units.Rate(p.t.Path.Rate), line)
}

// advice says how to make the transfer faster, the smallest change first.
func (p *planned) advice() []string {
	t := p.t
	_, why := t.Rate()
	var lines []string
	if t.Size > 0 && t.Within > 0 && !t.Fits() {
		lines = append(lines, fmt.Sprintf("to fit the %s window: %s", units.Span(t.Within), p.toFit()))
	}
	if why != plan.LineRate && why != plan.Disk && why != plan.CPU {
		fill := t.Fill()
		full := t
		full.Streams = fill.Streams
		span := ""
		if t.Size > 0 {
			span = " (" + units.Span(full.Time()) + ")"
		}
		faster := t
		faster.Control = plan.BBR
		_, left := faster.Rate()
		return append(lines, fmt.Sprintf("to fill the line%s: %s", span, ways(fill, left == plan.LineRate)))
	}
	switch {
	case len(lines) > 0:
	case why != plan.LineRate:
		lines = append(lines, fmt.Sprintf("nothing on the network helps: only a faster %s does", why))
	case t.Limiter() == plan.Ramp && t.Streams < manyStreams:
		t.Streams = manyStreams
		lines = append(lines, fmt.Sprintf("%d streams at once: %s; or a connection that is warm already", manyStreams, units.Span(t.Time())))
	case t.Window == 0:
		lines = append(lines, p.asHostsAre())
	default:
		lines = append(lines, "nothing: no setting makes it faster")
	}
	return lines
}

// asHostsAre is the advice when only the line limits, with Linux hosts that are not tuned.
func (p *planned) asHostsAre() string {
	stock := p.t
	stock.Window = plan.StockBuffers().Window()
	switch n := stock.Fill().Streams; {
	case n == 1:
		return "`fxfer send` as it is: stock Linux fills the line with one stream"
	case n <= fxfer.DefaultMaxStreams:
		return fmt.Sprintf("`fxfer send` as it is: it opens the %d streams that stock Linux needs", n)
	default:
		return fmt.Sprintf("set the buffers below: stock Linux would need %d streams", n)
	}
}

// manyStreams is the number of streams that avoids most of slow start.
const manyStreams = 8

// toFit says what makes the transfer fit its window of time.
func (p *planned) toFit() string {
	t, line := p.t, p.t.Path.Goodput()
	fit := t.Fit()
	_, why := t.Rate()
	switch {
	case fit.Streams > 0:
		faster := t
		faster.Control = plan.BBR
		return ways(fit, faster.Fits())
	case (why == plan.Disk || why == plan.CPU) && t.Need() <= line:
		return fmt.Sprintf("a %s for %s", why, units.Rate(t.Need()))
	case t.Need() <= line:
		return "nothing does, a round trip alone takes " + units.Time(t.Path.RTT)
	}
	return fmt.Sprintf("a line of %s; this one carries %s in that time",
		units.Rate(t.Need()/line*t.Path.Rate), units.Bytes(int64(line*t.Within.Seconds()/8)))
}

// ways describes in words which changes would be enough.
func ways(r plan.Remedy, bbr bool) string {
	var list []string
	if r.Streams > 0 {
		list = append(list, units.Count(int64(r.Streams), "stream", "streams"))
	}
	if r.Window > 0 {
		list = append(list, "a window of "+showWindow(r.Window))
	}
	if bbr {
		list = append(list, "BBR")
	}
	return strings.Join(list, ", or ")
}

func (p *planned) printPath(label func(label, text string)) {
	path := p.t.Path
	if p.flags.km > 0 {
		var guides []string
		for _, g := range plan.Guides() {
			guides = append(guides, fmt.Sprintf("%d km %d ms", g.Km, g.RTT.Milliseconds()))
		}
		access := ""
		if p.flags.lineRTT > 0 {
			access = fmt.Sprintf("%s of %s, and ", units.Time(p.flags.lineRTT), p.flags.line)
		}
		label("RTT", fmt.Sprintf("%s, an estimate: %s%d km of fibre at %.1f µs/km, there and back, × %g for the route",
			units.Time(path.RTT), access, p.flags.km, plan.FibrePerKm.Seconds()*1e6, plan.RouteFactor))
		label("", "a measured one (ping) is better; published guide figures: "+strings.Join(guides, ", "))
	}
	label("BDP", fmt.Sprintf("%s = %s × %s", units.Bytes(ceilBytes(path.BDP())), units.Rate(path.Rate), units.Time(path.RTT)))
	label("goodput", fmt.Sprintf("at most %s: of %d B on Ethernet %d are payload (MTU %d)",
		units.Rate(path.Goodput()), path.Frame(), path.Segment(), path.MTU))
	rate, _ := p.t.Rate()
	label("wire", fmt.Sprintf("%s of payload take %s of the line, headers and repeats included", units.Rate(rate), units.Rate(path.Wire(rate))))
	if path.Loss > 0 {
		label("loss", fmt.Sprintf("%s leaves one stream of Reno %s, of CUBIC %s; BBR can ignore it", p.flags.lossText,
			showLossLimit(path, plan.Reno), showLossLimit(path, plan.Cubic)))
	}
	if slow := p.t.SlowStart(); p.t.Size > 0 && slow > p.t.Time()/20 {
		old := p.t
		old.Initial = plan.OldInitial
		label("slow start", fmt.Sprintf("%s of the time; with an initcwnd or initrwnd of %d instead of %d the whole takes %s",
			units.Time(slow), plan.OldInitial, plan.DefaultInitial, units.Span(old.Time())))
	}
	label("requests", fmt.Sprintf("%s a second if each waits for its reply; %s if each is two writes without TCP_NODELAY, %s if its reply is, too:",
		showCount(path.Requests(0)), showCount(path.Requests(path.Stall(1))), showCount(path.Requests(path.Stall(2)))))
	label("", fmt.Sprintf("an end that writes twice waits for a round trip and a delayed acknowledgement of %s", units.Time(plan.DelayedAck)))
}

func showLossLimit(p plan.Path, c plan.Control) string {
	if limit := p.LossLimit(c); limit < p.Goodput() {
		return units.Rate(limit)
	}
	return "the whole line"
}

func (p *planned) printHosts(w io.Writer) {
	fits := p.t.Size > 0 && p.t.Within > 0
	head := []string{"hosts at both ends", "window", units.Count(int64(p.t.Streams), "stream", "streams")}
	if p.t.Size > 0 {
		head = append(head, units.Bytes(p.t.Size))
	}
	if fits {
		head = append(head, "fits "+units.Span(p.t.Within), "streams to fit")
	}
	rows := [][]string{append(head, "streams to fill")}
	for _, h := range p.hosts {
		rate, _ := h.t.Rate()
		name := h.name
		if p.t.Path.Loss > 0 {
			name += ", " + h.t.Control.String()
		}
		row := []string{name, showWindow(h.t.Window), units.Rate(rate)}
		if p.t.Size > 0 {
			row = append(row, units.Span(h.t.Time()))
		}
		if fits {
			yes, n := "no", "-"
			if h.t.Fits() {
				yes = "yes"
			}
			if r := h.t.Fit(); r.Streams > 0 {
				n = units.Grouped(int64(r.Streams))
			}
			row = append(row, yes, n)
		}
		rows = append(rows, append(row, units.Grouped(int64(h.t.Fill().Streams))))
	}
	term.Table(w, rows)
}

func (p *planned) printBuffers(label func(label, text string)) {
	path, n := p.t.Path, p.t.Streams
	takes := showWindow(ceilBytes(path.BDP() / float64(n)))
	ample, have := showWindow(ceilBytes(path.Ample(n))), showWindow(p.buffers.Window())
	streams, each := units.Count(int64(n), "stream", "streams"), ""
	if n > 1 {
		each = " each"
	}
	if p.buffers == plan.StockBuffers() {
		label("buffers", fmt.Sprintf("Linux needs no tuning for %s: the line takes a window of %s%s, better twice that, and it has %s", streams, takes, each, have))
	} else {
		label("buffers", fmt.Sprintf("for %s on Linux, a window of %s%s: the line takes %s, and twice that leaves room for BBR and repairs", streams, have, each, takes))
		label("", "receiver: sudo sysctl -w"+assignments(p.buffers.ReceiverSysctls()))
		label("", "sender:   sudo sysctl -w"+assignments(p.buffers.SenderSysctls()))
	}
	label("", fmt.Sprintf("a program that sets SO_RCVBUF or SO_SNDBUF itself must ask for %s, better %s, and net.core.*mem_max allow it;", takes, ample))
	label("", "the smaller buffer of the two ends counts")
}

func assignments(settings []plan.Sysctl) string {
	var b strings.Builder
	for _, s := range settings {
		value := s.Value
		if strings.Contains(value, " ") {
			value = strconv.Quote(value)
		}
		b.WriteString(" " + s.Name + "=" + value)
	}
	return b.String()
}

func ceilBytes(n float64) int64 { return int64(math.Ceil(n)) }

// showWindow writes a window in full if people know it by that number: 17,520 B.
func showWindow(n int64) string {
	if n < 100_000 {
		return units.Grouped(n) + " B"
	}
	return units.Bytes(n)
}

// showCount writes a number of events per second.
func showCount(n float64) string {
	if n < 100 {
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return units.Grouped(int64(n))
}

type jsonPathPlan struct {
	Type         string            `json:"type"`
	Bandwidth    float64           `json:"bandwidth_bits_per_second"`
	RTT          float64           `json:"rtt_seconds"`
	RTTEstimated bool              `json:"rtt_estimated"`
	Loss         float64           `json:"loss"`
	MTU          int               `json:"mtu"`
	BDP          float64           `json:"bdp_bytes"`
	Goodput      float64           `json:"goodput_limit_bits_per_second"`
	Reno         float64           `json:"reno_limit_bits_per_second,omitempty"`
	Cubic        float64           `json:"cubic_limit_bits_per_second,omitempty"`
	Requests     float64           `json:"requests_per_second"`
	Stalled      float64           `json:"requests_per_second_two_writes"`
	StalledTwice float64           `json:"requests_per_second_two_writes_both_ends"`
	SlowStart    float64           `json:"slow_start_seconds,omitempty"`
	Need         float64           `json:"needed_bits_per_second,omitempty"`
	Window       int64             `json:"stream_window_needed_bytes"`
	Receiver     map[string]string `json:"receiver_sysctls"`
	Sender       map[string]string `json:"sender_sysctls"`
	jsonPlannedHost
	Hosts []jsonPlannedHost `json:"hosts"`
}

type jsonPlannedHost struct {
	Name       string        `json:"name,omitempty"`
	Window     int64         `json:"window_bytes,omitempty"`
	Ceiling    float64       `json:"window_ceiling_bits_per_second,omitempty"`
	Congestion string        `json:"congestion"`
	Streams    int           `json:"streams"`
	Rate       float64       `json:"rate_bits_per_second"`
	Wire       float64       `json:"wire_bits_per_second"`
	Limiter    plan.Limiter  `json:"limiter"`
	Size       int64         `json:"bytes,omitempty"`
	Time       float64       `json:"duration_seconds,omitempty"`
	Within     float64       `json:"window_of_time_seconds,omitempty"`
	Moves      float64       `json:"bytes_in_window_of_time,omitempty"`
	Fits       *bool         `json:"fits,omitempty"`
	Fit        *jsonPlanWays `json:"to_fit,omitempty"`
	Fill       jsonPlanWays  `json:"to_fill"`
}

// jsonPlanWays are alternatives: this many streams, or this window. Changes that are not enough are
// left out.
type jsonPlanWays struct {
	Streams int   `json:"streams,omitempty"`
	Window  int64 `json:"window_bytes,omitempty"`
}

func (p *planned) json() jsonPathPlan {
	path := p.t.Path
	line := jsonPathPlan{
		Type: "plan", Bandwidth: path.Rate, RTT: path.RTT.Seconds(), RTTEstimated: p.flags.km > 0, Loss: path.Loss, MTU: path.MTU,
		BDP: path.BDP(), Goodput: path.Goodput(), Requests: path.Requests(0), Stalled: path.Requests(path.Stall(1)), StalledTwice: path.Requests(path.Stall(2)),
		Window:   ceilBytes(path.BDP() / float64(p.t.Streams)),
		Receiver: settings(p.buffers.ReceiverSysctls()), Sender: settings(p.buffers.SenderSysctls()),
		jsonPlannedHost: jsonHostOf("", p.t),
	}
	if path.Loss > 0 {
		line.Reno, line.Cubic = path.LossLimit(plan.Reno), path.LossLimit(plan.Cubic)
	}
	if p.t.Size > 0 {
		line.SlowStart = p.t.SlowStart().Seconds()
		if p.t.Within > 0 {
			line.Need = p.t.Need()
		}
	}
	for _, h := range p.hosts {
		line.Hosts = append(line.Hosts, jsonHostOf(h.name, h.t))
	}
	return line
}

func jsonHostOf(name string, t plan.Transfer) jsonPlannedHost {
	h := jsonPlannedHost{
		Name: name, Window: t.Window, Congestion: strings.ToLower(t.Control.String()), Streams: t.Streams, Size: t.Size,
		Within: t.Within.Seconds(), Limiter: t.Limiter(), Fill: jsonPlanWays(t.Fill()),
	}
	h.Rate, _ = t.Rate()
	h.Wire = t.Path.Wire(h.Rate)
	if t.Window > 0 {
		h.Ceiling = t.Path.Ceiling(t.Window)
	}
	if t.Size > 0 {
		h.Time = t.Time().Seconds()
	}
	if t.Within > 0 {
		h.Moves = t.Moves()
	}
	if t.Size > 0 && t.Within > 0 {
		fits, fit := t.Fits(), jsonPlanWays(t.Fit())
		h.Fits, h.Fit = &fits, &fit
	}
	return h
}

func settings(list []plan.Sysctl) map[string]string {
	m := map[string]string{}
	for _, s := range list {
		m[s.Name] = s.Value
	}
	return m
}
