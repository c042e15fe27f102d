package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/ssh"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/cli/transfer"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func newGet() *cobra.Command {
	var f transfer.Flags
	var by ssh.Flags
	c := &cobra.Command{
		Use:               "get URL... TARGET",
		ValidArgsFunction: option.CompleteFileOrURL,
		Short:             "Get files and folders from a server",
		Long: `Get copies files and folders from fxfer://host[:port]/share[/path] into the
folder TARGET. Files that TARGET has with the same size and time are skipped. To
resume an interrupted transfer, run the same command again.

Paths work as in rsync: URL puts the folder itself into TARGET, and URL/ puts
its content there. If you get one file, TARGET is its new name, unless TARGET is
a folder or ends with a slash. "fxfer send --help" explains rules, --delta,
--sync, --priority, --deadline, letters, units and settings. "fxfer rm --help"
explains * and ? in paths.

URL can also be host:path, user@host:path or ssh://user@host:port/path, for a host
where no server runs: "fxfer send --help" explains that.

If TARGET is -, get writes one file to standard output, and the summary to
standard error. If TARGET is a device, a pipe, or in /proc or /sys, get writes
the file into it. In both cases get writes nothing before the whole file has
arrived and passed its checks, so the folder for temporary files (TMPDIR) needs
room for it.`,
		Example: `  fxfer get fxfer://nas/files/dvd.iso .            ./dvd.iso
  fxfer get fxfer://nas/files/dvd.iso film.iso     ./film.iso
  fxfer get fxfer://nas/files/photos backup        backup/photos/...
  fxfer get fxfer://nas/files/photos/ backup       backup/...
  fxfer get 'fxfer://nas/files/*.iso' .            all that match
  fxfer get fxfer://nas/files/shop.sql - | psql    standard output
  fxfer get me@nas:photos backup                   by ssh, backup/photos/...`,
		SuggestFor: []string{"pull", "fetch", "download"},
		Args:       func(c *cobra.Command, args []string) error { return option.NoEmpty(args) },
		PreRunE:    func(c *cobra.Command, _ []string) error { return f.Settle(c) },
		RunE: func(c *cobra.Command, args []string) error {
			sources, target, err := getArgs(args)
			if err != nil {
				return err
			}
			return by.Run(c, &f.Opt, sources, ssh.Match, func(urls []string) error {
				return get(c, &f, urls, target, sources[0])
			})
		},
	}
	c.Flags().SortFlags = false
	f.Add(c.Flags(), nil)
	option.Group(c.Flags(), ssh.Title, func() { by.Add(c.Flags()) })
	c.SetUsageFunc(option.GroupedUsage)
	option.AddSettings(c)
	return c
}

// onlyLink is the name of a link if nothing else arrives.
type onlyLink struct {
	name    string
	entries int
}

func (l *onlyLink) watch(call *fxfer.Transfer) {
	show := call.File
	call.File = func(r fxfer.FileResult) {
		l.name = ""
		if l.entries++; l.entries == 1 && r.Kind == "symlink" {
			l.name = r.Path
		}
		if show != nil {
			show(r)
		}
	}
}

// get gets from URLs. named is how the user named the first place.
func get(c *cobra.Command, f *transfer.Flags, urls []string, target, named string) error {
	var sources []option.Place
	for _, url := range urls {
		p, err := option.ParsePlace(url)
		if err == nil {
			err = option.CheckPin(f.Opt.Pin, p.URL)
		}
		if err != nil {
			return err
		}
		sources = append(sources, p)
	}
	if f.Target = sources[0].URL.Redacted(); urls[0] != named {
		f.Target = named
	}
	if isStdout(target, c.OutOrStdout()) {
		return getToStdout(c, f, sources)
	}
	var link onlyLink
	err := transfer.Run(c, f, "received", transfer.Resumes, func(ctx context.Context, client *fxfer.Client, call fxfer.Transfer) (*fxfer.Report, error) {
		urls, unread := option.Expand(ctx, client, sources)
		if len(urls) == 0 || unread != nil && call.Target.Delete { // what could not be read may not be missing
			return nil, unread
		}
		link.watch(&call)
		report, err := client.Get(ctx, urls, target, call)
		return report, cmp.Or(err, unread)
	})
	if err == nil && link.name != "" && !f.Quiet && !f.JSON {
		fmt.Fprintf(c.ErrOrStderr(), "fxfer: hint: %s is a link: add / to the URL to get what it leads to\n", term.OneLine(link.name))
	}
	return err
}

// getArgs reads the arguments of get. The sources are URLs, or places that ssh reaches.
func getArgs(args []string) (sources []string, target string, err error) {
	if len(args) < 2 {
		return nil, "", exit.Usage("for example: fxfer get fxfer://host/share/path .", "get needs a URL and a folder")
	}
	sources, target = args[:len(args)-1], args[len(args)-1]
	switch {
	case fxfer.IsURL(target) && !fxfer.IsURL(args[0]):
		return nil, "", exit.Usage("to send to a server: fxfer send SRC... URL", "the first argument, %q, is not a fxfer:// URL", args[0])
	case fxfer.IsURL(target):
		return nil, "", exit.Usage("`.` is the current folder; from server to server: fxfer copy SOURCE TARGET", "the last argument is not a folder of this host but a URL")
	case target == "-" && len(args) > 2:
		return nil, "", exit.Usage("./- is a folder of that name", "standard output takes one file, and here are %d sources", len(args)-1)
	case ssh.Is(target) && !fxfer.IsURL(sources[0]):
		return nil, "", exit.Usage("./"+target+" is a folder of this host", "the last argument, %q, is not a folder of this host but a place that ssh reaches", target)
	}
	for _, arg := range sources {
		if !fxfer.IsURL(arg) && !ssh.Is(arg) {
			return nil, "", exit.Usage("for example: fxfer get fxfer://host/share/path ., or with ssh: fxfer get host:path .", "%q is neither a fxfer:// URL nor host:path", arg)
		}
		if fxfer.IsURL(arg) {
			if _, err := option.ParsePlace(arg); err != nil {
				return nil, "", err
			}
		}
	}
	return sources, target, nil
}

// isStdout reports whether a target is standard output: "-", or another name of it such as
// /dev/stdout.
func isStdout(target string, out io.Writer) bool {
	if target == "-" {
		return true
	}
	f := term.File(out)
	if f == nil {
		return false
	}
	named, err := os.Stat(target)
	have, failed := f.Stat()
	return err == nil && failed == nil && strings.HasPrefix(target, "/dev/") && os.SameFile(named, have)
}

// getToStdout writes one file to standard output. What is to be said goes to standard error.
func getToStdout(c *cobra.Command, f *transfer.Flags, sources []option.Place) error {
	out := c.OutOrStdout()
	switch {
	case len(sources) > 1:
		return exit.Usage("name a folder", "standard output takes one file, and here are %d sources", len(sources))
	case f.JSON:
		return exit.Usage("leave --json out, or name a file", "the file and --json both go to standard output")
	}
	f.Quiet = f.Quiet || term.IsTerminal(out)
	c.SetOut(c.ErrOrStderr())
	return transfer.Run(c, f, "received", "", func(ctx context.Context, client *fxfer.Client, call fxfer.Transfer) (*fxfer.Report, error) {
		urls, err := option.Expand(ctx, client, sources)
		if err != nil {
			return nil, err
		}
		if len(urls) > 1 {
			return nil, exit.Usage("`fxfer cat` writes one after the other", "standard output takes one file, and %d fit", len(urls))
		}
		return client.GetTo(ctx, urls[0], out, call)
	})
}
