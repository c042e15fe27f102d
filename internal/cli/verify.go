package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/ssh"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/cli/transfer"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func newVerify() *cobra.Command {
	var opt fxfer.Options
	var by ssh.Flags
	var against, snapshot string
	var asJSON bool
	c := &cobra.Command{
		Use:               "verify URL --against DIR|MANIFEST | --snapshot TIME",
		ValidArgsFunction: option.CompleteURL,
		Short:             "Compare files of a server with a folder, or with digests",
		Long: `Verify compares the files below URL with the folder DIR, or with digests in a
file that b3sum or --manifest wrote. The server reads all files from its disk.
Verify lists files that are missing at the server, that only the server has, or
that differ. The exit code is 0 if all are the same, else 3.

With --snapshot, the server compares a snapshot below URL with the digests that
it recorded when the snapshot was made. latest is the newest one. The server reads
with low priority. If a file has changed since, the exit code is 6. Verify also
lists entries that failed then and are not in the snapshot.

URL can also be host:path, for a host where no server runs: see "fxfer send --help".`,
		Example: `  fxfer verify fxfer://nas/files/photos --against photos
  fxfer verify fxfer://nas/files/photos --against photos.b3
  fxfer verify fxfer://nas/files/etc --snapshot latest`,
		SuggestFor: []string{"check", "compare", "diff"},
		Args:       option.Exactly(1),
		PreRunE:    func(c *cobra.Command, _ []string) error { return option.ApplySettings(c) },
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case snapshot != "" && against != "":
				return exit.Usage("leave one of the two out", "--snapshot compares with what the server noted, --against with what is here")
			case snapshot == "" && against == "":
				return exit.Usage("for example: --against FOLDER", "--against is missing: what are the files to be compared with?")
			}
			return by.Run(c, &opt, args, ssh.Read, func(urls []string) error {
				u, err := option.ParseURL(urls[0], true)
				if err != nil {
					return err
				}
				if err := option.CheckPin(opt.Pin, u); err != nil {
					return err
				}
				show := newVerdicts(asJSON, c.OutOrStdout(), c.ErrOrStderr())
				if snapshot != "" {
					return scrub(c, opt, u, snapshot, show)
				}
				return verify(c, opt, u, against, show)
			})
		},
	}
	c.Flags().SortFlags = false
	option.Add(c.Flags(), &against, "against", "path", "", "compare with this folder, or with this file of digests", option.ParseFile)
	option.Add(c.Flags(), &snapshot, "snapshot", "time", "", "check this snapshot, or the latest, against the recorded digests", parseScrubbed)
	option.AddTransport(c.Flags(), &opt)
	option.AddTrust(c.Flags(), &opt)
	by.Add(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON lines on standard output")
	option.AddSettings(c)
	_ = c.RegisterFlagCompletionFunc("snapshot", option.CompleteSnapshot(latest)) // fails only for unknown flags
	return c
}

// latest stands for the newest snapshot.
const latest = "latest"

// parseScrubbed reads the name of a snapshot, or latest.
func parseScrubbed(s string) (string, error) {
	if s == latest {
		return s, nil
	}
	name, err := transfer.ParseSnapshotName(s)
	if err != nil {
		return "", fmt.Errorf("%w, nor latest", err)
	}
	return name, nil
}

func verify(c *cobra.Command, opt fxfer.Options, u fxfer.URL, against string, show verdicts) error {
	return compare(c, opt, show, func(ctx context.Context, client *fxfer.Client) (*fxfer.Comparison, error) {
		return client.Verify(ctx, u, against, fxfer.Verification{Difference: show.difference, Progress: show.progress})
	})
}

func scrub(c *cobra.Command, opt fxfer.Options, u fxfer.URL, snapshot string, show verdicts) error {
	return compare(c, opt, show, func(ctx context.Context, client *fxfer.Client) (*fxfer.Comparison, error) {
		if snapshot == latest {
			all, err := client.Snapshots(ctx, u)
			if err != nil {
				return nil, err
			}
			if len(all) == 0 {
				return nil, &fxfer.Error{Kind: fxfer.KindNotFound, Err: fmt.Errorf("%s has no complete snapshot", u.Redacted())}
			}
			snapshot = all[len(all)-1].Name
		}
		return client.Scrub(ctx, u, snapshot, fxfer.Verification{Difference: show.difference, Progress: show.progress})
	})
}

