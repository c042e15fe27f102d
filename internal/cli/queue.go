package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/outbox"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func newQueue() *cobra.Command {
	list := newQueueList()
	c := &cobra.Command{
		Use:   "queue",
		Short: "List and change the queues of watched folders",
		Long: `Queue lists and changes the queues of "fxfer watch", and on a server those of the
shares that it sends on. It works on FXFER_HOME, whether the watcher runs or not.
Without a subcommand it is "fxfer queue ls".

DIR is the watched folder. It can be left out if there is only one queue.

With the URL of a server in the place of DIR, it lists, pauses, resumes and cancels
the copies that you asked this server for: see "fxfer copy --help".`,
		Example: `  fxfer queue
  fxfer queue fxfer://berlin
  fxfer queue cancel fxfer://berlin 5b1f0c9a77d04e21
  fxfer queue pause /srv/scans
  fxfer queue drop /srv/scans 2026/huge.tif
  fxfer queue drop --all /srv/mistake`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 && !fxfer.IsURL(args[0]) {
				return exit.Usage("`fxfer queue ls DIR` lists the queues of one folder", "%q is neither ls, pause, resume, retry, drop nor cancel", args[0])
			}
			return atMostOneFolder(nil, args)
		},
		RunE: list.RunE,
	}
	c.Flags().AddFlagSet(list.Flags())
	c.AddCommand(list,
		newQueueSwitch("pause", "Keep the watcher from sending", "Pause keeps the watcher from beginning another session. A session that runs ends\nfirst, but a copy is interrupted. The watcher still collects files. The pause lasts\nuntil \"fxfer queue resume\".", true),
		newQueueSwitch("resume", "Let the watcher send again", "Resume ends the pause of \"fxfer queue pause\".", false),
		newQueueEdit("retry", "Try failed files again now",
			`The watcher tries failed files again after a pause, which grows up to an hour. Retry
makes it try them now. With FILE, it also takes back a drop. It does not change
files that are arriving, being sent or there.`, "to be tried again", (*outbox.Queue).Retry),
		newQueueDrop(),
		newQueueCancel())
	return c
}

// queueOf is a queue with what it is about.
type queueOf struct {
	*outbox.Queue
	outbox.About
}

// queuesOf returns the queues of a folder, and all queues if dir is "".
func queuesOf(dir string) (all []queueOf, err error) {
	home, err := identity.Home()
	if err == nil && dir != "" {
		dir, err = filepath.Abs(dir)
	}
	var queues []*outbox.Queue
	if err == nil {
		queues, err = outbox.Queues(home)
	}
	for _, q := range queues {
		a, failed := q.About()
		if failed != nil {
			return nil, &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: failed}
		}
		if a.Dir != "" && (dir == "" || a.Dir == dir) {
			all = append(all, queueOf{q, a})
		}
	}
	if err != nil {
		return nil, &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
	}
	if dir != "" && len(all) == 0 {
		return nil, exit.Usage("`fxfer queue` lists the watched folders", "the folder %s has no queue", dir)
	}
	return all, nil
}

// queueToChange returns the queues of the folder that a command names. The folder can be left out if
// there is only one queue.
func queueToChange(args []string) ([]queueOf, error) {
	dir := ""
	if len(args) > 0 {
		dir = args[0]
	}
	all, err := queuesOf(dir)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, exit.Usage("`fxfer watch` makes one", "there is no queue")
	case dir == "" && len(all) > 1:
		return nil, exit.Usage("name one of the folders that `fxfer queue` lists", "there are %d queues", len(all))
	}
	return all, nil
}

// atMostOneFolder checks the arguments of a command that takes [DIR].
func atMostOneFolder(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return exit.Usage("", "%d folders: expected at most one", len(args))
	}
	return option.NoEmpty(args)
}

