package chart

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// pageParts are the templates that all pages share. A page loads nothing else and runs no script.
// Text around a chart is HTML, so that it has the same size on every screen.
var pageParts = sync.OnceValue(func() *template.Template { return template.Must(template.New("parts").Parse(pagePartsText)) })

const pagePartsText = `{{define "style"}}<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root{color-scheme:light dark;--ground:#fff;--ink:#1b232b;--quiet:#566472;--edge:#dbe1e7;--bad:#b3261e;--c0:#1769aa;--c1:#b3541e;--c2:#2f7a3a;--c3:#7a48b8;--c4:#a32a6b;--c5:#5d6873}
@media (prefers-color-scheme:dark){:root{--ground:#11171d;--ink:#e7edf3;--quiet:#9aa9b8;--edge:#2b3742;--bad:#ff8f85;--c0:#6db7f2;--c1:#f0a070;--c2:#7ccb88;--c3:#bd9bf0;--c4:#ee8cbc;--c5:#a3b0bc}}
body{font:15px/1.5 system-ui,sans-serif;max-width:62em;margin:2em auto;padding:0 1em;background:var(--ground);color:var(--ink);font-variant-numeric:tabular-nums}
h1{font-size:1.5em;margin:0;overflow-wrap:anywhere}h2{font-size:1.1em;margin:2em 0 .3em}.quiet{color:var(--quiet)}p{margin:.2em 0}
.keys{display:flex;flex-wrap:wrap;gap:0 1.5em;list-style:none;margin:0 0 .6em;padding:0;font-size:.9em;color:var(--quiet)}.keys b{color:var(--ink);font-weight:600;overflow-wrap:anywhere}
.keys i{display:inline-block;width:1.1em;height:.2em;border-radius:1em;vertical-align:.25em;margin-right:.4em;background:var(--c)}.keys i.dots{width:.5em;height:.5em;vertical-align:.05em}
.keys i.cut{width:.2em;height:.7em;border-radius:0;vertical-align:0;background:var(--ink)}.keys i.bad{border-radius:0;background:var(--bad);width:.5em;height:.5em;vertical-align:.05em}
.plot{display:grid;grid-template-columns:5.5em 1fr;gap:0 .5em;margin-top:1.1em;font-size:.8em;color:var(--quiet)}
.y{display:grid;text-align:right;height:11rem}.y span{grid-area:1/1;align-self:end;position:relative;line-height:1.2;transform:translateY(50%)}
svg{width:100%;height:11rem;overflow:visible}.x{grid-column:2;position:relative;height:1.8em}
.x span{position:absolute;top:.4em;transform:translateX(-50%);white-space:nowrap}.x span:first-child:not(:last-child){transform:none}.x span.end{transform:translateX(-100%)}
path{fill:none;stroke:var(--c);stroke-width:1.75;stroke-linejoin:round;stroke-linecap:round;vector-effect:non-scaling-stroke}
path.grid{stroke:var(--edge);stroke-width:1}path.dots{stroke-width:6}path.joins{stroke-width:1;opacity:.5}path.bad{stroke:var(--bad);stroke-width:7;stroke-linecap:square}path.cut{stroke:var(--ink);stroke-width:2.5;stroke-linecap:butt}
.s0{--c:var(--c0)}.s1{--c:var(--c1)}.s2{--c:var(--c2)}.s3{--c:var(--c3)}.s4{--c:var(--c4)}.s5{--c:var(--c5)}
.sheet{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.87em}td,th{padding:.3em .9em .3em 0;text-align:left;border-bottom:1px solid var(--edge);vertical-align:top;white-space:nowrap}
th{color:var(--quiet);font-weight:500}td:last-child,th:last-child{padding-right:0}.number{text-align:right}.group{text-align:center}td.name{white-space:normal;overflow-wrap:anywhere;min-width:8em}.bad{color:var(--bad)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.25em 1.2em;margin:.6em 0}dt{color:var(--quiet)}dd{margin:0;overflow-wrap:anywhere}
@media (max-width:34em){body{margin:1em auto}dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:.5em}}
@media print{body{margin:0}}
</style>{{end}}
{{define "charts"}}{{range .}}<section><h2>{{.Title}}</h2>
<ul class="keys">{{range .Keys}}<li class="{{.Class}}"><i class="{{.Mark}}"></i><b><bdi>{{.Name}}</bdi></b>{{if .Text}} {{.Text}}{{end}}</li>{{end}}</ul>
<div class="plot"><div class="y" aria-hidden="true">{{range .Y}}<span style="bottom:{{.At}}%">{{.Text}}</span>{{end}}</div>
<svg viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" aria-label="{{.Says}}">{{range .Y}}<path class="grid" d="M0 {{.Down}}H1000"/>{{end}}
{{range .Paths}}<path class="{{.Class}}" d="{{.D}}"/>
{{end}}</svg><div class="x" aria-hidden="true">{{range .X}}<span{{if eq .At 100.0}} class="end"{{end}} style="left:{{.At}}%">{{.Text}}</span>{{end}}</div></div></section>
{{end}}{{end}}`

