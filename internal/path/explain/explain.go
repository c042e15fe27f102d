// Package explain finds what limits the transfers of programs that are not ours. It looks at their
// sockets from outside, or at a capture of their packets. It reads no payload. The rules are those of
// package diagnose.
package explain

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
)

// ErrUnsupported matches the errors of Watch where the system does not show sockets.
var ErrUnsupported = errors.New("this system does not show the sockets of other programs")

// Report says what limits a program.
type Report struct {
	What        string        // the program, the port or the file
	Length      time.Duration // of the observation
	Connections []Connection  // those that moved data, most bytes first
	More        int           // connections that were not looked at, because there were too many
	Verdicts    []diagnose.Verdict
	Timeline    []Moment
	Notes       []string
}

// Connection is a TCP connection, in the direction that moved more data.
type Connection struct {
	Local, Remote netip.AddrPort // of a capture: who opened it, and to where
	Program       string         // with its process id, "" if unknown
	Service       string         // by the port, "" if unknown
	Sends         bool           // Local sends more than it receives
	Sent          int64          // bytes acknowledged
	Received      int64          // bytes
	Control       string         // congestion control of the sender, "" if unknown
	Verdicts      []diagnose.Verdict
	Cells         []diagnose.Cell
	Packets       *Packets // what only a capture shows, nil of sockets

	sender, receiver diagnose.Host
	seen             diagnose.Side
}

// judge finds what held a connection back, in a session that was seen from outside.
func (c *Connection) judge(s *diagnose.Session) {
	c.sender, c.receiver, c.seen = s.SenderHost, s.ReceiverHost, s.Seen
	c.Cells = trim(diagnose.Cells(s))
	c.Verdicts = diagnose.Judge(c.Cells, &c.sender, &c.receiver, &diagnose.Asked{Here: c.seen, Program: true})
}

// trim leaves out the time before the first byte and after the last one.
func trim(cells []diagnose.Cell) []diagnose.Cell {
	quiet := func(c *diagnose.Cell) bool { return c.Rate() == 0 && c.Sender.InFlight == 0 }
	for len(cells) > 0 && quiet(&cells[0]) {
		cells = cells[1:]
	}
	for len(cells) > 0 && quiet(&cells[len(cells)-1]) {
		cells = cells[:len(cells)-1]
	}
	return cells
}

// Moved is the number of bytes in both directions.
func (c *Connection) Moved() int64 { return c.Sent + c.Received }

// Goodput is the mean rate of the larger direction in bit/s, from its first to its last byte.
func (c *Connection) Goodput() float64 {
	_, mean := diagnose.Peak(c.Cells)
	return mean
}

// Moment is a short time of a program: the sums of its connections.
type Moment struct {
	At       float64 // seconds
	Rate     float64 // bit/s
	InFlight int64   // bytes
	RTT      float64 // seconds, the largest of the connections that move data
	Resent   int64   // segments
}

// step is the time between two looks, and of a moment.
const step = 100 * time.Millisecond

// judge completes a report from its connections.
func (r *Report) judge() {
	slices.SortStableFunc(r.Connections, func(a, b Connection) int { return cmp.Compare(b.Moved(), a.Moved()) })
	nameData(r.Connections)
	r.Timeline = timeline(r.Connections)
	if len(r.Connections) > 0 {
		r.Verdicts = programVerdicts(r.Connections)
	}
}

// counts is the share of the largest connection's bytes from which a connection counts for its
// program. Smaller ones only carry commands.
const counts = 0.05

func programVerdicts(all []Connection) []diagnose.Verdict {
	if most := int64(counts * float64(all[0].Moved())); all[min(1, len(all)-1)].Moved() < max(1, most) || len(all) == 1 {
		return all[0].Verdicts
	}
	var cells []diagnose.Cell
	var sender, receiver diagnose.Host
	here := diagnose.Side("")
	for i := range all {
		c := &all[i]
		if float64(c.Moved()) < counts*float64(all[0].Moved()) || len(c.Cells) == 0 {
			break
		}
		cells = append(cells, c.Cells...)
		if here == "" {
			sender, receiver, here = c.sender, c.receiver, c.seen
			continue
		}
		sender, receiver = common(sender, c.sender), common(receiver, c.receiver)
		if c.seen == diagnose.Sender {
			here = diagnose.Sender
		}
	}
	return diagnose.Judge(cells, &sender, &receiver, &diagnose.Asked{Here: here, Program: true})
}

// common is what two hosts have in common: all, or nothing that is known.
func common(a, b diagnose.Host) diagnose.Host {
	if a == b {
		return a
	}
	return diagnose.Host{}
}

// timeline sums connections up by time.
func timeline(all []Connection) []Moment {
	var sums []Moment
	for i := range all {
		for j := range all[i].Cells {
			c := &all[i].Cells[j]
			for k := int(c.Start / step); k < maxMoments && time.Duration(k)*step < c.Start+c.Length-step/2; k++ {
				for len(sums) <= k {
					sums = append(sums, Moment{At: (time.Duration(len(sums)) * step).Seconds()})
				}
				sums[k].add(c)
			}
		}
	}
	return sums
}

func (m *Moment) add(c *diagnose.Cell) {
	m.Rate += c.Rate()
	m.InFlight += c.Sender.InFlight
	m.Resent += c.Sender.Retrans
	if c.Rate() > 0 {
		m.RTT = max(m.RTT, c.Sender.RTT.Seconds())
	}
}

// maxMoments bounds a timeline: an hour.
const maxMoments = 36000
