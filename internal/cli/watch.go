package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/cli/transfer"
	"github.com/fxfer/fxfer/internal/filter"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/outbox"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// watching holds the flags of watch.
type watching struct {
	opt    fxfer.Options
	rules  []string
	settle time.Duration
	marker string
	then   outbox.Then
	grow   bool
	quiet  bool
}

func newWatch() *cobra.Command {
	x := watching{settle: outbox.DefaultSettle}
	c := &cobra.Command{
		Use:   "watch DIR URL",
		Short: "Send the files of a folder as they become complete",
		Long: `Watch sends each file below DIR as soon as it is complete, and again when it has
changed. It runs until SIGTERM or Ctrl-C. The folder keeps its shape below URL.
Nothing is removed at the server.

A file is complete when it has not changed for the time of --settle, and no
program has it open for writing. Only Linux shows the latter, on local disks, and
files of other users only to root.

With --marker .done, FILE is complete when FILE.done is there and is not older
than FILE, FILE has not changed for 100 ms, and no program has it open for
writing. --settle then has no effect. Marker files are not sent. --then removes
or moves them with their files.

With --grow, watch also sends a file over 4 MiB while it grows, with low priority.
The server keeps these bytes without a name. When the file is complete, watch sends
only the rest and later changes. Until then, the server needs room for both.

Only regular files are sent: no symbolic links and no empty folders. Programs that
write under a temporary name first need --exclude, such as --exclude '*.part'.

Files wait in a queue that survives a crash and days without a line. The oldest
goes first. "fxfer queue" lists the files with their states: arriving, waiting,
sending, there.

Watch connects when it starts, and makes the folder of URL. If the line or the
server is away, it tries again until it is back. If the server refuses, such as for
a wrong share or a missing right, watch ends with exit code 4; but if a session
with this URL has ever succeeded, it tries again.

With --then delete, a file is removed here after the server has committed it and
its digest is right. With --then move:FOLDER, it moves there under its path;
FOLDER has to be on the same disk, outside DIR. If the name is taken there,
page.pdf becomes page.pdf.2. A file that has changed since it was sent stays, and
is sent again.

Notifications of the kernel only start a scan early: watch scans DIR every 30 s
or sooner, and a very large DIR less often. It scans every 2 s on network
file systems (NFS, SMB, AFS, Ceph, 9P, FUSE) and when the kernel's limit of
watches is reached.

` + option.SettingsHelp,
		Example: `  fxfer watch /srv/scans fxfer://nas/scans
  fxfer watch --then delete --priority low outbox fxfer://nas/inbox
  fxfer watch --then move:/srv/sent --exclude '*.part' /srv/out fxfer://nas/in`,
		SuggestFor: []string{"monitor", "forward", "hotfolder"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return exit.Usage("for example: fxfer watch DIR fxfer://host/share", "watch needs a folder and a URL")
			}
			return option.NoEmpty(args)
		},
		PreRunE: func(c *cobra.Command, _ []string) error { return option.ApplySettings(c) },
		RunE:    func(c *cobra.Command, args []string) error { return x.run(c, args[0], args[1]) },
	}
	flags := c.Flags()
	flags.SortFlags = false
	option.Add(flags, &x.settle, "settle", "time", "5s", "a complete file has not changed for this long", option.ParseSettle)
	option.Add(flags, &x.marker, "marker", "suffix", "none", "FILE is complete when FILE with this suffix is there", parseMarker)
	option.Add(flags, &x.then, "then", "what", "keep", "keep, delete or move:FOLDER what the server has", parseThen)
	flags.BoolVar(&x.grow, "grow", false, "also send a file over 4 MiB while it grows")
	transfer.AddRules(flags, &x.rules)
	option.Add(flags, &x.opt.Priority, "priority", "how", option.Auto, "low, normal or high beside other traffic", option.ParsePriority)
	option.Add(flags, &x.opt.RateLimit, "rate-limit", "rate", "none", "limit the rate, such as 200mbit or 20MB/s", option.ParseLimit)
	option.AddTransport(flags, &x.opt)
	option.AddTrust(flags, &x.opt)
	flags.BoolVarP(&x.quiet, "quiet", "q", false, "log only warnings and errors")
	option.AddSettings(c)
	return c
}

func parseMarker(s string) (string, error) {
	switch {
	case s == "none":
		return "", nil
	case s == "" || strings.ContainsAny(s, `/\*?`):
		return "", fmt.Errorf("%q is not a suffix of a file name, such as .done", s)
	}
	return s, nil
}

func parseThen(s string) (outbox.Then, error) { return option.ParseThen(s, filepath.Abs) }

// run watches a folder until a signal comes.
func (x *watching) run(c *cobra.Command, dir, url string) error {
	target, err := option.ParseURL(url, true)
	if err != nil {
		return err
	}
	if err := option.CheckPin(x.opt.Pin, target); err != nil {
		return err
	}
	w, err := x.watcher(c, dir, target)
	if err != nil {
		return err
	}
	ctx, stop := exit.Interruptible(c.Context())
	defer stop()
	w.Log.Info("watching", "dir", w.Dir, "url", w.URL)
	err = w.Run(ctx)
	if errors.Is(err, outbox.ErrRunning) || errors.Is(err, outbox.ErrOther) {
		return exit.Usage("`fxfer queue` lists the watched folders", "%w", err)
	}
	return err
}

// watcher prepares the watcher of a folder.
func (x *watching) watcher(c *cobra.Command, dir string, target fxfer.URL) (*outbox.Watcher, error) {
	home, err := identity.Home()
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	var info os.FileInfo
	if err == nil {
		info, err = os.Stat(dir)
	}
	switch {
	case err != nil:
		return nil, &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
	case !info.IsDir():
		return nil, exit.Usage("fxfer send sends a file", "%s is not a folder", dir)
	case outbox.IsInside(dir, home):
		return nil, exit.Usage("set FXFER_HOME to a folder outside", "the folder of fxfer's keys and queues is inside of the watched one: %s", home)
	}
	if to := x.then.MoveTo; to != "" {
		if err := outbox.CheckMoveTo(dir, to); err != nil {
			return nil, exit.Usage("name an existing folder on the same disk, outside of the watched one", "--then: %w", err)
		}
	}
	rules, err := filter.New(filter.Options{Rules: x.rules})
	if err != nil {
		return nil, err
	}
	level := slog.LevelInfo
	if x.quiet {
		level = slog.LevelWarn
	}
	log := slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
	opt := x.opt
	opt.Notice = func(text string) { log.Info(text) }
	opt.Confirm = term.Confirmer()
	client, err := fxfer.NewClient(opt)
	if err != nil {
		return nil, err
	}
	place := target
	place.TrailingSlash = false
	limit := fxfer.NewThrottle(opt.RateLimit)
	w := &outbox.Watcher{
		Queue: outbox.OpenQueue(home, dir, place.Redacted()), Dir: dir, URL: place.Redacted(),
		Settle: x.settle, Marker: x.marker, Rules: rules, Then: x.then, Log: log,
		Send: outbox.SendWith(client, dir, target, limit),
	}
	if x.grow {
		w.Early = outbox.EarlyWith(client, dir, target, limit)
	}
	return w, nil
}
