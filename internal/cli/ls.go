package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/ssh"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func newList() *cobra.Command {
	var opt fxfer.Options
	var by ssh.Flags
	var asJSON, long, recursive bool
	c := &cobra.Command{
		Use:               "ls URL",
		ValidArgsFunction: option.CompleteURL,
		Short:             "List a server's shares, or a folder",
		Long: `Ls lists the shares of a server, or what a folder holds. In a path, * stands for any
characters, ? for one, and [a-z] for one of these: "fxfer rm --help" explains them. URL
can also be host:path, for a host where no server runs: see "fxfer send --help".`,
		Example: `  fxfer ls fxfer://nas                  the shares, with your rights
  fxfer ls fxfer://nas/files/photos     what a folder holds
  fxfer ls -R fxfer://nas/files/photos  everything below it
  fxfer ls 'fxfer://nas/files/*.iso'    what fits the pattern`,
		SuggestFor: []string{"list", "dir"},
		Args:       option.Exactly(1),
		PreRunE:    func(c *cobra.Command, _ []string) error { return option.ApplySettings(c) },
		RunE: func(c *cobra.Command, args []string) error {
			return by.Run(c, &opt, args, ssh.Match, func(urls []string) error {
				u, do, err := listing(urls[0], recursive)
				if err != nil {
					return err
				}
				if err := option.CheckPin(opt.Pin, u); err != nil {
					return err
				}
				opt.Notice = func(text string) { fmt.Fprintf(c.ErrOrStderr(), "fxfer: %s\n", term.OneLine(text)) }
				entries, err := list(c.Context(), opt, do)
				if asJSON {
					printEntriesJSON(c.OutOrStdout(), entries)
					return err
				}
				printEntries(c.OutOrStdout(), entries, long)
				return err
			})
		},
	}
	c.Flags().SortFlags = false
	c.Flags().BoolVarP(&long, "long", "l", false, "show owners and groups, too")
	c.Flags().BoolVarP(&recursive, "recursive", "R", false, "list everything below the folder")
	option.AddTransport(c.Flags(), &opt)
	option.AddTrust(c.Flags(), &opt)
	by.Add(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON lines on standard output")
	option.AddSettings(c)
	return c
}

// lister asks a server for entries.
type lister func(context.Context, *fxfer.Client) ([]fxfer.Entry, error)

// listing returns what to ask for, and where.
func listing(arg string, recursive bool) (u fxfer.URL, do lister, err error) {
	if u, err := option.ParseURL(arg, false); err == nil && u.Share == "" {
		if recursive {
			_, err = option.ParseURL(arg, true)
		}
		return u, func(ctx context.Context, client *fxfer.Client) ([]fxfer.Entry, error) { return client.List(ctx, u) }, err
	}
	place, err := option.ParsePlace(arg)
	if !place.HasPattern() && !recursive {
		return place.URL, func(ctx context.Context, client *fxfer.Client) ([]fxfer.Entry, error) {
			return client.List(ctx, place.URL)
		}, err
	}
	return place.URL, func(ctx context.Context, client *fxfer.Client) ([]fxfer.Entry, error) {
		files, err := client.Files(ctx, place.URL)
		if err != nil {
			return nil, err
		}
		defer files.Close()
		return listFiles(files, place, recursive)
	}, err
}

// listFiles lists what fits a pattern, and with recursive what is below.
func listFiles(files *fxfer.Files, place option.Place, recursive bool) (all []fxfer.Entry, err error) {
	if !place.HasPattern() {
		all, err = files.List(place.URL.Path, true)
		sortEntries(all)
		return all, err
	}
	fits, err := place.Entries(files)
	for _, e := range fits {
		at := e.Path
		e.Path = strings.TrimPrefix(strings.TrimPrefix(at, place.URL.Path), "/")
		all = append(all, e)
		if recursive && e.Kind == "folder" {
			below, err := files.List(at, true)
			for _, b := range below {
				b.Path = e.Path + "/" + b.Path
				all = append(all, b)
			}
			if err != nil {
				return all, err
			}
		}
	}
	sortEntries(all)
	return all, err
}

// sortEntries sorts by path, with what a folder holds after the folder.
func sortEntries(all []fxfer.Entry) {
	slices.SortFunc(all, func(a, b fxfer.Entry) int {
		return slices.Compare(strings.Split(a.Path, "/"), strings.Split(b.Path, "/"))
	})
}

func list(parent context.Context, opt fxfer.Options, do lister) ([]fxfer.Entry, error) {
	ctx, stop := exit.Interruptible(parent)
	defer stop()
	opt.Confirm = term.Confirmer()
	entries, err := exit.Within(ctx, func() ([]fxfer.Entry, error) {
		client, err := fxfer.NewClient(opt)
		if err != nil {
			return nil, err
		}
		return do(ctx, client)
	})
	if err != nil && ctx.Err() != nil {
		err = exit.Interrupted("")
	}
	return entries, err
}

func printEntries(w io.Writer, entries []fxfer.Entry, long bool) {
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
		owner := ""
		if long {
			owner = term.OneLine(e.Owner) + "\t" + term.OneLine(e.Group) + "\t"
		}
		fmt.Fprintf(t, "%s\t%s%9s\t%s\t%s\n", modeOf(&e), owner, size, e.ModTime.Local().Format("2006-01-02 15:04"), name)
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
	Owner   string     `json:"owner,omitempty"`
	Group   string     `json:"group,omitempty"`
}

func printEntriesJSON(w io.Writer, entries []fxfer.Entry) {
	for _, e := range entries {
		line := jsonEntry{Type: "entry", Path: e.Path, Raw: term.RawPath(e.Path), Kind: e.Kind, Bytes: e.Bytes, Link: e.Link, Rights: e.Rights, Owner: e.Owner, Group: e.Group}
		if e.Kind != "share" {
			line.ModTime, line.Mode = &e.ModTime, fmt.Sprintf("%04o", e.Mode)
		}
		term.JSON(w, line)
	}
}