func newQueueList() *cobra.Command {
	var asJSON, all bool
	c := &cobra.Command{
		Use:   "ls [DIR]",
		Short: "List the queues and their files",
		Long: `Ls lists the queues, and the files that are not at the server yet. The states are

  arriving   the file is not complete yet
  waiting    it is complete, and waits for its turn, the line or the next try
  sending    it is part of the present session
  there      the server has it
  dropped    "fxfer queue drop" named it`,
		Args: atMostOneFolder,
		RunE: func(c *cobra.Command, args []string) error {
			if at, _, ok, err := copiesOf(args); ok || err != nil {
				if err != nil {
					return err
				}
				return listCopies(c, at, asJSON)
			}
			queues, err := queuesOf(strings.Join(args, ""))
			if err != nil {
				return err
			}
			if len(queues) == 0 && !asJSON {
				fmt.Fprintln(c.ErrOrStderr(), "fxfer: there is no queue: `fxfer watch` makes one")
			}
			for i, q := range queues {
				about, files, err := q.List()
				if err != nil {
					return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
				}
				sum := jsonQueueOf(about, files, q.Running())
				if asJSON {
					printQueueJSON(c.OutOrStdout(), sum, files)
					continue
				}
				if i > 0 {
					fmt.Fprintln(c.OutOrStdout())
				}
				printQueue(c.OutOrStdout(), sum, files, all, time.Now())
			}
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also list the files that are there")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON lines on standard output, for all files")
	return c
}

type jsonQueue struct {
	Type     string `json:"type"`
	Dir      string `json:"dir"`
	URL      string `json:"url"`
	Running  bool   `json:"running"`
	Paused   bool   `json:"paused"`
	Message  string `json:"message,omitempty"` // why the last session failed
	Arriving int    `json:"arriving"`
	Waiting  int    `json:"waiting"`
	Sending  int    `json:"sending"`
	There    int    `json:"there"`
	Failed   int    `json:"failed"`  // of those that wait
	Dropped  int    `json:"dropped"` // not in the others
}

func jsonQueueOf(a outbox.About, files []outbox.Listing, running bool) jsonQueue {
	n := outbox.SumOf(files)
	return jsonQueue{
		Type: "queue", Dir: a.Dir, URL: a.URL, Running: running, Paused: a.Paused, Message: a.Error,
		Arriving: n.Arriving, Waiting: n.Waiting, Sending: n.Sending, There: n.There, Failed: n.Failed, Dropped: n.Dropped,
	}
}

type jsonQueued struct {
	Type    string       `json:"type"`
	Path    string       `json:"path"`
	Raw     []byte       `json:"path_base64,omitempty"` // if the path is not UTF-8
	State   outbox.State `json:"state"`
	Bytes   int64        `json:"bytes"`
	Arrived time.Time    `json:"arrived"`
	There   time.Time    `json:"there,omitzero"`
	Digest  string       `json:"digest,omitempty"`
	Early   int64        `json:"early,omitempty"` // bytes that are there while it is arriving
	Dropped bool         `json:"dropped,omitempty"`
	Message string       `json:"message,omitempty"`
	Tries   int          `json:"tries,omitempty"`
	Again   time.Time    `json:"again,omitzero"`
}

func printQueueJSON(w io.Writer, sum jsonQueue, files []outbox.Listing) {
	term.JSON(w, sum)
	for _, f := range files {
		term.JSON(w, jsonQueued{
			Type: "file", Path: f.Path, Raw: term.RawPath(f.Path), State: f.State, Bytes: f.Version.Size, Arrived: f.Arrived,
			There: f.There, Digest: f.Digest, Early: f.Early, Dropped: f.Dropped, Message: f.Error, Tries: f.Tries, Again: f.After,
		})
	}
}

// printQueue prints a queue for people. all includes the files that are there.
func printQueue(w io.Writer, sum jsonQueue, files []outbox.Listing, all bool, now time.Time) {
	state := "not running"
	if sum.Running {
		state = "running"
	}
	if sum.Paused {
		state += ", paused"
	}
	fmt.Fprintf(w, "%s to %s: %s\n", term.Name(sum.Dir), term.Name(sum.URL), state)
	fmt.Fprintf(w, "%d arriving, %d waiting, %d sending, %d there", sum.Arriving, sum.Waiting, sum.Sending, sum.There)
	if sum.Failed > 0 {
		fmt.Fprintf(w, ", %d failed", sum.Failed)
	}
	if sum.Dropped > 0 {
		fmt.Fprintf(w, ", %d dropped", sum.Dropped)
	}
	fmt.Fprintln(w)
	if sum.Message != "" {
		fmt.Fprintf(w, "error: %s\n", term.OneLine(sum.Message))
	}
	rows := [][]string{{"state", "size", "age", "path"}}
	for _, f := range files {
		if f.State == outbox.There && !all {
			continue
		}
		note := f.Error
		if note == "" && f.Early > 0 {
			note = "early " + units.Bytes(f.Early)
		}
		rows = append(rows, []string{f.Word(), units.Bytes(f.Version.Size), units.Span(now.Sub(f.Arrived)), term.PathAnd(f.Path, note)})
	}
	if len(rows) > 1 {
		term.Columns(w, rows)
	}
}

func newQueueSwitch(name, short, long string, paused bool) *cobra.Command {
	return &cobra.Command{
		Use: name + " [DIR | URL [ID...]]", Short: short,
		Long: long + "\n\nWith a URL, it is about copies, whose IDs \"fxfer queue URL\" lists. Without ID, it is\nabout all of yours there.",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && fxfer.IsURL(args[0]) {
				return option.NoEmpty(args)
			}
			return atMostOneFolder(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if at, ids, ok, err := copiesOf(args); ok || err != nil {
				if err != nil {
					return err
				}
				change := fxfer.ResumeCopy
				if paused {
					change = fxfer.PauseCopy
				}
				return changeCopies(c.Context(), c.OutOrStdout(), at, ids, change)
			}
			queues, err := queueToChange(args)
			for _, q := range queues {
				err = errors.Join(err, q.Pause(paused))
			}
			return err
		},
	}
}

func newQueueEdit(name, short, long, done string, edit func(*outbox.Queue, string) (int, error)) *cobra.Command {
	return &cobra.Command{
		Use: name + " [DIR [FILE...]]", Short: short,
		Long: long + "\n\nFILE is a path below DIR, as \"fxfer queue\" lists it.",
		Args: func(_ *cobra.Command, args []string) error { return option.NoEmpty(args) },
		RunE: func(c *cobra.Command, args []string) error {
			queues, err := queueToChange(args)
			if err != nil {
				return err
			}
			files := []string{""}
			if len(args) > 1 {
				files = args[1:]
			}
			total := 0
			for _, file := range files {
				changed, why := false, outbox.ErrNoFile
				for _, q := range queues {
					n, err := edit(q.Queue, file)
					switch {
					case err == nil:
						changed = true
						total += n
					case errors.Is(err, outbox.ErrState):
						why = err
					case !errors.Is(err, outbox.ErrNoFile):
						return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
					}
				}
				if !changed {
					return exit.Usage("`fxfer queue --json` lists the files with their states", "%s: %w", term.Name(file), why)
				}
			}
			fmt.Fprintf(c.OutOrStdout(), "%s %s\n", units.Count(int64(total), "file", "files"), done)
			return nil
		},
	}
}

func newQueueCancel() *cobra.Command {
	return &cobra.Command{
		Use: "cancel URL ID...", Short: "Cancel copies from server to server",
		Long: `Cancel ends copies for good. What has arrived at the target stays there. "fxfer queue
URL" lists the IDs.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return exit.Usage("`fxfer queue URL` lists the copies", "cancel needs the URL of a server, and an ID")
			}
			return option.NoEmpty(args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			at, err := option.ParseURL(args[0], false)
			if err != nil {
				return err
			}
			return changeCopies(c.Context(), c.OutOrStdout(), at, args[1:], fxfer.CancelCopy)
		},
	}
}

func newQueueDrop() *cobra.Command {
	c := newQueueEdit("drop", "Give up files, those that failed or FILE, or forget a queue",
		`Drop keeps files from being sent: those that failed, or FILE. A file that changes
later is sent again. Drop does not change files that are being sent or there, and
removes nothing.

With --all, drop forgets the whole queue, what is there included, and asks first.
The files stay, here and at the server. The watcher must have ended: the next one
for the same folder and URL begins anew.`, "dropped", (*outbox.Queue).Drop)
	var all, yes bool
	some := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case all && len(args) > 1:
			return exit.Usage("leave out --all to drop single files", "--all drops a whole queue: name only the folder")
		case yes && !all:
			return exit.Usage("", "--yes works with --all only")
		case all:
			return dropQueues(c, args, yes)
		}
		return some(c, args)
	}
	c.Flags().BoolVar(&all, "all", false, "forget the whole queue of DIR")
	c.Flags().BoolVar(&yes, "yes", false, "don't ask")
	return c
}

// dropQueues forgets the queues of the folder that a command names.
func dropQueues(c *cobra.Command, args []string, yes bool) error {
	queues, err := queueToChange(args)
	if err != nil {
		return err
	}
	ctx, stop := exit.Interruptible(c.Context())
	defer stop()
	for _, q := range queues {
		name := fmt.Sprintf("%s to %s", term.Name(q.Dir), term.Name(q.URL))
		if !yes {
			if ok, err := term.Agree(ctx, fmt.Sprintf("Forget the queue of %s? [y/N] ", name)); err != nil || !ok {
				return err
			}
		}
		err := q.Remove()
		switch {
		case errors.Is(err, outbox.ErrRunning):
			return exit.Usage("end the watcher first, or take forward out of the server's configuration", "%s: %w", name, err)
		case err != nil:
			return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
		}
		fmt.Fprintf(c.OutOrStdout(), "forgot the queue of %s\n", name)
	}
	return nil
}
