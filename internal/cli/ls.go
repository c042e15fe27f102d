package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func newList() *cobra.Command {
	var opt fxfer.Options
	var asJSON bool
	c := &cobra.Command{
		Use:   "ls URL",
		Short: "List a server's shares, or a folder",
		Example: `  fxfer ls fxfer://nas                  the shares, with your rights
  fxfer ls fxfer://nas/files/photos     what a folder holds`,
		SuggestFor: []string{"list", "dir"},
		Args:       option.Exactly(1),
		PreRunE:    func(c *cobra.Command, _ []string) error { return option.ApplySettings(c) },
		RunE: func(c *cobra.Command, args []string) error {
			u, err := option.ParseURL(args[0], false)
			if err != nil {
				return err
			}
			if err := option.CheckPin(opt.Pin, u); err != nil {
				return err
			}
			entries, err := list(c.Context(), opt, u)
			if asJSON {
				printEntriesJSON(c.OutOrStdout(), entries, err)
				return err
			}
			printEntries(c.OutOrStdout(), entries)
			return err
		},
	}
	c.Flags().SortFlags = false
	option.AddTransport(c.Flags(), &opt)
	option.AddTrust(c.Flags(), &opt)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON lines on standard output")
	option.AddSettings(c)
	return c
}

func list(parent context.Context, opt fxfer.Options, u fxfer.URL) ([]fxfer.Entry, error) {
	ctx, stop := exit.Interruptible(parent)
	defer stop()
	if term.Present() {
		opt.Confirm = term.Confirm
	}
	entries, err := exit.Within(ctx, func() ([]fxfer.Entry, error) {
		client, err := fxfer.NewClient(opt)
		if err != nil {
			return nil, err
		}
		return client.List(ctx, u)
	})
	if err != nil && ctx.Err() != nil {
		err = exit.Interrupted("")
	}
	return entries, err
}

func printEntries(w io.Writer, entries []fxfer.Entry) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, e := range entries {
		name := term.Name(e.Path)
		switch e.Kind {
		case "share":
			fmt.Fprintf(t, "%s\t%s/\n", e.Rights, name)
			continue
		case "folder":
			name += "/"
		case "symlink":
			name += " -> " + term.Name(e.Link)
		}
		size := "-"
		if e.Kind == "file" {
			size = units.Bytes(e.Bytes)
		}
		fmt.Fprintf(t, "%s\t%9s\t%s\t%s\n", modeOf(&e), size, e.ModTime.Local().Format("2006-01-02 15:04"), name)
	}
	_ = t.Flush()
}

// modeOf returns kind and permissions as ls(1) shows them.
func modeOf(e *fxfer.Entry) string {
	letter := map[string]string{
		"folder": "d", "symlink": "l", "fifo": "p", "socket": "s", "character device": "c", "block device": "b",
	}[e.Kind]
	return cmp.Or(letter, "-") + fs.FileMode(e.Mode).Perm().String()[1:]
}

type jsonEntry struct {
	Type    string     `json:"type"`
	Path    string     `json:"path"`
	Raw     []byte     `json:"path_base64,omitempty"` // if the path is not UTF-8
	Kind    string     `json:"kind"`
	Bytes   int64      `json:"bytes"`
	ModTime *time.Time `json:"modified,omitempty"`
	Mode    string     `json:"mode,omitempty"` // octal
	Link    string     `json:"link,omitempty"`
	Rights  string     `json:"rights,omitempty"`
}

func printEntriesJSON(w io.Writer, entries []fxfer.Entry, err error) {
	for _, e := range entries {
		line := jsonEntry{Type: "entry", Path: e.Path, Raw: term.RawPath(e.Path), Kind: e.Kind, Bytes: e.Bytes, Link: e.Link, Rights: e.Rights}
		if e.Kind != "share" {
			line.ModTime, line.Mode = &e.ModTime, fmt.Sprintf("%04o", e.Mode)
		}
		term.JSON(w, line)
	}
	if err != nil {
		term.JSON(w, exit.JSONOf(err))
	}
}
