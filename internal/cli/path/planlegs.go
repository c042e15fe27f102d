package path

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/internal/path/plan"
	"github.com/fxfer/fxfer/internal/units"
)

// plannedLegs is a plan for an object that moves from host to host.
type plannedLegs struct {
	size  int64
	chain plan.Chain
}

// newPlannedLegs reads --leg. All other flags but --size and --json describe a single line.
func newPlannedLegs(flags *pflag.FlagSet, f planFlags) (*plannedLegs, error) {
	var err error
	flags.Visit(func(g *pflag.Flag) {
		if g.Name != "leg" && g.Name != "size" && g.Name != "json" {
			err = exit.Usage(legForm, "--leg and --%s exclude each other", g.Name)
		}
	})
	if err != nil {
		return nil, err
	}
	if f.size == 0 {
		return nil, exit.Usage("for example: --size 265KB", "--size is missing: how large is the object?")
	}
	legs, err := parseLegs(f.legs)
	if err != nil {
		return nil, err
	}
	p := &plannedLegs{size: f.size}
	for i, l := range legs {
		if l.Link.Loss > plan.MaxLoss {
			return nil, exit.Usage("", "--leg %s: the formulas hold up to %.0f%% of loss", f.legs[i], 100*plan.MaxLoss)
		}
		p.chain = append(p.chain, plannedLeg(l))
	}
	return p, nil
}

func plannedLeg(l lab.Leg) plan.Leg {
	return plan.Leg{
		Path:   plan.Path{Rate: float64(l.Link.Rate), RTT: l.Link.RTT, Loss: l.Link.Loss, MTU: l.Link.MTU},
		Window: l.Window, Cwnd: l.InitCwnd, Rwnd: l.InitRwnd,
	}
}

// host names host i of the chain: the sender of leg i.
func (p *plannedLegs) host(i int) string {
	switch {
	case i == 0:
		return "origin"
	case i == len(p.chain):
		return "receiver"
	case len(p.chain) == 2:
		return "relay"
	}
	return fmt.Sprintf("relay %d", i)
}

// the is host with the article that it needs in a sentence.
func (p *plannedLegs) the(i int) string {
	if name := p.host(i); !strings.Contains(name, " ") {
		return "the " + name
	}
	return p.host(i)
}

// print shows the answer, advice, and then each leg.
func (p *plannedLegs) print(w io.Writer) {
	label := func(label, text string) { fmt.Fprintf(w, "%-10s %s\n", label, text) }
	whole := p.chain.Whole()
	alone := whole.Carry(p.size)
	if len(p.chain) == 1 {
		fmt.Fprintf(w, "%s takes %s over an open connection.\n", units.Bytes(p.size), units.Span(alone.Time))
	} else {
		cold, streamed, cached := p.chain.Cold(p.size), p.chain.Streamed(p.size), p.chain.Cached(p.size)
		store, keep := "the relay stores it first", "it passes bytes on as they come"
		if len(p.chain) > 2 {
			store, keep = "each relay stores it first", "they pass bytes on as they come"
		}
		fmt.Fprintf(w, "%s takes %s from the origin, and %s from the cache of the last relay.\n",
			units.Bytes(p.size), units.Span(cold), units.Span(cached))
		label("cold", fmt.Sprintf("%s if %s: one leg after the other; %s if %s", units.Span(cold), store, units.Span(streamed), keep))
		label("cached", fmt.Sprintf("%s: only the last mile", units.Span(cached)))
		label("no relay", fmt.Sprintf("%s in one TCP connection over the whole path: %s round trips of %s",
			units.Span(alone.Time), units.Grouped(int64(alone.Trips)), units.Time(whole.Path.RTT)))
		label("splitting", p.splitting(alone.Time, cold, streamed, cached))
	}
	what := "do"
	for _, advice := range p.advice() {
		label(what, advice)
		what = ""
	}
	fmt.Fprintln(w)
	p.printTable(w)
	fmt.Fprintln(w)
	label("setup", "a new connection takes one round trip of its leg more, and TLS 1.3 another one")
}

// splitting says what relays change, against one connection over the whole path.
func (p *plannedLegs) splitting(whole, cold, streamed, cached time.Duration) string {
	change := func(d time.Duration) string {
		part := units.Percent(float64((d - whole).Abs()) / float64(max(whole, 1)))
		switch {
		case d < whole:
			return "saves " + units.Span(whole-d) + " (" + part + ")"
		case d > whole:
			return "costs " + units.Span(d-whole) + " (" + part + ")"
		}
		return "changes nothing"
	}
	return fmt.Sprintf("cold, it %s if stored, and %s if passed on; cached, it %s", change(cold), change(streamed), change(cached))
}

