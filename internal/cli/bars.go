package cli

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// nameWidth is the columns of a file's name before its bar.
const nameWidth = 28

// bars redraws a bar per file under way and one for the total. What is drawn is read from atomics: the drawing goroutines
// must never wait for one that waits for them.
type bars struct {
	people
	container *mpb.Progress // nil until there is something to draw
	total     *mpb.Bar
	now       atomic.Pointer[fxfer.Progress]
	files     map[string]*fileBar // by path
}

type fileBar struct {
	bar *mpb.Bar
	now atomic.Pointer[fxfer.FileProgress]
}

func (b *bars) progress(p *fxfer.Progress) {
	b.now.Store(p)
	if b.container == nil {
		// Not before something moves: until then a question about the server's key may stand on the terminal.
		if len(p.Active) == 0 && p.BytesDone == 0 {
			return
		}
		b.start()
	}
	if !streaming(p) {
		b.total.SetTotal(p.Bytes, false)
		b.total.SetCurrent(min(p.BytesDone, p.Bytes))
	}
	b.updateFiles(p)
}

func (b *bars) start() {
	b.files = map[string]*fileBar{}
	b.container = mpb.New(mpb.WithOutput(b.errs))
	b.total = b.add(math.MaxInt, func() string { return totalName(b.now.Load()) }, func() string { return totalFigures(b.now.Load()) })
}

// add makes a bar between two texts. Its total is 0, so that only Abort ends it.
func (b *bars) add(priority int, name, figures func() string) *mpb.Bar {
	return b.container.New(0, mpb.BarStyle().Lbound("│").Filler("█").Tip("█").Padding("░").Rbound("│"),
		mpb.BarPriority(priority),
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return name() }, decor.WCSyncWidthR)),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return figures() }, decor.WCSyncWidthR)))
}

// updateFiles keeps a bar for each file under way, if they are more than the total shows.
func (b *bars) updateFiles(p *fxfer.Progress) {
	active := map[string]bool{}
	for i := range p.Active {
		f := &p.Active[i]
		if p.Files == 1 && !p.Walking {
			break
		}
		active[f.Path] = true
		row := b.files[f.Path]
		if row == nil {
			row = &fileBar{}
			row.now.Store(f)
			name := shortName(f.Path, nameWidth)
			row.bar = b.add(len(b.files), func() string { return name }, func() string { return fileFigures(row.now.Load()) })
			b.files[f.Path] = row
		}
		row.now.Store(f)
		if f.Bytes > 0 {
			row.bar.SetTotal(f.Bytes, false)
			row.bar.SetCurrent(f.Done)
		}
	}
	for path, row := range b.files {
		if !active[path] {
			row.bar.Abort(true)
			delete(b.files, path)
		}
	}
}

func totalName(p *fxfer.Progress) string {
	name := "total"
	if p.Files == 1 && !p.Walking && len(p.Active) == 1 {
		name = shortName(p.Active[0].Path, nameWidth)
	}
	return name
}

func totalFigures(p *fxfer.Progress) string {
	share := ""
	if !p.Walking && !streaming(p) {
		share = percent(p.BytesDone, p.Bytes)
	}
	return fmt.Sprintf("%5s  %s", share, strings.Join(totals(p), "  "))
}

func fileFigures(f *fxfer.FileProgress) string {
	if f.Bytes < 0 {
		return fmt.Sprintf("%5s  %s", "", showBytes(f.Done))
	}
	return fmt.Sprintf("%5s  %s of %s", percent(f.Done, f.Bytes), showBytes(f.Done), showBytes(f.Bytes))
}

func (b *bars) file(*fxfer.FileResult) {}

func (b *bars) notice(text string) {
	line := fmt.Sprintf("fxfer: %s\n", oneLine(text))
	if b.container == nil {
		fmt.Fprint(b.errs, line)
		return
	}
	fmt.Fprint(b.container, line)
}

func (b *bars) finish(report *fxfer.Report, err error) {
	if b.container != nil {
		for _, row := range b.files {
			row.bar.Abort(true)
		}
		b.total.Abort(true)
		b.container.Wait()
	}
	b.people.finish(report, err)
}
