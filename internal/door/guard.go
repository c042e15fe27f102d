package door

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"
)

const (
	// freeTries is how many wrong passwords an address may send before it has to wait.
	freeTries = 5
	// tryEvery is how long it waits for each further one.
	tryEvery = 10 * time.Second
	// maxWaiting bounds how many may wait at an address that has sent wrong passwords. Further ones are
	// refused at once.
	maxWaiting = 16
	// maxQueued bounds how many may wait at any other address, where they only wait for one another.
	// Clients begin a dozen connections at a time, and many clients may have one address.
	maxQueued = 128
	// lookEvery is how often who waits looks whether a right password has given back its try.
	lookEvery = 200 * time.Millisecond
	// maxGuarded bounds the addresses that are remembered. Each takes some 100 bytes.
	maxGuarded = 16 << 10
	// atOnce bounds the passwords that are checked at the same time: each takes 20 MiB.
	atOnce = 2
)

var (
	errManyAddresses = errors.New("too many addresses try passwords")
	errManyTries     = errors.New("too many wrong passwords came from this address: try again in a minute")
	errManyLogins    = errors.New("too many clients of this address log in at once: try again")
)

// Guard slows down who guesses passwords, by address. The zero Guard is ready, and safe for
// concurrent use.
type Guard struct {
	once    sync.Once
	working chan struct{} // holds a value for each check under way

	mu    sync.Mutex // guards the following
	tries map[netip.Prefix]*tries
}

// tries are the wrong passwords that an address may send.
type tries struct {
	full     time.Time // when it may send freeTries at once
	checking int       // tries that are taken, and perhaps come back
	waiting  int
}

// Check calls matches, which compares a password, when an address may try one. It reports the
// result. Right passwords cost nothing: many users may have one address.
func (g *Guard) Check(ctx context.Context, from netip.Prefix, matches func() (bool, error)) (right bool, err error) {
	g.once.Do(func() { g.working = make(chan struct{}, atOnce) })
	t, err := g.await(ctx, from)
	if err != nil {
		return false, err
	}
	wrong := false
	defer func() { g.end(t, wrong) }()
	select {
	case g.working <- struct{}{}:
		defer func() { <-g.working }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	right, err = matches()
	wrong = !right
	return right, err
}

// await takes a try as soon as there is one. Who waits has taken nothing.
func (g *Guard) await(ctx context.Context, from netip.Prefix) (*tries, error) {
	t, wait, err := g.enter(from)
	if err != nil || wait == 0 {
		return t, err
	}
	defer g.leave(t)
	for wait > 0 {
		if err := sleep(ctx, min(wait, lookEvery)); err != nil {
			return nil, err
		}
		wait = g.take(t)
	}
	return t, nil
}

// enter takes a try, or counts who waits for this long.
func (g *Guard) enter(from netip.Prefix) (t *tries, wait time.Duration, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if t = g.tries[from]; t == nil {
		if g.forgetLocked(now); len(g.tries) >= maxGuarded {
			return nil, 0, errManyAddresses
		}
		if g.tries == nil {
			g.tries = make(map[netip.Prefix]*tries)
		}
		t = &tries{full: now}
		g.tries[from] = t
	}
	wait = t.take(now)
	switch {
	case wait == 0:
	case t.waiting >= maxWaiting && t.guesses(now):
		return nil, 0, errManyTries
	case t.waiting >= maxQueued:
		return nil, 0, errManyLogins
	default:
		t.waiting++
	}
	return t, wait, nil
}

func (g *Guard) take(t *tries) (wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return t.take(time.Now())
}

func (g *Guard) leave(t *tries) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t.waiting--
}

// end ends a try. It comes back unless the password was wrong.
func (g *Guard) end(t *tries, wrong bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.checking--; !wrong {
		t.full = t.full.Add(-tryEvery)
	}
}

// guesses reports whether tries are missing that do not come back: passwords were wrong.
func (t *tries) guesses(now time.Time) bool {
	return t.full.Sub(now) > time.Duration(t.checking)*tryEvery
}

// take takes a try and returns 0, or returns how long there will be none.
func (t *tries) take(now time.Time) (wait time.Duration) {
	if t.full.Before(now) {
		t.full = now
	}
	if wait = t.full.Sub(now) - (freeTries-1)*tryEvery; wait > 0 {
		return wait
	}
	t.full = t.full.Add(tryEvery)
	t.checking++
	return 0
}

// forgetLocked removes addresses that need not wait, if there is no room for others.
func (g *Guard) forgetLocked(now time.Time) {
	if len(g.tries) < maxGuarded {
		return
	}
	for from, t := range g.tries {
		if t.waiting == 0 && t.checking == 0 && !t.full.After(now) {
			delete(g.tries, from)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