func compare(c *cobra.Command, opt fxfer.Options, show verdicts, do func(context.Context, *fxfer.Client) (*fxfer.Comparison, error)) error {
	ctx, stop := exit.Interruptible(c.Context())
	defer stop()
	opt.Confirm = term.Confirmer()
	sum, err := exit.Within(ctx, func() (*fxfer.Comparison, error) {
		client, err := fxfer.NewClient(opt)
		if err != nil {
			return nil, err
		}
		return do(ctx, client)
	})
	if err != nil && ctx.Err() != nil {
		err = exit.Interrupted("")
	}
	show.finish(sum, err)
	return err
}

// verdicts shows a verification. Only one of its methods may be called at a time. The argument of
// finish is nil if there is no result.
type verdicts interface {
	progress(fxfer.Progress)
	difference(fxfer.Difference)
	finish(*fxfer.Comparison, error)
}

func newVerdicts(asJSON bool, out, errs io.Writer) verdicts {
	if asJSON {
		return jsonVerdicts{out}
	}
	return &plainVerdicts{out: out, errs: errs}
}

// plainVerdicts prints a line for each difference.
type plainVerdicts struct {
	out, errs io.Writer
	last      time.Duration // when progress was last shown
}

func (v *plainVerdicts) progress(p fxfer.Progress) {
	if p.Elapsed-v.last < transfer.PlainEvery {
		return
	}
	v.last = p.Elapsed
	fmt.Fprintf(v.errs, "fxfer: %s files, %s compared, %s\n", units.Grouped(p.FilesDone), units.Bytes(p.BytesDone), units.Rate(p.Goodput))
}

func (v *plainVerdicts) difference(d fxfer.Difference) {
	fmt.Fprintf(v.out, "%-10s  %s\n", d.Finding, term.PathAnd(d.Path, d.Detail))
}

func (v *plainVerdicts) finish(s *fxfer.Comparison, err error) {
	if s == nil || err != nil && fxfer.KindOf(err) != fxfer.KindPartial && fxfer.KindOf(err) != fxfer.KindIntegrity {
		return
	}
	fmt.Fprintf(v.out, "verified    %s, %s in %s: %s the same", units.Count(s.Files, "file", "files"), units.Bytes(s.Bytes), units.Time(s.Duration), units.Grouped(s.Same))
	for _, part := range []string{
		term.Nonzero(s.Lacking, "%s lacking from the beginning"), term.Nonzero(s.Missing, "%s missing"), term.Nonzero(s.Extra, "%s extra"), term.Nonzero(s.Different, "%s different"), term.Nonzero(s.Unreadable, "%s unreadable"),
	} {
		if part != "" {
			fmt.Fprint(v.out, ", "+part)
		}
	}
	fmt.Fprintln(v.out)
}

// jsonVerdicts prints an object per line.
type jsonVerdicts struct{ out io.Writer }

type jsonDifference struct {
	Type    string        `json:"type"`
	Path    string        `json:"path"`
	Raw     []byte        `json:"path_base64,omitempty"` // if the path is not UTF-8
	Finding fxfer.Finding `json:"finding"`
	Detail  string        `json:"detail,omitempty"`
}

type jsonComparison struct {
	Type       string  `json:"type"`
	Server     string  `json:"server"`
	Duration   float64 `json:"duration_seconds"`
	Files      int64   `json:"files"`
	Bytes      int64   `json:"bytes"`
	Same       int64   `json:"files_same"`
	Missing    int64   `json:"missing"`
	Extra      int64   `json:"extra"`
	Different  int64   `json:"different"`
	Unreadable int64   `json:"unreadable"`
	Lacking    int64   `json:"lacking,omitempty"`
}

func (v jsonVerdicts) progress(fxfer.Progress) {}

func (v jsonVerdicts) difference(d fxfer.Difference) {
	term.JSON(v.out, jsonDifference{"difference", d.Path, term.RawPath(d.Path), d.Finding, d.Detail})
}

func (v jsonVerdicts) finish(s *fxfer.Comparison, _ error) {
	if s != nil {
		term.JSON(v.out, jsonComparison{"summary", s.Server, s.Duration.Seconds(), s.Files, s.Bytes, s.Same, s.Missing, s.Extra, s.Different, s.Unreadable, s.Lacking})
	}
}
