package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func newCopy() *cobra.Command {
	var opt fxfer.Options
	var how fxfer.CopyOptions
	var leave, asJSON bool
	c := &cobra.Command{
		Use:               "copy SOURCE TARGET",
		ValidArgsFunction: option.CompleteURL,
		Short:             "Have one server send files to another one",
		Long: `Copy has the server of SOURCE send files to the server of TARGET. The data goes
from one server to the other, and not by way of this machine. SOURCE/ stands for
the content of the folder, as in "fxfer send".

The server of SOURCE puts the copy into its queue. This command then shows how far
the copy is. It may end at any time: the copy goes on without it. "fxfer queue URL"
lists, pauses and cancels copies, from each machine that has your key. The exit
code is 3 if the copy has failed or was cancelled.

You need the right to read SOURCE and to write TARGET. Your key signs a statement
that lets the server of SOURCE write to TARGET, and nowhere else, for --valid and
in at most --uses sessions. The administrator of that server has to allow copies:
fxfer serve --copies.`,
		Example: `  fxfer copy fxfer://berlin/data/films fxfer://oslo/data
  fxfer copy --leave fxfer://berlin/data/films/ fxfer://oslo/data/films
  fxfer queue fxfer://berlin`,
		Args:    option.Exactly(2),
		PreRunE: func(c *cobra.Command, _ []string) error { return option.ApplySettings(c) },
		RunE: func(c *cobra.Command, args []string) error {
			from, err := option.ParseURL(args[0], true)
			if err != nil {
				return err
			}
			to, err := option.ParseURL(args[1], true)
			if err != nil {
				return err
			}
			opt.Confirm = term.Confirmer()
			client, err := fxfer.NewClient(opt)
			if err != nil {
				return err
			}
			s, err := client.Copy(c.Context(), from, to, how)
			if err != nil {
				return err
			}
			if leave {
				printCopies(c.OutOrStdout(), []fxfer.CopyStatus{s}, asJSON, time.Now())
				return nil
			}
			return followCopy(c, client, from, s.ID, asJSON)
		},
	}
	c.Flags().SortFlags = false
	c.Flags().BoolVar(&leave, "leave", false, "end as soon as the copy is in the queue")
	option.Add(c.Flags(), &how.Valid, "valid", "time", "7d", "for how long the copy may go on, at most 30d", units.ParseTime)
	option.Add(c.Flags(), &how.Uses, "uses", "n", "100", "in how many sessions, if the connection breaks", option.ParseCount)
	option.Add(c.Flags(), &how.RateLimit, "rate-limit", "rate", "none", "limit the copy, such as 100mbit", option.ParseLimit)
	option.Add(c.Flags(), &how.Priority, "priority", "how", "normal", "low, normal or high, beside other traffic", option.ParsePriority)
	option.AddTransport(c.Flags(), &opt)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON lines on standard output")
	option.AddSettings(c)
	return c
}

// followCopy shows how far a copy is until it has ended. Whoever interrupts that leaves the copy alone.
func followCopy(c *cobra.Command, client *fxfer.Client, at fxfer.URL, id string, asJSON bool) error {
	ctx, stop := exit.Interruptible(c.Context())
	defer stop()
	out, state := c.ErrOrStderr(), fxfer.CopyState("")
	live := term.IsTerminal(out)
	s, err := client.FollowCopy(ctx, at, id, func(s fxfer.CopyStatus) bool {
		switch {
		case live:
			fmt.Fprintf(out, "\r%s\x1b[K", copyLine(s))
		case s.State != state:
			fmt.Fprintln(out, copyLine(s))
		}
		state = s.State
		return true
	})
	if live {
		fmt.Fprintln(out)
	}
	if err != nil {
		return exit.WithHint(err, copyGoesOn(at))
	}
	if asJSON {
		printCopies(c.OutOrStdout(), []fxfer.CopyStatus{s}, true, time.Now())
	}
	switch s.State {
	case fxfer.CopyDone:
		return nil
	case fxfer.CopyCancelled:
		return &fxfer.Error{Kind: fxfer.KindPartial, Err: errors.New("the copy was cancelled")}
	}
	return &fxfer.Error{Kind: fxfer.KindPartial, Err: fmt.Errorf("the copy has failed: %s", term.OneLine(s.Text))}
}

func copyGoesOn(at fxfer.URL) string {
	server := at
	server.Share, server.Path, server.TrailingSlash = "", "", false
	return "the copy goes on: `fxfer queue " + server.Redacted() + "` shows it"
}

