package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/ssh"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/cli/transfer"
	"github.com/fxfer/fxfer/internal/command"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func newSend() *cobra.Command {
	var f transfer.Flags
	var by ssh.Flags
	c := &cobra.Command{
		Use:               "send {SRC... | --exec COMMAND} URL",
		ValidArgsFunction: option.CompleteFileOrURL,
		Short:             "Send files and folders to a server",
		Long: `Send copies files and folders to fxfer://host[:port]/share[/path]. Files that
the target has with the same size and time are skipped. To resume an interrupted
transfer, run the same command again.

Paths work as in rsync: SRC puts the folder itself below URL, and SRC/ puts its
content there. If you send one file, the last part of URL is its new name,
unless URL is a folder or ends with a slash. SRC can be - for standard input;
then URL names the file. If several SRC have a file of the same name for the same
place, the first is sent, and the others fail. Folders of the same name become
one folder.

--exec sends the output of a command, which the shell runs. URL names the file.
The file appears only if the command ends with exit code 0; until then the old
file stays. A command with a pipe, such as "pg_dump | gzip", runs in bash, where
each part of the pipe has to succeed; if bash is missing, fxfer warns. In "a; b",
only b has to succeed: write "a && b". In "pg_dump | fxfer send -", fxfer can't
know whether pg_dump failed, and would send half a dump as if that were all.

URL can also be host:path, user@host:path or ssh://user@host:port/path, for a host
where no server runs. Then your ssh starts one there for this transfer alone. With
host:path, the path begins at the home folder there, unless it begins with a slash.
If fxfer is missing there, a copy travels along and is removed at the end. ./a:b is
a file of this host.

Rules are those of gitignore: "*.o" matches at any depth, "/build" only at the
top of the source, "cache/" only folders. Excluded files are not sent, and
--delete does not remove them.

A large file that changed sends only its changes. --delta fixed compares parts at
the same place in the old and the new file: that suits disk images and databases.
--delta chunks also finds parts that moved: that suits dumps and archives. auto
looks at a sample of each file and chooses. none sends the whole file.

By default, --sync batch flushes many files at a time to the target's disk. Each
file gets its name after this flush. --sync file does this for each file on its
own: slower, but each file gets its name sooner. --sync none leaves flushing to
the operating system: faster, but a power cut may destroy the newest files.

Beside other traffic, --priority low takes what the others leave, normal takes a
fair part, and high takes most of the line. auto is normal. With --deadline 06:00,
auto begins with low. If the present rate is too slow to end in time, fxfer
raises it to normal, then to high. With --priority, fxfer never goes below that
priority. --rate-limit bounds the rate in any case.

With --shard i/n, n processes send one tree, each a part: 0/8 to 7/8 run on one or
several hosts that see the same files. Each lists the source and takes its part
by size; all names of a file go together, and a large file is not divided. They
may run at once, in any order, and again. When all have ended, run the same command
without --shard. It sends what is missing, also after a shard died or the source
changed, adds links and devices, sets the times of folders, and does what --delete
says. The target is then the same as after one command without shards. If files
change while shards list them, two shards may send one file, or the last command
sends it; --files-from gives all shards one list.

With --snapshot, URL is a folder of snapshots. Each snapshot is a folder that is
named after its time. --snapshot alone names it after the present time, or
resumes the snapshot that was interrupted. --snapshot=2026-11-20T020000Z gives
the name. Files that did not change are hard links to the previous snapshot, so
they take no space. A snapshot appears when it is complete, and the link
"latest" points to the newest. With --allow-failed, a snapshot also appears if a
few entries could not be read or written; these are then absent. With --exec or
-, the last part of URL names the file in the snapshot, and the part before it
is the folder of snapshots.

` + transfer.LettersHelp + `

` + option.SettingsHelp,
		Example: `  fxfer send dvd.iso fxfer://nas/files             files/dvd.iso
  fxfer send dvd.iso fxfer://nas/files/film.iso    files/film.iso
  fxfer send photos fxfer://nas/files              files/photos/...
  fxfer send photos/ fxfer://nas/files/2026        files/2026/...
  fxfer send --delete www/ fxfer://nas/files/www   a mirror; -n only lists
  fxfer send --snapshot /etc/ fxfer://nas/files/etc     files/etc/2026-11-20T020000Z/...
  fxfer send --shard 0/8 data/ fxfer://nas/files/data   one of 8 parts
  fxfer send --exec 'pg_dump shop' fxfer://nas/files/shop.sql
  fxfer send photos me@nas:backup                  by ssh, ~/backup/photos/...`,
		SuggestFor: []string{"put", "push", "upload", "cp", "sync"},
		Args:       func(c *cobra.Command, args []string) error { return option.NoEmpty(args) },
		PreRunE:    func(c *cobra.Command, _ []string) error { return f.Settle(c) },
		RunE: func(c *cobra.Command, args []string) error {
			if f.Exec != "" {
				args = append([]string{"-"}, args...)
			}
			sources, last, err := sendArgs(args, f.Exec != "")
			if err != nil {
				return err
			}
			return by.Run(c, &f.Opt, []string{last}, ssh.Write, func(urls []string) error {
				return send(c, &f, sources, urls[0], last)
			})
		},
	}
	c.Flags().SortFlags = false
	f.Add(c.Flags(), f.AddList)
	option.Group(c.Flags(), ssh.Title, func() { by.Add(c.Flags()) })
	c.SetUsageFunc(option.GroupedUsage)
	option.AddSettings(c)
	_ = c.RegisterFlagCompletionFunc("snapshot", option.CompleteSnapshot()) // fails only for unknown flags
	return c
}

