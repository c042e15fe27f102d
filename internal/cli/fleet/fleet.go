// Package fleet contains the commands that send one tree with many hosts.
package fleet

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/fleet"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/internal/web"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

const defaultPort = "7435"

// New returns the commands.
func New(version string) *cobra.Command {
	c := &cobra.Command{
		Use:   "fleet",
		Short: "Send one tree with many hosts",
		Long: `A fleet sends one tree with many hosts that see the same files. A controller keeps
the jobs. Workers take parts of the tree, called shards, of about 32 GB or 20,000
files each, and send them with their own keys:

  1. on one host:    fxfer fleet start
  2. on each host:   fxfer fleet worker --controller HOST --read /data
  3. anywhere:       fxfer fleet submit --controller HOST /data/ fxfer://nas/files

First, let each worker into the server: run "fxfer ls" there with an invitation, as
the account of the worker. Then copy credentials.json, whose place "fleet start"
prints, to workers and to those who submit. Whoever has it can submit jobs. A worker
sends only what is in the folders of --read.

Controller and workers may die and come back at any time: a shard whose worker is
gone goes to another one. The last task of a job does what "fxfer send" does, so
the target is then the same as after one command.`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(newStart(version), newWorker(), newSubmit(), newStatus(), newLines())
	c.AddCommand(newChanges()...)
	return c
}

func newStart(version string) *cobra.Command {
	var pages string
	var lines []namedLine
	var external external
	listen, lease := ":"+defaultPort, fleet.DefaultLease
	c := &cobra.Command{
		Use:   "start",
		Short: "Run the controller of a fleet",
		Long: `Start runs the controller until SIGTERM or Ctrl-C. The first time, it makes keys in
the folder "fleet" in FXFER_HOME, beside the store of its jobs. Connections are
encrypted. Members prove that they have a key, and the controller that it has the
certificate in their credentials.

With --nats, jobs are in the JetStream of NATS servers of your own. Members connect
to these, with the same flags, and not to the controller. A cluster of three keeps
three copies of everything, so that one of its servers may die.

A line is what workers share on the way to a server, such as the WAN of their site.
Workers that name it with --line use no more than its rate together. PRIORITY says
how they share it with others: low, normal or high.

With --web, start serves a dashboard, which asks for the token in the file web-token
beside the store, and metrics for Prometheus, which need none.`,
		Example: `  fxfer fleet start
  fxfer fleet start --line wan=1gbit,low
  fxfer fleet start --nats tls://nats1 --nats tls://nats2 --nats-credentials fleet.creds`,
		Args:    option.Exactly(0),
		PreRunE: func(c *cobra.Command, _ []string) error { return option.ApplySettings(c) },
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := folder()
			if err != nil {
				return err
			}
			x := fleet.Controller{Dir: dir, Listen: listen, Lease: lease, Log: logTo(c), Ready: func(address string) {
				fmt.Fprintf(c.ErrOrStderr(), "fxfer: credentials in %s\nfxfer: listening on %s\n", fleet.CredentialsFile(dir), address)
			}}
			failure := fxfer.KindLocalDisk
			if x.External, err = external.queue(c, "listen"); err != nil {
				return err
			}
			if x.External != nil {
				failure = fxfer.KindUnreachable
				x.Ready = func(address string) { fmt.Fprintf(c.ErrOrStderr(), "fxfer: jobs in %s\n", address) }
			}
			x.Lines = make(map[string]fleet.Line)
			for _, l := range lines {
				if _, twice := x.Lines[l.name]; twice {
					return exit.Usage("see `fxfer fleet start --help`", "there are two lines %s", l.name)
				}
				x.Lines[l.name] = l.Line
			}
			ctx, stop := exit.Interruptible(c.Context())
			defer stop()
			if pages != "" {
				ended, err := servePages(c, &x, pages, version)
				if err != nil {
					return err
				}
				defer ended()
			}
			switch err := x.Run(ctx); {
			case fxfer.KindOf(err) == fxfer.KindUsage, errors.Is(err, syscall.EADDRINUSE):
				return exit.WithHint(err, "--listen names an address of this host with a free port, such as :7500")
			case err != nil:
				return &fxfer.Error{Kind: failure, Err: fmt.Errorf("controller: %w", err)}
			}
			return nil
		},
	}
	option.Add(c.Flags(), &listen, "listen", "address", listen, "address for workers and submitters", parseAddress)
	option.AddList(c.Flags(), &lines, "line", "NAME=RATE[,PRIORITY]", "what workers use of a line together, such as wan=1gbit,low; repeatable", parseLine)
	option.Add(c.Flags(), &lease, "lease", "time", "30s", "a worker may be silent for this long", parseLease)
	option.Add(c.Flags(), &pages, "web", "port", "", "metrics, health and dashboard on localhost, or ADDRESS:PORT", web.ParseAddr)
	external.add(c)
	option.AddSettings(c)
	c.Flags().SortFlags = false
	return c
}

