// Package cli is the command line of fxfer: its verbs, settings, progress, messages and exit codes.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/wire"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Main runs fxfer with args, which don't include the program's name, and returns the exit code. It must be called once,
// from main: signals are handled for the whole process.
func Main(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	understood := false
	root.PersistentPreRun = func(*cobra.Command, []string) { understood = true }
	c, err := root.ExecuteContextC(context.Background())
	if err == nil {
		return exitOK
	}
	var known *fxfer.Error
	if !understood && !errors.As(err, &known) {
		err = usageError("", "%w", err) // from cobra
	}
	var peer *wire.Error
	if hintOf(err) == "" && fxfer.KindOf(err) == fxfer.KindUsage && !errors.As(err, &peer) {
		err = usageError("`"+c.CommandPath()+" --help` tells how", "%w", err)
	}
	printError(os.Stderr, err)
	_, code := classify(err)
	return code
}

// rootHelp stands at the end of the root command's help.
const rootHelp = `Settings come from flags, then the environment, then config.yaml: see
"fxfer send --help". That file, the host's key and its lists of trust are in
FXFER_HOME, or else in the folder fxfer of the user's configuration folder.

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
		Long: `fxfer moves files over long fat pipes at line rate: encrypted, checked,
resumed by itself.

  there:  fxfer serve --invite FOLDER   prints a URL that admits one machine
  here:   fxfer send FILE... URL        or: fxfer get URL FOLDER
  later:  fxfer send FILE... fxfer://HOST/SHARE`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,

		SuggestionsMinimumDistance: 2,
	}
	root.SetVersionTemplate("fxfer {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newServeCommand(), newSendCommand(), newGetCommand(), newListCommand(), newVerifyCommand(), newBackupCommand(), newHistoryCommand(),
		newPartialCommand(), newClientsCommand(), newInviteCommand(), newKeyCommand(),
		newPlanCommand(), newProbeCommand(), newDoctorCommand(), newLabCommand(), newDemoCommand(), newDashboardCommand(), newVersionCommand(), newManCommand())
	root.InitDefaultCompletionCmd()
	for _, c := range append(root.Commands(), root) {
		if c.HasSubCommands() && !c.Runnable() {
			c.Args, c.RunE = cobra.ArbitraryArgs, needSubcommand
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

// needSubcommand is what a command does that has only subcommands.
func needSubcommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	hint := ""
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("did you mean `%s %s`?", c.CommandPath(), near[0])
	}
	return usageError(hint, "there is no command %q", args[0])
}

// flagError puts what the flag parser found into our words.
func flagError(c *cobra.Command, err error) error {
	var missing *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case errors.As(err, &missing) && missing.GetSpecifiedShortnames() == "":
		hint := ""
		if near := nearestFlag(c.Flags(), missing.GetSpecifiedName()); near != "" {
			hint = "did you mean --" + near + "?"
		}
		return usageError(hint, "there is no flag --%s", missing.GetSpecifiedName())
	case errors.As(err, &invalid):
		return usageError("", "--%s: %w", invalid.GetFlag().Name, flagProblem(invalid.GetFlag(), invalid.GetValue(), errors.Unwrap(err)))
	}
	return usageError("", "%w", err)
}

// flagProblem says what is wrong with the value of a flag.
func flagProblem(f *pflag.Flag, value string, err error) error {
	if f.Value.Type() == "bool" {
		return fmt.Errorf("%q is neither true nor false", value)
	}
	return err
}

// nearestFlag returns the flag whose name needs the fewest changes to become name, if these are few.
func nearestFlag(flags *pflag.FlagSet, name string) string {
	nearest, least := "", 3
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		d := distance(f.Name, name)
		if strings.HasPrefix(f.Name, name) {
			d = min(d, 2)
		}
		if d < least {
			nearest, least = f.Name, d
		}
	})
	return nearest
}

// distance is Levenshtein's: how many insertions, deletions and replacements of bytes lead from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
