package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/session"
)

const (
	// silentAfter is how long nothing may be heard of a peer until the user is told. A peer that lives says something every few
	// seconds.
	silentAfter = 8 * time.Second
	vigilEvery  = 500 * time.Millisecond
)

// vigil tells when a peer falls silent, and when it is heard again: once each.
type vigil struct {
	peer   string
	signs  int64     // of life, so far
	last   time.Time // when they last grew
	looked time.Time
	told   bool
}

// look takes a new count of the signs of life, and returns what to tell the user, "" for nothing.
func (v *vigil) look(now time.Time, signs int64) string {
	asleep := !v.looked.IsZero() && now.Sub(v.looked) > silentAfter/2 // this process was: it could not have heard anything
	v.looked = now
	quiet := now.Sub(v.last)
	switch {
	case v.last.IsZero(), asleep && signs == v.signs:
		v.signs, v.last = signs, now
	case signs != v.signs:
		v.signs, v.last = signs, now
		if v.told {
			v.told = false
			return fmt.Sprintf("%s is heard again, after %.0f s", v.peer, quiet.Seconds())
		}
	case quiet >= silentAfter && !v.told:
		v.told = true
		return fmt.Sprintf("nothing heard from %s for %.0f s", v.peer, quiet.Seconds())
	}
	return ""
}

// keep tells of the silences of a peer until ctx is done.
func (v *vigil) keep(ctx context.Context, signs func() int64, tell func(string)) {
	v.look(time.Now(), signs())
	tick := time.NewTicker(vigilEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if text := v.look(now, signs()); text != "" {
				tell(text)
			}
		}
	}
}

// counted counts what is read from a stream.
type counted struct {
	io.Reader
	n *atomic.Int64 // bytes
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

const (
	// deafAfter is how long nothing may come on the control stream until the client sees whether the server answers on another one: a little
	// longer than between two Pings.
	deafAfter = 6 * time.Second
	// deafAgain is between two such looks, and how long the control stream has after one to come back to life.
	deafAgain = time.Second
	// asleepAfter is how late a tick comes only if this process did not run: then it heard nothing because of that.
	asleepAfter = 4 * vigilEvery
)

// errDeaf ends a session whose connections are dead while new ones work: a NAT or firewall on the way has forgotten them.
var errDeaf = errors.New("nothing comes any more, but the server answers on a new connection")

// doubt calls end when nothing is heard on the control stream although reach, which connects anew, succeeds. It returns then, or when ctx
// is done.
func doubt(ctx context.Context, heard func() int64, reach func(context.Context) error, end func(error)) {
	tick := time.NewTicker(vigilEvery)
	defer tick.Stop()
	last, looked, quiet := heard(), time.Now(), time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		passed, n := now.Sub(looked), heard()
		looked = now
		if quiet += passed; n != last || passed > asleepAfter {
			last, quiet = n, 0
		}
		if quiet < deafAfter {
			continue
		}
		err := reach(ctx)
		if !session.Pause(ctx, deafAgain) {
			return
		}
		if err == nil && heard() == last {
			end(errDeaf)
			return
		}
		looked = time.Now()
	}
}