func parseAddress(s string) (string, error) {
	_, port, err := net.SplitHostPort(s)
	if err == nil && port == "" {
		err = fmt.Errorf("%q has no port", s)
	}
	return s, err
}

func parseLease(s string) (time.Duration, error) {
	d, err := units.ParseTime(s)
	if err == nil && d < time.Second {
		err = fmt.Errorf("%s is less than a second", s)
	}
	return d, err
}

// folder is where this host has what is the fleet's.
func folder() (string, error) {
	home, err := identity.Home()
	if err != nil {
		return "", &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
	}
	return filepath.Join(home, "fleet"), nil
}

func logTo(c *cobra.Command) *slog.Logger {
	return slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
}

func newWorker() *cobra.Command {
	var m member
	var name, line string
	var read []string
	var opt fxfer.Options
	c := &cobra.Command{
		Use:   "worker",
		Short: "Send shards of a fleet's jobs",
		Long: `Worker takes one task after the other until SIGTERM or Ctrl-C. It connects to
servers with the key in FXFER_HOME, so each server has to know this key, and this
host has to know the server: run "fxfer ls" with an invitation first.

Name each folder that jobs may be about with --read. Symbolic links that lead out
of these folders are sent as links. A job whose source is reached by such a link fails.

With --line, the controller gives this worker a part of the line's rate while it has
a task, more if it uses that. Without an answer of the controller for 5 s, the worker
sends nothing until the next one.`,
		Example: `  fxfer fleet worker --controller head --read /data --read /scratch
  fxfer fleet worker --controller head --read /data --line wan`,
		Args: option.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if len(read) == 0 {
				return exit.Usage("for example: fxfer fleet worker --read /data", "--read is missing: which folders may the worker send?")
			}
			queue, err := m.queue(c)
			if err != nil {
				return err
			}
			if name == "" {
				host, _ := os.Hostname()
				name = fmt.Sprintf("%s-%d", host, os.Getpid())
			}
			log := logTo(c)
			opt.RetryFor = 10 * time.Minute
			opt.Notice = func(text string) { log.Info(text) }
			client, err := fxfer.NewClient(opt)
			if err != nil {
				return err
			}
			ctx, stop := exit.Interruptible(c.Context())
			defer stop()
			w := fleet.Worker{Queue: queue, Name: name, Read: read, Client: client, Log: log, Line: line, Most: opt.RateLimit}
			log.Info("working", "name", name, "queue", queue.String())
			if err := w.Run(ctx); err != nil {
				return &fxfer.Error{Kind: fxfer.KindUnreachable, Err: err}
			}
			return nil
		},
	}
	option.AddList(c.Flags(), &read, "read", "dir", "a folder that jobs may be about; repeatable", filepath.Abs)
	option.Add(c.Flags(), &name, "name", "name", "", "name in status; without it host and process", parseName)
	option.Add(c.Flags(), &line, "line", "name", "", "the line that it shares with other workers; without it none", parseLineName)
	option.Add(c.Flags(), &opt.RateLimit, "rate-limit", "rate", "none", "limit the rate, such as 200mbit or 20MB/s", option.ParseLimit)
	m.add(c)
	return c
}

func parseName(s string) (string, error) { return s, nil }
