package cli

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// staleAge is the default age from which partial files are removed.
const (
	staleAge     = 14 * 24 * time.Hour
	staleAgeText = "14d"
)

func newPartial() *cobra.Command {
	c := &cobra.Command{
		Use:   "partial",
		Short: "List and remove partial files of interrupted transfers",
		Long: `Partial lists the partial files below a folder of this machine, such as a share,
and removes stale ones. Interrupted transfers resume from partial files. If
nobody runs a transfer again, its partial files stay.

Files of running transfers are listed but never removed.`,
		Example: `  fxfer partial ls /srv/files
  fxfer partial rm /srv/files --older-than 36h`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(newPartialListCommand(), newPartialRemoveCommand())
	return c
}

func newPartialListCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "ls DIR",
		Short:   "List partial files below a folder",
		Long:    "Ls lists the partial files below DIR: when each was last written, how much of it is\ndone, its size, and the name of the file that it will become.",
		Example: `  fxfer partial ls /srv/files`,
		Args:    option.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return onTree(c, args[0], func(ctx context.Context, tree *disk.Tree) error {
				show, finish := showLeftover(c.OutOrStdout(), asJSON, time.Now())
				defer finish()
				found := false
				err := tree.Leftovers(ctx, ".", func(l disk.Leftover) error { found = true; show(l); return nil })
				if err == nil && !found && !asJSON {
					fmt.Fprintln(c.ErrOrStderr(), "fxfer: no partial files")
				}
				return err
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON lines on standard output")
	return c
}

func newPartialRemoveCommand() *cobra.Command {
	age := staleAge
	c := &cobra.Command{
		Use:     "rm DIR",
		Short:   "Remove stale partial files below a folder",
		Long:    "Rm removes partial files below DIR that were not written for a while and that no\nrunning transfer uses.",
		Example: `  fxfer partial rm /srv/files --older-than 36h`,
		Args:    option.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return onTree(c, args[0], func(ctx context.Context, tree *disk.Tree) error {
				removed, err := tree.Sweep(ctx, ".", age)
				fmt.Fprintf(c.OutOrStdout(), "removed %s\n", units.Count(int64(removed), "partial file", "partial files"))
				return err
			})
		},
	}
	option.Add(c.Flags(), &age, "older-than", "age", staleAgeText, "remove only files not written for this long, such as 14d or 36h", units.ParseTime)
	return c
}

// onTree calls f with the tree below dir. A signal interrupts it.
func onTree(c *cobra.Command, dir string, f func(context.Context, *disk.Tree) error) error {
	ctx, stop := exit.Interruptible(c.Context())
	defer stop()
	tree, err := disk.Open(dir)
	if err == nil {
		defer func() { _ = tree.Close() }()
		err = f(ctx, tree)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return exit.Interrupted("")
	}
	return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
}

type jsonPartial struct {
	Type      string    `json:"type"`
	Path      string    `json:"path"`
	Raw       []byte    `json:"path_base64,omitempty"` // if the path is not UTF-8
	Known     bool      `json:"target_known"`
	Bytes     *int64    `json:"bytes,omitempty"`
	Done      int64     `json:"bytes_done"`
	Allocated int64     `json:"bytes_allocated"`
	Written   time.Time `json:"last_written"`
}

// showLeftover returns a function that shows one partial file, and one to call after the last.
func showLeftover(out io.Writer, asJSON bool, now time.Time) (show func(disk.Leftover), finish func()) {
	if asJSON {
		return func(l disk.Leftover) {
			line := jsonPartial{"partial", l.Path, term.RawPath(l.Path), l.Known, nil, l.Done, l.Allocated, l.ModTime}
			if l.Size >= 0 {
				line.Bytes = &l.Size
			}
			term.JSON(out, line)
		}, func() {}
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	return func(l disk.Leftover) {
		done, size := "-", units.Bytes(l.Allocated)
		if l.Size >= 0 {
			size = units.Bytes(l.Size)
			done = fmt.Sprintf("%d %%", 100*l.Done/max(l.Size, 1))
		}
		fmt.Fprintf(t, "%8s ago\t%5s\t%9s\t%s\n", units.Age(now.Sub(l.ModTime)), done, size, term.Name(l.Path))
	}, func() { _ = t.Flush() }
}
