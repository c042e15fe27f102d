package path

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/backup"
	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/path/tune"
	"github.com/fxfer/fxfer/internal/profile"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

const (
	tuneSize   = 100e6
	tuneRounds = 4
	tuneBudget = 10 * time.Minute
)

// tuneStreams are compared if no factor is named.
var tuneStreams = []int{1, 4, 32}

// tuneFlags are the flags of tune.
type tuneFlags struct {
	opt     fxfer.Options
	factors tune.Factors
	size    int64
	rounds  int
	budget  time.Duration
	comment string
	save    string
	html    string
	json    bool
}

// NewTune returns the command that compares settings on a path.
func NewTune() *cobra.Command {
	f := tuneFlags{size: tuneSize, rounds: tuneRounds, budget: tuneBudget}
	c := &cobra.Command{
		Use:               "tune URL...",
		ValidArgsFunction: option.CompleteURL,
		Short:             "Compare settings on a path by experiment",
		Long: `Tune finds out whether other settings than the defaults would make transfers to a
server faster. It sends data from memory to the memory of the server with each
setting in turn, and touches no files. It fills the line for minutes.

Name the settings to compare. With several options, tune compares all
combinations; without any, it compares --streams 1,4,32. In each round, every
setting runs once in random order, and so do the defaults. A first run does not
count. Settings that are still undecided after --rounds get further rounds, as
long as the budget lasts. If it is too short, the runs become smaller.

The goodput of a setting is compared with that of the defaults in the same round.
The interval holds the true difference in 95 % of all experiments (Student's t;
Holm's correction for several settings). From seven rounds on, the largest and the
smallest seventh of the differences are left out, so that single disturbed runs
hide nothing. A setting is faster or slower only if its interval does not hold 0
and the difference is 2 % or more. All others are equal: then less sent again wins,
then less added delay, then fewer streams. That no setting differs from the
defaults is the usual result.

With several URLs, tune compares the settings at each server, and says whether
one is best for all. --save keeps the best setting as a profile for
"fxfer send --profile NAME". Ctrl-C ends the experiment and keeps what was
measured. "fxfer history --tunes" lists the experiments of this host.`,
		Example: `  fxfer tune fxfer://nas
  fxfer tune fxfer://nas --streams 1,4,16 --congestion bbr,cubic --save office
  fxfer tune fxfer://nas fxfer://backup --transport tcp,quic --html tune.html
  fxfer tune fxfer://nas --sock-buf 1bdp,2bdp,17520 --comment "new router"`,
		SuggestFor: []string{"optimize", "experiment", "benchmark", "bench", "compare-settings"},
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usage("for example: fxfer tune fxfer://nas", "tune needs the URL of a server")
			}
			return option.NoEmpty(args)
		},
		PreRunE: func(c *cobra.Command, _ []string) error { return option.ApplySettings(c, ownTuneFlags...) },
		RunE: func(c *cobra.Command, args []string) error {
			var urls []fxfer.URL
			for _, arg := range args {
				u, err := option.ParseURL(arg, false)
				if err != nil {
					return err
				}
				if err := option.CheckPin(f.opt.Pin, u); err != nil {
					return err
				}
				if slices.ContainsFunc(urls, func(other fxfer.URL) bool { return other.Address() == u.Address() }) {
					return exit.Usage("name each server once", "%s is there twice", u.Address())
				}
				urls = append(urls, u)
			}
			return f.run(c, urls)
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	option.Group(flags, "What to compare with the defaults", func() {
		option.Add(flags, &f.factors.Streams, "streams", "list", "", "numbers of data streams, such as 1,4,16", listOf(option.ParseAutoCount))
		option.Add(flags, &f.factors.Congestion, "congestion", "list", "", "congestion controls, such as bbr,cubic", listOf(option.ParseCongestion))
		option.Add(flags, &f.factors.SockBuf, "sock-buf", "list", "", "fixed socket buffers: auto, sizes, or multiples of the BDP, such as 2bdp", listOf(parseTuneBuffer))
		option.Add(flags, &f.factors.Transport, "transport", "list", "", "transports: tcp,quic", listOf(parseTuneTransport))
		option.Add(flags, &f.factors.Priority, "priority", "list", "", "priorities beside other traffic: low,normal,high", listOf(parseTunePriority))
	})
	option.Group(flags, "The experiment", func() {
		option.Add(flags, &f.size, "size", "size", "100MB", "send this much in each run", parseSomeSize)
		option.Add(flags, &f.rounds, "rounds", "n", strconv.Itoa(tuneRounds), "run each setting at least this often", parseTuneRounds)
		option.Add(flags, &f.budget, "budget", "time", "10m", "take about this long for all runs", parseSomeTime)
	})
	option.Group(flags, "Server", func() { option.AddTrust(flags, &f.opt) })
	option.Group(flags, "Output", func() {
		option.Add(flags, &f.comment, "comment", "text", "", "keep a comment with the result in the history", func(s string) (string, error) { return s, nil })
		option.Add(flags, &f.save, "save", "name", "", "keep the best setting as a profile of this name", profile.ParseName)
		option.Add(flags, &f.html, "html", "file", "", "also write the result as a page to a file", option.ParseOutput)
		flags.BoolVar(&f.json, "json", false, "print JSON on standard output")
	})
	c.SetUsageFunc(option.GroupedUsage)
	option.AddSettings(c)
	return c
}

