package transfer

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

const (
	nameWidth = 28 // columns of a file's name
	barWidth  = 20
	barFrom   = 8 << 20 // bytes; smaller files are done before anybody would see their bars

	// barsAfter is the time before which no bars are drawn. Shorter transfers are not worth it.
	barsAfter = 500 * time.Millisecond
	// barsEvery is the time between two drawings. At the end it takes about twice this for the bars
	// to disappear.
	barsEvery = 80 * time.Millisecond
)

// bars draws a bar for each file under way and one for the total. The drawing goroutine reads its
// data from atomics: it must never wait for a goroutine that waits for it.
type bars struct {
	people
	container *mpb.Progress // nil until there is something to draw
	total     *mpb.Bar
	now       atomic.Pointer[fxfer.Progress]
	files     map[string]*fileBar // by path
	made      int                 // how many bars of files were made so far
}

type fileBar struct {
	bar *mpb.Bar
	now atomic.Pointer[fxfer.FileProgress]
}

func (b *bars) progress(p *fxfer.Progress) {
	b.now.Store(p)
	if b.container == nil {
		// Before something moves, a question about the server's key may be on the terminal.
		if p.Elapsed < barsAfter || len(p.Active) == 0 && p.BytesDone == 0 {
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
	b.container = mpb.New(mpb.WithOutput(b.errs), mpb.WithRefreshRate(barsEvery))
	b.total = b.add(math.MaxInt, func() string { return totalName(b.now.Load()) },
		func(width int) string { return totalFigures(b.now.Load(), width) })
}

// add makes a bar between two texts. The function figures gets the number of columns for its text.
// The bar's total is 0, so that only Abort ends it.
func (b *bars) add(priority int, name func() string, figures func(width int) string) *mpb.Bar {
	return b.container.New(0, mpb.BarStyle().Lbound("│").Filler("█").Tip("█").Padding("░").Rbound("│"),
		mpb.BarPriority(priority), mpb.BarWidth(barWidth),
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return name() }, decor.WCSyncWidthR)),
		mpb.AppendDecorators(decor.Any(func(s decor.Statistics) string { return figures(s.AvailableWidth - barWidth - len("  ")) })))
}

// updateFiles keeps a bar for each file under way, if they show more than the total does.
func (b *bars) updateFiles(p *fxfer.Progress) {
	active := map[string]bool{}
	for i := range p.Active {
		f := &p.Active[i]
		if p.Files == 1 && !p.Walking {
			break
		}
		if f.Bytes >= 0 && f.Bytes < barFrom {
			continue
		}
		active[f.Path] = true
		row := b.files[f.Path]
		if row == nil {
			row = &fileBar{}
			row.now.Store(f)
			name := term.ShortName(f.Path, nameWidth)
			b.made++
			row.bar = b.add(b.made, func() string { return name }, func(int) string { return fileFigures(row.now.Load()) })
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
		name = term.ShortName(p.Active[0].Path, nameWidth)
	}
	return name
}

// totalFigures returns the figures that fit into width columns.
func totalFigures(p *fxfer.Progress, width int) string {
	share := ""
	if !p.Walking && !streaming(p) {
		share = units.PercentDone(p.BytesDone, p.Bytes)
	}
	line := fmt.Sprintf("%5s", share)
	for _, figure := range Totals(p) {
		if len(line)+2+len(figure) > width {
			break
		}
		line += "  " + figure
	}
	return line
}

func fileFigures(f *fxfer.FileProgress) string {
	if f.Bytes < 0 {
		return fmt.Sprintf("%5s  %s", "", units.Bytes(f.Done))
	}
	return fmt.Sprintf("%5s  %s of %s", units.PercentDone(f.Done, f.Bytes), units.Bytes(f.Done), units.Bytes(f.Bytes))
}

func (b *bars) file(*fxfer.FileResult) {}

func (b *bars) notice(text string) {
	line := fmt.Sprintf("fxfer: %s\n", term.OneLine(text))
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
