package transfer

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// display shows a transfer. Only one of its methods may be called at a time.
type display interface {
	progress(*fxfer.Progress)
	notice(text string)
	// finish removes what progress has drawn, then shows the outcome. The report is nil if there is
	// none, and err is nil after success.
	finish(report *fxfer.Report, err error)
}

// lister is a display that shows the outcome of each entry. Where nobody does, no outcome is made:
// a digest as text is a large part of what a small file costs.
type lister interface{ file(*fxfer.FileResult) }

// newDisplay chooses a display by the flags and the terminal. Results go to out, messages to errs.
// The verb is "sent" or "received".
func newDisplay(f *Flags, verb string, out, errs io.Writer) display {
	human := humanOutput{
		verb: verb, report: f.report, verbose: f.verbose, explain: f.explain, readback: f.Call.Target.Readback,
		owners: verb == "sent" || f.ownersAsked(), out: out, errs: errs,
	}
	switch {
	case f.JSON:
		return &jsonLines{out: out}
	case f.Quiet:
		return quiet{human}
	case f.Call.Target.DryRun:
		return &itemised{plainLines: plainLines{humanOutput: human}, list: bufio.NewWriter(out)}
	case term.IsTerminal(errs) && os.Getenv("TERM") != "dumb":
		return &bars{humanOutput: human}
	}
	return &plainLines{humanOutput: human}
}

// ownersAsked reports whether this user expects owners to be kept. Only root can do that, so others
// have to ask for it.
func (f *Flags) ownersAsked() bool {
	t := &f.Call.Target
	return f.Owners || f.verbose || t.NumericIDs || t.Strict || t.Privileged || os.Geteuid() == 0
}

// guarded makes a display safe for concurrent use. It ignores calls after finish, because a
// transfer that stops slowly may still make some.
type guarded struct {
	mu    sync.Mutex // guards what follows
	shown display    // nil after finish
}

func (g *guarded) call(f func(display)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shown != nil {
		f(g.shown)
	}
}

func (g *guarded) progress(p fxfer.Progress) { g.call(func(d display) { d.progress(&p) }) }
func (g *guarded) notice(text string)        { g.call(func(d display) { d.notice(text) }) }

// lists returns what takes the outcomes of entries, nil if the display does not show them.
func (g *guarded) lists() func(fxfer.FileResult) {
	if _, ok := g.shown.(lister); !ok {
		return nil
	}
	return func(r fxfer.FileResult) { g.call(func(d display) { d.(lister).file(&r) }) }
}

func (g *guarded) finish(report *fxfer.Report, err error) {
	g.call(func(d display) {
		g.shown = nil
		d.finish(report, err)
	})
}

// quiet shows only failures.
type quiet struct{ humanOutput }

func (q quiet) progress(*fxfer.Progress) {}
func (q quiet) notice(string)            {}

func (q quiet) finish(report *fxfer.Report, err error) {
	printFailures(q.errs, report, err, q.report)
}

// humanOutput shows the end of a transfer to people.
type humanOutput struct {
	verb     string
	report   string // the file of --report, "" if there is none
	verbose  bool
	explain  bool
	readback bool // files were read again from the target's disk
	owners   bool // warn if owners could not be stored
	out      io.Writer
	errs     io.Writer
}

func (p *humanOutput) finish(report *fxfer.Report, err error) {
	if report != nil && sayable(report, err) {
		fmt.Fprint(p.out, p.summary(report), p.limits(report))
	} else if report != nil && len(report.Limits) > 0 && report.Retransmits > 0 {
		fmt.Fprint(p.out, p.limits(report))
	}
	if report != nil && p.explain {
		fmt.Fprint(p.out, explain(report))
	}
	p.printWarnings(report)
	printFailures(p.errs, report, err, p.report)
}

// sayable reports whether a report has an outcome besides the error. A part of a plan is none.
func sayable(r *fxfer.Report, err error) bool {
	switch {
	case err == nil:
		return true
	case r.Plan != nil:
		return r.Complete
	}
	return r.Sent+r.Same > 0
}

// PlainEvery is how often plainLines shows progress.
const PlainEvery = 5 * time.Second

// plainLines shows progress as lines, in logs and pipes where nothing can be redrawn.
type plainLines struct {
	humanOutput
	last time.Duration
}

func (l *plainLines) progress(p *fxfer.Progress) {
	if p.Elapsed-l.last < PlainEvery {
		return
	}
	l.last = p.Elapsed
	parts := Totals(p)
	if share := units.PercentDone(p.BytesDone, p.Bytes); share != "" && !p.Walking && !streaming(p) {
		parts = append([]string{share}, parts...)
	}
	l.notice(strings.Join(parts, ", "))
}

func (l *plainLines) notice(text string) { fmt.Fprintf(l.errs, "fxfer: %s\n", term.OneLine(text)) }

// itemised lists what a transfer would do, one line per entry, then a summary.
type itemised struct {
	plainLines
	list *bufio.Writer
}

// plannedWords are the first words of these lines.
var plannedWords = map[fxfer.Outcome]string{
	fxfer.WouldCreate: "create", fxfer.WouldUpdate: "update", fxfer.WouldSet: "metadata", fxfer.WouldRemove: "delete",
}

func (l *itemised) file(r *fxfer.FileResult) {
	if word := plannedWords[r.Outcome]; word != "" {
		fmt.Fprintf(l.list, "%-8s  %s\n", word, term.Name(r.Path))
	}
}

func (l *itemised) progress(p *fxfer.Progress) {
	_ = l.list.Flush() // if writing fails, nobody reads the list
	l.plainLines.progress(p)
}

func (l *itemised) finish(report *fxfer.Report, err error) {
	_ = l.list.Flush() // see progress
	l.plainLines.finish(report, err)
}
