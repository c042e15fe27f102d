package tests

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

var scrapes = flag.Int("scrapes", 0, "measure what a scrape under load costs, over so many")

// TestScrape measures the processor time that metrics cost a server with fifty transfers under way.
// It compares three cases: no scrapes, a burst of scrapes, and scrapes so far apart that each looks
// at all transfers anew. With one scrape in 15 s, 75 ms would be 0.5 % of a core.
func TestScrape(t *testing.T) {
	if *scrapes == 0 {
		t.Skip("needs -scrapes")
	}
	const transfers, quiet, apart, few = 50, 30 * time.Second, 1100 * time.Millisecond, 50
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	pages := l.Addr().String()
	require.NoError(t, l.Close())
	a, address := newActivated(t, fmt.Sprintf("shares: {data: {dir: files}}\nweb: %s\nmax-sessions: 64\nmax-sessions-per-client: 64\n", pages))
	home, pin := a.admit()
	a.start()
	ctx, cancel := context.WithCancel(t.Context())
	var sending, begun sync.WaitGroup
	defer sending.Wait()
	defer cancel()
	for i := range transfers {
		begun.Add(1)
		first := sync.OnceFunc(begun.Done)
		c, err := fxfer.NewClient(fxfer.Options{Home: home, Pin: pin, Streams: 2, RateLimit: 1e6})
		require.NoError(t, err)
		u, err := fxfer.ParseURL(fmt.Sprintf("fxfer://%s/data/f%d", address, i))
		require.NoError(t, err)
		call := fxfer.Transfer{Progress: func(p fxfer.Progress) {
			if p.Written > 0 {
				first()
			}
		}}
		sending.Go(func() {
			defer first()
			if _, err := c.SendStream(ctx, endless{}, u, call); ctx.Err() == nil {
				t.Errorf("transfer %d ended: %v", i, err)
			}
		})
	}
	begun.Wait()

	used := regexp.MustCompile(`(?m)^process_cpu_seconds_total (.*)$`)
	scrape := func() (cpu float64, size int) {
		r, err := http.Get("http://" + pages + "/metrics")
		require.NoError(t, err)
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		m := used.FindSubmatch(text)
		require.NotNil(t, m)
		cpu, err = strconv.ParseFloat(string(m[1]), 64)
		require.NoError(t, err)
		return cpu, len(text)
	}
	// during returns the processor time between two scrapes. The first scrape is not part of it.
	during := func(do func()) (cpu, seconds float64) {
		before, _ := scrape()
		since := time.Now()
		do()
		after, _ := scrape()
		return after - before, time.Since(since).Seconds()
	}
	cpu, seconds := during(func() { time.Sleep(quiet) })
	idle := cpu / seconds
	_, size := scrape()
	t.Logf("%d transfers of 1 Mbit/s take %.2f %% of a core; a scrape is %d bytes", transfers, 100*idle, size)
	for _, x := range []struct {
		n     int
		pause time.Duration
	}{{*scrapes, 0}, {few, apart}} {
		cpu, seconds := during(func() {
			for range x.n - 1 {
				scrape()
				time.Sleep(x.pause)
			}
		})
		each := (cpu - idle*seconds) / float64(x.n)
		t.Logf("%d scrapes, %v apart, in %.1f s: %.2f s of processor time, without them it were %.2f s: %.3f ms each, one in 15 s is %.4f %% of a core",
			x.n, x.pause, seconds, cpu, idle*seconds, 1000*each, 100*each/15)
		require.Less(t, each/15, 0.005)
	}
}
