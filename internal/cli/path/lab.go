package path

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
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
	c.AddCommand(newLabRunCommand(), newLabUpCommand(), newLabExecCommand(), newLabSetCommand(), newLabDownCommand())
	return c
}

func newLabRunCommand() *cobra.Command {
	flags := newLinkFlags()
	var right string
	c := &cobra.Command{
		Use:   "run [flags] -- CMD [ARG...]",
		Short: "Run a command in a lab made for it",
		Long: `Run makes a lab, runs CMD on the left host, and removes the lab. The exit code
is that of CMD. At the end, counters of both directions are printed on standard
error.

The shell command of --right starts first, on the right host. CMD starts when
that has opened a port, or 3 s later. When CMD ends, the other command gets
SIGTERM, then SIGKILL. Its output goes to standard error.`,
		Example: `  fxfer lab run --rate 1gbit --rtt 50ms --loss 0.1% --right 'iperf3 -s' -- sh -c 'iperf3 -c $FXFER_LAB_RIGHT'`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			link, err := flags.link()
			if err != nil {
				return err
			}
			if code, ran, err := lab.Elevate(); ran || err != nil {
				return errors.Join(err, exit.With(code))
			}
			code, err := labRun(c.Context(), link, right, args, c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
			if err != nil {
				return err
			}
			return exit.With(code)
		},
	}
	c.Flags().SetInterspersed(false)
	c.Flags().AddFlagSet(flags.set)
	c.Flags().StringVar(&right, "right", "", "shell `command` to run on the right host at the same time")
	return c
}

func labRun(ctx context.Context, link lab.Link, rightLine string, args []string, in io.Reader, out, errs io.Writer) (code int, err error) {
	l, err := lab.Start(link)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	defer func() { fmt.Fprintln(errs, countersLine(l.Counters())) }()
	ctx = context.WithoutCancel(ctx) // CMD handles signals itself: they are passed on to it

	if rightLine != "" {
		stop, err := labRight(ctx, l, rightLine, errs)
		if err != nil {
			return 0, fmt.Errorf("the command of --right: %w", err)
		}
		defer stop()
	}

	left := l.Left.Command(ctx, args[0], args[1:]...)
	left.Stdin, left.Stdout, left.Stderr = in, out, errs
	if err := left.Start(); err != nil {
		return 0, err
	}
	return left.Attend()
}

