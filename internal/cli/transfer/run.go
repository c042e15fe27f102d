// Package transfer contains what send, get and restoring backups share: flags, progress and
// summary.
package transfer

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/backup"
	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Resumes is the hint after an interruption. Streams from standard input cannot resume.
const Resumes = "the same command resumes"

// answerSoon is when people want to know what a transfer waits for.
const answerSoon = 3 * time.Second

// Run runs a transfer with a client made from the flags of c, and shows it. The verb is "sent" or
// "received". The remedy is the hint after an interruption.
func Run(c *cobra.Command, f *Flags, verb, remedy string, run func(context.Context, *fxfer.Client, fxfer.Transfer) (*fxfer.Report, error)) error {
	collectLate()
	ctx, stop := exit.Interruptible(c.Context())
	defer stop()
	d := guarded{shown: newDisplay(f, verb, c.OutOrStdout(), c.ErrOrStderr())}
	var lines *reportFile
	if f.report != "" {
		var err error
		if lines, err = newReportFile(f.report); err != nil {
			return err
		}
		d.shown = &reporting{d.shown, lines}
	}
	opt, call := f.Opt, f.Call
	opt.Notice, call.Progress, call.File = d.notice, d.progress, d.lists()
	opt.Confirm = term.Confirmer()
	if fxfer.IsURL(f.Target) { // otherwise ssh may ask for a password
		defer sayWait(f.Target, &opt, &call)()
	}
	began := time.Now()
	report, err := exit.Within(ctx, func() (*fxfer.Report, error) {
		client, err := fxfer.NewClient(opt)
		if err != nil {
			return nil, err
		}
		return run(ctx, client, call)
	})
	if late := time.Since(f.Call.Deadline); err == nil && !f.Call.Deadline.IsZero() && late > 0 && !f.Call.Target.DryRun {
		d.notice("the deadline was missed: the transfer ended " + units.Time(late) + " after it")
	}
	if err != nil && ctx.Err() != nil {
		err = exit.Interrupted(remedy)
	}
	if report != nil && !f.Call.Target.DryRun {
		record := backup.RecordOf(verbs[verb], f.Target, began, report, err)
		if err != nil && f.Exec != "" { // nothing of the output stays at the target
			record.Written, record.Goodput = 0, 0
		}
		remember(record, d.notice)
	}
	d.finish(report, err)
	if lines != nil {
		if failed := lines.close(); failed != nil && err == nil {
			err = &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: fmt.Errorf("report: %w", failed)}
		}
	}
	return err
}

// sayWait has a transfer say that its target does not answer, if it has not begun soon, and nobody was
// asked whether to trust the server. The caller calls done when the transfer has ended.
func sayWait(target string, opt *fxfer.Options, call *fxfer.Transfer) (done func()) {
	notice, progress, confirm := opt.Notice, call.Progress, opt.Confirm
	wait := time.AfterFunc(answerSoon, func() { notice("no answer yet from " + target) })
	call.Progress = func(p fxfer.Progress) {
		wait.Stop()
		progress(p)
	}
	if confirm != nil {
		opt.Confirm = func(ctx context.Context, server, pin string, knownAs []string) (bool, error) {
			wait.Stop()
			return confirm(ctx, server, pin, knownAs)
		}
	}
	return func() { wait.Stop() }
}

// verbs are the names of commands by the verbs in messages.
var verbs = map[string]string{"sent": "send", "received": "get"}

// remember adds a transfer to the history. If that fails, the transfer still succeeds.
func remember(r *backup.Record, notice func(string)) {
	home, err := identity.Home()
	if err == nil {
		err = backup.OpenStore(home).Add(r)
	}
	if err != nil {
		notice(fmt.Sprintf("history: %v", err))
	}
}
