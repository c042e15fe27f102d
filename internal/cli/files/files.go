// Package files has the commands that work on single entries at a server: rm, mv, mkdir, stat, du and
// cat.
package files

import (
	"context"
	"fmt"
	"path"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// command is what these commands share: their flags, and how they report.
type command struct {
	opt    fxfer.Options
	asJSON bool
	follow bool // a slash at the end of a path stays: it asks for what a link there leads to

	c      *cobra.Command
	done   int
	failed []error
}

// complete adds the flags and the rules for arguments to c, whose Run is do.
func (x *command) complete(c *cobra.Command, least int, do func(ctx context.Context, args []string) error) {
	x.c = c
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) < least {
			return exit.Usage("usage: "+c.UseLine(), "an argument is missing")
		}
		return option.NoEmpty(args)
	}
	c.PreRunE = func(c *cobra.Command, _ []string) error { return option.ApplySettings(c) }
	c.RunE = func(_ *cobra.Command, args []string) error {
		return x.run(func(ctx context.Context) error { return do(ctx, args) })
	}
	c.Flags().SortFlags = false
	option.AddTransport(c.Flags(), &x.opt)
	option.AddTrust(c.Flags(), &x.opt)
	option.AddSettings(c)
}

// addJSON adds the flag for output that programs read.
func (x *command) addJSON(c *cobra.Command) {
	c.Flags().BoolVar(&x.asJSON, "json", false, "print JSON lines on standard output")
}

// run calls do, which a signal interrupts, and sums up what it reported.
func (x *command) run(do func(ctx context.Context) error) error {
	ctx, stop := exit.Interruptible(x.c.Context())
	defer stop()
	x.opt.Confirm = term.Confirmer()
	_, err := exit.Within(ctx, func() (struct{}, error) { return struct{}{}, do(ctx) })
	if err != nil && ctx.Err() != nil { // do may still run
		return exit.Interrupted("")
	}
	return x.outcome(err)
}

// outcome is the error of a command whose last session ended with err. It prints what failed before.
func (x *command) outcome(err error) error {
	if err == nil && x.done == 0 && len(x.failed) == 1 {
		return x.failed[0]
	}
	for _, failed := range x.failed {
		if !x.asJSON {
			exit.Print(x.c.ErrOrStderr(), failed)
		}
	}
	if err != nil || len(x.failed) == 0 {
		return err
	}
	return &fxfer.Error{Kind: fxfer.KindPartial, Err: fmt.Errorf("%d of %d failed", len(x.failed), x.done+len(x.failed))}
}

// paths is what an argument stands for in its share.
type paths struct {
	share string
	all   []string
}

// name is how a path is shown.
func (p paths) name(at string) string { return term.Name(path.Join(p.share, at)) }

// each calls do with a session for each argument and its paths.
func (x *command) each(ctx context.Context, args []string, do func(*fxfer.Files, paths) error) error {
	places, err := x.places(args)
	if err != nil {
		return err
	}
	client, err := fxfer.NewClient(x.opt)
	if err != nil {
		return err
	}
	for _, part := range byShare(places) {
		if err := x.share(ctx, client, part, do); err != nil {
			return err
		}
	}
	return nil
}

// places reads arguments.
func (x *command) places(args []string) (all []option.Place, err error) {
	for _, arg := range args {
		p, err := option.ParsePlace(arg)
		if err == nil {
			err = option.CheckPin(x.opt.Pin, p.URL)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// byShare returns runs of places in the same share.
func byShare(places []option.Place) (runs [][]option.Place) {
	for i, p := range places {
		if i > 0 && sameShare(places[i-1].URL, p.URL) {
			runs[len(runs)-1] = append(runs[len(runs)-1], p)
			continue
		}
		runs = append(runs, []option.Place{p})
	}
	return runs
}

func sameShare(a, b fxfer.URL) bool {
	return a.Host == b.Host && a.Port == b.Port && a.Share == b.Share
}

// share calls do with a session for places in the same share.
func (x *command) share(ctx context.Context, client *fxfer.Client, places []option.Place, do func(*fxfer.Files, paths) error) error {
	files, err := client.Files(ctx, places[0].URL)
	if err != nil {
		return err
	}
	defer files.Close()
	p := paths{share: places[0].URL.Share}
	for _, place := range places {
		if !place.HasPattern() {
			at := place.URL.Path
			if x.follow && place.URL.TrailingSlash {
				at += "/"
			}
			p.all = append(p.all, at)
			continue
		}
		entries, err := place.Entries(files)
		if err != nil {
			x.fail(p, place.URL.Path, err)
			continue
		}
		for _, e := range entries {
			p.all = append(p.all, e.Path)
		}
	}
	return do(files, p)
}

type jsonPath struct {
	Type   string `json:"type"`
	Share  string `json:"share"`
	Path   string `json:"path"`
	Raw    []byte `json:"path_base64,omitempty"` // if the path is not UTF-8
	Kind   string `json:"kind,omitempty"`
	To     string `json:"to,omitempty"`
	RawTo  []byte `json:"to_base64,omitempty"` // if it is not UTF-8
	Reason string `json:"message,omitempty"`
}

// did reports that a path is done, by a word such as "removed".
func (x *command) did(word string, p paths, at string) {
	x.done++
	x.show(jsonPath{Type: word, Share: p.share, Path: at, Raw: term.RawPath(at)}, word+"  "+p.name(at))
}

func (x *command) show(line jsonPath, text string) {
	if x.asJSON {
		term.JSON(x.c.OutOrStdout(), line)
		return
	}
	fmt.Fprintln(x.c.OutOrStdout(), text)
}

// fail reports that a path failed.
func (x *command) fail(p paths, at string, err error) {
	if x.asJSON {
		term.JSON(x.c.OutOrStdout(), jsonPath{Type: "failed", Share: p.share, Path: at, Raw: term.RawPath(at), Reason: err.Error()})
	}
	x.failed = append(x.failed, err)
}
