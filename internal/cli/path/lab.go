package path

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/internal/units"
)

const (
	rightStart = 3 * time.Second // how long --right may take to open its port
	rightGrace = 3 * time.Second // how long --right may take to end after SIGTERM
)

// NewLab returns the commands that emulate a link.
func NewLab() *cobra.Command {
	c := &cobra.Command{
		Use:   "lab",
		Short: "Emulate a WAN: two hosts joined by a link",
		Long: `Lab makes two hosts, left and right, joined by a link with the rate, delay and
faults that you choose. It shows what a line would do to a program before the
line exists. The hosts are network namespaces on this machine: programs in them
share its files, and reach each other at the addresses in FXFER_LAB_LEFT and
FXFER_LAB_RIGHT. They see no other network.

Lab runs on Linux, as root or as a user who may create user namespaces and open
/dev/net/tun.`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(newLabRunCommand(), newLabUpCommand(), newLabExecCommand(), newLabSetCommand(), newLabDownCommand(), newLabLinesCommand())
	return c
}

func newLabRunCommand() *cobra.Command {
	flags := newLinkFlags()
	var run labRun
	c := &cobra.Command{
		Use:   "run [flags] -- CMD [ARG...]",
		Short: "Run a command in a lab made for it",
		Long: `Run makes a lab, runs CMD on the left host, and removes the lab. The exit code
is that of CMD. At the end, counters of both directions are printed on standard
error.

The shell command of --right starts first, on the right host. CMD starts when
that has opened a port, or 3 s later. When CMD ends, the other command gets
SIGTERM, then SIGKILL. Its output goes to standard error.

With --leg, the line consists of several parts with hosts between them. They
forward packets, and the first shell command of --middle runs on the first of
them. FXFER_LAB_MIDDLE1 is its address. Data goes from left to right, as in
"plan --leg": initcwnd and initrwnd go into the routes of both ends of the leg,
and a window into tcp_rmem of its right end. Commands on the right start first.

With --cross, others use the line: N TCP flows with the named congestion control
that send without end, or UDP at a constant rate. Two numbers are the seconds of
their beginning and end, counted from the start of CMD. They send from left to
right; with the word "down", from right to left. --ping measures how much delay
all traffic adds. At the end, both say what they saw.

With --name, "lab set NAME" changes the link while CMD runs.`,
		Example: `  fxfer lab run --rtt 50ms --loss 0.1% --right 'iperf3 -s' \
    -- sh -c 'iperf3 -c $FXFER_LAB_RIGHT'
  fxfer lab run --leg 80ms,1gbit --leg 20ms,100mbit,initcwnd=3 --right 'iperf3 -s' \
    --middle 'socat TCP-LISTEN:5201,fork TCP:$FXFER_LAB_RIGHT:5201' \
    -- sh -c 'iperf3 -c $FXFER_LAB_MIDDLE1'
  fxfer lab run --line adsl --ping --cross cubic:1 --cross udp:200kbit,down,5,15 -- sh`,
		Args: needCommand(1, "what is the command?"),
		RunE: func(c *cobra.Command, args []string) error {
			legs, err := run.parseChain(c.Flags(), flags)
			if err != nil {
				return err
			}
			if err := run.parse(); err != nil {
				return err
			}
			if code, ran, err := lab.Elevate(); ran || err != nil {
				return errors.Join(needRoot(err, c), exit.With(code))
			}
			run.in, run.out, run.errs = c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr()
			if f := term.File(run.out); f != nil {
				run.out = f // the command writes to it, not through fxfer
			}
			code, err := run.run(c.Context(), legs, args)
			if err != nil {
				return err
			}
			return exit.With(code)
		},
	}
	c.Flags().SetInterspersed(false)
	c.Flags().AddFlagSet(flags.set)
	c.Flags().StringVar(&run.right, "right", "", "shell `command` to run on the right host at the same time")
	c.Flags().StringArrayVar(&run.legs, "leg", nil, "`line` between two hosts, as for plan; repeat it for each leg, from left to right")
	c.Flags().StringArrayVar(&run.middle, "middle", nil, "shell `command` to run on a host between two legs; repeat it, from left to right")
	c.Flags().StringVar(&run.name, "name", "", "`name` under which lab set, exec and down find this lab")
	c.Flags().StringArrayVar(&run.cross, "cross", nil, "`others` on the line: cubic:N, bbr:N or udp:RATE, then up or down, and seconds, as in "+
		"cubic:2,10,30; can be repeated")
	c.Flags().BoolVar(&run.ping, "ping", false, "measure the delay that traffic adds, every 20 ms")
	c.Flags().StringVar(&run.json, "json", "", "write counters, cross traffic and delays to this `file` as JSON")
	return c
}

// labRun is one "lab run".
type labRun struct {
	right, name, json string
	legs, middle      []string
	cross             []string
	ping              bool

	crosses   []lab.Cross // as parse read them
	in        io.Reader
	out, errs io.Writer
}

func (r *labRun) parse() error {
	for _, s := range r.cross {
		c, err := parseCross(s)
		if err != nil {
			return exit.Usage("", "--cross %s: %w", s, err)
		}
		r.crosses = append(r.crosses, c)
	}
	return nil
}

// parseChain returns the legs: those of --leg, or one with the link of the other flags.
func (r *labRun) parseChain(given *pflag.FlagSet, flags *linkFlags) ([]lab.Leg, error) {
	if len(r.legs) == 0 {
		link, err := flags.link()
		if err == nil && len(r.middle) > 0 {
			err = exit.Usage("--leg 80ms,1gbit --leg 20ms,100mbit has one", "--middle: there is no host in the middle")
		}
		return []lab.Leg{{Link: link}}, err
	}
	var err error
	given.Visit(func(g *pflag.Flag) {
		switch g.Name {
		case "leg", "middle", "right", "json", "seed":
		default:
			err = exit.Usage("", "--leg and --%s exclude each other", g.Name)
		}
	})
	if err != nil {
		return nil, err
	}
	if hosts := len(r.legs) - 1; len(r.middle) > hosts {
		return nil, exit.Usage("", "--middle: %s for %s in the middle",
			units.Count(int64(len(r.middle)), "command", "commands"), units.Count(int64(hosts), "host", "hosts"))
	}
	legs, err := parseLegs(r.legs)
	for i := range legs {
		legs[i].Link.Seed = flags.seed
	}
	return legs, err
}

func (r *labRun) run(ctx context.Context, legs []lab.Leg, args []string) (code int, err error) {
	var control *lab.Control
	if r.name != "" {
		if control, err = lab.ListenControl(r.name); err != nil {
			return 0, nameError(err, r.name)
		}
	}
	l, err := lab.StartChain(legs)
	if err != nil {
		if control != nil {
			err = errors.Join(err, control.Close())
		}
		return 0, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	var sum labSummary
	defer func() { err = errors.Join(err, r.report(l, &sum)) }()
	ctx = context.WithoutCancel(ctx) // CMD handles signals itself: they are passed on to it
	if control != nil {
		serving, stop := context.WithCancel(ctx)
		served := make(chan error, 1)
		go func() { served <- control.Serve(serving, l) }()
		defer func() {
			stop()
			err = errors.Join(err, <-served)
		}()
	}

	if r.right != "" {
		stop, err := labServer(ctx, l.Right, r.right, r.errs)
		if err != nil {
			return 0, fmt.Errorf("the command of --right: %w", err)
		}
		defer stop()
	}
	var stops []func()
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	for i, line := range slices.Backward(r.middle) {
		stop, err := labServer(ctx, l.Middle[i], line, r.errs)
		if err != nil {
			return 0, fmt.Errorf("command %d of --middle: %w", i+1, err)
		}
		stops = append(stops, stop)
	}

	var others labOthers
	began := time.Now()
	defer func() {
		sum.Seconds = time.Since(began).Seconds()
		others.stop(r.cross, &sum)
	}()
	if err := others.start(l, r.crosses, r.ping); err != nil {
		return 0, err
	}
	left := l.Left.Command(ctx, args[0], args[1:]...)
	left.Stdin, left.Stdout, left.Stderr = r.in, r.out, r.errs
	if err := left.Start(); err != nil {
		return 0, err
	}
	return left.Attend()
}

// report prints what happened on the link.
func (r *labRun) report(l *lab.Lab, sum *labSummary) error {
	legs := l.LegCounters()
	sum.print(r.errs)
	for i, leg := range legs {
		text := countersLine(leg[0], leg[1])
		if len(legs) > 1 {
			text = strings.Replace(text, "fxfer lab:", fmt.Sprintf("fxfer lab: leg %d:", i+1), 1)
		}
		fmt.Fprintln(r.errs, text)
	}
	if r.json == "" {
		return nil
	}
	sum.LeftToRight, sum.RightToLeft = newDirectionSummary(legs[0][0]), newDirectionSummary(legs[0][1])
	for _, leg := range legs[1:] {
		sum.Legs = append(sum.Legs, legSummary{newDirectionSummary(leg[0]), newDirectionSummary(leg[1])})
	}
	return sum.write(r.json)
}

// labServer starts a shell command on a host. It returns a function that stops the command.
// It waits until the command has opened a port, has ended successfully, or has run for rightStart.
func labServer(ctx context.Context, h *lab.Host, line string, errs io.Writer) (stop func(), err error) {
	c := h.Command(ctx, "sh", "-c", line)
	c.Stdout, c.Stderr = errs, errs
	c.Detach()
	if err := c.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	var endErr error
	go func() {
		defer close(ended)
		endErr = c.Wait()
	}()
	stop = func() { c.Stop(ended, rightGrace) }
	if err := awaitPort(h, ended); err != nil {
		stop()
		return nil, err
	}
	select {
	case <-ended:
		return stop, endErr
	default:
		return stop, nil
	}
}

// awaitPort waits until a process on the host has opened a port, until ended is closed, or for
// rightStart.
func awaitPort(h *lab.Host, ended <-chan struct{}) error {
	deadline := time.NewTimer(rightStart)
	defer deadline.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-ended:
			return nil
		case <-deadline.C:
			return nil
		case <-look.C:
			if open, err := h.Listening(); open || err != nil {
				return err
			}
		}
	}
}

