package path

import (
	"fmt"
	"io"
	"time"

	"github.com/fxfer/fxfer/internal/cli/chart"
	"github.com/fxfer/fxfer/internal/path/tune"
	"github.com/fxfer/fxfer/internal/units"
)

var tunePage = chart.Page("tune", `<title>fxfer tune</title>{{template "style"}}
<style>td.plot{display:table-cell;min-width:13em;width:99%;padding-top:.45em}td.plot svg{height:1.1rem}path.zero{stroke:var(--quiet);stroke-width:1}path.runs{stroke-width:4;opacity:.45}path.mean{stroke-width:9}tr.best td{font-weight:600}</style></head>
<body>{{define "rows"}}<dl>{{range .}}<dt>{{.Name}}</dt><dd>{{.Text}}</dd>{{end}}</dl>{{end}}
<h1>Settings compared by experiment</h1>
<p class="quiet">Begun {{.Began}}.{{with .Comment}} <bdi>{{.}}</bdi>{{end}}</p>
{{template "rows" .Conclusions}}
{{range .Servers}}<h2><bdi>{{.Name}}</bdi></h2>
<div class="sheet" tabindex="0" role="region" aria-label="Settings at {{.Name}}"><table><thead><tr><th scope="col">setting</th>
<th scope="col">gain over the defaults<br>{{.Low}} to {{.High}}</th>{{range .Heads}}<th scope="col" class="number">{{.}}</th>{{end}}</tr></thead><tbody>
{{range .Rows}}<tr{{if .Best}} class="best"{{end}}><td>{{.Name}}</td><td class="plot s0"><svg viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" aria-label="{{.Says}}"><path class="zero" d="{{.Zero}}"/>{{with .Interval}}<path d="{{.}}"/>{{end}}<path class="dots runs" d="{{.Runs}}"/>{{with .Mean}}<path class="dots mean" d="{{.}}"/>{{end}}</svg></td>{{range .Cells}}<td class="number">{{.}}</td>{{end}}</tr>
{{end}}</tbody></table></div>
<p class="quiet">The large dot is the mean, the line its 95 % interval, and small dots are runs. The vertical line is the defaults.</p>
<h2>Goodput of each run</h2>
<div class="sheet" tabindex="0" role="region" aria-label="Runs at {{.Name}}"><table><tbody>{{range .Rows}}<tr><td>{{.Name}}</td>{{range .Each}}<td class="number">{{.}}</td>{{end}}</tr>
{{end}}</tbody></table></div>
{{end}}{{template "rows" .Remarks}}</body></html>
`)

type tunePageServer struct {
	Name, Low, High string
	Heads           []string
	Rows            []tunePageRow
}

type tunePageRow struct {
	Name, Says, Zero, Interval, Runs, Mean string
	Best                                   bool
	Cells                                  []string // as tuneHeads, without the name
	Each                                   []string // goodput by run
}

// writeTunePage writes an experiment as an HTML page.
func writeTunePage(w io.Writer, r *tune.Report, comment string, began time.Time) error {
	var servers []tunePageServer
	for i := range r.Servers {
		servers = append(servers, tunePageOf(&r.Servers[i]))
	}
	return tunePage().Execute(w, struct {
		Began, Comment       string
		Conclusions, Remarks rows
		Servers              []tunePageServer
	}{began.Local().Format("2006-01-02 15:04 MST"), comment, tuneConclusions(r), tuneRemarks(r), servers})
}

func tunePageOf(s *tune.Server) tunePageServer {
	defaults := s.Find(tune.Setting{})
	low, high := tuneScale(s)
	across := func(gain float64) float64 {
		if high <= low {
			return 500
		}
		return 1000 * min(max((gain-low)/(high-low), 0), 1)
	}
	page := tunePageServer{Name: s.Name, Heads: tuneHeads[1:]}
	if defaults.Goodput.Mean > 0 {
		page.Low, page.High = tunePercent(low, defaults), tunePercent(high, defaults)
	}
	base := map[int]float64{}
	for _, run := range defaults.Runs {
		base[run.Round] = run.Goodput
	}
	for i, cells := range tuneTable(s) {
		x := &s.Results[i]
		row := tunePageRow{Name: x.Name, Best: s.Best != nil && *s.Best == x.Setting, Cells: cells[1:]}
		row.Says = fmt.Sprintf("%s, gain %s, %s", cells[1], cells[3], cells[4])
		row.Zero = fmt.Sprintf("M%.1f 0V100", across(0))
		if x.Gain.Pairs >= 2 && !x.Defaults() {
			row.Interval = fmt.Sprintf("M%.1f 50H%.1f", across(x.Gain.Low), across(x.Gain.High))
			row.Mean = fmt.Sprintf("M%.1f 50h0", across(x.Gain.Mean))
		}
		for _, run := range x.Runs {
			row.Each = append(row.Each, units.Rate(run.Goodput))
			if there, ok := base[run.Round]; ok && !x.Defaults() {
				row.Runs += fmt.Sprintf("M%.1f 50h0", across(run.Goodput-there))
			}
		}
		page.Rows = append(page.Rows, row)
	}
	return page
}
