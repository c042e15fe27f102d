package path

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/path/tune"
	"github.com/fxfer/fxfer/internal/units"
)

// printTune shows an experiment to people: the conclusion, then the figures for each server.
func printTune(w io.Writer, r *tune.Report) {
	tuneConclusions(r).print(w)
	for i := range r.Servers {
		s := &r.Servers[i]
		fmt.Fprintln(w)
		term.Table(w, append([][]string{tuneHeads}, tuneTable(s)...))
		fmt.Fprintln(w)
		plotTune(w, s)
	}
	fmt.Fprintln(w)
	tuneRemarks(r).print(w)
}

// tuneConclusions say which setting is best, at each server and for all.
func tuneConclusions(r *tune.Report) (all rows) {
	for i := range r.Servers {
		s := &r.Servers[i]
		all.add(tuneName(r, i, "result"), tuneVerdict(s))
		for k := range s.Results {
			if x := &s.Results[k]; x.Failure != "" {
				all.add("", x.Name+" could not be measured: "+x.Failure)
			}
		}
	}
	switch {
	case len(r.Servers) < 2:
	case r.Best == nil:
		all.add("for all", "no setting is best for all servers")
	case *r.Best == tune.Setting{}:
		all.add("for all", "the defaults: no setting is better for all servers")
	default:
		all.add("for all", r.Best.String()+": no setting is better at any server")
	}
	return all
}

// tuneName is what a row about a server is called: its name if there are several.
func tuneName(r *tune.Report, i int, otherwise string) string {
	if len(r.Servers) == 1 {
		return otherwise
	}
	return strings.TrimPrefix(r.Servers[i].Name, "fxfer://")
}

// tuneVerdict says what is best at a server, and why.
func tuneVerdict(s *tune.Server) string {
	if s.Best == nil {
		return "there are not enough runs to compare"
	}
	defaults := s.Find(tune.Setting{})
	best := &s.Results[0]
	switch {
	case !tuneCompared(s):
		return "there are not enough runs to compare"
	case !s.Differs:
		if names := tuneUnsure(s, defaults); len(names) > 0 {
			return "no setting certainly differs from the defaults. More rounds may show a difference: " + strings.Join(names, "; ")
		}
		return "no setting differs from the defaults"
	case *s.Best == tune.Setting{}:
		var slower []string
		for i := range s.Results {
			if x := &s.Results[i]; x.Place == tune.Slower {
				slower = append(slower, x.Name)
			}
		}
		return "the defaults: no setting is better. Slower: " + strings.Join(slower, "; ")
	case best.Place == tune.Faster:
		return fmt.Sprintf("%s: %s more goodput than the defaults (95 %% interval %s to %s)", best.Name, strings.TrimPrefix(tunePercent(best.Gain.Mean, defaults), "+"), tunePercent(best.Gain.Low, defaults), tunePercent(best.Gain.High, defaults))
	}
	return fmt.Sprintf("%s: as fast as the defaults, with %s sent again instead of %s, and %s added delay instead of %s", best.Name,
		units.Percent(best.SentAgain.Mean), units.Percent(defaults.SentAgain.Mean), tuneDelay(best.Delay.Mean), tuneDelay(defaults.Delay.Mean))
}

// tuneWide is how far an interval may reach, as a share of the defaults' goodput, where it shows that
// there is no difference worth having.
const tuneWide = 0.1

// tuneUnsure returns the names of the settings whose intervals are wide.
func tuneUnsure(s *tune.Server, defaults *tune.Result) (names []string) {
	for i := range s.Results {
		x := &s.Results[i]
		if x.Gain.Pairs >= 2 && max(-x.Gain.Low, x.Gain.High) > tuneWide*defaults.Goodput.Mean {
			names = append(names, x.Name)
		}
	}
	return names
}

// tuneCompared reports whether there is an interval for any setting.
func tuneCompared(s *tune.Server) bool {
	for i := range s.Results {
		if x := &s.Results[i]; !x.Defaults() && x.Gain.Pairs >= 2 {
			return true
		}
	}
	return false
}

var tuneHeads = []string{"", "goodput", "SD", "gain", "95 % interval", "", "sent again", "delay", "CPU s/GB", "runs"}