// advice names the windows to raise, and their hosts.
func (p *plannedLegs) advice() []string {
	var lines []string
	for i, l := range p.chain {
		r := l.Raise(p.size)
		if r.Nothing() {
			continue
		}
		from, to := p.the(i), p.the(i+1)
		var changes []string
		if r.Cwnd > 0 {
			changes = append(changes, fmt.Sprintf("initcwnd of %s to %d", from, r.Cwnd))
		}
		if r.Rwnd > 0 {
			changes = append(changes, fmt.Sprintf("initrwnd of %s to %d", to, r.Rwnd))
		}
		if r.Window > 0 {
			changes = append(changes, fmt.Sprintf("window of both hosts to %s (%s's tcp_wmem, %s's tcp_rmem)", showWindow(r.Window), p.host(i), p.host(i+1)))
		}
		text := "raise the " + strings.Join(changes, ", and the ")
		if r.BBR {
			text = strings.TrimSuffix(text, "raise the ")
			if text != "" {
				text += ", and "
			}
			text += fmt.Sprintf("let %s use BBR", from)
		}
		lines = append(lines, fmt.Sprintf("leg %d: %s: %s instead of %s", i+1, text, units.Span(r.Time), units.Span(l.Carry(p.size).Time)))
	}
	if lines == nil {
		return []string{"nothing: no window makes it faster"}
	}
	return lines
}

func (p *plannedLegs) printTable(w io.Writer) {
	rows := [][]string{{"leg", "rate", "RTT", "loss", "initcwnd", "initrwnd", "window", "round trips", "time", "limiter"}}
	or := func(n int64, text, otherwise string) string {
		if n == 0 {
			return otherwise
		}
		return text
	}
	for i, l := range p.chain {
		c := l.Carry(p.size)
		loss := "-"
		if l.Path.Loss > 0 {
			loss = strconv.FormatFloat(100*l.Path.Loss, 'g', 4, 64) + " %"
		}
		rows = append(rows, []string{
			fmt.Sprintf("%d  %s → %s", i+1, p.host(i), p.host(i+1)), units.Rate(l.Path.Rate), units.Time(l.Path.RTT), loss,
			or(int64(l.Cwnd), strconv.Itoa(l.Cwnd), strconv.Itoa(plan.DefaultInitial)),
			or(int64(l.Rwnd), strconv.Itoa(l.Rwnd), strconv.Itoa(plan.AmpleRwnd)),
			or(l.Window, showWindow(l.Window), "-"), units.Grouped(int64(c.Trips)), units.Span(c.Time), string(c.Limiter),
		})
	}
	term.Table(w, rows)
}

type jsonLegs struct {
	Type     string    `json:"type"`
	Size     int64     `json:"bytes"`
	Cold     float64   `json:"cold_seconds"`
	Streamed float64   `json:"cold_streamed_seconds"`
	Cached   float64   `json:"cached_seconds"`
	Whole    jsonLeg   `json:"one_connection"`
	Legs     []jsonLeg `json:"legs"`
}

type jsonLeg struct {
	From      string       `json:"from"`
	To        string       `json:"to"`
	Bandwidth float64      `json:"bandwidth_bits_per_second"`
	RTT       float64      `json:"rtt_seconds"`
	Loss      float64      `json:"loss"`
	Cwnd      int          `json:"initcwnd,omitempty"`
	Rwnd      int          `json:"initrwnd,omitempty"`
	Window    int64        `json:"window_bytes,omitempty"`
	Time      float64      `json:"duration_seconds"`
	Trips     int          `json:"round_trips"`
	Limiter   plan.Limiter `json:"limiter"`
	Raise     *jsonRaise   `json:"raise,omitempty"`
}

type jsonRaise struct {
	Cwnd   int     `json:"initcwnd,omitempty"`
	Rwnd   int     `json:"initrwnd,omitempty"`
	Window int64   `json:"window_bytes,omitempty"`
	BBR    bool    `json:"bbr,omitempty"`
	Time   float64 `json:"duration_seconds"`
}

func (p *plannedLegs) json() jsonLegs {
	out := jsonLegs{
		Type: "plan_legs", Size: p.size, Cold: p.chain.Cold(p.size).Seconds(), Streamed: p.chain.Streamed(p.size).Seconds(),
		Cached: p.chain.Cached(p.size).Seconds(), Whole: p.jsonLeg(p.chain.Whole(), 0, len(p.chain)),
	}
	for i, l := range p.chain {
		out.Legs = append(out.Legs, p.jsonLeg(l, i, i+1))
	}
	return out
}

func (p *plannedLegs) jsonLeg(l plan.Leg, from, to int) jsonLeg {
	c := l.Carry(p.size)
	j := jsonLeg{
		From: p.host(from), To: p.host(to), Bandwidth: l.Path.Rate, RTT: l.Path.RTT.Seconds(), Loss: l.Path.Loss, Cwnd: l.Cwnd, Rwnd: l.Rwnd,
		Window: l.Window, Time: c.Time.Seconds(), Trips: c.Trips, Limiter: c.Limiter,
	}
	if r := l.Raise(p.size); !r.Nothing() {
		j.Raise = &jsonRaise{Cwnd: r.Cwnd, Rwnd: r.Rwnd, Window: r.Window, BBR: r.BBR, Time: r.Time.Seconds()}
	}
	return j
}