// countersLine says what the link did, drops of others included. It leaves out faults that did not happen. A percentage
// relates to the packets that the fault could have hit.
func countersLine(there, back lab.Counters) string {
	var b strings.Builder
	b.WriteString("fxfer lab: ")
	for i, c := range []lab.Counters{there, back} {
		b.WriteString([]string{"left to right ", "; right to left "}[i])
		fmt.Fprintf(&b, "%d packets, %.1f MB", c.Delivered, float64(c.Bytes)/1e6)
		queued := c.Sent - c.Outage
		line := queued - c.Dropped
		for _, fault := range []struct {
			n, of int64
			name  string
		}{
			{c.Outage, c.Sent, "lost while down"},
			{c.Dropped - c.Policed - c.Early, queued, "dropped by the queue"},
			{c.Early, queued, "dropped early by the queue"},
			{c.Policed, queued, "dropped by the policer"},
			{c.Lost, line, "lost"},
			{c.Reordered, line - c.Lost, "reordered"},
			{c.Doubled, line - c.Lost, "doubled"},
			{c.Corrupted, line - c.Lost, "corrupted"},
			{c.TooBig, line - c.Lost, "too big for the path"},
		} {
			if fault.n > 0 {
				fmt.Fprintf(&b, ", %d %s (%.3g%%)", fault.n, fault.name, 100*float64(fault.n)/float64(fault.of))
			}
		}
		if c.OthersSent > 0 {
			fmt.Fprintf(&b, ", of others %d dropped of %d", c.OthersDropped, c.OthersSent)
		}
	}
	return b.String()
}

