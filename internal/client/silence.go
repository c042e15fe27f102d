package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fxfer/fxfer/internal/session"
)

const (
	// silentAfter is how long a peer may be silent before the user is told. A live peer sends
	// something every few seconds.
	silentAfter = 8 * time.Second
	// idleEvery is the time between two checks of a peer.
	idleEvery = 500 * time.Millisecond
	// suspendedAfter is how late a check comes only if this process was suspended. It could not have
	// heard anything meanwhile.
	suspendedAfter = 4 * idleEvery
)

// idleWatch reports when a peer falls silent, and when it is heard again: once each.
type idleWatch struct {
	peer     string
	received int64     // at the last check, in any unit
	since    time.Time // when received last grew
	checked  time.Time // time of the last check
	silent   bool      // it was reported
}

// check takes how much was received by now. It returns a message for the user, "" for none.
func (w *idleWatch) check(now time.Time, received int64) string {
	suspended := !w.checked.IsZero() && now.Sub(w.checked) > silentAfter/2
	w.checked = now
	quiet := now.Sub(w.since)
	switch {
	case w.since.IsZero(), suspended && received == w.received:
		w.received, w.since = received, now
	case received != w.received:
		w.received, w.since = received, now
		if w.silent {
			w.silent = false
			return fmt.Sprintf("%s is heard again, after %.0f s", w.peer, quiet.Seconds())
		}
	case quiet >= silentAfter && !w.silent:
		w.silent = true
		return fmt.Sprintf("nothing heard from %s for %.0f s", w.peer, quiet.Seconds())
	}
	return ""
}

// run checks the peer until ctx is done. received grows with whatever comes from the peer.
func (w *idleWatch) run(ctx context.Context, received func() int64, report func(string)) {
	w.check(time.Now(), received())
	tick := time.NewTicker(idleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if text := w.check(now, received()); text != "" {
				report(text)
			}
		}
	}
}

const (
	// deadAfter is how long the control stream may be silent before the client checks whether the
	// server answers on a new connection. It is a little more than the time between two Pings.
	deadAfter = 6 * time.Second
	// deadTimeouts is how many of the kernel's timeouts it may be silent in addition.
	deadTimeouts = 2
	// deadAgain is the time between two such checks. It is also how long the control stream has to
	// revive after one.
	deadAgain = time.Second
)

// errDead ends a session whose connections are dead while new ones work, because a NAT or firewall
// on the path has forgotten them.
var errDead = errors.New("the connections are dead, but the server answers on a new one")

// watchDead calls end with errDead when nothing is received on the control stream although reach,
// which makes a new connection, succeeds. Where the path has a long queue, timeout returns how long
// the kernel waits for an acknowledgement. watchDead returns after end, or when ctx is done.
func watchDead(
	ctx context.Context, received func() int64, timeout func() time.Duration,
	reach func(context.Context) error, end context.CancelCauseFunc,
) {
	tick := time.NewTicker(idleEvery)
	defer tick.Stop()
	last, checked, quiet := received(), time.Now(), time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		passed, n := now.Sub(checked), received()
		checked = now
		if quiet += passed; n != last || passed > suspendedAfter {
			last, quiet = n, 0
		}
		late := timeout()
		if quiet < deadAfter+deadTimeouts*late {
			continue
		}
		err := reach(ctx)
		if !session.Sleep(ctx, deadAgain+late) {
			return
		}
		if err == nil && received() == last {
			end(errDead)
			return
		}
		checked = time.Now()
	}
}
