package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

var prefixes = [2][2]netip.Prefix{
	{netip.MustParsePrefix("10.77.0.1/30"), netip.MustParsePrefix("fd77::1/64")},
	{netip.MustParsePrefix("10.77.0.2/30"), netip.MustParsePrefix("fd77::2/64")},
}

// Lab is a running WAN in a box. Its methods may be called concurrently.
type Lab struct {
	Left, Right *Host

	guard *guard
	pumps [2]*pump // left to right, right to left
	wg    sync.WaitGroup
	errs  [2]error // of the pumps, after wg

	mu     sync.Mutex
	links  [2]Link
	closed bool

	closeOnce sync.Once
	closeErr  error
}

// Start makes two hosts joined by l. The caller closes the lab. Errors match ErrUnsupported if this machine or user
// can't have one.
func Start(l Link) (_ *Lab, err error) {
	l, err = l.withDefaults()
	if err != nil {
		return nil, err
	}
	lab := &Lab{links: [2]Link{l, l}}
	var undo []func() error
	defer func() {
		if err == nil {
			return
		}
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
	}()

	var hosts [2]*Host
	for i, p := range prefixes {
		if hosts[i], err = newHost(lab, l.MTU, p[0], p[1]); err != nil {
			return nil, fmt.Errorf("start the lab: %w", err)
		}
		undo = append(undo, hosts[i].close)
	}
	lab.Left, lab.Right = hosts[0], hosts[1]
	if lab.guard, err = startGuard(); err != nil {
		return nil, fmt.Errorf("start the lab: %w", err)
	}
	undo = append(undo, lab.guard.close)
	for i := range lab.pumps {
		if lab.pumps[i], err = newPump(newLine(l, uint64(i+1)), hosts[i].tun, hosts[1-i].tun); err != nil {
			return nil, fmt.Errorf("start the lab: %w", err)
		}
		undo = append(undo, func() error { return unix.Close(lab.pumps[i].wake) })
	}
	for i, p := range lab.pumps {
		lab.wg.Go(func() { lab.errs[i] = p.run() })
	}
	return lab, nil
}

func (l *Lab) environ() []string {
	return []string{"FXFER_LAB_LEFT=" + l.Left.addr.String(), "FXFER_LAB_RIGHT=" + l.Right.addr.String()}
}

// Set changes the live link. A change that isn't valid leaves all as it was.
func (l *Lab) Set(c Change) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errors.New("the lab is closed")
	}
	links := l.links
	for i := range links {
		if c.Direction != Both && int(c.Direction) != i+int(LeftToRight) {
			continue
		}
		var err error
		if links[i], err = links[i].with(c); err != nil {
			return err
		}
	}
	for i, p := range l.pumps {
		if c.Direction != Both && int(c.Direction) != i+int(LeftToRight) {
			continue
		}
		next := &lineChange{link: links[i]}
		if c.Down > 0 {
			next.downUntil = p.now() + int64(c.Down)
		}
		if old := p.change.Swap(next); old != nil && next.downUntil == 0 {
			next.downUntil = old.downUntil
		}
		p.interrupt()
	}
	l.links = links
	return nil
}

// Link returns the link as it is now, per direction.
func (l *Lab) Link() (leftToRight, rightToLeft Link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.links[0], l.links[1]
}

// Counters returns what each direction did so far.
func (l *Lab) Counters() (leftToRight, rightToLeft Counters) {
	return l.pumps[0].line.count.snapshot(), l.pumps[1].line.count.snapshot()
}

// Close kills what still runs in the lab and removes it. It returns when all is gone, with the first error that the
// link met. Commands still need their Wait, and sockets made in Do their Close. More calls return the same.
func (l *Lab) Close() error {
	l.closeOnce.Do(func() {
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		err := l.guard.close()
		for _, p := range l.pumps {
			p.stop.Store(true)
			p.interrupt()
		}
		l.wg.Wait()
		err = errors.Join(err, l.errs[0], l.errs[1])
		for _, p := range l.pumps {
			err = errors.Join(err, unix.Close(p.wake))
		}
		l.closeErr = errors.Join(err, l.Left.close(), l.Right.close())
	})
	return l.closeErr
}