func newLabUpCommand() *cobra.Command {
	flags := newLinkFlags()
	var foreground bool
	c := &cobra.Command{
		Use:   "up NAME [flags]",
		Short: "Make a lab that stays until \"lab down NAME\"",
		Args:  option.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			link, err := flags.link()
			if err != nil {
				return err
			}
			if !foreground {
				if code, err := lab.Daemonize(append(os.Args[1:], "--foreground")...); code != 0 || err != nil {
					return errors.Join(err, exit.With(code))
				}
				fmt.Fprintf(c.OutOrStdout(), "lab %s is up: fxfer lab exec %s left|right -- CMD\n", args[0], args[0])
				return nil
			}
			if code, ran, err := lab.Elevate(); ran || err != nil {
				return errors.Join(needRoot(err, c), exit.With(code))
			}
			return labServe(c.Context(), args[0], link)
		},
	}
	c.Flags().AddFlagSet(flags.set)
	c.Flags().BoolVar(&foreground, "foreground", false, "stay in the foreground until SIGTERM")
	return c
}

func labServe(ctx context.Context, name string, link lab.Link) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	control, err := lab.ListenControl(name)
	if err != nil {
		return nameError(err, name)
	}
	l, err := lab.Start(link)
	if err != nil {
		return errors.Join(err, control.Close())
	}
	if err := lab.Ready(); err != nil {
		return errors.Join(err, control.Close(), l.Close())
	}
	return control.Serve(ctx, l)
}

