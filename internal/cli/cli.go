// Package cli is the command line of fxfer: the root command and the verbs that fit in one file.
// Larger families of verbs have packages of their own below it. The parts that verbs share have
// packages, too:
//
//   - exit: how a command ends: errors, hints, exit codes, signals
//   - option: flags, arguments and settings
//   - term: what is written to a terminal, and read from it
//   - chart: plots on a terminal and on a page
//   - transfer: a transfer's flags, progress and summary
//   - backup, files, fleet, path, serve: families of verbs
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/backup"
	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/files"
	"github.com/fxfer/fxfer/internal/cli/fleet"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/path"
	"github.com/fxfer/fxfer/internal/cli/serve"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/hint"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Main runs fxfer with args, which don't include the program's name, and returns the exit code. It
// must be called once, from main: signals are handled for the whole process.
func Main(args []string) int {
	out := term.NewOutput(os.Stdout)
	root := newRoot(out)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		option.AddCompletion(root) // only shells need it, and it looks at the flags of all commands
	}
	root.SetArgs(args)
	understood := false
	root.PersistentPreRun = func(*cobra.Command, []string) { understood = true }
	c, err := root.ExecuteContextC(context.Background())
	if failed := out.Err(); failed != nil && (err == nil || errors.Is(err, failed)) {
		err = &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: fmt.Errorf("standard output: %w", failed)}
	}
	if err == nil {
		return exit.OK
	}
	err = exit.Outcome(err)
	var known *fxfer.Error
	if !understood && !errors.As(err, &known) {
		err = exit.Usage("", "%w", err) // from cobra
	}
	if hint.Of(err) == "" && fxfer.KindOf(err) == fxfer.KindUsage && !hint.FromPeer(err) {
		err = exit.Usage("see `"+c.CommandPath()+" --help`", "%w", err)
	}
	if asJSON(c, args) {
		exit.PrintJSON(out, err)
	}
	exit.Print(os.Stderr, err)
	_, code := exit.Classify(err)
	return code
}

// asJSON reports whether a command was asked to print JSON lines. If it did not understand a flag,
// it has not read those after that, so the arguments decide.
func asJSON(c *cobra.Command, args []string) bool {
	flag := c.Flags().Lookup("json")
	if flag == nil || flag.Value.Type() != "bool" {
		return false
	}
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return flag.Value.String() == "true" || !flag.Changed && slices.Contains(args, "--json")
}

// rootHelp stands at the end of the root command's help.
const rootHelp = `A flag overrides an environment variable, and a variable overrides config.yaml: see
"fxfer send --help". The folder FXFER_HOME has that file, your key, and the lists of
known servers and clients. By default it is

  ~/.config/fxfer                        on Linux
  ~/Library/Application Support/fxfer    on macOS
  %AppData%\fxfer                        on Windows

Exit codes:

  0  done                                 5  server unreachable, or connection lost
  1  other error                          6  data, or ciphers, failed a check
  2  wrong command line or configuration  7  file or disk error on this host
  3  entries failed or differ             8  file or disk error on the server
  4  key or right missing                 9  a backup needs attention
                                         10  no such file or folder at the server
                                        130  interrupted

With --json, a command that fails also ends its output with a line of type "error",
with the kind of the error, the message, the hint and the exit code.
`

// newRoot makes the root command, which prints to out.
func newRoot(out io.Writer) *cobra.Command {
	cobra.EnableCommandSorting = false
	root := &cobra.Command{
		Use:   "fxfer",
		Short: "Copy files between machines at the full speed of the line",
		Long: `fxfer copies files between machines at the full speed of the line. It encrypts and
checks all data, and resumes interrupted transfers.

  1. on the server:      fxfer serve --invite FOLDER   prints a URL for one client
  2. on the client:      fxfer send FILE... URL        or: fxfer get URL FOLDER
  3. from then on:       fxfer send FILE... fxfer://HOST/SHARE

A client is one user account on one machine. Do step 2 as the account that will run
the transfers, for example root for cron.`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(out)
	root.SetVersionTemplate("fxfer {{.Version}}\n")
	root.SetFlagErrorFunc(option.Error)
	root.SetUsageTemplate(option.WrapFlags(root.UsageTemplate()))
	root.AddCommand(serve.New(version()), newSend(), newGet(), newCopy(), newList(), files.NewStat(), files.NewUsage(), files.NewCat(),
		files.NewMkdir(), files.NewMove(), files.NewRemove(), newVerify(), backup.New(), backup.NewHistory(),
		newWatch(), newQueue(), newPartial(), fleet.New(version()), serve.NewRelay(), serve.NewClients(), serve.NewInvite(), serve.NewKey(),
		path.NewPlan(), path.NewProbe(), path.NewTune(), path.NewExplain(), path.NewDoctor(), path.NewLab(), newDemo(), newDashboard(), newVersion(), newMan())
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Args = knownTopic
		}
	}
	for _, c := range append(root.Commands(), root) {
		if c.HasSubCommands() && !c.Runnable() {
			c.Args, c.RunE = cobra.ArbitraryArgs, option.NeedSubcommand
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

// knownTopic refuses to help with a command that does not exist.
func knownTopic(c *cobra.Command, args []string) error {
	topic, rest, err := c.Root().Find(args)
	if err != nil || len(rest) == 0 {
		return err
	}
	if err = option.NeedSubcommand(topic, rest); hint.Of(err) == "" {
		err = exit.WithHint(err, "see `"+topic.CommandPath()+" --help`")
	}
	return err
}
