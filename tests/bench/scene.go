package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/path/lab"
)

// sharing is a grid whose rows say what somebody who sends does to others on the line.
type sharing struct {
	name    string
	page    string // the document in docs/evidence that has its section
	title   string
	about   string
	columns []column
	rows    []sharedRow
}

// sharedRow is a row: a player, and the scenes in which it is measured.
type sharedRow struct {
	group  string // rows of one group make one table
	name   string
	player player
	scenes []scene
	goals  []goal
}

// player is somebody who sends.
type player struct {
	name    string // "" in grids that have fxfer only
	program string // fxferName, fxferBeforeName, iperfName, or the name of a peer
	flags   []string
}

// scene is a line, others on it, and a player who comes to it.
type scene struct {
	link     lab.Link
	hosts    setup
	others   *lab.Cross    // TCP flows; nil: none
	udp      bool          // a stream of udpRate beside
	lead     time.Duration // the player comes so much later than the scene begins
	span     time.Duration // and leaves after so long
	whole    bool          // the player sends what a full line carries in span, to its end, instead of leaving after span
	sessions int           // so many players at once; 0: one
	changes  []change      // in the order of time
}

// change is a change of the line while the player sends.
type change struct {
	at   time.Duration // after the scene's begin
	line lab.Change
}

// goal is what a figure of a row should reach.
type goal struct {
	column string
	bound  float64
	most   bool // the figure should be at most bound, otherwise at least
}

func atLeast(column string, bound float64) goal { return goal{column: column, bound: bound} }
func atMost(column string, bound float64) goal {
	return goal{column: column, bound: bound, most: true}
}

// met reports whether a figure reaches the goal. A figure that is missing does not.
func (g goal) met(v float64) bool {
	if g.most {
		return v <= g.bound
	}
	return v >= g.bound
}

const (
	udpRate = 2 * mbit
	lead    = 8 * time.Second  // flows that are there first have left their slow start by then
	settle  = 10 * time.Second // several sessions have found their parts by then
	resume  = 15 * time.Second // so long a scene goes on after the others have left
)

// limit is the most payload that TCP can carry beside the UDP stream, in bit/s.
func (sc *scene) limit() float64 {
	rate := sc.link.Rate
	if sc.link.Police > 0 {
		rate = min(rate, sc.link.Police)
	}
	if sc.udp {
		rate -= udpRate
	}
	return goodputLimit(rate)
}

// load returns what each player sends: as much as it can while it stays, or the whole payload.
func (sc *scene) load() payload {
	size := sc.limit() * sc.span.Seconds() / 8
	if !sc.whole {
		size *= 1.05
	}
	if sc.sessions > 1 {
		size /= 2 // two of them alone could fill the line
	}
	return payload{files: 1, size: (int64(size)/mb + 1) * mb}
}

// ages returns the part of the others' life in which the player shares the line with them, since
// their beginning.
func (sc *scene) ages() (from, to time.Duration) {
	end := sc.lead + sc.span
	if sc.others.To > 0 {
		end = min(end, sc.others.To)
	}
	return max(0, sc.lead-sc.others.From), end - sc.others.From
}

// alone returns the same scene without a player, in which the others have the same age.
func (sc *scene) alone() scene {
	others := *sc.others
	_, span := sc.ages()
	others.From, others.To = 0, 0
	return scene{link: sc.link, hosts: sc.hosts, others: &others, span: span}
}

// lineName describes a line, with the size of its queue if that is not one BDP.
func lineName(l lab.Link) string {
	parts := []string{showRate(float64(l.Rate)) + " × " + showMillis(l.RTT)}
	if l.BufferBDP != 0 && l.BufferBDP != 1 {
		parts = append(parts, fmt.Sprintf("queue %g BDP", l.BufferBDP))
	}
	return strings.Join(parts, ", ")
}

// line returns a line with a queue of so many BDP.
func line(rate int64, rtt time.Duration, queue float64) lab.Link {
	l := wan(rate, rtt, 0)
	l.BufferBDP = queue
	return l
}

// sharings returns the grids about others on the line. The player stays for so long in a scene.
func sharings(span time.Duration, before bool) []sharing {
	return slices.Concat([]sharing{neighbours(span, before)}, window(span))
}

// fullName is the name by which -rows selects a row.
func (r *sharedRow) fullName() string {
	return strings.Join(slices.DeleteFunc([]string{r.group, r.name}, func(s string) bool { return s == "" }), ", ")
}
