package main

import (
	"fmt"
	"time"

	"github.com/fxfer/fxfer/internal/path/lab"
)

const (
	windowPage = "window"
	windowGrid = "window-" // what the names of its grids begin with

	ofLimit = "of the limit"
	keeps   = "keeps"
	again   = "sent again"
	byUs    = "delay by fxfer"
)

var (
	windowLines = []struct {
		rate int64
		rtt  time.Duration
	}{
		{100 * mbit, 20 * time.Millisecond},
		{300 * mbit, 80 * time.Millisecond},
		{gbit, 5 * time.Millisecond},
		{gbit, 50 * time.Millisecond},
		{gbit, 120 * time.Millisecond},
	}
	queues = []float64{0.25, 1, 4}
)

// window returns the grids about the path window: what fxfer takes of a line, and what it leaves.
func window(span time.Duration) []sharing {
	return []sharing{alone(span), besideFlows(span), low(span), troubles(span), movingRate(span)}
}

// slowLine is one of those that most offices have: the first windows of all streams are more than it has room for.
var slowLine = line(32*mbit, 15*time.Millisecond, 1)

// eachLine returns the rows that f makes for each line and queue.
func eachLine(f func(lab.Link) []sharedRow) (all []sharedRow) {
	for _, l := range windowLines {
		for _, queue := range queues {
			all = append(all, f(line(l.rate, l.rtt, queue))...)
		}
	}
	return append(all, f(slowLine)...)
}

func fxferRow(name string, l lab.Link, sc scene, flags []string, goals ...goal) sharedRow {
	return sharedRow{name: lineName(l) + ", " + name, player: player{program: fxferName, flags: flags}, scenes: []scene{sc}, goals: goals}
}

var aloneColumns = []column{goodputColumn, limitColumn, medianColumn, p99Column, againColumn, droppedColumn, udpColumn}

func alone(span time.Duration) sharing {
	return sharing{
		name: windowGrid + "alone", page: windowPage, title: "Alone on a line", columns: aloneColumns,
		about: "fxfer sends what a full line carries in the time of a scene, as one whole command. A UDP stream of 2 Mbit/s runs beside it; the limit is without that.",
		rows: eachLine(func(l lab.Link) (rows []sharedRow) {
			sc := scene{link: l, udp: true, span: span, whole: true}
			for _, transport := range []string{"tcp", "quic"} {
				rows = append(rows, fxferRow(transport, l, sc, []string{"--transport", transport}, aloneGoals(l, transport)...))
			}
			return append(rows, fxferRow("low", l, sc, []string{"--priority", "low"}, atLeast(ofLimit, 0.95)))
		}),
	}
}

func aloneGoals(l lab.Link, transport string) []goal {
	share, resent := 0.96, 0.002
	switch {
	case l.RTT > 100*time.Millisecond:
		share = 0.94
	case transport == "quic":
		share = 0.95
	}
	if l.BufferBDP < 1 {
		resent = 0.01
	}
	goals := []goal{
		atMost(medianColumn.title, max(0.005, l.RTT.Seconds()/10)), atMost(p99Column.title, max(0.005, 0.3*l.RTT.Seconds())),
		atMost(again, resent), atMost(udpColumn.title, 0.001),
	}
	if transport == "tcp" || l.RTT <= 50*time.Millisecond {
		goals = append(goals, atLeast(ofLimit, share))
	}
	return goals
}

var besideColumns = []column{
	goodputColumn, limitColumn, keepsShare(keeps, 0), keepsColumn("the flows", 0), medianColumn, byUsColumn, againColumn, droppedColumn, othersDropped("drops of the flows", 0), jainColumn,
}

// besideFlows has fxfer with priority normal or high beside flows that were there first, and
// beside itself.
func besideFlows(span time.Duration) sharing {
	return sharing{
		name: windowGrid + "beside", page: windowPage, title: "Beside others", columns: besideColumns,
		about: fmt.Sprintf("The others begin %.0f s before fxfer. They keep what they get beside fxfer, as a share of what they get alone at the same age.", lead.Seconds()),
		rows: eachLine(func(l lab.Link) []sharedRow {
			first := func(congestion string, flows int) scene {
				return scene{link: l, others: &lab.Cross{Congestion: congestion, Flows: flows}, lead: lead, span: span}
			}
			return []sharedRow{
				fxferRow("normal beside 1 cubic", l, first("cubic", 1), nil, atLeast(keeps, 0.4), atLeast(ofLimit, 0.3)),
				fxferRow("normal beside 8 cubic", l, first("cubic", 8), nil, atLeast(keeps, 0.6)),
				fxferRow("normal beside 1 bbr", l, first("bbr", 1), nil, atLeast(keeps, 0.25)),
				fxferRow("high beside 1 cubic", l, first("cubic", 1), []string{"--priority", "high"}, atLeast(keeps, 0.1), atLeast(ofLimit, 0.7)),
				fxferRow("4 sessions", l, scene{link: l, span: span + settle, sessions: 4}, nil, atLeast(jainColumn.title, 0.95), atMost(again, 0.01)),
			}
		}),
	}
}

