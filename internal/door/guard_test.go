package door

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestGuard tries passwords from several addresses.
func TestGuard(t *testing.T) {
	t.Parallel()
	bad := netip.MustParsePrefix("192.0.2.1/32")
	good := netip.MustParsePrefix("192.0.2.2/32")
	wrong := func() (bool, error) { return false, nil }
	right := func() (bool, error) { return true, nil }
	check := func(t *testing.T, g *Guard, from netip.Prefix, matches func() (bool, error)) time.Duration {
		began := time.Now()
		_, err := g.Check(t.Context(), from, matches)
		require.NoError(t, err)
		return time.Since(began)
	}
	synctest.Test(t, func(t *testing.T) {
		var g Guard
		for range freeTries {
			require.Zero(t, check(t, &g, bad, wrong))
		}
		require.Equal(t, tryEvery, check(t, &g, bad, wrong))
		require.Zero(t, check(t, &g, good, right), "others do not wait")
		for range 100 {
			require.Zero(t, check(t, &g, good, right), "right passwords cost nothing")
		}
		began := time.Now() // some wait for one another, the others are refused
		var all sync.WaitGroup
		var refused atomic.Int32
		for range 2 * maxWaiting {
			all.Go(func() {
				if _, err := g.Check(t.Context(), bad, wrong); errors.Is(err, errManyTries) {
					refused.Add(1)
				}
			})
		}
		all.Wait()
		require.Equal(t, maxWaiting*tryEvery, time.Since(began))
		require.EqualValues(t, maxWaiting, refused.Load())

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := g.Check(ctx, bad, right)
		require.ErrorIs(t, err, context.DeadlineExceeded, "who guesses waits, whatever the guess is")
		time.Sleep(time.Hour)
		require.Zero(t, check(t, &g, bad, wrong), "an hour later it may try again")
	})
	synctest.Test(t, func(t *testing.T) { // many right ones at a time only wait for one another
		var g Guard
		began := time.Now()
		var all sync.WaitGroup
		var in, refused atomic.Int32
		for range freeTries + maxQueued + 3 {
			all.Go(func() {
				ok, err := g.Check(t.Context(), good, func() (bool, error) { time.Sleep(100 * time.Millisecond); return true, nil })
				if ok {
					in.Add(1)
				} else if errors.Is(err, errManyLogins) {
					refused.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, freeTries+maxQueued, in.Load())
		require.EqualValues(t, 3, refused.Load())
		require.Less(t, time.Since(began), 10*time.Second)
		for range freeTries {
			require.Zero(t, check(t, &g, good, wrong))
		}
		require.Equal(t, tryEvery, check(t, &g, good, wrong), "no try came back twice")
	})
	synctest.Test(t, func(t *testing.T) { // who leaves before its turn has tried nothing
		var g Guard
		var all sync.WaitGroup
		for range atOnce {
			all.Go(func() {
				_, _ = g.Check(t.Context(), good, func() (bool, error) { time.Sleep(time.Minute); return true, nil })
			})
		}
		synctest.Wait()
		for range 10 * freeTries {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := g.Check(ctx, good, right)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		all.Wait()
		for range freeTries {
			require.Zero(t, check(t, &g, good, wrong))
		}
	})
	synctest.Test(t, func(t *testing.T) { // no more addresses than there is room for
		var g Guard
		from := netip.MustParseAddr("2001:db8::")
		for range maxGuarded {
			require.Zero(t, check(t, &g, netip.PrefixFrom(from, 128), wrong))
			from = from.Next()
		}
		_, err := g.Check(t.Context(), netip.PrefixFrom(from, 128), wrong)
		require.ErrorIs(t, err, errManyAddresses)
		time.Sleep(tryEvery)
		require.Zero(t, check(t, &g, netip.PrefixFrom(from, 128), wrong))
		require.Len(t, g.tries, 1)
	})
}
