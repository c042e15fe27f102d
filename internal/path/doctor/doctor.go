// Package doctor tells what in a host's settings costs goodput on a path, and changes them back and forth.
//
// Read gathers facts of this host, Examine is a pure function from such facts to findings, and a Changer applies what findings
// propose and restores what was before. Reading and changing need Linux; elsewhere they fail with ErrUnsupported.
package doctor

import (
	"errors"
	"slices"

	"github.com/fxfer/fxfer/internal/path/plan"
)

// ErrUnsupported is matched by the errors of systems that this package can't read.
var ErrUnsupported = errors.New("not supported on this system")

// Report is the outcome of an examination.
type Report struct {
	Path     plan.Path
	Findings []Finding // the largest gain first
	Fine     []string  // what was looked at and needs nothing
	Unseen   []string  // what this host does not show, as a container or a virtual machine may not
}

// Finding is one thing that costs something.
type Finding struct {
	ID      string // stable, for programs
	What    string // what is the case
	Why     string // why it costs
	Command string // the exact shell command against it, or "" if none is
	Gain    *Gain  // nil if it can't be put as goodput
	Changes []Change
	Blocked string // why Changes is empty though there is a command, if for a reason of this host
}

// Gain is the goodput, in bit/s, of one thing before and after the remedy, if nothing else limits it.
type Gain struct {
	Of            string // as "one stream, receiving"
	Before, After float64
	Assuming      string // what must be the case for it, or ""
}

// factor is how many times more the remedy brings.
func (g *Gain) factor() float64 {
	if g == nil || g.Before <= 0 {
		return 1
	}
	return g.After / g.Before
}

// Change is what a Changer can do about a finding: set a sysctl, or metrics of a route.
type Change struct {
	Sysctl string // name, as net.ipv4.tcp_sack; "" for a route
	Value  string
	Route  *Route // as it is
	Metric []Metric
}

// String is the change in the words of a sysctl.d file or of ip.
func (c *Change) String() string {
	if c.Route == nil {
		return assignment(c.Sysctl, c.Value)
	}
	return c.Route.command() + " change " + c.Route.with(c.Metric).String()
}

// Examine looks for what costs goodput on the path, whose MTU is 1500 and whose Loss is 0.
func Examine(h *Host, path plan.Path) *Report {
	r := &Report{Path: path}
	for _, rule := range rules {
		e := exam{Host: h, path: path}
		found := rule.look(&e)
		switch {
		case len(found) > 0:
			r.Findings = append(r.Findings, found...)
		case e.skip:
		case e.unseen:
			r.Unseen = append(r.Unseen, rule.about)
		default:
			r.Fine = append(r.Fine, rule.about)
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		if x, y := a.class(), b.class(); x != y {
			return x - y
		}
		x, y := a.Gain.factor(), b.Gain.factor()
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return r
}

// class ranks what is certain before what depends on something, and that before what has no figure.
func (f *Finding) class() int {
	switch {
	case f.Gain == nil:
		return 2
	case f.Gain.Assuming != "":
		return 1
	}
	return 0
}