// dialLab returns a client for the lab with this name.
func dialLab(name string) (*lab.Client, error) {
	client, err := lab.Dial(name)
	return client, nameError(err, name)
}

// nameError gives an error about the name of a lab its kind and a hint.
func nameError(err error, name string) error {
	switch {
	case errors.Is(err, lab.ErrNoLab):
		return exit.Usage("`fxfer lab up "+name+"` makes it, and so does `fxfer lab run --name "+name+"`", "%w", err)
	case errors.Is(err, lab.ErrName):
		return exit.Usage("", "%w", err)
	}
	return err
}

func newLabExecCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "exec NAME left|right -- CMD [ARG...]",
		Short: "Run a command on a host of a lab, and return its exit code",
		Args:  needCommand(3, "what are the lab, the side and the command?"),
		RunE: func(c *cobra.Command, args []string) error {
			name, side, cmd := args[0], args[1], args[2:]
			if cmd[0] == "--" {
				cmd = cmd[1:]
			}
			if side != "left" && side != "right" || len(cmd) == 0 {
				return exit.Usage("usage: "+c.UseLine(), "left or right, and a command are needed")
			}
			client, err := dialLab(name)
			if err != nil {
				return err
			}
			code, err := client.Exec(side, cmd...)
			if err != nil {
				return err
			}
			return exit.With(code)
		},
	}
	c.Flags().SetInterspersed(false)
	return c
}

func newLabSetCommand() *cobra.Command {
	flags := newLinkFlags()
	var outage time.Duration
	var from string
	c := &cobra.Command{
		Use:   "set NAME [flags]",
		Short: "Change the link of a lab that is up",
		Long: `Set changes the properties that its flags name, at once and in both directions.
Packets that are already on their way arrive as planned.

NAME is that of "lab up" or of "lab run --name".`,
		Example: `  fxfer lab set wan --up 1mbit --down 16mbit
  fxfer lab set wan --loss 1% --from left
  fxfer lab set wan --outage 10s`,
		Args: option.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			changes, err := flags.changes()
			if err != nil {
				return err
			}
			changes[0].Down = outage
			switch from {
			case "":
			case "left":
				changes[0].Direction = lab.LeftToRight
			case "right":
				changes[0].Direction = lab.RightToLeft
			default:
				return exit.Usage("", "--from: %q is neither left nor right", from)
			}
			if n := c.Flags().NFlag(); n == 0 || n == 1 && from != "" {
				return exit.Usage("name what to change, as in --loss 1%", "nothing to set")
			}
			client, err := dialLab(args[0])
			if err != nil {
				return err
			}
			for _, change := range changes {
				if err := client.Set(change); err != nil {
					return err
				}
			}
			return nil
		},
	}
	flags.set.VisitAll(func(f *pflag.Flag) {
		if f.Name != "mtu" && f.Name != "seed" && f.Name != "line" {
			f.DefValue = "" // help shows no defaults, because flags that are not given change nothing
			if f.Value.Type() == "int" {
				f.DefValue = "0"
			}
			c.Flags().AddFlag(f)
		}
	})
	option.Add(c.Flags(), &outage, "outage", "time", "", "lose all packets for this long, from now on", parseLabTime)
	c.Flags().StringVar(&from, "from", "", "change only the direction from this `host` (left or right), except by --up and --down")
	return c
}

func newLabDownCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down NAME",
		Short: "End a lab and all programs in it",
		Args:  option.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := dialLab(args[0])
			if err != nil {
				return err
			}
			there, back, err := client.Down()
			if err != nil {
				return err
			}
			fmt.Fprintln(c.ErrOrStderr(), countersLine(there, back))
			return nil
		},
	}
}

func newLabLinesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lines",
		Short: "List the lines that --line knows",
		Args:  option.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			return listLines(c.OutOrStdout())
		},
	}
}

func listLines(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LINE\tUP\tDOWN\tRTT\tJITTER\tLOSS\tQUEUE\tMTU\tPOLICE\tWHAT")
	for _, p := range lab.Presets {
		f := presetFlags(p.Link)
		cells := []string{p.Name}
		for _, name := range []string{"up", "down", "rtt", "jitter", "loss", "queue", "mtu", "police"} {
			cells = append(cells, cmp.Or(f[name], "-"))
		}
		fmt.Fprintln(w, strings.Join(append(cells, p.What), "\t"))
	}
	fmt.Fprintln(w, "\nSources. All other figures are ours: round values for an ordinary day.")
	for _, p := range lab.Presets {
		fmt.Fprintln(w, p.Name+"\t"+p.Source)
	}
	return w.Flush()
}

// presetFlags returns the values of the flags that stand for the link of a preset.
func presetFlags(l lab.Link) map[string]string {
	f := map[string]string{
		"up": units.ExactRate(l.Rate), "down": units.ExactRate(cmp.Or(l.RateBack, l.Rate)),
		"rtt": l.RTT.String(), "mtu": strconv.Itoa(l.MTU),
	}
	if l.Jitter > 0 {
		f["jitter"] = l.Jitter.String()
	}
	if l.Loss > 0 {
		f["loss"] = strconv.FormatFloat(l.Loss*100, 'g', -1, 64) + "%"
	}
	f["queue"] = fmt.Sprintf("%gbdp", l.BufferBDP)
	if l.Buffer > 0 {
		f["queue"] = fmt.Sprintf("%dKiB", l.Buffer>>10)
	}
	if l.Police > 0 {
		f["police"] = fmt.Sprintf("%s,%dKiB", units.ExactRate(l.Police), l.PoliceBurst>>10)
	}
	return f
}

// linkFlags are the flags that describe a link.
type linkFlags struct {
	set                                      *pflag.FlagSet
	line, rate, up, down                     string
	loss, reorder, duplicate, corrupt, queue string
	rtt, jitter                              time.Duration
	mtu, pmtu                                int
	blackHole, unscaled                      bool
	block, police, policeUDP, aqm            string
	seed                                     uint64
}

// needCommand is for commands that run another one, which is the last of at least n arguments.
func needCommand(n int, question string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < n {
			return exit.Usage("usage: "+c.UseLine(), "%s", question)
		}
		return nil
	}
}

func parseLabTime(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a time with a unit, such as 10ms or 0.5s", s)
	}
	return d, nil
}

func newLinkFlags() *linkFlags {
	f := &linkFlags{set: pflag.NewFlagSet("link", pflag.ContinueOnError)}
	f.set.SortFlags = false
	f.set.StringVar(&f.line, "line", "", "`name` of a line from \"lab lines\"; the other flags change it")
	f.set.StringVar(&f.rate, "rate", "1gbit", "`rate` of the line, on the wire: 1gbit, 200mbit, 20MB/s")
	f.set.StringVar(&f.up, "up", "", "`rate` from left to right, if the two differ")
	f.set.StringVar(&f.down, "down", "", "`rate` from right to left, if the two differ")
	f.rtt = 10 * time.Millisecond
	option.Add(f.set, &f.rtt, "rtt", "time", "10ms", "round-trip time of the empty link", parseLabTime)
	option.Add(f.set, &f.jitter, "jitter", "time", "", "time by which the round trip is longer or shorter at most: every so often, each direction "+
		"draws half of it anew, uniformly; packets keep their order", parseLabTime)
	f.set.StringVar(&f.queue, "queue", "1bdp", "`size` of the queue before the line: bytes, 64KiB, or 0.5bdp (half of rate × rtt)")
	f.set.StringVar(&f.aqm, "aqm", "none", "`how` the queue drops early: codel (RFC 8289) or none")
	f.set.StringVar(&f.police, "police", "", "drop what exceeds `rate,burst` before the queue, such as 200mbit,256KiB; \"\" is none")
	f.set.StringVar(&f.loss, "loss", "0%", "`share` of segments lost")
	f.set.StringVar(&f.reorder, "reorder", "0%", "`share` of segments that later ones overtake")
	f.set.StringVar(&f.duplicate, "duplicate", "0%", "`share` of segments that arrive twice")
	f.set.StringVar(&f.corrupt, "corrupt", "0", "bit error `rate`, such as 1e-6")
	f.set.IntVar(&f.mtu, "mtu", 1500, "largest IP packet in `bytes`; below 1280 there is no IPv6")
	f.set.IntVar(&f.pmtu, "pmtu", 0, "largest IP packet in `bytes` that passes the middle of the path (0: the MTU)")
	f.set.BoolVar(&f.blackHole, "black-hole", false, "packets larger than --pmtu vanish without an ICMP message")
	f.set.BoolVar(&f.unscaled, "strip-wscale", false, "remove the window scale option from SYNs, as some firewalls do")
	f.set.StringVar(&f.block, "block", "none", "`protocol` that does not pass: tcp, udp or none")
	f.set.StringVar(&f.policeUDP, "police-udp", "", "drop UDP beyond this `rate`, as some providers do; \"\" is none")
	f.set.Uint64Var(&f.seed, "seed", 1, "`number` that decides which segments the faults hit")
	return f
}

