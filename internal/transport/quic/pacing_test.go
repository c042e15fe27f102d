package quic

import (
	"bytes"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// far is an RTT with the longest steps.
const far = stepShare * mostSpan

// packer writes within a pacing, as quic-go does: packet by packet. It notes when each packet left.
type packer struct {
	pacing
	packet  int
	delay   func() time.Duration // of a step
	gone    chan struct{}
	packets []packed
}

type packed struct {
	at    time.Time
	bytes int
}

func newPacker() *packer { return &packer{packet: 1399, gone: make(chan struct{})} }

// write returns how much it has written when p waits for nothing any more.
func (p *packer) write(bytes int) (sent int) {
	p.begin()
	for sent < bytes {
		n := p.grant(min(p.packet, bytes-sent))
		sent += n
		if n > 0 {
			p.packets = append(p.packets, packed{time.Now(), n})
			continue
		}
		if p.wait(p.gone); p.over() {
			return sent
		}
		if p.delay != nil {
			time.Sleep(p.delay())
		}
		p.begin()
	}
	return sent
}

func (p *packer) over() bool {
	select {
	case <-p.gone:
		return true
	default:
		return !p.deadline.IsZero() && !time.Now().Before(p.deadline)
	}
}

// most returns the largest number of bytes that left within a time.
func (p *packer) most(within time.Duration) (most int) {
	sum, from := 0, 0
	for _, w := range p.packets {
		sum += w.bytes
		for w.at.Sub(p.packets[from].at) > within {
			sum -= p.packets[from].bytes
			from++
		}
		most = max(most, sum)
	}
	return most
}

// A stream sends at its rate, in small steps of full packets.
func TestPacingRate(t *testing.T) {
	for _, rate := range []float64{1200, 64 << 10, 1e6, 7.8e6, 125e6} {
		synctest.Test(t, func(t *testing.T) {
			p := newPacker()
			p.set(rate, far)
			began := time.Now()
			size := int(10*rate) / p.packet * p.packet
			require.Equal(t, size, p.write(size))
			require.InDelta(t, 10, time.Since(began).Seconds(), 0.01+1.5*leastPaced/rate, "%.0f bytes/s", rate)
			const within = 20 * time.Millisecond
			allowed := rate*(within+4*mostSpan).Seconds() + 2*leastPaced
			require.LessOrEqual(t, float64(p.most(within)), allowed, "%.0f bytes/s", rate)
			require.Len(t, p.packets, size/p.packet, "all packets are full")
		})
	}
}

// On a short path steps are shorter, and so is what leaves at once after a pause.
func TestPacingNear(t *testing.T) {
	const rate = 31e6
	for rtt, span := range map[time.Duration]time.Duration{
		time.Minute: mostSpan, far: mostSpan, 6 * time.Millisecond: 1200 * time.Microsecond, 0: leastSpan,
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPacker()
			p.set(rate, rtt)
			p.write(rate)
			step := rate * span.Seconds()
			require.InDelta(t, min(step, mostPaced), p.most(0), train, "%v", rtt)
			time.Sleep(time.Minute)
			p.packets = nil
			p.write(rate)
			require.InDelta(t, burstSpans*step, p.most(0), step/2+train, "%v", rtt)
		})
	}
}

// A stream catches up on steps that take a moment, but not on a long pause.
func TestPacingLate(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	synctest.Test(t, func(t *testing.T) {
		const rate = 5e6
		p := newPacker()
		p.delay = func() time.Duration { return time.Duration(random.IntN(1.9e6)) }
		p.set(rate, far)
		began := time.Now()
		p.write(5 * rate)
		require.InEpsilon(t, 5, time.Since(began).Seconds(), 0.01)

		p.delay, p.packets = nil, nil
		time.Sleep(time.Minute)
		p.write(rate)
		require.LessOrEqual(t, float64(p.most(0)), rate*(4*mostSpan).Seconds())
	})
}

// A new rate applies to a step that waits. A wait ends with the stream and at its deadline.
func TestPacingChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacker()
		done := make(chan int, 1)
		start := func() { done <- p.write(1 << 20) }
		p.set(1, far)
		began := time.Now()
		go start()
		time.Sleep(time.Minute)
		synctest.Wait() // the stream waits for its step, so it writes nothing
		require.LessOrEqual(t, p.most(0), leastPaced, "the first packets need not wait")
		require.Positive(t, p.most(0))
		require.True(t, p.waits())
		p.set(1e9, far)
		require.Equal(t, 1<<20, <-done)
		require.WithinDuration(t, began.Add(time.Minute), time.Now(), 10*time.Millisecond)
		require.False(t, p.waits())

		p.set(1, far)
		go start()
		time.Sleep(time.Minute)
		p.set(math.Inf(1), far)
		require.Equal(t, 1<<20, <-done)
		require.False(t, p.begin())
		require.Equal(t, math.MaxInt, p.grant(math.MaxInt), "without a bound there are no steps")

		p.set(1, far)
		began = time.Now()
		go start()
		time.Sleep(time.Second)
		p.until(began.Add(time.Minute))
		require.Less(t, <-done, 1<<20)
		require.Equal(t, began.Add(time.Minute), time.Now())
		require.False(t, p.waits())

		p.until(time.Time{})
		go start()
		time.Sleep(time.Second)
		close(p.gone)
		require.Less(t, <-done, 1<<20)
		require.False(t, p.waits())
	})
}

// A paced Write arrives whole. It takes a new rate, ends at its deadline, and ends with Close.
func TestPace(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	done := make(chan error, 1)
	data := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	write := func() {
		_, err := client.WriteBuffers(data[:50], data[50:])
		done <- err
	}
	held := func() bool {
		i, ok := client.Info()
		return ok && i.Held
	}
	client.Pace(1)
	go write()
	require.Eventually(t, held, 10*time.Second, time.Millisecond)
	i, _ := client.Info()
	require.Greater(t, i.NotSent, len(data)-2*leastPaced)
	client.Pace(math.Inf(1))
	got := make([]byte, len(data))
	_, err := io.ReadFull(server, got)
	require.NoError(t, err)
	require.NoError(t, <-done)
	require.True(t, bytes.Equal(data, got))
	i, _ = client.Info()
	require.Zero(t, i.NotSent)
	require.False(t, i.Held)

	client.Pace(1)
	go write()
	require.Eventually(t, held, 10*time.Second, time.Millisecond)
	require.NoError(t, client.Close())
	require.ErrorIs(t, <-done, net.ErrClosed)

	client, _ = pair(t)
	client.Pace(1)
	go write()
	require.Eventually(t, held, 10*time.Second, time.Millisecond)
	require.NoError(t, client.SetWriteDeadline(time.Now()))
	require.ErrorIs(t, <-done, os.ErrDeadlineExceeded)
}
