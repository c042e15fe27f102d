package files

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// NewStat makes the command stat.
func NewStat() *cobra.Command {
	x := &command{}
	c := &cobra.Command{
		Use:               "stat URL...",
		ValidArgsFunction: option.CompleteURL,
		Short:             "Describe files and folders at a server",
		Long: `Stat shows kind, size, time, mode and owner of entries at a server. It needs the
right to list. If a path ends with a slash, stat describes what a link there leads
to. "fxfer rm --help" explains * and ? in paths.`,
		Example:    `  fxfer stat fxfer://nas/files/dvd.iso`,
		SuggestFor: []string{"info", "size", "mdtm"},
	}
	x.addJSON(c)
	x.complete(c, 1, func(ctx context.Context, args []string) error {
		return look(ctx, x, args, (*fxfer.Files).Stat, x.describe)
	})
	return c
}

// look asks for one thing of each path, and shows it. What fails for a path does not keep it from the
// next one, unless the session is over.
func look[T any](ctx context.Context, x *command, args []string, ask func(*fxfer.Files, string) (T, error), show func(paths, string, T)) error {
	x.follow = true
	return x.each(ctx, args, func(files *fxfer.Files, p paths) error {
		for _, at := range p.all {
			found, err := ask(files, at)
			at = strings.TrimSuffix(at, "/")
			switch {
			case err == nil:
				show(p, at, found)
			case files.Err() != nil:
				return err
			default:
				x.fail(p, at, err)
			}
		}
		return nil
	})
}

type jsonStat struct {
	jsonPath
	Bytes   int64     `json:"bytes"`
	ModTime time.Time `json:"modified"`
	Mode    string    `json:"mode"` // octal
	Owner   string    `json:"owner,omitempty"`
	Group   string    `json:"group,omitempty"`
	Link    string    `json:"link,omitempty"`
	RawLink []byte    `json:"link_base64,omitempty"` // if it is not UTF-8
}

// describe shows an entry.
func (x *command) describe(p paths, at string, e fxfer.Entry) {
	x.done++
	out := x.c.OutOrStdout()
	if x.asJSON {
		term.JSON(out, jsonStat{
			jsonPath{Type: "entry", Share: p.share, Path: at, Raw: term.RawPath(at), Kind: e.Kind},
			e.Bytes, e.ModTime, fmt.Sprintf("%04o", e.Mode), e.Owner, e.Group, e.Link, term.RawPath(e.Link),
		})
		return
	}
	if x.done > 1 {
		fmt.Fprintln(out)
	}
	rows := [][]string{{"path", p.name(at)}, {"kind", e.Kind}}
	if e.Kind == "file" {
		rows = append(rows, []string{"size", fmt.Sprintf("%s (%s bytes)", units.Bytes(e.Bytes), units.Grouped(e.Bytes))})
	}
	if e.Kind == "symlink" {
		rows = append(rows, []string{"leads to", term.OneLine(e.Link)})
	}
	rows = append(rows,
		[]string{"modified", e.ModTime.Local().Format("2006-01-02 15:04:05.000 MST")},
		[]string{"mode", fmt.Sprintf("%04o (%s)", e.Mode, fs.FileMode(e.Mode).Perm().String()[1:])})
	if e.Owner != "" {
		rows = append(rows, []string{"owner", term.OneLine(e.Owner + ", group " + e.Group)})
	}
	term.Columns(out, rows)
}

// NewUsage makes the command du.
func NewUsage() *cobra.Command {
	x := &command{}
	c := &cobra.Command{
		Use:               "du URL...",
		ValidArgsFunction: option.CompleteURL,
		Short:             "Count what files and folders at a server take",
		Long: `Du counts the bytes of files and the entries below each URL. A file with several
names counts once. It needs the right to list. If a path ends with a slash, du
counts what a link there leads to. "fxfer rm --help" explains * and ? in paths.`,
		Example: `  fxfer du fxfer://nas/files
  fxfer du 'fxfer://nas/files/*'                  each entry`,
		SuggestFor: []string{"usage", "df"},
	}
	x.addJSON(c)
	x.complete(c, 1, func(ctx context.Context, args []string) error {
		return look(ctx, x, args, (*fxfer.Files).Usage, x.count)
	})
	return c
}

type jsonUsage struct {
	jsonPath
	Bytes   int64 `json:"bytes"`
	Entries int64 `json:"entries"`
}

// count shows what an entry takes.
func (x *command) count(p paths, at string, u fxfer.Usage) {
	x.done++
	if x.asJSON {
		term.JSON(x.c.OutOrStdout(), jsonUsage{jsonPath{Type: "usage", Share: p.share, Path: at, Raw: term.RawPath(at)}, u.Bytes, u.Entries})
		return
	}
	fmt.Fprintf(x.c.OutOrStdout(), "%9s  %15s  %s\n", units.Bytes(u.Bytes), units.Count(u.Entries, "entry", "entries"), p.name(at))
}

// NewCat makes the command cat.
func NewCat() *cobra.Command {
	var x command
	c := &cobra.Command{
		Use:               "cat URL...",
		ValidArgsFunction: option.CompleteURL,
		Short:             "Write files of a server to standard output",
		Long: `Cat writes files of a server to standard output, one after the other. It needs the
right to read. It uses one stream, so "fxfer get" is faster for large files. If the
exit code is not 0, the output is not complete. "fxfer rm --help" explains * and ?
in paths.`,
		Example: `  fxfer cat fxfer://nas/files/notes.txt
  fxfer cat 'fxfer://nas/logs/app-*.log' | grep error`,
		SuggestFor: []string{"type", "more", "print"},
	}
	x.complete(c, 1, func(ctx context.Context, args []string) error {
		return x.each(ctx, args, func(files *fxfer.Files, p paths) error {
			for _, at := range p.all {
				err := files.Read(at, c.OutOrStdout())
				switch {
				case err == nil:
					x.done++
				case files.Err() != nil, fxfer.KindOf(err) == fxfer.KindLocalDisk:
					return err
				default:
					x.fail(p, at, err)
				}
			}
			return nil
		})
	})
	return c
}