// Page makes the template of a whole page when it is first called for. The text begins inside <head>,
// and may use the templates "style" and "charts".
func Page(name, text string) func() *template.Template {
	return sync.OnceValue(func() *template.Template {
		parts := template.Must(pageParts().Clone())
		return template.Must(parts.New(name).Parse("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">" + text))
	})
}

// Chart is a drawing of values over time on an HTML page.
type Chart struct {
	Title, Says string // Says is for those who do not see the drawing
	Keys        []key
	Y, X        []tick
	Paths       []path
}

type key struct{ Class, Mark, Name, Text string }

type path struct{ Class, D string }

// Style is how a series is drawn.
type Style int

// The styles.
const (
	Line   Style = iota // measurements of one thing
	Dots                // things that have nothing to do with each other
	Joined              // dots joined by a faint line: runs of one job
)

// Series is one value over time. A value of 0 or less was not measured: the line has a gap there.
type Series struct {
	Name   string
	Style  Style
	Points []Value
}

// Value is a point of a series. At is in seconds from the start of the chart.
type Value struct {
	At, Value float64
	Bad       bool // what was measured did not succeed
}

// Over is the time axis of a chart.
type Over struct {
	End float64 // in seconds
	x   []tick
}

// Elapsed is an axis that counts seconds from 0.
func Elapsed(end float64) Over { return Over{end, Seconds.ticks(end, Seconds.step(end/7))} }

// Calendar is an axis with dates.
func Calendar(first, last time.Time) Over { return Over{last.Sub(first).Seconds(), dates(first, last)} }

// Draw draws series that have the same unit. It reports false if they have no value above 0.
func Draw(title string, unit Unit, over Over, all ...Series) (Chart, bool) {
	c := Chart{Title: title, X: over.x, Says: title + " over time."}
	var values []float64
	for i := range all {
		values = append(values, all[i].values()...)
	}
	top, _ := scale(values)
	if top <= 0 {
		return c, false
	}
	step := unit.step(top / 4)
	top = step * math.Ceil(top/step-1e-9)
	c.Y = unit.ticks(top, step)
	d := drawing{over.End, top}
	bad, cut := "", ""
	for i := range all {
		s := &all[i]
		k := key{Class: fmt.Sprintf("s%d", min(i, Colours-1)), Name: s.Name, Text: s.describe(unit)}
		if s.Style == Line {
			c.Paths = append(c.Paths, path{k.Class, d.line(s.Points)})
		} else {
			k.Mark = "dots"
			if s.Style == Joined {
				c.Paths = append(c.Paths, path{k.Class + " joins", d.line(s.Points)})
			}
			c.Paths = append(c.Paths, path{k.Class + " dots", d.dots(s.Points, false)})
			bad += d.dots(s.Points, true)
		}
		cut += d.cut(s.Points)
		c.Keys = append(c.Keys, k)
		c.Says += " " + k.Name + ": " + k.Text + "."
	}
	if bad != "" {
		c.Paths = append(c.Paths, path{"bad", bad})
		c.Keys = append(c.Keys, key{Mark: "bad", Name: "did not succeed"})
	}
	if cut != "" {
		c.Paths = append(c.Paths, path{"cut", cut})
		c.Keys = append(c.Keys, key{Mark: "cut", Name: "more than " + brief(unit.show(top))})
	}
	return c, true
}

// Colours is the number of series that have a colour of their own. The last one stands for the rest.
const Colours = 6

func (s *Series) values() (all []float64) {
	for _, p := range s.Points {
		if p.Value > 0 {
			all = append(all, p.Value)
		}
	}
	return all
}

// describe sums a series up.
func (s *Series) describe(unit Unit) string {
	all := s.values()
	if len(all) == 0 {
		return "nothing"
	}
	slices.Sort(all)
	return "median " + unit.show(all[len(all)/2]) + ", highest " + unit.show(all[len(all)-1])
}

// drawing places values on a canvas of 1000 × 100.
type drawing struct{ end, top float64 }

func (d drawing) place(p Value) string {
	x := 500.0
	if d.end > 0 {
		x = 1000 * p.At / d.end
	}
	return fmt.Sprintf("%.1f %.1f", x, 100-100*min(p.Value/d.top, 1))
}

// line joins values. It has gaps where nothing was measured.
func (d drawing) line(all []Value) string {
	var b strings.Builder
	next := "M"
	for _, p := range all {
		if p.Value <= 0 {
			next = "M"
			continue
		}
		b.WriteString(next + d.place(p))
		if next == "M" {
			b.WriteString("h0") // visible even if it stands alone
		}
		next = "L"
	}
	return b.String()
}

// dots draws a dot for each value that is bad, or for each that is not.
func (d drawing) dots(all []Value, bad bool) string {
	var b strings.Builder
	for _, p := range all {
		if p.Value <= 0 || p.Bad != bad {
			continue
		}
		b.WriteString("M" + d.place(p) + "h0")
	}
	return b.String()
}

// cut marks the values above the top.
func (d drawing) cut(all []Value) string {
	var b strings.Builder
	for _, p := range all {
		if p.Value > d.top {
			b.WriteString("M" + d.place(p) + "v-5")
		}
	}
	return b.String()
}