func (f *linkFlags) link() (lab.Link, error) {
	if err := f.applyLine(); err != nil {
		return lab.Link{}, err
	}
	c, err := f.parse(func(string) bool { return true })
	if err != nil {
		return lab.Link{}, err
	}
	up, down, err := f.rates()
	if err != nil {
		return lab.Link{}, err
	}
	l := lab.Link{
		Rate: *c.Rate, RTT: *c.RTT, Jitter: *c.Jitter, Loss: *c.Loss, Reorder: *c.Reorder, Duplicate: *c.Duplicate, Corrupt: *c.Corrupt,
		MTU: f.mtu, PMTU: f.pmtu, BlackHole: f.blackHole, Unscaled: f.unscaled, NoTCP: *c.NoTCP, NoUDP: *c.NoUDP, PoliceUDP: *c.PoliceUDP,
		Police: *c.Police, PoliceBurst: *c.PoliceBurst, CoDel: *c.CoDel, Seed: f.seed,
	}
	if there, back := cmp.Or(up, l.Rate), cmp.Or(down, l.Rate); there != back {
		l.Rate, l.RateBack = there, back
	} else {
		l.Rate = there
	}
	if c.Buffer != nil {
		l.Buffer = *c.Buffer
	} else {
		l.BufferBDP = *c.BufferBDP
	}
	if err := l.Check(); err != nil {
		return lab.Link{}, exit.Usage("", "%w", err)
	}
	return l, nil
}

// applyLine gives the flags that were not given the values of --line.
func (f *linkFlags) applyLine() error {
	if f.line == "" {
		return nil
	}
	l, err := lab.PresetLink(f.line)
	if err != nil {
		return exit.Usage("", "--line: %w", err)
	}
	given := make(map[string]bool)
	f.set.Visit(func(g *pflag.Flag) { given[g.Name] = true })
	given["up"] = given["up"] || given["rate"]
	given["down"] = given["down"] || given["rate"]
	for name, value := range presetFlags(l) {
		if given[name] {
			continue
		}
		if err := f.set.Set(name, value); err != nil {
			return fmt.Errorf("--line %s: --%s: %w", f.line, name, err)
		}
	}
	return nil
}

// rates returns what --up and --down say, or 0.
func (f *linkFlags) rates() (up, down int64, err error) {
	for _, r := range []struct {
		name, value string
		to          *int64
	}{{"up", f.up, &up}, {"down", f.down, &down}} {
		if r.value == "" {
			continue
		}
		if *r.to, err = units.ParseRate(r.value); err != nil {
			return 0, 0, exit.Usage("", "--%s: %w", r.name, err)
		}
	}
	return up, down, nil
}

