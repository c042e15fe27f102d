package tests

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

var reloads = flag.Int("reloads", 0, "measure how soon goodput follows a changed limit, so many times")

// look is the state of a transfer when it reported progress.
type look struct {
	at      time.Time
	written int64
}

// pulse records the progress of a running transfer.
type pulse struct {
	mu    sync.Mutex
	looks []look
}

func (p *pulse) beat(x fxfer.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looks = append(p.looks, look{time.Now(), x.Written})
}

// followed returns how long after since goodput came within a fifth of a rate, in bit/s. It
// computes goodput over this many looks, because a single block is large compared with the data of
// one look.
func (p *pulse) followed(since time.Time, rate float64, looks int) (after time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := looks; i < len(p.looks); i++ {
		from, to := p.looks[i-looks], p.looks[i]
		goodput := 8 * float64(to.written-from.written) / to.at.Sub(from.at).Seconds()
		if from.at.After(since) && goodput > 0.8*rate && goodput < 1.2*rate {
			return to.at.Sub(since), true
		}
	}
	return 0, false
}

// TestReloadUnderWay changes the rate limit of a server by SIGHUP while the server receives and
// sends. Both transfers continue at the new rate.
func TestReloadUnderWay(t *testing.T) {
	mbit, size, looks := 25, 256<<20, 5
	if *reloads > 0 {
		mbit, size, looks = 300, 2<<30, 2
	}
	configuration := func(rate int) string {
		return fmt.Sprintf("shares: {data: {dir: files}}\nrate-limit: %dmbit\n", rate)
	}
	a, address := newActivated(t, configuration(4*mbit))
	client, pin := a.admit()
	content := make([]byte, 1<<20)
	_, _ = rand.Read(content)
	source, err := os.Create(filepath.Join(a.dir, "files", "source"))
	require.NoError(t, err)
	for range size / len(content) {
		_, err = source.Write(content)
		require.NoError(t, err)
	}
	require.NoError(t, source.Close())
	a.start()

	for range max(1, *reloads) {
		ctx, cancel := context.WithCancel(t.Context())
		var transfers sync.WaitGroup
		var pulses [2]pulse
		begin := func(p *pulse, name string, run func(*fxfer.Client, fxfer.URL, fxfer.Transfer) error) {
			c, err := fxfer.NewClient(fxfer.Options{Home: client, Pin: pin, Transport: fxfer.Transport(os.Getenv("FXFER_TRANSPORT")), Streams: 1})
			require.NoError(t, err)
			u, err := fxfer.ParseURL(fmt.Sprintf("fxfer://%s/data/%s", address, name))
			require.NoError(t, err)
			transfers.Go(func() {
				if err := run(c, u, fxfer.Transfer{Progress: p.beat}); ctx.Err() == nil {
					t.Errorf("%s ended: %v", name, err)
				}
			})
		}
		begin(&pulses[0], "target", func(c *fxfer.Client, u fxfer.URL, call fxfer.Transfer) error {
			_, err := c.SendStream(ctx, endless{}, u, call)
			return err
		})
		begin(&pulses[1], "source", func(c *fxfer.Client, u fxfer.URL, call fxfer.Transfer) error {
			_, err := c.Get(ctx, []fxfer.URL{u}, t.TempDir(), call)
			return err
		})
		since := time.Now()
		for i, rate := range []int{4 * mbit, mbit, 4 * mbit} {
			if i > 0 {
				a.configure(configuration(rate))
				since = time.Now()
				a.reload()
			}
			var after [2]time.Duration
			require.Eventually(t, func() bool {
				ok := true
				for i := range pulses {
					var followed bool
					after[i], followed = pulses[i].followed(since, float64(rate)*1e6, looks)
					ok = ok && followed
				}
				return ok
			}, time.Minute, 10*time.Millisecond, "the limit of %d Mbit/s is not kept", rate)
			if i > 0 && *reloads > 0 {
				t.Logf("to %d Mbit/s: the server's receiving follows after %v, its sending after %v", rate, after[0], after[1])
			}
		}
		cancel()
		transfers.Wait()
	}
	a.stop()
}

// endless is a reader without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }
