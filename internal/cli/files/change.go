package files

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// NewRemove makes the command rm.
func NewRemove() *cobra.Command {
	var x command
	var recursive, dryRun bool
	c := &cobra.Command{
		Use:               "rm URL...",
		ValidArgsFunction: option.CompleteURL,
		Short:             "Remove files and folders at a server",
		Long: `Rm removes files, links and empty folders at a server. With -r it removes a folder
with everything in it. It needs the right to write. It never follows a link, and
never removes snapshots: they expire by --keep.

In a path, * stands for any characters, ? for one, and [a-z] for one of these. Put
the URL in quotes, so that your shell does not expand it. Names that begin with a
dot need a pattern that does. %2A, %3F and %5B stand for *, ? and [ themselves.`,
		Example: `  fxfer rm fxfer://nas/files/dvd.iso
  fxfer rm 'fxfer://nas/files/photos/*.tmp'
  fxfer rm -r -n fxfer://nas/files/old            what would go?
  fxfer rm -r fxfer://nas/files/old`,
		SuggestFor: []string{"delete", "del", "rmdir", "remove", "unlink", "mdelete"},
	}
	c.Flags().BoolVarP(&recursive, "recursive", "r", false, "remove folders with everything in them")
	c.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "remove nothing, list what would be removed")
	x.addJSON(c)
	x.complete(c, 1, func(ctx context.Context, args []string) error {
		return x.each(ctx, args, func(files *fxfer.Files, p paths) error {
			if dryRun {
				visit := func(e fxfer.Entry) {
					x.show(jsonPath{Type: "would remove", Share: p.share, Path: e.Path, Raw: term.RawPath(e.Path), Kind: e.Kind},
						"would remove  "+p.name(e.Path))
				}
				return files.WouldRemove(p.all, recursive, visit, func(at string, err error) {
					if err != nil {
						x.fail(p, at, err)
						return
					}
					x.done++
				})
			}
			return files.Remove(p.all, recursive, func(at string, err error) {
				if err != nil {
					x.fail(p, at, err)
					return
				}
				x.did("removed", p, at)
			})
		})
	})
	return c
}

// NewMkdir makes the command mkdir.
func NewMkdir() *cobra.Command {
	var x command
	var parents bool
	c := &cobra.Command{
		Use:               "mkdir URL...",
		ValidArgsFunction: option.CompleteURL,
		Short:             "Make folders at a server",
		Long: `Mkdir makes folders at a server. It needs the right to write. "fxfer send" makes
the folders that it needs by itself.`,
		Example: `  fxfer mkdir fxfer://nas/files/photos
  fxfer mkdir -p fxfer://nas/files/photos/2026/november`,
		SuggestFor: []string{"md"},
	}
	c.Flags().BoolVarP(&parents, "parents", "p", false, "make missing folders above, accept folders that exist")
	x.addJSON(c)
	x.complete(c, 1, func(ctx context.Context, args []string) error {
		return x.each(ctx, args, func(files *fxfer.Files, p paths) error {
			for _, at := range p.all {
				err := files.Mkdir(at, parents)
				switch {
				case err == nil:
					x.did("made", p, at)
				case files.Err() != nil:
					return err
				case errors.Is(err, fs.ErrNotExist):
					x.fail(p, at, exit.WithHint(err, "-p makes the folders above, too"))
				case errors.Is(err, fs.ErrExist) && !parents:
					x.fail(p, at, exit.WithHint(err, "-p accepts a folder that exists"))
				default:
					x.fail(p, at, err)
				}
			}
			return nil
		})
	})
	return c
}

// NewMove makes the command mv.
func NewMove() *cobra.Command {
	var x command
	var force bool
	c := &cobra.Command{
		Use:               "mv URL... TARGET-URL",
		ValidArgsFunction: option.CompleteURL,
		Short:             "Move and rename files and folders at a server",
		Long: `Mv gives entries of a share another name, or moves them into another folder of
the same share. No data moves. It needs the right to write. If the target is a
folder, or ends with a slash, the entries go into it and keep their names.

Mv replaces nothing unless you give -f, and never replaces a folder. It doesn't
move folders that have snapshots. "fxfer rm --help" explains * and ? in paths.`,
		Example: `  fxfer mv fxfer://nas/files/a.iso fxfer://nas/files/b.iso
  fxfer mv 'fxfer://nas/files/*.iso' fxfer://nas/files/images/`,
		SuggestFor: []string{"move", "rename", "ren"},
	}
	c.Flags().BoolVarP(&force, "force", "f", false, "replace files that have the name")
	x.addJSON(c)
	x.complete(c, 2, func(ctx context.Context, args []string) error {
		last := len(args) - 1
		target, err := option.ParseURL(args[last], true)
		if err != nil {
			return err
		}
		places, err := x.places(args[:last])
		if err != nil {
			return err
		}
		for _, p := range places {
			if !sameShare(p.URL, target) {
				return exit.Usage("use `fxfer get` and `fxfer send`", "mv works within one share: %s and %s are in different ones",
					p.URL.Redacted(), target.Redacted())
			}
		}
		return x.each(ctx, args[:last], func(files *fxfer.Files, p paths) error {
			return x.move(files, p, target, force)
		})
	})
	return c
}

// move moves paths to a target in the same share.
func (x *command) move(files *fxfer.Files, p paths, target fxfer.URL, force bool) error {
	into := len(p.all) > 1 || target.TrailingSlash || target.Path == ""
	if !into && len(p.all) == 1 {
		there, err := files.Stat(target.Path)
		if err != nil && files.Err() != nil {
			return err
		}
		into = err == nil && there.Kind == "folder" // a client that may not list must say so by a slash
	}
	report := func(at, to string, err error) {
		if err != nil {
			if errors.Is(err, fs.ErrExist) && !force {
				err = exit.WithHint(err, "-f lets a file replace it, a folder never does")
			} else if errors.Is(err, fs.ErrNotExist) {
				err = exit.WithHint(err, "if that is the target's folder: `fxfer mkdir -p` makes it")
			}
			x.fail(p, at, err)
			return
		}
		x.done++
		x.show(jsonPath{Type: "moved", Share: p.share, Path: at, Raw: term.RawPath(at), To: to, RawTo: term.RawPath(to)},
			"moved  "+p.name(at)+" -> "+p.name(to))
	}
	if into {
		return files.MoveInto(p.all, target.Path, force, func(at string, err error) {
			report(at, path.Join(target.Path, path.Base(at)), err)
		})
	}
	for _, at := range p.all {
		err := files.Move(at, target.Path, force)
		if err != nil && files.Err() != nil {
			return err
		}
		report(at, target.Path, err)
	}
	return nil
}