// changes returns the changes that the given flags ask for. The first has all but --up and --down.
func (f *linkFlags) changes() ([]lab.Change, error) {
	both, err := f.parse(f.set.Changed)
	if err != nil {
		return nil, err
	}
	up, down, err := f.rates()
	if err != nil {
		return nil, err
	}
	changes := []lab.Change{both}
	if up != 0 {
		changes = append(changes, lab.Change{Direction: lab.LeftToRight, Rate: &up})
	}
	if down != 0 {
		changes = append(changes, lab.Change{Direction: lab.RightToLeft, Rate: &down})
	}
	return changes, nil
}

// parse reads the flags whose values are names.
func (f *linkFlags) parse(want func(name string) bool) (lab.Change, error) {
	var c lab.Change
	var failed error
	get := func(name string, parse func() error) {
		if want(name) && failed == nil {
			if err := parse(); err != nil {
				failed = exit.Usage("", "--%s: %w", name, err)
			}
		}
	}
	get("rate", func() (err error) { c.Rate, err = pointer(units.ParseRate(f.rate)); return })
	get("rtt", func() error { c.RTT = &f.rtt; return nil })
	get("jitter", func() error { c.Jitter = &f.jitter; return nil })
	get("aqm", func() error {
		on := f.aqm == "codel"
		if !on && f.aqm != "none" {
			return fmt.Errorf("%q is neither codel nor none", f.aqm)
		}
		c.CoDel = &on
		return nil
	})
	get("police", func() (err error) {
		c.Police, c.PoliceBurst, err = parsePolice(f.police)
		return err
	})
	get("loss", func() (err error) { c.Loss, err = pointer(units.ParsePercent(f.loss)); return })
	get("reorder", func() (err error) { c.Reorder, err = pointer(units.ParsePercent(f.reorder)); return })
	get("duplicate", func() (err error) { c.Duplicate, err = pointer(units.ParsePercent(f.duplicate)); return })
	get("corrupt", func() (err error) { c.Corrupt, err = pointer(parseProbability(f.corrupt)); return })
	get("pmtu", func() error { c.PMTU = &f.pmtu; return nil })
	get("strip-wscale", func() error { c.Unscaled = &f.unscaled; return nil })
	get("block", func() error {
		tcp, udp := f.block == "tcp", f.block == "udp"
		if !tcp && !udp && f.block != "none" {
			return fmt.Errorf("%q is neither tcp nor udp nor none", f.block)
		}
		c.NoTCP, c.NoUDP = &tcp, &udp
		return nil
	})
	get("police-udp", func() (err error) {
		c.PoliceUDP = new(int64)
		if f.policeUDP != "" {
			*c.PoliceUDP, err = units.ParseRate(f.policeUDP)
		}
		return err
	})
	get("black-hole", func() error { c.BlackHole = &f.blackHole; return nil })
	get("queue", func() (err error) {
		bdp, ok := strings.CutSuffix(f.queue, "bdp")
		if !ok {
			n, err := units.ParseSize(f.queue)
			if err != nil {
				return fmt.Errorf("%w, or a multiple of rate × rtt such as 0.5bdp", err)
			}
			if n == 0 {
				return errors.New("a queue of 0 bytes lets nothing pass")
			}
			c.Buffer = &n
			return nil
		}
		n, err := strconv.ParseFloat(bdp, 64)
		if err != nil || !(n > 0) || math.IsInf(n, 0) {
			return fmt.Errorf("%q is not a multiple of rate × rtt such as 1bdp or 0.5bdp", f.queue)
		}
		c.BufferBDP = &n
		return nil
	})
	return c, failed
}

// parsePolice reads a rate and a burst.
func parsePolice(s string) (rate, burst *int64, err error) {
	if s == "" {
		return new(int64), new(int64), nil
	}
	first, second, ok := strings.Cut(s, ",")
	if !ok {
		return nil, nil, fmt.Errorf("%q is not a rate and a burst such as 200mbit,256KiB", s)
	}
	if rate, err = pointer(units.ParseRate(first)); err != nil {
		return nil, nil, err
	}
	burst, err = pointer(units.ParseSize(second))
	return rate, burst, err
}

func pointer[T any](v T, err error) (*T, error) { return &v, err }

func parseProbability(s string) (float64, error) {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n >= 0 && n <= 1) {
		return 0, fmt.Errorf("%q is not a bit error rate such as 1e-6", s)
	}
	return n, nil
}
