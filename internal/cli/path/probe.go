package path

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/cli/verdict"
	"github.com/fxfer/fxfer/internal/path/diagnose/words"
	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

const (
	foreignTime = 20 * time.Second
	foreignFlow = 4 * time.Second // length of each test with an iperf3 server
)

// probeFlags are the flags of probe.
type probeFlags struct {
	opt   fxfer.Options
	probe fxfer.ProbeOptions
	html  string
	json  bool
}

// NewProbe returns the command that measures a path.
func NewProbe() *cobra.Command {
	var f probeFlags
	c := &cobra.Command{
		Use:               "probe URL|HOST:PORT",
		ValidArgsFunction: option.CompleteURL,
		Short:             "Measure a path, and find what limits it",
		Long: `Probe measures the path to a server without touching files: round trips idle and
under load, goodput up (from here to the server) and down with one and with
several streams, windows and buffers in use, loss, the path MTU of each
direction to the byte, what TCP negotiated, and how long requests of 1 to 64 KiB
wait for their reply. It shows what limits the path, and which settings send
would choose. A probe fills the line for some seconds. On a narrow line it takes
3 s more at most, and says what it could not measure.

Bufferbloat is graded by how much the median round trip grows under load: A is
less than 30 ms, B 60, C 100, D 200, E 400, and F is more.

HOST:PORT can be any other TCP service. Then probe shows what one side can see.
With an iperf3 server it measures goodput, too; --sock-buf holds for both ends.`,
		Example: `  fxfer probe fxfer://nas
  fxfer probe fxfer://nas --streams 8 --html path.html
  fxfer probe example.org:22`,
		SuggestFor: []string{"test", "measure", "speedtest", "iperf", "mtu"},
		Args:       option.Exactly(1),
		PreRunE:    func(c *cobra.Command, _ []string) error { return option.ApplySettings(c) },
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.probe.Check(); err != nil {
				return err
			}
			if !fxfer.IsURL(args[0]) {
				return f.runForeign(c, args[0])
			}
			u, err := option.ParseURL(args[0], false)
			if err != nil {
				return err
			}
			if err := option.CheckPin(f.opt.Pin, u); err != nil {
				return err
			}
			return f.run(c, u)
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	option.Add(flags, &f.probe.Time, "time", "time", fxfer.DefaultProbeTime.String(), "how long the probe takes", units.ParseTime)
	option.Add(flags, &f.probe.Streams, "streams", "n", option.Auto, "streams of the second measurement", option.ParseAutoCount)
	option.Add(flags, &f.probe.Bytes, "most", "size", "16GiB", "move at most this many bytes", parseSomeSize)
	option.AddTransport(flags, &f.opt)
	option.AddTuning(flags, &f.opt.SockBuf, &f.opt.Congestion)
	option.AddTrust(flags, &f.opt)
	option.Add(flags, &f.html, "html", "file", "", "also write the report as a page to a file", option.ParseFile)
	flags.BoolVar(&f.json, "json", false, "print JSON on standard output")
	option.AddSettings(c)
	return c
}

func (f *probeFlags) run(c *cobra.Command, u fxfer.URL) error {
	ctx, stop := exit.Interruptible(c.Context())
	defer stop()
	opt := f.opt
	if term.Present() {
		opt.Confirm = term.Confirm
	}
	if !f.json {
		f.probe.Stage = func(what string) { fmt.Fprintf(c.ErrOrStderr(), "fxfer: %s\n", what) }
	}
	report, err := exit.Within(ctx, func() (*fxfer.ProbeReport, error) {
		client, err := fxfer.NewClient(opt)
		if err != nil {
			return nil, err
		}
		return client.Probe(ctx, u, f.probe)
	})
	if err != nil && ctx.Err() != nil {
		err = exit.Interrupted("")
	}
	if err == nil && f.html != "" {
		err = f.page(report)
	}
	switch {
	case f.json && report != nil:
		term.JSON(c.OutOrStdout(), jsonProbe{"probe", report, verdict.JSONOf(report.Verdicts)})
	case report != nil:
		printProbe(c.OutOrStdout(), report)
	}
	if f.json && err != nil {
		term.JSON(c.OutOrStdout(), exit.JSONOf(err))
	}
	return err
}

type jsonProbe struct {
	Type string `json:"type"`
	*fxfer.ProbeReport
	Limits []verdict.JSON `json:"limits"`
}

// page writes the report to the file named by --html.
func (f *probeFlags) page(r *fxfer.ProbeReport) error {
	file, err := os.Create(f.html)
	if err == nil {
		err = errors.Join(writeProbePage(file, r), file.Close())
	}
	if err != nil {
		return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: fmt.Errorf("write the page: %w", err)}
	}
	return nil
}

