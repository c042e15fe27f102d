package lab

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
)

// Lab is a running WAN in a box. Its methods may be called concurrently.
type Lab struct {
	Left, Right *Host
	Middle      []*Host // between them, from left to right; none if there is one leg
	Leaves      []*Host // the left hosts of a star, with Left as the first; none of a chain

	hosts []*Host // all of them

	mu       sync.Mutex // guards the fields below and serializes requests to the box
	box      *box
	links    []Link // two for each leg: left to right, right to left
	counters []Counters
	cmds     map[*Cmd]bool // started and not yet waited for
	closed   bool
	closeErr error
}

// Start makes two hosts joined by l. The caller closes the lab. Errors match ErrUnsupported if
// this machine or user can't have one.
//
// The link runs in a second process of this same program. The package recognizes that process
// when it is initialized, so main never runs there.
func Start(l Link) (*Lab, error) { return StartChain([]Leg{{Link: l}}) }

// StartChain is like Start for several links in a row, from left to right, with hosts in the
// middle. Those forward packets of IPv4, so all hosts reach each other.
func StartChain(legs []Leg) (*Lab, error) {
	lab, err := startWired(legs, chain(len(legs)))
	if err == nil {
		hosts := lab.hosts
		lab.Left, lab.Middle, lab.Right = hosts[0], hosts[1:len(legs)], hosts[len(legs)]
	}
	return lab, err
}

// StartStar is like StartChain for several hosts on the left that share a line: each has a leg of its
// own to a host in the middle, and the trunk joins that one and the right host. The trunk is the last
// leg in LegCounters.
func StartStar(legs []Leg, trunk Leg) (*Lab, error) {
	n := len(legs)
	lab, err := startWired(append(slices.Clone(legs), trunk), star(n))
	if err == nil {
		hosts := lab.hosts
		lab.Left, lab.Leaves, lab.Middle, lab.Right = hosts[0], hosts[:n], hosts[n:n+1], hosts[n+1]
	}
	return lab, err
}

// startWired starts a lab whose legs join hosts as w says.
func startWired(legs []Leg, w wiring) (*Lab, error) {
	if len(legs) == 0 || len(legs) > MaxLegs {
		return nil, fmt.Errorf("lab: %d legs are not between 1 and %d", len(legs), MaxLegs)
	}
	lab := &Lab{cmds: make(map[*Cmd]bool)}
	for _, leg := range legs {
		l, err := leg.Link.withDefaults()
		if err != nil {
			return nil, err
		}
		there, back := l.directions()
		lab.links = append(lab.links, there, back)
	}
	lab.counters = make([]Counters, len(lab.links))
	if err := lab.start(legs, w); err != nil {
		return nil, fmt.Errorf("start the lab: %w", err)
	}
	return lab, nil
}

func (l *Lab) start(legs []Leg, w wiring) (err error) {
	hosts := make([]*Host, len(legs)+1) // of a tree
	tuns := make([]*os.File, 0, 2*len(legs))
	defer func() {
		for _, tun := range tuns {
			tun.Close()
		}
		if err != nil {
			for _, h := range hosts {
				if h != nil {
					err = errors.Join(err, h.close())
				}
			}
		}
	}()
	for i := range hosts {
		if hosts[i], err = newHost(l); err != nil {
			hosts[i] = nil
			return err
		}
	}
	for i := range legs {
		for _, end := range []int{left, right} {
			addr, addr6 := address(i, end)
			tun, err := hosts[w[i][end]].join(w.device(w[i][end], i), l.links[2*i].MTU, addr, addr6)
			if err != nil {
				return err
			}
			tuns = append(tuns, tun)
		}
	}
	for i, h := range hosts {
		if err := h.setUp(legs, w, i); err != nil {
			return err
		}
	}
	if l.box, err = startBox(l.links, threadsOf(w, runtime.GOMAXPROCS(0)), tuns); err != nil {
		return err
	}
	l.hosts = hosts
	return nil
}

func (l *Lab) environ() []string {
	env := []string{"FXFER_LAB_LEFT=" + l.Left.addr.String(), "FXFER_LAB_RIGHT=" + l.Right.addr.String()}
	for i, h := range l.Middle {
		env = append(env, fmt.Sprintf("FXFER_LAB_MIDDLE%d=%v", i+1, h.addr))
	}
	return env
}

var errClosed = errors.New("the lab is closed")

// Set changes the live link, or each one of a chain, and returns when the change is in effect. An
// invalid change has no effect.
func (l *Lab) Set(c Change) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	links := slices.Clone(l.links)
	req := boxRequest{Links: make([]*Link, len(links)), Down: make([]int64, len(links))}
	for i := range links {
		if c.Direction != Both && c.Direction != LeftToRight+Direction(i%2) {
			continue
		}
		var err error
		if links[i], err = links[i].with(c); err != nil {
			return err
		}
		req.Links[i], req.Down[i] = &links[i], int64(c.Down)
	}
	r, err := l.box.ask(req)
	if err != nil {
		return err
	}
	l.links, l.counters = links, r.Counters
	return nil
}

// Link returns the present link of each direction, the leftmost one of a chain.
func (l *Lab) Link() (leftToRight, rightToLeft Link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.links[0], l.links[1]
}

// Counters returns what each direction did so far, or until the lab was closed, the leftmost link
// of a chain.
func (l *Lab) Counters() (leftToRight, rightToLeft Counters) {
	leg := l.LegCounters()[0]
	return leg[0], leg[1]
}

// LegCounters is like Counters for each leg, from left to right. A pair has the counters from left
// to right, and from right to left.
func (l *Lab) LegCounters() (legs [][2]Counters) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.countLocked() // Close reports a link that failed
	for pair := range slices.Chunk(l.counters, 2) {
		legs = append(legs, [2]Counters(pair))
	}
	return legs
}

// countLocked updates the counters, if the link still works.
func (l *Lab) countLocked() error {
	if l.closed {
		return nil
	}
	r, err := l.box.ask(boxRequest{})
	if err != nil {
		return err
	}
	l.counters = r.Counters
	return nil
}

// Close kills what still runs in the lab and removes it. It returns when all is gone, with the
// error that ended the link before, if any. There are two exceptions: a command that nobody waits
// for stays a dead process until its Wait, and a socket made in Do keeps its host until the
// socket is closed. Further calls return the same error.
func (l *Lab) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		err := l.countLocked()
		l.closed = true
		l.closeErr = errors.Join(err, l.box.close(slices.Collect(maps.Keys(l.cmds))))
		for _, h := range l.hosts {
			l.closeErr = errors.Join(l.closeErr, h.close())
		}
	}
	return l.closeErr
}
