package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fxfer/fxfer/internal/fleet"
)

// checked is a pass of a real fleet on this machine, and what the model says about it.
type checked struct {
	Files   int     `json:"files"`
	Workers int     `json:"workers"`
	Pass    string  `json:"pass"`
	Shards  int     `json:"shards"`
	Left    float64 `json:"processors_left"`
	Real    phases  `json:"real"`
	Model   phases  `json:"model"`
}

// phases are seconds since the first task began.
type phases struct {
	Listed float64 `json:"listed"`
	Sent   float64 `json:"sent"`
	Total  float64 `json:"total"`
}

// checkShards is how many shards a tree of a check has.
const checkShards = 40

// passes are what is done with a tree, one after the other.
var passes = []struct {
	name    string
	changed float64
	before  func(dir string) error
}{
	{"full", 1, func(string) error { return nil }},
	{"1 % changed", 0.01, touch},
	{"nothing changed", 0, func(string) error { return nil }},
}

// check runs passes with real workers, and by the model.
func (s *site) check(ctx context.Context, size sizes, t *times, say func(string, ...any)) (all []checked, err error) {
	for _, files := range size.check {
		name := fmt.Sprint("check", files)
		if err := plant(s.source(name), files); err != nil {
			return all, err
		}
		for _, workers := range []int{1, 2, 4} {
			if err := os.RemoveAll(s.target(name)); err != nil {
				return all, err
			}
			for _, p := range passes {
				if err := p.before(s.source(name)); err != nil {
					return all, err
				}
				events, err := s.job(ctx, name, workers, fleet.Options{ShardFiles: int64(files / checkShards)})
				if err != nil {
					return all, fmt.Errorf("%s: %w", name, err)
				}
				c := checked{Files: files, Workers: workers, Pass: p.name}
				c.Real, c.Shards, c.Left = measured(events)
				m := fleetModel{
					times: *t, workers: workers, files: int64(files), names: 25, changed: p.changed,
					line: 1e12, processors: c.Left, together: true, shardFiles: int64(files / checkShards),
				}
				modelled := m.simulate()
				c.Model = phases{modelled.listed, modelled.sent, modelled.total}
				say("%d files, %d workers, %s: %.2f s, by the model %.2f s; %.1f processors left", files, workers, p.name, c.Real.Total, c.Model.Total, c.Left)
				all = append(all, c)
			}
		}
	}
	return all, nil
}

// measured returns the phases of a job, the number of its shards, and the processors that others left.
func measured(events []event) (p phases, shards int, left float64) {
	var first, last event
	for i, e := range events {
		since := e.at
		if i == 0 || since.Before(first.at) {
			first = e
		}
		if since.After(last.at) {
			last = e
		}
	}
	since := func(at time.Time) float64 { return at.Sub(first.at).Seconds() }
	for _, e := range events {
		switch {
		case e.begins:
		case e.kind == fleet.List:
			p.Listed = since(e.at)
		case e.kind == fleet.Send:
			shards++
			p.Sent = max(p.Sent, since(e.at))
		case e.kind == fleet.Finish:
			p.Total = since(e.at)
		}
	}
	return p, shards, (last.left - first.left) / max(since(last.at), 1e-3)
}