func (f *probeFlags) runForeign(c *cobra.Command, address string) error {
	host, port, err := net.SplitHostPort(address)
	n, parseErr := strconv.ParseUint(port, 10, 16)
	if err != nil || parseErr != nil || host == "" || n == 0 {
		return exit.Usage("for example: fxfer probe fxfer://nas, or example.org:22", "%q is neither a URL nor HOST:PORT", address)
	}
	if f.html != "" {
		return exit.Usage("leave --html out", "there is no page of what one side sees")
	}
	ctx, stop := exit.Interruptible(c.Context())
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, foreignTime)
	defer cancel()
	sight, err := exit.Within(ctx, func() (*probe.Sight, error) { return probe.Foreign(ctx, address, foreignFlow, f.opt.SockBuf) })
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		err = exit.Interrupted("")
	case err != nil:
		err = &fxfer.Error{Kind: fxfer.KindUnreachable, Err: err}
	}
	switch {
	case f.json && err != nil:
		term.JSON(c.OutOrStdout(), exit.JSONOf(err))
	case f.json:
		term.JSON(c.OutOrStdout(), struct {
			Type string `json:"type"`
			*probe.Sight
		}{"foreign", sight})
	case err == nil:
		printSight(c.OutOrStdout(), sight)
	}
	return err
}

// line writes a row of a report: its name, then the parts that are not empty.
func line(w io.Writer, name string, parts ...string) {
	var full []string
	for _, p := range parts {
		if p != "" {
			full = append(full, term.OneLine(p))
		}
	}
	fmt.Fprintf(w, "%-15s%s\n", name, strings.Join(full, ", "))
}

func showRTT(r *probe.RTT) string {
	return fmt.Sprintf("min %s, median %s, 95 %% %s, 99 %% %s, max %s", units.Seconds(r.Min), units.Seconds(r.Median), units.Seconds(r.P95), units.Seconds(r.P99), units.Seconds(r.Max))
}

// printProbe shows a report to people: first the conclusions, then the measurements behind them.
func printProbe(w io.Writer, r *fxfer.ProbeReport) {
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		evidence := words.Evidence(v)
		line(w, "limit", evidence[0], words.Name(v))
		for _, e := range evidence[1:] {
			line(w, "", e)
		}
		for j := range v.Remedies {
			line(w, "", "remedy: "+words.Remedy(&v.Remedies[j], v.Host)+words.Expected(&v.Remedies[j]))
		}
	}
	if len(r.Flows) > 0 {
		line(w, "send would", "begin with "+units.Count(int64(r.Choice.Streams), "stream", "streams"), r.Choice.Congestion,
			"send buffers "+units.Bytes(r.Choice.SndBuf), "receive buffers "+units.Bytes(r.Choice.RcvBuf))
	}
	if n := r.Choice.Suffice; n > 0 {
		line(w, "", sufficient(n)+" what this path carries")
	}
	fmt.Fprintln(w)
	if r.Idle.Count > 0 {
		line(w, "round trip", "idle: "+showRTT(&r.Idle))
	} else {
		line(w, "round trip", "not known")
	}
	if r.Loaded.Count > 0 {
		line(w, "", "load: "+showRTT(&r.Loaded))
		line(w, "bufferbloat", r.Grade, "the median grows by "+units.Seconds(r.Bloat))
	}
	for i := range r.Flows {
		printFlow(w, &r.Flows[i])
	}
	for i := range r.MTU {
		printMTU(w, &r.MTU[i])
	}
	if r.TCP.SndMSS > 0 {
		line(w, "TCP", tcpParts(&r.TCP)...)
	}
	fmt.Fprintln(w)
	printExchanges(w, r)
	for _, n := range r.Notes {
		line(w, "note", n)
	}
	fmt.Fprintln(w)
	plotProbe(w, r.Series)
}

func sufficient(streams int) string {
	if streams == 1 {
		return "1 stream suffices for"
	}
	return fmt.Sprintf("%d streams suffice for", streams)
}

func printFlow(w io.Writer, f *probe.Flow) {
	line(w, "goodput "+string(f.Direction), fmt.Sprintf("%s with %s", units.Rate(f.Goodput), units.Count(int64(f.Streams), "stream", "streams")), f.Congestion,
		fmt.Sprintf("%s of %s segments sent again (after slow start %s)", units.Grouped(f.Retransmitted), units.Grouped(f.Segments), units.Percent(f.Loss)))
	line(w, "", fmt.Sprintf("BDP %s, receiver's window %s (full %s of the time), send buffer %s (full %s), receive buffer %s",
		units.Bytes(f.BDP), units.Bytes(f.SndWnd), units.Percent(f.RwndLimited), units.Bytes(f.SndBuf), units.Percent(f.SndbufLimited), units.Bytes(f.RcvBuf)))
}

