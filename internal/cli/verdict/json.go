// Package verdict turns the limits of a transfer into JSON.
package verdict

import (
	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/path/diagnose/words"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// JSON is a limit in JSON output.
type JSON struct {
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
	Host    string      `json:"host,omitempty"` // empty if it is the host of the limit
}

type jsonSysctl struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// JSONOf returns limits for JSON output.
func JSONOf(all []fxfer.Limit) []JSON {
	list := []JSON{}
	for i := range all {
		x := &all[i]
		l := JSON{
			Limiter: string(x.Limiter), Side: string(x.Side), Host: x.Host, Share: x.Share, Seconds: x.Time.Seconds(),
			Evidence: words.Evidence(x), Remedies: []jsonRemedy{},
		}
		for j := range x.Remedies {
			r := &x.Remedies[j]
			p := words.PartsOf(r)
			l.Remedies = append(l.Remedies, jsonRemedy{(*jsonSysctl)(r.Sysctl), p.Flag, p.Command, p.Advice, r.Expect, r.Host})
		}
		list = append(list, l)
	}
	return list
}

// Moment is a short time of a transfer, with the measurements of both sides under their names in
// the protocol.
type Moment struct {
	Start    float64          `json:"start_seconds"`
	Length   float64          `json:"seconds"`
	Limiter  string           `json:"limiter"`
	Goodput  float64          `json:"goodput_bits_per_second"`
	Sender   map[string]int64 `json:"sender"`
	Receiver map[string]int64 `json:"receiver"`
}

// Timeline returns moments for JSON output.
func Timeline(cells []fxfer.Moment) []Moment {
	list := []Moment{}
	for i := range cells {
		c := &cells[i]
		m := Moment{c.Start.Seconds(), c.Length.Seconds(), string(c.Limiter), c.Rate(), map[string]int64{}, map[string]int64{}}
		diagnose.Each(&c.Sender, nil, func(name string, v int64) { m.Sender[name] = v })
		diagnose.Each(&c.Receiver, nil, func(name string, v int64) { m.Receiver[name] = v })
		list = append(list, m)
	}
	return list
}
