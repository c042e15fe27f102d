package lab

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
)

var prefixes = [2][2]netip.Prefix{
	{netip.MustParsePrefix("10.77.0.1/29"), netip.MustParsePrefix("fd77::1/64")},
	{netip.MustParsePrefix("10.77.0.2/29"), netip.MustParsePrefix("fd77::2/64")},
}

// Lab is a running WAN in a box. Its methods may be called concurrently.
type Lab struct {
	Left, Right *Host

	mu       sync.Mutex // guards the fields below and serializes requests to the box
	box      *box
	links    [2]Link // left to right, right to left
	counters [2]Counters
	cmds     map[*Cmd]bool // started and not yet waited for
	closed   bool
	closeErr error
}

// Start makes two hosts joined by l. The caller closes the lab. Errors match ErrUnsupported if
// this machine or user can't have one.
//
// The link runs in a second process of this same program. The package recognizes that process
// when it is initialized, so main never runs there.
func Start(l Link) (*Lab, error) {
	l, err := l.withDefaults()
	if err != nil {
		return nil, err
	}
	lab := &Lab{cmds: make(map[*Cmd]bool)}
	lab.links[0], lab.links[1] = l.directions()
	if err := lab.start(l.MTU); err != nil {
		return nil, fmt.Errorf("start the lab: %w", err)
	}
	return lab, nil
}

func (l *Lab) start(mtu int) error {
	left, leftTUN, err := newHost(l, mtu, prefixes[0][0], prefixes[0][1])
	if err != nil {
		return err
	}
	defer leftTUN.Close()
	right, rightTUN, err := newHost(l, mtu, prefixes[1][0], prefixes[1][1])
	if err != nil {
		return errors.Join(err, left.close())
	}
	defer rightTUN.Close()
	if l.box, err = startBox(l.links, [2]*os.File{leftTUN, rightTUN}); err != nil {
		return errors.Join(err, left.close(), right.close())
	}
	l.Left, l.Right = left, right
	return nil
}

func (l *Lab) environ() []string {
	return []string{"FXFER_LAB_LEFT=" + l.Left.addr.String(), "FXFER_LAB_RIGHT=" + l.Right.addr.String()}
}

var errClosed = errors.New("the lab is closed")

// Set changes the live link, and returns when the change is in effect. An invalid change has no
// effect.
func (l *Lab) Set(c Change) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	links := l.links
	var req boxRequest
	for i := range links {
		if c.Direction != Both && c.Direction != LeftToRight+Direction(i) {
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

// Link returns the present link of each direction.
func (l *Lab) Link() (leftToRight, rightToLeft Link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.links[0], l.links[1]
}

// Counters returns what each direction did so far, or until the lab was closed.
func (l *Lab) Counters() (leftToRight, rightToLeft Counters) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.countLocked() // Close reports a link that failed
	return l.counters[0], l.counters[1]
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
		l.closeErr = errors.Join(err, l.box.close(slices.Collect(maps.Keys(l.cmds))), l.Left.close(), l.Right.close())
	}
	return l.closeErr
}
