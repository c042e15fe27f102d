package session

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// TestCrawl: a session that hardly moves says so, and ends. Honest ones on slow lines, or that wait for something
// else, do neither.
func TestCrawl(t *testing.T) {
	t.Parallel()
	const forever = 3 * time.Hour
	const streams, idle = "hardly anything gets through: ", "nothing has happened for "
	steady := func(rate float64) func(time.Duration) int64 {
		return func(at time.Duration) int64 { return int64(rate * at.Seconds()) }
	}
	one := func(moved func(time.Duration) int64) func(time.Duration) crawlLook {
		return func(at time.Duration) crawlLook {
			return crawlLook{streams: map[uint64]int64{1: moved(at)}, underway: true}
		}
	}
	none := steady(0)
	for name, c := range map[string]struct {
		look  func(at time.Duration) crawlLook
		every time.Duration // between checks, 0 is crawlEvery
		says  time.Duration // 0 is never
		ends  time.Duration
		what  string // it says, "" is streams
	}{
		"a byte a second":         {look: one(steady(1)), says: crawlSays, ends: crawlEnds},
		"nothing but pings":       {look: one(none), says: crawlSays, ends: crawlEnds},
		"9.6 kbit/s":              {look: one(steady(1200 * 0.9))},
		"a quarter of 9.6 kbit/s": {look: one(steady(300)), says: crawlSays},
		"a burst every 2 minutes": {look: one(func(at time.Duration) int64 { return 1e5 + crawlBytes*int64(at/(2*time.Minute)) })},
		"streams that get stuck, and others in their place": {look: func(at time.Duration) crawlLook {
			return crawlLook{streams: map[uint64]int64{uint64(at / (15 * time.Second)): 250_000}, underway: true}
		}, says: crawlSays, ends: crawlEnds},
		"the same, after each was idle": {look: func(at time.Duration) crawlLook {
			open := make(map[uint64]int64)
			for id := range uint64(at/(15*time.Second)) + 1 {
				if age := at - time.Duration(id)*15*time.Second; age < 30*time.Second {
					open[id] = 2000
				} else if age < 45*time.Second {
					open[id] = 250_000
				}
			}
			return crawlLook{streams: open, underway: true}
		}, says: crawlSays, ends: crawlEnds},
		"one of two streams is replaced": {look: func(at time.Duration) crawlLook {
			return crawlLook{streams: map[uint64]int64{1 << 40: steady(1000)(at), uint64(at / (15 * time.Second)): 250_000}, underway: true}
		}},
		"small files on a slow line": {look: func(at time.Duration) crawlLook {
			return crawlLook{steps: int64(at / (90 * time.Second)), streams: map[uint64]int64{1: steady(10)(at)}, underway: true}
		}},
		"a host that is suspended":   {look: one(none), every: crawlEvery + 10*time.Second},
		"stands still after an hour": {look: one(func(at time.Duration) int64 { return steady(1e6)(min(at, time.Hour)) }), says: time.Hour + crawlSays, ends: time.Hour + crawlEnds},
		"blocks are under way at times, while an end works": {look: func(at time.Duration) crawlLook {
			return crawlLook{underway: at/crawlEvery%2 == 0, work: at}
		}, says: 2 * crawlSays, ends: 2 * crawlEnds},
		"low priority": {look: func(time.Duration) crawlLook { return crawlLook{underway: true, patient: true} }},

		"a peer that begins nothing":    {look: func(time.Duration) crawlLook { return crawlLook{} }, says: crawlSays, ends: crawlEnds, what: idle},
		"streams without a block":       {look: func(time.Duration) crawlLook { return crawlLook{streams: map[uint64]int64{1: 100}} }, says: crawlSays, ends: crawlEnds, what: idle},
		"a source that pauses":          {look: func(at time.Duration) crawlLook { return crawlLook{work: at} }},
		"work that shows every 30 s":    {look: func(at time.Duration) crawlLook { return crawlLook{work: at.Truncate(30 * time.Second)} }},
		"a disk that hangs for 5 hours": {look: func(at time.Duration) crawlLook { return crawlLook{work: at} }},
		"work, and then nothing":        {look: func(at time.Duration) crawlLook { return crawlLook{work: min(at, time.Hour)} }, says: time.Hour + crawlSays, ends: time.Hour + crawlEnds, what: idle},
		"files that are the same":       {look: func(at time.Duration) crawlLook { return crawlLook{steps: int64(at / time.Minute)} }},

		"a rate limit of 100 bit/s": {look: func(at time.Duration) crawlLook {
			return crawlLook{streams: map[uint64]int64{1: steady(12)(at)}, underway: true, limited: at.Truncate(30 * time.Second)}
		}},
		"a rate limit before the first block": {look: func(at time.Duration) crawlLook { return crawlLook{limited: 4 * at} }},
		"a rate limit that is not reached": {look: func(at time.Duration) crawlLook {
			return crawlLook{streams: map[uint64]int64{1: steady(1)(at)}, underway: true, limited: at / 10}
		}, says: crawlSays, ends: crawlEnds},
	} {
		var says, ends time.Duration
		w := crawlWatch{peer: "nas:7433"}
		begun := time.Now()
		for at := time.Duration(0); at < forever && ends == 0; at += max(crawlEvery, c.every) {
			text, err := w.check(begun.Add(at), c.look(at))
			what := c.what
			if what == "" {
				what = streams
			}
			if text != "" && says == 0 {
				says = at
				require.Contains(t, text, "nas:7433: "+what, name)
			}
			if err != nil {
				ends = at
				require.True(t, strings.HasPrefix(err.Error(), what), "%s: %v", name, err)
			}
		}
		require.InDelta(t, c.says, says, float64(2*crawlEvery), name)
		require.InDelta(t, c.ends, ends, float64(2*crawlEvery), name)
	}
}

