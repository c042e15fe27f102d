// Package doctor finds the settings of a host that cost goodput on a path, changes them and
// restores them.
//
// Read collects facts about this host. Examine is a pure function from facts to findings. A
// Changer applies the changes that findings propose, and restores the values before. Reading and
// changing need Linux. On other systems they fail with ErrUnsupported.
package doctor

import (
	"errors"
	"slices"

	"github.com/fxfer/fxfer/internal/path/plan"
)

// ErrUnsupported matches the errors on systems that this package can't read.
var ErrUnsupported = errors.New("not supported on this system")

// Report is the result of an examination.
type Report struct {
	Path     plan.Path
	Findings []Finding // largest gain first
	Fine     []string  // what was examined and needs no change
	Unseen   []string  // what this host does not show, for example in a container
}

// Finding is one thing that costs goodput or CPU.
type Finding struct {
	ID      string // stable, for programs
	What    string // what was found
	Why     string // why it costs
	Command string // shell command that fixes it, "" if there is none
	Gain    *Gain  // nil if it can't be expressed as goodput
	Changes []Change
	// Blocked says why Changes is empty though there is a command, if the reason is this host.
	Blocked string
}

// Gain is the goodput of one thing before and after the remedy, in bit/s, if nothing else limits
// it.
type Gain struct {
	Of            string // such as "one stream"
	Before, After float64
	Assuming      string // condition for the gain, or ""
}

// factor is the ratio of the goodput after the remedy to that before.
func (g *Gain) factor() float64 {
	if g == nil || g.Before <= 0 {
		return 1
	}
	return g.After / g.Before
}

// Change is what a Changer can do about a finding: set a sysctl, or metrics of a route.
type Change struct {
	Sysctl string // name, such as net.ipv4.tcp_sack; "" for a route
	Value  string
	Route  *Route // the route before the change
	Metric []Metric
}

// String returns the change in the syntax of a sysctl.d file or of ip.
func (c *Change) String() string {
	if c.Route == nil {
		return assignment(c.Sysctl, c.Value)
	}
	return c.Route.command() + " change " + c.Route.with(c.Metric).String()
}

// Examine looks for what costs goodput on the path. The MTU of path must be 1500 and its Loss 0.
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

// class sorts findings: certain gains come first, then conditional ones, then those without a
// figure.
func (f *Finding) class() int {
	switch {
	case f.Gain == nil:
		return 2
	case f.Gain.Assuming != "":
		return 1
	}
	return 0
}