func printMTU(w io.Writer, m *probe.PathMTU) {
	name := "path MTU " + string(m.Direction)
	switch {
	case m.MTU == 0:
		line(w, name, "not known")
		return
	case !m.Measured:
		line(w, name, fmt.Sprintf("%d, as TCP believes", m.MTU))
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
	line(w, name, strconv.Itoa(m.MTU)+": "+numbers(m.Passed)+" pass", fails, why)
}

func numbers(all []int) string {
	text := make([]string, len(all))
	for i, n := range all {
		text[i] = strconv.Itoa(n)
	}
	return strings.Join(text, " ")
}

func tcpParts(t *probe.TCP) []string {
	has := func(on bool, what string) string {
		if on {
			return what
		}
		return "no " + what
	}
	scaling := has(t.WindowScaling, "window scaling")
	if t.WindowScaling {
		scaling += fmt.Sprintf(" (%d there, %d here)", t.SndScale, t.RcvScale)
	}
	return []string{scaling, has(t.SACK, "SACK"), has(t.Timestamps, "timestamps"), has(t.ECN, "ECN"), fmt.Sprintf("MSS %d", t.SndMSS), fmt.Sprintf("PMTU %d", t.PMTU), t.Congestion}
}

// printExchanges shows the median times of a message and its reply, by size and by which sides set
// TCP_NODELAY.
func printExchanges(w io.Writer, r *fxfer.ProbeReport) {
	for _, reused := range []bool{true, false} {
		what := "Request and reply, one connection: median by who sets TCP_NODELAY"
		if !reused {
			what = "The same with a new connection each time, TLS included"
		}
		fmt.Fprintf(w, "%s\n\n%8s  %-39s  %s\n%8s", what, "", "one write", "header and body in two", "message")
		for range 2 {
			fmt.Fprintf(w, "  %9s %9s %9s %9s", "neither", "client", "server", "both")
		}
		fmt.Fprintln(w)
		for _, size := range probe.Sizes {
			fmt.Fprintf(w, "%4d KiB", size>>10)
			for _, split := range []bool{false, true} {
				fmt.Fprint(w, " ")
				for i := range 4 {
					fmt.Fprintf(w, " %9s", median(r.Exchanges, size, reused, split, i&1 != 0, i&2 != 0))
				}
			}
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w)
	}
	line(w, "requests", fmt.Sprintf("%s a second of %s on %s, each waiting for its reply", units.Grouped(int64(r.Rate.PerSecond)), "2 KiB", units.Count(int64(r.Rate.Connections), "connection", "connections")))
	if r.Stall {
		line(w, "stalls", "two writes without TCP_NODELAY wait for a delayed ACK: Nagle's algorithm holds the second back; one write does not")
	}
}

func median(all []probe.Latency, size int, reused, split, clientND, serverND bool) string {
	for i := range all {
		l := &all[i]
		if l.Size == size && l.Reused == reused && l.Split == split && l.ClientND == clientND && l.ServerND == serverND && l.Count > 0 {
			return units.Seconds(l.Median)
		}
	}
	return "-"
}

func printSight(w io.Writer, s *probe.Sight) {
	line(w, "connect", fmt.Sprintf("median %s of %d", units.Seconds(s.Connect.Median), s.Connect.Count), "min "+units.Seconds(s.Connect.Min), "max "+units.Seconds(s.Connect.Max))
	if s.MinRTT > 0 {
		line(w, "round trip", "least "+units.Seconds(s.MinRTT), "smoothed "+units.Seconds(s.RTT)+", as TCP sees it")
		line(w, "TCP", append(tcpParts(&s.TCP), "receiver's window "+units.Bytes(s.SndWnd))...)
	}
	switch {
	case len(s.Flows) > 0:
		line(w, "service", s.Guess)
	case s.FirstByte == 0:
		line(w, "service", "says nothing", s.Guess)
	case s.Asked != "":
		line(w, "service", s.Guess, fmt.Sprintf("first byte %s after %q", units.Seconds(s.FirstByte), s.Asked), strconv.Quote(s.Banner))
	default:
		line(w, "service", s.Guess, "first byte "+units.Seconds(s.FirstByte)+" after connecting", strconv.Quote(s.Banner))
	}
	for i := range s.Flows {
		f := &s.Flows[i]
		resent := ""
		if f.Segments > 0 {
			resent = units.Percent(f.Loss) + " of the segments sent again"
		}
		line(w, "goodput "+string(f.Direction), units.Rate(f.Goodput)+" with 1 stream", f.Congestion, resent)
	}
	if s.Note != "" {
		line(w, "note", s.Note)
	}
	line(w, "note", "goodput of others than iperf3, path MTU and what limits need fxfer there, too")
}