// labRight starts a shell command on the right host. It returns a function that stops the command.
// It waits until the command has opened a port, has ended successfully, or has run for rightStart.
func labRight(ctx context.Context, l *lab.Lab, line string, errs io.Writer) (stop func(), err error) {
	c := l.Right.Command(ctx, "sh", "-c", line)
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
	if err := awaitPort(l.Right, ended); err != nil {
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

// countersLine says what the link did. It leaves out faults that did not happen. A percentage
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
			{c.Dropped, queued, "dropped by the queue"},
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
				return errors.Join(err, exit.With(code))
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
		return err
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

func newLabExecCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "exec NAME left|right -- CMD [ARG...]",
		Short: "Run a command on a host of a lab, and return its exit code",
		Args:  cobra.MinimumNArgs(3),
		RunE: func(c *cobra.Command, args []string) error {
			name, side, cmd := args[0], args[1], args[2:]
			if cmd[0] == "--" {
				cmd = cmd[1:]
			}
			if side != "left" && side != "right" || len(cmd) == 0 {
				return exit.Usage("usage: "+c.UseLine(), "left or right, and a command are needed")
			}
			client, err := lab.Dial(name)
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
	var down time.Duration
	var from string
	c := &cobra.Command{
		Use:   "set NAME [flags]",
		Short: "Change the link of a lab that is up",
		Long: `Set changes the properties that its flags name, at once and in both directions.
Packets that are already on their way arrive as planned.`,
		Example: `  fxfer lab set wan --loss 1% --from left
  fxfer lab set wan --down 10s`,
		Args: option.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			change, err := flags.change()
			if err != nil {
				return err
			}
			change.Down = down
			switch from {
			case "":
			case "left":
				change.Direction = lab.LeftToRight
			case "right":
				change.Direction = lab.RightToLeft
			default:
				return exit.Usage("", "--from: %q is neither left nor right", from)
			}
			if c.Flags().NFlag() == 0 {
				return exit.Usage("name what to change, as in --loss 1%", "nothing to set")
			}
			client, err := lab.Dial(args[0])
			if err != nil {
				return err
			}
			return client.Set(change)
		},
	}
	flags.set.VisitAll(func(f *pflag.Flag) {
		if f.Name != "mtu" && f.Name != "seed" {
			f.DefValue = "" // help shows no defaults, because flags that are not given change nothing
			switch f.Value.Type() {
			case "duration":
				f.DefValue = "0s"
			case "int":
				f.DefValue = "0"
			}
			c.Flags().AddFlag(f)
		}
	})
	c.Flags().DurationVar(&down, "down", 0, "lose all packets for this long, from now on")
	c.Flags().StringVar(&from, "from", "", "change only the direction from this `host` (left or right)")
	return c
}

func newLabDownCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down NAME",
		Short: "End a lab and all programs in it",
		Args:  option.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := lab.Dial(args[0])
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

// linkFlags are the flags that describe a link.
type linkFlags struct {
	set                                             *pflag.FlagSet
	rate, loss, reorder, duplicate, corrupt, buffer string
	rtt                                             time.Duration
	mtu, pmtu                                       int
	blackHole, unscaled                             bool
	block, police                                   string
	seed                                            uint64
}

func newLinkFlags() *linkFlags {
	f := &linkFlags{set: pflag.NewFlagSet("link", pflag.ContinueOnError)}
	f.set.SortFlags = false
	f.set.StringVar(&f.rate, "rate", "1gbit", "`rate` of the line, on the wire: 1gbit, 200mbit, 20MB/s")
	f.set.DurationVar(&f.rtt, "rtt", 10*time.Millisecond, "round-trip `time` of the empty link")
	f.set.StringVar(&f.buffer, "buffer", "1bdp", "`size` of the queue before the line: bytes, 64KiB, or 0.5bdp (half of rate × rtt)")
	f.set.StringVar(&f.loss, "loss", "0%", "`share` of segments lost")
	f.set.StringVar(&f.reorder, "reorder", "0%", "`share` of segments that later ones overtake")
	f.set.StringVar(&f.duplicate, "duplicate", "0%", "`share` of segments that arrive twice")
	f.set.StringVar(&f.corrupt, "corrupt", "0", "bit error `rate`, such as 1e-6")
	f.set.IntVar(&f.mtu, "mtu", 1500, "largest IP packet in `bytes`")
	f.set.IntVar(&f.pmtu, "pmtu", 0, "largest IP packet in `bytes` that passes the middle of the path (0: the MTU)")
	f.set.BoolVar(&f.blackHole, "black-hole", false, "packets larger than --pmtu vanish without an ICMP message")
	f.set.BoolVar(&f.unscaled, "strip-wscale", false, "remove the window scale option from SYNs, as some firewalls do")
	f.set.StringVar(&f.block, "block", "none", "`protocol` that does not pass: tcp, udp or none")
	f.set.StringVar(&f.police, "police-udp", "", "drop UDP beyond this `rate`, as some providers do; \"\" is none")
	f.set.Uint64Var(&f.seed, "seed", 1, "`number` that decides which segments the faults hit")
	return f
}

func (f *linkFlags) link() (lab.Link, error) {
	c, err := f.parse(func(string) bool { return true })
	if err != nil {
		return lab.Link{}, err
	}
	l := lab.Link{Unscaled: f.unscaled, NoTCP: *c.NoTCP, NoUDP: *c.NoUDP, PoliceUDP: *c.PoliceUDP, Rate: *c.Rate, RTT: *c.RTT, Loss: *c.Loss, Reorder: *c.Reorder, Duplicate: *c.Duplicate, Corrupt: *c.Corrupt, MTU: f.mtu, PMTU: f.pmtu, BlackHole: f.blackHole, Seed: f.seed}
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

// change returns the changes that the given flags ask for.
func (f *linkFlags) change() (lab.Change, error) { return f.parse(f.set.Changed) }

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
		if f.police != "" {
			*c.PoliceUDP, err = units.ParseRate(f.police)
		}
		return err
	})
	get("black-hole", func() error { c.BlackHole = &f.blackHole; return nil })
	get("buffer", func() (err error) {
		bdp, ok := strings.CutSuffix(f.buffer, "bdp")
		if !ok {
			n, err := units.ParseSize(f.buffer)
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
			return fmt.Errorf("%q is not a multiple of rate × rtt such as 1bdp or 0.5bdp", f.buffer)
		}
		c.BufferBDP = &n
		return nil
	})
	return c, failed
}

func pointer[T any](v T, err error) (*T, error) { return &v, err }

func parseProbability(s string) (float64, error) {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n >= 0 && n <= 1) {
		return 0, fmt.Errorf("%q is not a bit error rate such as 1e-6", s)
	}
	return n, nil
}
