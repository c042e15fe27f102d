package web

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// BenchmarkScrape measures one scrape of a server with 40 running transfers. With a scrape every
// 15 s, 75 ms are 0.5 % of a core. Run it with -benchtime 20x.
func BenchmarkScrape(b *testing.B) {
	for _, running := range []int{0, 40} {
		b.Run(fmt.Sprint(running), func(b *testing.B) {
			s := start(b, fxfer.Options{})
			ctx, cancel := context.WithCancel(b.Context())
			var sending sync.WaitGroup
			defer sending.Wait()
			defer cancel()
			if running > 0 { // the first client is admitted by its invitation
				_, err := s.client.Send(ctx, []string{file(b, 16)}, s.url, fxfer.Transfer{})
				require.NoError(b, err)
				s.url.Token = ""
				slow, err := fxfer.NewClient(fxfer.Options{Home: s.home, RateLimit: 1e6, Streams: 2})
				require.NoError(b, err)
				name := file(b, 64<<20)
				for i := range running {
					u := s.url
					u.Path = fmt.Sprint(i, "/")
					sending.Go(func() {
						if _, err := slow.Send(ctx, []string{name}, u, fxfer.Transfer{}); ctx.Err() == nil {
							b.Error(err)
						}
					})
					time.Sleep(50 * time.Millisecond) // the server limits handshakes of one address
				}
				for end := time.Now().Add(time.Minute); len(s.Status().Transfers) < running; time.Sleep(100 * time.Millisecond) {
					require.True(b, time.Now().Before(end), "%d transfers", len(s.Status().Transfers))
				}
				time.Sleep(20 * time.Second) // let samples accumulate, as in a long transfer
			}
			b.ResetTimer()
			var size int64
			for range b.N {
				b.StopTimer()
				time.Sleep(1100 * time.Millisecond) // the status is cached for 1 s
				b.StartTimer()
				r, err := http.Get(s.base + "/metrics")
				require.NoError(b, err)
				size, err = io.Copy(io.Discard, r.Body)
				require.NoError(b, err)
				r.Body.Close()
			}
			b.ReportMetric(float64(size), "B")
			b.ReportMetric(float64(len(s.Status().Transfers)), "transfers")
		})
	}
}