// copyLine describes a copy in one line.
func copyLine(s fxfer.CopyStatus) string {
	text := fmt.Sprintf("%s: %s of %s, %d of %s", term.OneLine(string(s.State)), units.Bytes(s.Bytes), units.Bytes(s.TotalBytes),
		s.Files, units.Count(s.TotalFiles, "file", "files"))
	if s.Failed > 0 {
		text += fmt.Sprintf(", %d failed", s.Failed)
	}
	if s.Rate > 0 {
		text += ", " + units.Rate(float64(s.Rate))
	}
	return text + remark(s)
}

// remark is what the server says about a copy: what limits one that sends or has sent, and otherwise
// why it does not go on.
func remark(s fxfer.CopyStatus) string {
	text := term.OneLine(s.Text)
	switch {
	case text == "":
		return ""
	case s.State == fxfer.CopyRunning || s.State == fxfer.CopyDone:
		text = "limit: " + text
	}
	return " (" + text + ")"
}

type jsonCopy struct {
	Type       string          `json:"type"`
	ID         string          `json:"id"`
	From       string          `json:"from"`
	To         string          `json:"to"`
	State      fxfer.CopyState `json:"state"`
	Added      time.Time       `json:"added"`
	Ended      time.Time       `json:"ended,omitzero"`
	Until      time.Time       `json:"until"`
	Bytes      int64           `json:"bytes"`
	TotalBytes int64           `json:"total_bytes"`
	Files      int64           `json:"files"`
	TotalFiles int64           `json:"total_files"`
	Failed     int64           `json:"failed"`
	Rate       int64           `json:"rate_bits_per_second"`
	Message    string          `json:"message,omitempty"`
}

// printCopies prints copies, one a line.
func printCopies(w io.Writer, all []fxfer.CopyStatus, asJSON bool, now time.Time) {
	rows := [][]string{{"id", "state", "age", "done", "of", "failed", "from", "to"}}
	for _, s := range all {
		if asJSON {
			term.JSON(w, jsonCopy{
				"copy", s.ID, s.From, s.To, s.State, s.Added, s.Ended, s.Until, s.Bytes, s.TotalBytes, s.Files, s.TotalFiles, s.Failed, s.Rate, s.Text,
			})
			continue
		}
		rows = append(rows, []string{
			term.OneLine(s.ID), term.OneLine(string(s.State)), units.Span(now.Sub(s.Added)), units.Bytes(s.Bytes), units.Bytes(s.TotalBytes),
			fmt.Sprint(s.Failed), term.Name(s.From), term.Name(s.To) + remark(s),
		})
	}
	if len(rows) > 1 {
		term.Records(w, rows, 2)
	}
}

// copiesOf returns the server that "fxfer queue" is asked about, and the rest of the arguments.
func copiesOf(args []string) (at fxfer.URL, ids []string, ok bool, err error) {
	if len(args) == 0 || !fxfer.IsURL(args[0]) {
		return at, nil, false, nil
	}
	at, err = option.ParseURL(args[0], false)
	return at, args[1:], true, err
}

// copiesClient makes a client for a server that is known.
func copiesClient() (*fxfer.Client, error) {
	standard, err := option.CryptoInEnvironment()
	if err != nil {
		return nil, err
	}
	return fxfer.NewClient(fxfer.Options{StandardCrypto: standard, Confirm: term.Confirmer()})
}

// listCopies lists the copies that a server makes for this client.
func listCopies(c *cobra.Command, at fxfer.URL, asJSON bool) error {
	client, err := copiesClient()
	if err != nil {
		return err
	}
	all, err := client.Copies(c.Context(), at, "")
	if err != nil {
		return err
	}
	if len(all) == 0 && !asJSON {
		fmt.Fprintln(c.ErrOrStderr(), "fxfer: no copies yet: `fxfer copy` asks this server for one")
	}
	printCopies(c.OutOrStdout(), all, asJSON, time.Now())
	return nil
}

// changeCopies changes copies of a server: those named, or all that go on.
func changeCopies(ctx context.Context, w io.Writer, at fxfer.URL, ids []string, to fxfer.CopyChange) error {
	client, err := copiesClient()
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		all, err := client.Copies(ctx, at, "")
		if err != nil {
			return err
		}
		for _, s := range all {
			if !s.State.Ended() {
				ids = append(ids, s.ID)
			}
		}
	}
	var changed []fxfer.CopyStatus
	for _, id := range ids {
		s, err := client.ChangeCopy(ctx, at, id, to)
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		changed = append(changed, s)
	}
	printCopies(w, changed, false, time.Now())
	return nil
}