// ownTuneFlags belong to one experiment. Settings of the same names are about transfers.
var ownTuneFlags = []string{"streams", "congestion", "sock-buf", "transport", "priority", "comment", "save"}

// listOf returns a function that reads values with commas between them.
func listOf[T any](parse func(string) (T, error)) func(string) ([]T, error) {
	return func(s string) (all []T, err error) {
		for part := range strings.SplitSeq(s, ",") {
			v, err := parse(strings.TrimSpace(part))
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
		return all, nil
	}
}

func parseTuneBuffer(s string) (tune.Buffer, error) {
	if number, ok := strings.CutSuffix(s, "bdp"); ok {
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || !(n >= 0.1 && n <= 100) {
			return tune.Buffer{}, fmt.Errorf("%q is not a multiple of the BDP from 0.1bdp to 100bdp", s)
		}
		return tune.Buffer{BDP: n}, nil
	}
	n, err := option.ParseSockBuf(s)
	return tune.Buffer{Bytes: int64(n)}, err
}

func parseTuneTransport(s string) (string, error) {
	t, err := option.ParseTransport(s)
	if t == fxfer.TransportAuto {
		t = ""
	}
	return string(t), err
}

func parseTunePriority(s string) (string, error) {
	p, err := option.ParsePriority(s)
	return string(p), err
}

func parseTuneRounds(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n < 2 || n > 100 {
		return 0, fmt.Errorf("%q is not a number from 2 to 100: one run shows no spread", s)
	}
	return int(n), nil
}

// run makes the experiment, and shows and keeps its result.
func (f *tuneFlags) run(c *cobra.Command, urls []fxfer.URL) error {
	if err := checkPage(f.html); err != nil {
		return err
	}
	opt := tune.Options{Settings: f.factors.Settings(), Size: f.size, Rounds: f.rounds, Budget: f.budget, Seed: uint64(time.Now().UnixMicro() % 1e6)}
	if f.factors.Named() {
		if err := opt.Check(); err != nil {
			return exit.Usage("for example: --streams 1,4,16", "%w", err)
		}
	} else {
		opt.Settings = (&tune.Factors{Streams: tuneStreams}).Settings()
	}
	for _, u := range urls {
		opt.Servers = append(opt.Servers, strings.TrimSuffix(fxfer.URL{Host: u.Host, Port: u.Port}.String(), "/"))
	}
	bench := &tuneBench{flags: f, urls: urls}
	opt.Measure = bench.measure
	if !f.json {
		fmt.Fprintf(c.ErrOrStderr(), "fxfer: %s and the defaults, at least %s, seed %d\n", units.Count(int64(len(opt.Settings)), "setting", "settings"),
			units.Count(int64(f.rounds), "round", "rounds"), opt.Seed)
		opt.Progress = func(done, planned int, server string, s tune.Setting, m tune.Measure) {
			fmt.Fprintf(c.ErrOrStderr(), "fxfer: run %d of about %d: %s, %s: %s\n", done, planned, server, s, units.Rate(m.Goodput))
		}
	}
	ctx, stop := exit.Interruptible(c.Context())
	defer stop()
	began := time.Now()
	report, err := exit.Within(ctx, func() (*tune.Report, error) { return tune.Run(ctx, opt) })
	if err != nil && ctx.Err() != nil {
		err = exit.Interrupted("")
	}
	if report == nil {
		return err
	}
	f.show(c.OutOrStdout(), began, report)
	home, failed := identity.Home()
	if failed == nil {
		failed = backup.OpenStore(home).AddTune(&backup.Tune{Started: began, Comment: f.comment, Report: report})
	}
	if failed != nil {
		fmt.Fprintf(c.ErrOrStderr(), "fxfer: history: %v\n", failed)
	}
	if f.html != "" {
		err = errors.Join(err, writePage(f.html, func(w io.Writer) error { return writeTunePage(w, report, f.comment, began) }))
	}
	if f.save != "" && err == nil {
		err = f.keep(c.ErrOrStderr(), home, began, report)
	}
	return err
}

func (f *tuneFlags) show(w io.Writer, began time.Time, r *tune.Report) {
	if f.json {
		term.JSON(w, struct {
			Type    string    `json:"type"`
			Started time.Time `json:"started"`
			Comment string    `json:"comment,omitempty"`
			*tune.Report
		}{"tune", began, f.comment, r})
		return
	}
	printTune(w, r)
}

// keep saves the best setting as a profile.
func (f *tuneFlags) keep(w io.Writer, home string, began time.Time, r *tune.Report) error {
	if r.Best == nil {
		return &fxfer.Error{Kind: fxfer.KindOther, Err: errors.New("no setting is best for all servers, so no profile is saved")}
	}
	bdp := 0.0
	for i := range r.Servers {
		bdp = max(bdp, r.Servers[i].BDP)
	}
	p := profileOf(r.Best.On(bdp))
	note := fmt.Sprintf("%s, found by fxfer tune on %s", r.Best, began.Format(time.DateOnly))
	if err := p.Save(home, f.save, note); err != nil {
		return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: fmt.Errorf("save the profile: %w", err)}
	}
	fmt.Fprintf(w, "fxfer: profile %s has the best setting (%s): use it with --profile %s\n", f.save, r.Best, f.save)
	return nil
}

