package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// staleAge is the age from which partial files are removed, unless told otherwise.
const (
	staleAge     = 14 * 24 * time.Hour
	staleAgeText = "14d"
)

func newPartialCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "partial",
		Short: "List and remove what interrupted transfers left",
		Long: `Partial shows the partial files below a folder of this machine, such as the one
of a share, and removes stale ones. An interrupted transfer goes on from them; one
that nobody runs again leaves them there.

What a running transfer holds is listed, and never removed.`,
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
		Long:    "Ls lists the partial files below DIR: how long ago each was last written, how much of\nit is done, its size, and the file that it is to become.",
		Example: `  fxfer partial ls /srv/files`,
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return onTree(c, args[0], func(ctx context.Context, tree *disk.Tree) error {
				show, finish := showLeftover(c.OutOrStdout(), asJSON, time.Now())
				defer finish()
				return tree.Leftovers(ctx, ".", func(l disk.Leftover) error { show(l); return nil })
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
		Long:    "Rm removes the partial files below DIR that were not written for a while, and that no\nrunning transfer holds.",
		Example: `  fxfer partial rm /srv/files --older-than 36h`,
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return onTree(c, args[0], func(ctx context.Context, tree *disk.Tree) error {
				removed, err := tree.Sweep(ctx, ".", age)
				fmt.Fprintf(c.OutOrStdout(), "removed %s\n", units.Count(int64(removed), "partial file", "partial files"))
				return err
			})
		},
	}
	addParsed(c.Flags(), &age, "older-than", "age", staleAgeText, "only what was last written longer ago, as 14d or 36h", units.ParseTime)
	return c
}

// onTree runs f on the tree below dir until it ends or is interrupted.
func onTree(c *cobra.Command, dir string, f func(context.Context, *disk.Tree) error) error {
	ctx, stop := interruptible(c.Context())
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
		return &fxfer.Error{Kind: fxfer.KindInterrupted, Err: errInterrupted}
	}
	return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
}

type jsonPartial struct {
	Type      string    `json:"type"`
	Path      string    `json:"path"`
	Raw       []byte    `json:"path_base64,omitempty"` // if it is no UTF-8
	Known     bool      `json:"target_known"`
	Bytes     *int64    `json:"bytes,omitempty"`
	Done      int64     `json:"bytes_done"`
	Allocated int64     `json:"bytes_allocated"`
	Written   time.Time `json:"last_written"`
}

// showLeftover returns what shows partial files, and what is to be called after the last one.
func showLeftover(out io.Writer, asJSON bool, now time.Time) (show func(disk.Leftover), finish func()) {
	if asJSON {
		return func(l disk.Leftover) {
			line := jsonPartial{"partial", l.Path, rawPath(l.Path), l.Known, nil, l.Done, l.Allocated, l.ModTime}
			if l.Size >= 0 {
				line.Bytes = &l.Size
			}
			printJSON(out, line)
		}, func() {}
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	return func(l disk.Leftover) {
		done, size := "-", units.Bytes(l.Allocated)
		if l.Size >= 0 {
			size = units.Bytes(l.Size)
			done = fmt.Sprintf("%d %%", 100*l.Done/max(l.Size, 1))
		}
		fmt.Fprintf(t, "%8s ago\t%5s\t%9s\t%s\n", units.Age(now.Sub(l.ModTime)), done, size, oneLine(l.Path))
	}, func() { _ = t.Flush() }
}

// parsePartialAge is units.ParseTime, or zero for none.
func parsePartialAge(s string) (time.Duration, error) {
	if s == "none" {
		return 0, nil
	}
	d, err := units.ParseTime(s)
	if err == nil && d < time.Hour {
		err = fmt.Errorf("%q is less than an hour: clients that try again would find nothing to go on from", s)
	}
	return d, err
}

// sweepEvery is how often a server looks for stale partial files.
const sweepEvery = 24 * time.Hour

// sweeper removes stale partial files from shares, now and then.
type sweeper struct {
	mu     sync.Mutex
	shares []fxfer.Share
	age    time.Duration // 0: never
}

func (w *sweeper) set(shares []fxfer.Share, age time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shares, w.age = shares, age
}

// run sweeps until ctx ends.
func (w *sweeper) run(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		w.mu.Lock()
		shares, age := w.shares, w.age
		w.mu.Unlock()
		for _, s := range shares {
			if age == 0 {
				break
			}
			removed, err := sweepShare(ctx, s.Dir, age)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				log.Warn("stale partial files", "share", s.Name, "removed", removed, "error", err)
			case removed > 0:
				log.Info("stale partial files", "share", s.Name, "removed", removed)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func sweepShare(ctx context.Context, dir string, age time.Duration) (removed int, err error) {
	tree, err := disk.Open(dir)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tree.Close() }()
	return tree.Sweep(ctx, ".", age)
}
