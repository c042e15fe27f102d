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
	for name, c := range map[string]struct {
		moved    func(at time.Duration) int64
		underway func(at time.Duration) bool
		every    time.Duration // between checks, 0 is crawlEvery
		says     time.Duration // 0 is never
		ends     time.Duration
	}{
		"a byte a second":           {steady(1), always, 0, crawlSays, crawlEnds},
		"nothing but pings":         {steady(0), always, 0, crawlSays, crawlEnds},
		"9.6 kbit/s":                {steady(1200 * 0.9), always, 0, 0, 0},
		"a quarter of 9.6 kbit/s":   {steady(300), always, 0, crawlSays, 0},
		"a burst every 2 minutes":   {func(at time.Duration) int64 { return crawlBytes * int64(at/(2*time.Minute)) }, always, 0, 0, 0},
		"a source that pauses":      {steady(0), func(time.Duration) bool { return false }, 0, 0, 0},
		"a source of small pieces":  {steady(1), func(at time.Duration) bool { return at%time.Minute > 10*time.Second }, 0, 0, 0},
		"a host that is suspended":  {steady(0), always, crawlEvery + 10*time.Second, 0, 0},
		"stands still after a hour": {func(at time.Duration) int64 { return steady(1e6)(min(at, time.Hour)) }, always, 0, time.Hour + crawlSays, time.Hour + crawlEnds},
	} {
		var says, ends time.Duration
		w := crawlWatch{peer: "nas:7433"}
		begun := time.Now()
		for at := time.Duration(0); at < forever && ends == 0; at += max(crawlEvery, c.every) {
			text, err := w.check(begun.Add(at), c.moved(at), c.underway(at))
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
		text, err := w.check(begun.Add(at), moved, true)
		require.NoError(t, err)
		if text != "" {
			said = append(said, text)
		}
	}
	require.Equal(t, []string{"nas:7433: hardly anything gets through: 0 B in 2m0s", "nas:7433: more gets through again"}, said)
}
