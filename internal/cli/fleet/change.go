package fleet

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/fleet"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// newChanges returns the commands that change a job.
func newChanges() []*cobra.Command {
	return []*cobra.Command{
		newChange(fleet.Pause, "Stop a job for some time", `Pause has workers give back the tasks of a job within seconds. What they have
written stays, and large files go on where they were. The pause lasts until
"fxfer fleet resume", also if the controller ends meanwhile.`),
		newChange(fleet.Resume, "Let a paused job go on", `Resume ends the pause of "fxfer fleet pause".`),
		newChange(fleet.Cancel, "End a job", `Cancel ends a job. Workers stop within seconds. What they have written stays at the
target, and files that were not complete lie there as partial files, which the next
job completes.`),
		newChange(fleet.Retry, "Try the dead tasks of a job again", `Retry has workers try again what they gave up: dead shards of a job that is sending,
and of a job that has failed dead shards and the last task. What was sent is not
sent again. A job that failed more than 7 days ago is listed again.`),
	}
}

func newChange(change fleet.Change, short, long string) *cobra.Command {
	var m member
	c := &cobra.Command{
		Use: string(change) + " JOB", Short: short, Long: long,
		Args: option.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return m.ask(c, func(ctx context.Context, x *fleet.Member) error {
				err := x.Change(ctx, args[0], change)
				if fxfer.KindOf(err) == fxfer.KindUsage {
					err = exit.WithHint(err, "see `fxfer fleet status`")
				}
				return err
			})
		},
	}
	m.add(c)
	return c
}