// tuneTable has a row for each setting, the best first.
func tuneTable(s *tune.Server) (table [][]string) {
	defaults := s.Find(tune.Setting{})
	for i := range s.Results {
		x := &s.Results[i]
		row := []string{x.Name, "", "", "", "", "", "", "", "", fmt.Sprint(len(x.Runs))}
		if len(x.Runs) > 0 {
			row[1], row[2] = units.Rate(x.Goodput.Mean), units.Rate(x.Goodput.SD)
			row[6], row[7] = units.Percent(x.SentAgain.Mean), tuneDelay(x.Delay.Mean)
			if x.CPU.Mean > 0 {
				row[8] = fmt.Sprintf("%.2f", x.CPU.Mean)
			}
		}
		if !x.Defaults() && x.Gain.Pairs > 0 && defaults.Goodput.Mean > 0 {
			row[3] = tunePercent(x.Gain.Mean, defaults)
			if x.Gain.Pairs >= 2 {
				row[4], row[5] = tunePercent(x.Gain.Low, defaults)+" to "+tunePercent(x.Gain.High, defaults), string(x.Place)
			}
			if x.Gentler {
				row[5] = "gentler"
			}
		}
		table = append(table, row)
	}
	return table
}

// tunePercent writes a difference of goodput as a part of the defaults' goodput.
func tunePercent(difference float64, defaults *tune.Result) string {
	return fmt.Sprintf("%+.1f %%", 100*difference/defaults.Goodput.Mean)
}

func tuneDelay(seconds float64) string {
	if seconds < 5e-5 {
		return "0 ms"
	}
	return units.Seconds(seconds)
}

// tuneRemarks say how the experiment was made.
func tuneRemarks(r *tune.Report) (all rows) {
	all.add("experiment", fmt.Sprintf("%s of %s each in %s, after one that does not count", units.Count(int64(r.Rounds), "round", "rounds"), units.Bytes(r.Size), units.Seconds(r.Seconds)), fmt.Sprintf("seed %d", r.Seed))
	for i := range r.Servers {
		s := &r.Servers[i]
		all.add(tuneName(r, i, "path"), "round trip "+units.Seconds(s.RTT), "BDP "+units.Bytes(int64(s.BDP)))
	}
	for _, n := range r.Notes {
		all.add("note", n)
	}
	return all
}

// tuneScale is the range of gains that a plot of a server shows, in bit/s around 0. It holds the
// means, and of the intervals what is within twice their range.
func tuneScale(s *tune.Server) (low, high float64) {
	defaults := s.Find(tune.Setting{}).Goodput.Mean
	low, high = -0.05*defaults, 0.05*defaults
	for i := range s.Results {
		if x := &s.Results[i]; x.Gain.Pairs >= 2 {
			low, high = min(low, x.Gain.Mean), max(high, x.Gain.Mean)
		}
	}
	wide := high - low
	for i := range s.Results {
		if x := &s.Results[i]; x.Gain.Pairs >= 2 {
			low, high = max(min(low, x.Gain.Low), low-wide/2), min(max(high, x.Gain.High), high+wide/2)
		}
	}
	return low, high
}

const (
	tunePlotWidth = 51
	tuneNameWidth = 28
)

// plotTune draws the gain of each setting over the defaults with its interval. The line in the
// middle of a row is the defaults.
func plotTune(w io.Writer, s *tune.Server) {
	if !tuneCompared(s) {
		return
	}
	low, high := tuneScale(s)
	column := func(gain float64) int {
		return int(math.Round(min(max((gain-low)/(high-low), 0), 1) * (tunePlotWidth - 1)))
	}
	for i := range s.Results {
		x := &s.Results[i]
		line := []rune(strings.Repeat(" ", tunePlotWidth))
		if x.Gain.Pairs >= 2 && !x.Defaults() {
			from, to := column(x.Gain.Low), column(x.Gain.High)
			for k := from; k <= to; k++ {
				line[k] = '─'
			}
			line[from], line[to] = edge(x.Gain.Low < low, '◂', '├'), edge(x.Gain.High > high, '▸', '┤')
		}
		if zero := column(0); line[zero] == ' ' {
			line[zero] = '│'
		} else {
			line[zero] = '┼'
		}
		if len(x.Runs) > 0 && x.Gain.Pairs > 0 || x.Defaults() {
			line[column(x.Gain.Mean*float64(min(x.Gain.Pairs, 1)))] = '●'
		}
		name := []rune(x.Name)
		if len(name) > tuneNameWidth {
			name = append(name[:tuneNameWidth-1], '…')
		}
		fmt.Fprintf(w, "%-*s %s\n", tuneNameWidth, string(name), strings.TrimRight(string(line), " "))
	}
	defaults := s.Find(tune.Setting{})
	left, right := tunePercent(low, defaults), tunePercent(high, defaults)
	fmt.Fprintf(w, "%*s %s%*s\n", tuneNameWidth, "gain over the defaults:", left, tunePlotWidth-len(left), right)
}

func edge(cut bool, arrow, end rune) rune {
	if cut {
		return arrow
	}
	return end
}