// sendArgs reads the arguments of send. With exec, the first stands for a command. The source "-" has to be the only one, and its target has to
// name a file. The target is a URL, or a place that ssh reaches.
func sendArgs(args []string, exec bool) (sources []string, target string, err error) {
	if len(args) < 2 {
		return nil, "", exit.Usage("for example: fxfer send FILE fxfer://host/share", "send needs a source and a URL")
	}
	sources, target = args[:len(args)-1], args[len(args)-1]
	if !fxfer.IsURL(target) && !ssh.Is(target) {
		hint := "for example: fxfer send FILE fxfer://host/share, or with ssh: fxfer send FILE host:folder"
		if fxfer.IsURL(sources[0]) {
			hint = "to fetch from a server: fxfer get URL... TARGET"
		}
		return nil, target, exit.Usage(hint, "the last argument, %q, is neither a fxfer:// URL nor host:path", target)
	}
	if fxfer.IsURL(target) {
		if _, err = sendTarget(target, target, len(sources) == 1 && sources[0] == "-"); err != nil {
			return nil, "", err
		}
	}
	for _, s := range sources {
		switch {
		case fxfer.IsURL(s):
			return nil, target, exit.Usage("from server to server: fxfer copy SOURCE TARGET", "the source is a URL, too")
		case s == "-" && len(sources) > 1 && exec:
			return nil, target, exit.Usage("leave one of the two out", "--exec sends the output of a command, and %q is another source", sources[1])
		case s == "-" && len(sources) > 1:
			return nil, target, exit.Usage("./- is a file of that name", "standard input can't be sent together with other sources")
		}
	}
	return sources, target, nil
}

// sendTarget reads the URL to send to. A stream needs a name there. named is how the user named the
// place.
func sendTarget(url, named string, stream bool) (fxfer.URL, error) {
	target, err := option.ParseURL(url, true)
	if err == nil && stream && (target.Path == "" || target.TrailingSlash) {
		if url == named {
			named = target.Redacted()
		}
		err = exit.Usage("for example: "+strings.TrimSuffix(named, "/")+"/dump.sql", "a stream needs a file name in the URL")
	}
	return target, err
}

