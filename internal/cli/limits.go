package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// limits tells what held a transfer back, and what helps, in one line each.
func limits(r *fxfer.Report) string {
	if len(r.Limits) == 0 || r.Limits[0].Limiter == diagnose.Unknown || r.Written == 0 && r.Failed == 0 && r.Limits[0].Limiter != diagnose.BlackHole {
		return ""
	}
	first := &r.Limits[0]
	text := "limit: " + oneLine(first.String()) + "\n"
	if hint := first.Hint(); hint != "" {
		text += "hint: " + oneLine(hint) + "\n"
	}
	return text
}

// explainRows bounds the timeline that is shown.
const explainRows = 20

// explain tells all that is known of what held a transfer back.
func explain(r *fxfer.Report) string {
	var b strings.Builder
	for i := range r.Limits {
		x := &r.Limits[i]
		fmt.Fprintf(&b, "\n%3.0f %%  %s, %s\n", x.Share*100, oneLine(name(x)), units.Time(x.Time))
		for _, e := range x.Evidence {
			fmt.Fprintf(&b, "       %s\n", oneLine(e))
		}
		for j := range x.Remedies {
			remedy := &x.Remedies[j]
			fmt.Fprintf(&b, "       remedy: %s%s\n", oneLine(remedy.On(x.Host)), expected(remedy))
		}
	}
	if len(r.Timeline) == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "\n%8s  %-13s  %-9s  %7s  %7s  %s\n", "at", "goodput", "RTT", "streams", "resent", "limit")
	for _, m := range condense(r.Timeline, explainRows) {
		rtt := ""
		if m.Sender.MeanRTT() > 0 {
			rtt = units.Time(m.Sender.MeanRTT())
		}
		fmt.Fprintf(&b, "%8s  %-13s  %-9s  %7d  %7d  %s\n", units.Time(m.Start), units.Rate(m.Rate()), rtt, m.Sender.Streams, m.Sender.Retrans, m.Limiter)
	}
	return b.String()
}

func name(x *fxfer.Limit) string {
	if x.Host == "" {
		return string(x.Limiter)
	}
	return string(x.Limiter) + " on " + x.Host
}

func expected(r *fxfer.Remedy) string {
	if r.Expect == 0 {
		return ""
	}
	return ": expect " + units.Rate(r.Expect)
}

// condense joins moments so that at most so many rows are left. A row has the limiter of most of its time.
func condense(cells []fxfer.Moment, rows int) []fxfer.Moment {
	total := cells[len(cells)-1].Start + cells[len(cells)-1].Length - cells[0].Start
	step := total/time.Duration(rows) + 1
	first := cells[0].Start
	var joined []fxfer.Moment
	for len(cells) > 0 {
		n, row := 1, (cells[0].Start-first)/step
		for n < len(cells) && (cells[n].Start-first)/step <= row {
			n++
		}
		joined = append(joined, diagnose.Join(cells[:n]))
		cells = cells[n:]
	}
	return joined
}

type jsonLimit struct {
	Limiter  string       `json:"limiter"`
	Side     string       `json:"side"`
	Host     string       `json:"host"`
	Share    float64      `json:"share"`
	Seconds  float64      `json:"seconds"`
	Evidence []string     `json:"evidence"`
	Remedies []jsonRemedy `json:"remedies"`
}

type jsonRemedy struct {
	Sysctl  *jsonSysctl `json:"sysctl,omitempty"`
	Flag    string      `json:"flag,omitempty"`
	Command string      `json:"command,omitempty"`
	Advice  string      `json:"advice,omitempty"`
	Expect  float64     `json:"expect_bits_per_second,omitempty"`
	Host    string      `json:"host,omitempty"` // if not the limit's
}

type jsonSysctl struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func jsonLimits(all []fxfer.Limit) []jsonLimit {
	list := []jsonLimit{}
	for i := range all {
		x := &all[i]
		l := jsonLimit{
			Limiter: string(x.Limiter), Side: string(x.Side), Host: x.Host, Share: x.Share, Seconds: x.Time.Seconds(),
			Evidence: append([]string{}, x.Evidence...), Remedies: []jsonRemedy{},
		}
		for _, r := range x.Remedies {
			l.Remedies = append(l.Remedies, jsonRemedy{(*jsonSysctl)(r.Sysctl), r.Flag, r.Command, r.Advice, r.Expect, r.Host})
		}
		list = append(list, l)
	}
	return list
}

// jsonMoment is a short time of a transfer, with what both sides measured in it by the names of the wire.
type jsonMoment struct {
	Start    float64          `json:"start_seconds"`
	Length   float64          `json:"seconds"`
	Limiter  string           `json:"limiter"`
	Goodput  float64          `json:"goodput_bits_per_second"`
	Sender   map[string]int64 `json:"sender"`
	Receiver map[string]int64 `json:"receiver"`
}

func jsonTimeline(cells []fxfer.Moment) []jsonMoment {
	list := []jsonMoment{}
	for i := range cells {
		c := &cells[i]
		m := jsonMoment{c.Start.Seconds(), c.Length.Seconds(), string(c.Limiter), c.Rate(), map[string]int64{}, map[string]int64{}}
		diagnose.Each(&c.Sender, nil, func(name string, v int64) { m.Sender[name] = v })
		diagnose.Each(&c.Receiver, nil, func(name string, v int64) { m.Receiver[name] = v })
		list = append(list, m)
	}
	return list
}
