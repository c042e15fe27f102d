package fxfer

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"
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
