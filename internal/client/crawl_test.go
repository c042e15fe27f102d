package client

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/session"
)

// TestCrawl: a session that hardly moves says so, and ends. Honest ones on slow lines, or that wait for something
// else, do neither.
func TestCrawl(t *testing.T) {
	t.Parallel()
	const forever = 3 * time.Hour
	always := func(time.Duration) bool { return true }
	steady := func(rate float64) func(time.Duration) int64 {
		return func(at time.Duration) int64 { return int64(rate * at.Seconds()) }
	}
	one := func(moved func(time.Duration) int64) func(time.Duration) map[uint64]int64 {
		return func(at time.Duration) map[uint64]int64 { return map[uint64]int64{1: moved(at)} }
	}
	none := steady(0)
	for name, c := range map[string]struct {
		written  func(at time.Duration) int64 // by the receiver
		streams  func(at time.Duration) map[uint64]int64
		underway func(at time.Duration) bool
		every    time.Duration // between checks, 0 is crawlEvery
		says     time.Duration // 0 is never
		ends     time.Duration
	}{
		"a byte a second":         {none, one(steady(1)), always, 0, crawlSays, crawlEnds},
		"nothing but pings":       {none, one(none), always, 0, crawlSays, crawlEnds},
		"9.6 kbit/s":              {none, one(steady(1200 * 0.9)), always, 0, 0, 0},
		"a quarter of 9.6 kbit/s": {none, one(steady(300)), always, 0, crawlSays, 0},
		"a burst every 2 minutes": {none, one(func(at time.Duration) int64 { return crawlBytes * int64(at/(2*time.Minute)) }), always, 0, 0, 0},
		"streams that get stuck, and others in their place": {none, func(at time.Duration) map[uint64]int64 {
			return map[uint64]int64{uint64(at / (15 * time.Second)): 250_000}
		}, always, 0, crawlSays, crawlEnds},
		"one of two streams is replaced": {none, func(at time.Duration) map[uint64]int64 {
			return map[uint64]int64{1 << 40: steady(1000)(at), uint64(at / (15 * time.Second)): 250_000}
		}, always, 0, 0, 0},
		"a source that pauses":          {none, one(none), func(time.Duration) bool { return false }, 0, 0, 0},
		"a source of small pieces":      {steady(0.1), one(steady(1)), func(at time.Duration) bool { return at%time.Minute > 10*time.Second }, 0, 0, 0},
		"a host that is suspended":      {none, one(none), always, crawlEvery + 10*time.Second, 0, 0},
		"stands still after an hour":    {none, one(func(at time.Duration) int64 { return steady(1e6)(min(at, time.Hour)) }), always, 0, time.Hour + crawlSays, time.Hour + crawlEnds},
		"blocks are under way at times": {none, one(none), func(at time.Duration) bool { return at/crawlEvery%2 == 0 }, 0, 2 * crawlSays, 2 * crawlEnds},
	} {
		var says, ends time.Duration
		w := crawlWatch{peer: "nas:7433"}
		begun := time.Now()
		for at := time.Duration(0); at < forever && ends == 0; at += max(crawlEvery, c.every) {
			text, err := w.check(begun.Add(at), c.written(at), c.streams(at), c.underway(at))
			if text != "" && says == 0 {
				says = at
				require.Contains(t, text, "nas:7433: hardly anything gets through: ", name)
			}
			if err != nil {
				ends = at
				require.True(t, temporary(err), "a new session may do better")
				err = describe(t.Context(), err, "nas:7433")
				require.Equal(t, session.KindUnreachable, session.KindOf(err))
				require.True(t, strings.HasPrefix(err.Error(), "connection to nas:7433: hardly anything gets through: "), err.Error())
			}
		}
		require.InDelta(t, c.says, says, float64(2*crawlEvery), name)
		require.InDelta(t, c.ends, ends, float64(2*crawlEvery), name)
	}
}

// TestCrawlEnds: what moves again is said once.
func TestCrawlEnds(t *testing.T) {
	t.Parallel()
	w := crawlWatch{peer: "nas:7433"}
	var said []string
	begun := time.Now()
	for at := time.Duration(0); at < 10*time.Minute; at += crawlEvery {
		moved := int64(0)
		if at > 4*time.Minute {
			moved = int64((at - 4*time.Minute).Seconds() * 1e4)
		}
		text, err := w.check(begun.Add(at), 0, map[uint64]int64{7: moved}, true)
		require.NoError(t, err)
		if text != "" {
			said = append(said, text)
		}
	}
	require.Equal(t, []string{"nas:7433: hardly anything gets through: 0 B in 2m0s", "nas:7433: more gets through again"}, said)
}