// TestCrawlTrusts: a client believes a server only for some days that it works while nothing comes of it. A server has
// no such limit, and neither has what this end itself does.
func TestCrawlTrusts(t *testing.T) {
	t.Parallel()
	const long = 4 * crawlTrusts
	const shown = 30 * time.Second // work shows
	claims := func(at time.Duration) crawlLook { return crawlLook{claimed: at.Truncate(shown)} }
	for name, c := range map[string]struct {
		look   func(at time.Duration) crawlLook
		trusts bool
		ends   time.Duration // 0 is never
	}{
		"a server":              {look: claims, ends: crawlTrusts + crawlEnds},
		"a client":              {look: claims, trusts: true},
		"work of this end, too": {look: func(at time.Duration) crawlLook { return crawlLook{claimed: at, work: at.Truncate(shown)} }},
		"an entry a day": {look: func(at time.Duration) crawlLook {
			return crawlLook{claimed: at, steps: int64(at / (24 * time.Hour))}
		}},
		"more and less again": {look: func(at time.Duration) crawlLook {
			return crawlLook{claimed: at / crawlEvery % 2}
		}, ends: crawlTrusts + crawlEnds},
	} {
		w, begun, ends := crawlWatch{peer: "nas:7433", trusts: c.trusts}, time.Now(), time.Duration(0)
		for at := time.Duration(0); at < long && ends == 0; at += crawlEvery {
			if _, err := w.check(begun.Add(at), c.look(at)); err != nil {
				ends = at
			}
		}
		require.InDelta(t, c.ends, ends, float64(2*shown), name)
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
		text, err := w.check(begun.Add(at), crawlLook{streams: map[uint64]int64{7: moved}, underway: true})
		require.NoError(t, err)
		if text != "" {
			said = append(said, text)
		}
	}
	require.Equal(t, []string{"nas:7433: hardly anything gets through: 0 B in 2m0s", "nas:7433: more gets through again"}, said)
}

// pinger is a peer that pings, reports samples, and does nothing else for three hours.
func pinger(ctx context.Context, conn net.Conn, work func(at time.Duration) int64) {
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	began := time.Now()
	defer conn.Close()
	for at := time.Duration(0); at < 3*time.Hour && Sleep(ctx, 5*time.Second); at = time.Since(began) {
		sample := &wire.Sample{Values: []wire.Value{{Name: "at_ns", Value: int64(at)}, {Name: "check_ns", Value: work(at)}}}
		out := wire.Append(wire.Append(nil, &wire.Ping{}), sample)
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// TestCrawlPinger: neither end waits longer than it should for a peer that pings and begins nothing. One that reads files
// has as long as it needs.
func TestCrawlPinger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("text"), 0o600))
	source, err := access.OpenSource(dir)
	require.NoError(t, err)
	defer source.Close()
	target, err := access.OpenTarget(t.TempDir(), access.Asked{Base: "."})
	require.NoError(t, err)
	defer target.Close()
	for _, sends := range []bool{false, true} {
		for name, c := range map[string]struct {
			work func(time.Duration) int64
			ends time.Duration
		}{
			"nothing":     {func(time.Duration) int64 { return 0 }, crawlEnds},
			"reads first": {func(at time.Duration) int64 { return int64(min(at, time.Hour)) }, time.Hour + crawlEnds},
		} {
			synctest.Test(t, func(t *testing.T) {
				here, there := net.Pipe()
				defer there.Close()
				ctx, end := context.WithCancelCause(t.Context())
				defer end(nil)
				var tasks sync.WaitGroup
				pings, silence := context.WithCancel(t.Context()) // it does not hear of the end
				defer silence()
				tasks.Go(func() { pinger(pings, there, c.work) })
				set, clock := NewStreamSet(nil, nil), transfer.NewClock()
				telemetry := NewTelemetry(clock, set, func() int64 { return 0 }, diagnose.Host{})
				message := func(m wire.Message) {
					if s, ok := m.(*wire.Sample); ok {
						telemetry.AddPeerSample(s.Map())
					}
				}
				r := wire.NewReader(here, wire.MaxMessage)
				var engine Engine = &receivingEnd{transfer.NewReceiver(here, r, target, transfer.ReceiverOptions{Path: ".", Clock: clock, Message: message})}
				if sends {
					files := &transfer.TreeSource{Roots: []transfer.Root{{Tree: source, Path: "."}}}
					engine = &sendingEnd{Sender: transfer.NewSender(here, r, files, transfer.SenderOptions{Clock: clock, Message: message})}
				}
				var said []string
				crawl := Crawl{
					Peer: "nas", Engine: engine, Set: set, Telemetry: telemetry,
					Patient: func(bool) bool { return false }, Notice: func(text string) { said = append(said, text) },
				}
				began := time.Now()
				tasks.Go(func() { telemetry.Run(ctx, nil) })
				tasks.Go(func() { crawl.Watch(ctx, end) })
				err := engine.Run(ctx)
				end(nil)
				silence()
				_ = here.Close()
				_ = there.Close()
				tasks.Wait()
				require.ErrorContains(t, err, "nothing has happened for 10m", "%s, sends %v", name, sends)
				require.InDelta(t, c.ends, time.Since(began), float64(20*time.Second), "%s, sends %v", name, sends)
				require.Len(t, said, 1, "%s, sends %v", name, sends)
			})
		}
	}
}
