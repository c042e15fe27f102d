package path

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/cli/verdict"
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
	port  string
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
at most 3 s more, and says what it could not measure.

Bufferbloat is graded by how much the median round trip grows under load: A is
less than 30 ms, B 60, C 100, D 200, E 400, and F is more.

With --requests, a probe measures nothing but requests, in all ways that programs
send them: in one write or two, with TCP_NODELAY or TCP_CORK at either side, one,
ten or all on a connection, with TLS and without. It shows medians of all sizes,
and for 2 KiB the 99th percentile, requests a second, and how much of the time is
connecting, sending and waiting. --json has these numbers for all sizes.

HOST:PORT can be any other TCP service. Then probe shows what one side can see.
If it is a web server or CDN, with TLS or without, probe counts the segments that
it sends before the first acknowledgement. If it is an iperf3 server, probe also
measures goodput; --sock-buf sets the buffers of both ends.`,
		Example: `  fxfer probe fxfer://nas
  fxfer probe fxfer://nas --streams 8 --html path.html
  fxfer probe fxfer://nas --requests --think 10ms
  fxfer probe example.org:443
  fxfer probe example.org -p 5202`,
		SuggestFor: []string{"test", "measure", "speedtest", "iperf", "mtu"},
		Args:       option.Exactly(1),
		PreRunE:    func(c *cobra.Command, _ []string) error { return option.ApplySettings(c) },
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.probe.Check(); err != nil {
				return err
			}
			if !fxfer.IsURL(args[0]) {
				if f.port != "" {
					args[0] = net.JoinHostPort(args[0], f.port)
				}
				return f.runForeign(c, args[0])
			}
			if f.port != "" {
				return exit.Usage("write it into the URL: fxfer://nas:7433", "-p is the port of another service")
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
	option.Add(flags, &f.probe.Time, "time", "time", "17s, 40s with --requests", "how long the probe takes", units.ParseTime)
	flags.BoolVar(&f.probe.Requests, "requests", false, "measure requests and replies only, in all ways")
	option.Add(flags, &f.probe.Think, "think", "time", "0s", "with --requests: pause between them", units.ParseTime)
	option.Add(flags, &f.probe.Streams, "streams", "n", option.Auto, "streams of the second measurement", option.ParseAutoCount)
	option.Add(flags, &f.probe.Bytes, "most", "size", "16GiB", "move at most this many bytes", parseSomeSize)
	flags.StringVarP(&f.port, "port", "p", "", "`port` of another service, as in iperf3")
	option.AddTransport(flags, &f.opt)
	option.AddTuning(flags, &f.opt.SockBuf, &f.opt.Congestion)
	option.AddTrust(flags, &f.opt)
	option.Add(flags, &f.html, "html", "file", "", "also write the report as a page to a file", option.ParseOutput)
	flags.BoolVar(&f.json, "json", false, "print JSON on standard output")
	option.AddSettings(c)
	return c
}

func (f *probeFlags) run(c *cobra.Command, u fxfer.URL) error {
	if err := checkPage(f.html); err != nil {
		return err
	}
	ctx, stop := exit.Interruptible(c.Context())
	defer stop()
	opt := f.opt
	opt.Confirm = term.Confirmer()
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
	if err == nil {
		err = writePage(f.html, func(w io.Writer) error { return writeProbePage(w, report, time.Now()) })
	}
	switch {
	case f.json && report != nil:
		term.JSON(c.OutOrStdout(), jsonProbe{"probe", report, verdict.JSONOf(report.Verdicts)})
	case report != nil:
		printProbe(c.OutOrStdout(), report)
	}
	return err
}

type jsonProbe struct {
	Type string `json:"type"`
	*fxfer.ProbeReport
	Limits []verdict.JSON `json:"limits"`
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
	if f.probe.Requests {
		return exit.Usage("name the URL of a server of fxfer", "--requests needs fxfer there, too")
	}
	ctx, stop := exit.Interruptible(c.Context())
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, foreignTime)
	defer cancel()
	view, err := exit.Within(ctx, func() (*probe.ServiceView, error) { return probe.Foreign(ctx, address, foreignFlow, f.opt.SockBuf) })
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		err = exit.Interrupted("")
	case errors.Is(err, syscall.ECONNREFUSED):
		err = exit.WithHint(&fxfer.Error{Kind: fxfer.KindUnreachable, Err: err}, "does a service listen there, and on this port?")
	case err != nil:
		err = &fxfer.Error{Kind: fxfer.KindUnreachable, Err: err}
	}
	switch {
	case err != nil:
	case f.json:
		term.JSON(c.OutOrStdout(), struct {
			Type string `json:"type"`
			*probe.ServiceView
		}{"foreign", view})
	default:
		serviceRows(view).print(c.OutOrStdout())
	}
	return err
}