func low(span time.Duration) sharing {
	return sharing{
		name: windowGrid + "low", page: windowPage, title: "Priority low", columns: []column{goodputColumn, keepsShare(keeps, 0), keepsColumn("the flow", 0), byUsColumn, againColumn, yieldColumn, backColumn},
		about: "A cubic flow was there first, or it comes later and leaves again. fxfer has yielded when it leaves the flow 0.9 of what the flow gets alone, as a mean over half a second. " +
			"It is back when it has 0.9 of the line, as a mean over a second.",
		rows: eachLine(func(l lab.Link) []sharedRow {
			flags := []string{"--priority", "low"}
			delay := atMost(byUs, max(0.005, l.RTT.Seconds()/20))
			return []sharedRow{
				fxferRow("low beside 1 cubic", l, scene{link: l, others: &lab.Cross{Congestion: "cubic", Flows: 1}, lead: lead, span: span}, flags, atLeast(keeps, 0.9), delay),
				fxferRow("low, 1 cubic comes later", l,
					scene{link: l, others: &lab.Cross{Congestion: "cubic", Flows: 1, From: settle, To: settle + span}, span: settle + span + resume},
					flags, atLeast(keeps, 0.9), delay, atMost(yieldColumn.title, 2), atMost(backColumn.title, 10)),
			}
		}),
	}
}

// troubles are lines that lose, drop or delay without being full.
func troubles(span time.Duration) sharing {
	far := line(gbit, 50*time.Millisecond, 1)
	row := func(name string, hosts setup, set func(*lab.Link), goals ...goal) sharedRow {
		l := far
		set(&l)
		return fxferRow(name, l, scene{link: l, hosts: hosts, span: span, whole: true}, nil, goals...)
	}
	loss := func(share float64) func(*lab.Link) { return func(l *lab.Link) { l.Loss = share } }
	return sharing{
		name: windowGrid + "troubles", page: windowPage, title: "Loss, policers, CoDel and jitter", columns: aloneColumns[:len(aloneColumns)-1],
		about: "fxfer alone, as one whole command, on lines that lose, drop or delay without being full. Stock hosts have cubic, and BBR is not allowed.",
		rows: []sharedRow{
			row("loss 0.01 %", asIs, loss(0.0001), atLeast(ofLimit, 0.95), atMost(again, 0.0051)),
			row("loss 0.1 %", asIs, loss(0.001), atLeast(ofLimit, 0.94), atMost(again, 0.006)),
			row("loss 1 %", asIs, loss(0.01), atLeast(ofLimit, 0.90), atMost(again, 0.015)),
			row("loss 0.01 %, stock hosts", stockCubic, loss(0.0001), atLeast(ofLimit, 0.93), atMost(again, 0.0051)),
			row("a policer of 200 Mbit/s", asIs, func(l *lab.Link) { l.Police, l.PoliceBurst = 200*mbit, 256*kib },
				atLeast(ofLimit, 0.95), atMost(droppedColumn.title, 0.01)),
			row("CoDel", asIs, func(l *lab.Link) { l.CoDel = true }, atLeast(ofLimit, 0.95), atMost(droppedColumn.title, 0.005)),
			row("jitter ±10 ms", asIs, func(l *lab.Link) { l.Jitter = 10 * time.Millisecond }, atLeast(ofLimit, 0.93)),
		},
	}
}

// movingRate has a line whose rate falls and comes back.
func movingRate(span time.Duration) sharing {
	l := line(gbit, 50*time.Millisecond, 1)
	l.Buffer = l.Rate / 8 / 20 // stays as large when the rate falls
	rate := func(bits int64) lab.Change { return lab.Change{Direction: lab.LeftToRight, Rate: &bits} }
	sc := scene{link: l, span: settle + span + resume, changes: []change{{settle, rate(300 * mbit)}, {settle + span, rate(gbit)}}}
	return sharing{
		name: windowGrid + "rate", page: windowPage, title: "The line changes", columns: []column{goodputColumn, medianColumn, p99Column, againColumn, drainColumn, regainColumn},
		about: "The line falls to 300 Mbit/s and comes back. The queue has drained when the delay added is at most 5 ms or a tenth of the RTT, as a mean over half a second. " +
			"The line is full again when fxfer has 0.9 of it, as a mean over a second.",
		rows: []sharedRow{fxferRow("falls to 300 Mbit/s", l, sc, nil, atMost(drainColumn.title, 2), atMost(regainColumn.title, 10))},
	}
}
