// Package cli is the command line of fxfer: the root command and the verbs that fit in one file.
// Larger families of verbs have packages of their own below it. The parts that verbs share have
// packages, too:
//
//   - exit: how a command ends: errors, hints, exit codes, signals
//   - option: flags, arguments and settings
//   - term: what is written to a terminal, and read from it
//   - chart: plots on a terminal and on a page
//   - transfer: a transfer's flags, progress and summary
//   - backup, path, serve: families of verbs
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/backup"
	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/path"
	"github.com/fxfer/fxfer/internal/cli/serve"
	"github.com/fxfer/fxfer/internal/hint"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Main runs fxfer with args, which don't include the program's name, and returns the exit code. It
// must be called once, from main: signals are handled for the whole process.
func Main(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	understood := false
	root.PersistentPreRun = func(*cobra.Command, []string) { understood = true }
	c, err := root.ExecuteContextC(context.Background())
	if err == nil {
		return exit.OK
	}
	var known *fxfer.Error
	if !understood && !errors.As(err, &known) {
		err = exit.Usage("", "%w", err) // from cobra
	}
	if hint.Of(err) == "" && fxfer.KindOf(err) == fxfer.KindUsage && !hint.FromPeer(err) {
		err = exit.Usage("see `"+c.CommandPath()+" --help`", "%w", err)
	}
	exit.Print(os.Stderr, err)
	_, code := exit.Classify(err)
	return code
}

// rootHelp stands at the end of the root command's help.
const rootHelp = `Flags take precedence over the environment, and that over config.yaml: see
"fxfer send --help". The folder FXFER_HOME has that file, the key of this host, and
the lists of known hosts. By default it is "fxfer" in the user's configuration folder.

Exit codes:

  0  done                       5  server unreachable, or connection lost
  1  other error                6  data did not pass a check
  2  usage                      7  disk or file error on this host
  3  entries failed or differ   8  disk or file error on the other host
  4  key or right missing     130  interrupted
  9  a backup needs attention
`

func newRoot() *cobra.Command {
	cobra.EnableCommandSorting = false
	root := &cobra.Command{
		Use:   "fxfer",
		Short: "Move files over long fat pipes at line rate",
		Long: `fxfer moves files over long fat pipes at line rate. It encrypts and checks all
data, and resumes interrupted transfers.

  there:  fxfer serve --invite FOLDER   prints a URL that admits one machine
  here:   fxfer send FILE... URL        or: fxfer get URL FOLDER
  later:  fxfer send FILE... fxfer://HOST/SHARE`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,

		SuggestionsMinimumDistance: 2,
	}
	root.SetVersionTemplate("fxfer {{.Version}}\n")
	root.SetFlagErrorFunc(option.Error)
	root.AddCommand(serve.New(version()), newSend(), newGet(), newList(), newVerify(), backup.New(), backup.NewHistory(),
		newPartial(), serve.NewClients(), serve.NewInvite(), serve.NewKey(),
		path.NewPlan(), path.NewProbe(), path.NewDoctor(), path.NewLab(), newDemo(), newDashboard(), newVersion(), newMan())
	root.InitDefaultCompletionCmd()
	for _, c := range append(root.Commands(), root) {
		if c.HasSubCommands() && !c.Runnable() {
			c.Args, c.RunE = cobra.ArbitraryArgs, option.NeedSubcommand
			c.SuggestionsMinimumDistance = root.SuggestionsMinimumDistance
		}
	}
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		help(c, args)
		if c == root {
			fmt.Fprint(c.OutOrStdout(), "\n"+rootHelp)
		}
	})
	return root
}