// send sends sources to a URL. named is how the user named the place.
func send(c *cobra.Command, f *transfer.Flags, sources []string, url, named string) error {
	target, err := sendTarget(url, named, sources[0] == "-")
	if err != nil {
		return err
	}
	if err := option.CheckPin(f.Opt.Pin, target); err != nil {
		return err
	}
	if f.Target = target.Redacted(); url != named {
		f.Target = named
	}
	if sources[0] == "-" {
		switch {
		case !f.Call.Selection.Shard.All():
			return exit.Usage("leave --shard out", "a stream is sent whole: there is nothing to divide")
		case f.List != "":
			return exit.Usage("leave --files-from out", "a stream is sent whole: there is nothing to select")
		case f.Exec != "":
			return sendOutput(c, f, target)
		}
		return sendStream(c, f, target)
	}
	done, err := f.OpenList(c.InOrStdin())
	if err != nil {
		return err
	}
	defer done()
	return transfer.Run(c, f, "sent", transfer.Resumes, func(ctx context.Context, client *fxfer.Client, call fxfer.Transfer) (*fxfer.Report, error) {
		report, err := client.Send(ctx, sources, target, call)
		return report, f.ListFault(err)
	})
}

func sendStream(c *cobra.Command, f *transfer.Flags, target fxfer.URL) error {
	in := c.InOrStdin()
	if w, ok := in.(io.Writer); ok && term.IsTerminal(w) {
		return exit.Usage("for example: fxfer send --exec 'pg_dump shop' URL", "standard input is the terminal")
	}
	return runStream(c, f, "standard input was empty", func(ctx context.Context, client *fxfer.Client, call fxfer.Transfer) (*fxfer.Report, error) {
		return client.SendStream(ctx, pipeReader{ctx, in}, target, call)
	})
}

// sendOutput sends the output of a command, if that succeeds.
func sendOutput(c *cobra.Command, f *transfer.Flags, target fxfer.URL) error {
	if text := command.Warning(f.Exec); text != "" && !f.Quiet {
		fmt.Fprintf(c.ErrOrStderr(), "fxfer: warning: %s\n", text)
	}
	return runStream(c, f, command.Empty, func(ctx context.Context, client *fxfer.Client, call fxfer.Transfer) (report *fxfer.Report, err error) {
		err = command.Feed(ctx, f.Exec, nil, c.ErrOrStderr(), func(ctx context.Context, out io.Reader) (err error) {
			report, err = client.SendStream(ctx, out, target, call)
			return err
		})
		return report, err
	})
}

// runStream runs a transfer of a stream, and warns if it had nothing: a program before it may have failed.
func runStream(c *cobra.Command, f *transfer.Flags, warning string, run func(context.Context, *fxfer.Client, fxfer.Transfer) (*fxfer.Report, error)) error {
	empty := false
	err := transfer.Run(c, f, "sent", "", func(ctx context.Context, client *fxfer.Client, call fxfer.Transfer) (*fxfer.Report, error) {
		report, err := run(ctx, client, call)
		empty = report != nil && report.Bytes == 0
		return report, err
	})
	if err == nil && empty && !f.Quiet {
		fmt.Fprintf(c.ErrOrStderr(), "fxfer: warning: %s\n", warning)
	}
	return err
}

// pipeGrace is how long a signal may take to arrive.
const pipeGrace = 50 * time.Millisecond

// pipeReader reads from a pipe. Ctrl-C reaches the programs on both sides of the pipe. If the other
// program ends first, its output looks complete. So at the end of the input the reader waits for a
// signal before it believes that.
type pipeReader struct {
	ctx context.Context
	r   io.Reader
}

func (p pipeReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if err == nil {
		return n, nil
	}
	select {
	case <-p.ctx.Done():
		return n, p.ctx.Err()
	case <-time.After(pipeGrace):
		return n, err
	}
}
