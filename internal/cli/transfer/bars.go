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
	nameWidth = 28 // columns of a file's name, at most; a third of a narrow terminal
	barWidth  = 20 // columns of a bar and its margins, at most
	barLeast  = 8
	barFrom   = 8 << 20 // bytes; smaller files are done before anybody would see their bars

	// echo is the width of the "^C" that a terminal writes before the bars when somebody presses it.
	// A line that fills the terminal would not fit any more, and stay.
	echo = 2

	// barsAfter is the time before which no bars are drawn. Shorter transfers are not worth it.
	barsAfter = 500 * time.Millisecond
	// barsEvery is the time between two drawings. At the end it takes about twice this for the bars
	// to disappear.
	barsEvery = 80 * time.Millisecond
)

// bars draws a bar for each file under way and one for the total. The drawing goroutine reads its
// data from atomics: it must never wait for a goroutine that waits for it.
type bars struct {
	humanOutput
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
	b.total = b.add(math.MaxInt, func(width int) string { return totalName(b.now.Load(), width) },
		func(width int) string { return totalFigures(b.now.Load(), width) })
}

// add makes a bar between two texts. The functions get the number of columns that are left: name
// that of the terminal, and figures that for its text and the bar. The bar's total is 0, so that
// only Abort ends it.
func (b *bars) add(priority int, name, figures func(width int) string) *mpb.Bar {
	return b.container.New(0, mpb.BarStyle().Lbound("│").Filler("█").Tip("█").Padding("░").Rbound("│"),
		mpb.BarPriority(priority), mpb.BarWidth(barWidth),
		mpb.PrependDecorators(decor.Any(func(s decor.Statistics) string { return name(s.AvailableWidth) }, decor.WCSyncWidthR)),
		mpb.AppendDecorators(decor.Any(func(s decor.Statistics) string { return figures(s.AvailableWidth - echo) })))
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
			path := f.Path
			b.made++
			row.bar = b.add(b.made, func(width int) string { return shortName(path, width) },
				func(width int) string { return fileFigures(row.now.Load(), width) })
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

// shortName shortens a path for a terminal with this many columns.
func shortName(path string, columns int) string {
	return term.ShortName(path, min(nameWidth, columns/3))
}

func totalName(p *fxfer.Progress, columns int) string {
	name := "total"
	if p.Files == 1 && !p.Walking && len(p.Active) == 1 {
		name = shortName(p.Active[0].Path, columns)
	}
	return name
}

// totalFigures returns the figures that fit into width columns beside a bar.
func totalFigures(p *fxfer.Progress, width int) string {
	share := ""
	if !p.Walking && !streaming(p) {
		share = units.PercentDone(p.BytesDone, p.Bytes)
	}
	return fitting(append([]figure{{fmt.Sprintf("%5s", share), shareRank}}, totals(p)...), width)
}

// fileFigures returns the figures of one file that fit into width columns beside a bar.
func fileFigures(f *fxfer.FileProgress, width int) string {
	share, bytes := "", units.Bytes(f.Done)
	if f.Bytes >= 0 {
		share, bytes = units.PercentDone(f.Done, f.Bytes), bytes+" of "+units.Bytes(f.Bytes)
	}
	return fitting([]figure{{fmt.Sprintf("%5s", share), shareRank}, {bytes, essential}}, width)
}

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
	b.humanOutput.finish(report, err)
}
