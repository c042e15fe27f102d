package backup

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/backup"
	"github.com/fxfer/fxfer/internal/cli/option"
)

// completeJobs completes the names of jobs in a file, for the first most arguments, or for all if
// most is negative. Files of this host may follow.
func completeJobs(file *string, most int) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if most >= 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveDefault
		}
		s, err := openSite(*file)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := slices.DeleteFunc(s.names(), func(name string) bool { return slices.Contains(args, name) })
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeAt completes the names of a job's snapshots.
func completeAt(file *string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		s, j, err := openJob(*file, args[0])
		if err != nil || j.Mode == backup.Mirror {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), option.CompleteWithin)
		defer cancel()
		all, _ := s.client().Snapshots(ctx, j) // what can't be asked for is not offered
		for _, x := range all {
			names = append(names, x.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