func profileOf(s tune.Setting) profile.Profile {
	return profile.Profile{Streams: s.Streams, Congestion: s.Congestion, SockBuf: int(s.SockBuf.Bytes), Transport: fxfer.Transport(s.Transport), Priority: fxfer.Priority(s.Priority)}
}

// tuneBench makes the runs of an experiment.
type tuneBench struct {
	flags *tuneFlags
	urls  []fxfer.URL
}

// measure implements tune.Options.Measure.
func (b *tuneBench) measure(ctx context.Context, server int, s tune.Setting, size int64, within time.Duration) (m tune.Measure, err error) {
	opt := b.flags.opt
	opt.Confirm = term.Confirmer()
	p := profileOf(s)
	p.Apply(&opt, func(string) bool { return false })
	client, err := fxfer.NewClient(opt)
	if err != nil {
		return m, err
	}
	r, err := client.MeasureUpload(ctx, b.urls[server], size, within)
	if err != nil {
		return m, err
	}
	b.urls[server].Token = "" // an invitation works once
	m = tune.Measure{Goodput: r.Goodput, RTT: r.Idle.Min, Seconds: r.Duration.Seconds(), Bytes: r.Bytes}
	if r.Segments > 0 {
		m.SentAgain = min(1, float64(r.Retransmitted)/float64(r.Segments))
	}
	if r.Loaded.Count > 0 {
		m.Delay = max(0, r.Loaded.Median-r.Idle.Median)
	}
	if r.Bytes > 0 {
		m.CPU = r.CPU.Seconds() / float64(r.Bytes) * 1e9
	}
	return m, nil
}
