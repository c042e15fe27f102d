//go:build linux

package trees_test

import (
	"flag"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var (
	sparseSize = flag.Int64("sparse-size", 4<<30+256<<20, "bytes of the file of TestSparse: more than 32 bits can count")
	sparseData = flag.Int64("sparse-data", 50<<20, "how many of them hold data")
)

// TestSparse sends a huge file with little data. The traffic is in proportion to the data, and the
// target has the same holes. Then data and holes change places.
func TestSparse(t *testing.T) {
	t.Parallel()
	rng := random(t)
	base := scratch(t)
	source, target := filepath.Join(base, "source"), filepath.Join(base, "target")
	m := newMaker(t, rng, source)
	p := newPair(t, base)
	line := count(t, p.address)
	p.address = line.address
	// send sends the file and returns how many bytes the client sent.
	send := func(what string) int64 {
		before := line.bytes.Load()
		o := p.do(t, "send", source+"/", p.url("target"))
		sent := line.bytes.Load() - before
		require.Empty(t, differences(source, target, comparison{space: true}))
		t.Logf("%s: %.2f s, %d KiB travelled; %d KiB allocated at the source, %d KiB at the target", what, o.Seconds, sent>>10,
			space(t, filepath.Join(source, "huge"))>>10, space(t, filepath.Join(target, "huge"))>>10)
		return sent
	}

	// Pieces of 4 KiB to 1 MiB are anywhere in the file, also at its very end.
	data := map[int64]int{*sparseSize - 5000: 5000}
	var last int64
	for left := *sparseData; left > 0; {
		n := min(4096+rng.Int64N(1<<20), left)
		last = rng.Int64N(*sparseSize-n) &^ 4095
		data[last] = int(n)
		left -= n
	}
	m.sparse("huge", *sparseSize, data)
	const overhead = 1 << 20 // for handshakes and messages
	sent := send("holes and data")
	allocated := space(t, filepath.Join(source, "huge"))
	require.LessOrEqual(t, sent, allocated+allocated/20+overhead)

	f, err := os.OpenFile(filepath.Join(source, "huge"), os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, last, int64(data[last])))
	_, err = f.WriteAt(m.bytes(300_000), *sparseSize/3)
	require.NoError(t, err)
	m.touch("huge", m.moment())
	send("a new hole and new data")

	require.NoError(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, *sparseSize))
	m.touch("huge", m.moment())
	require.LessOrEqual(t, send("one hole"), int64(overhead))
}

// counter forwards connections and counts the bytes sent to the server.
type counter struct {
	address string
	bytes   atomic.Int64
}

func count(t *testing.T, server string) *counter {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &counter{address: l.Addr().String()}
	var pumps sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		pumps.Wait()
	})
	pumps.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				from.Close()
				continue
			}
			pump := func(to, from net.Conn, count func(n int64)) {
				buf := make([]byte, 256<<10)
				for {
					n, err := from.Read(buf)
					count(int64(n))
					if _, failed := to.Write(buf[:n]); err != nil || failed != nil {
						break
					}
				}
				to.Close()
				from.Close()
			}
			pumps.Go(func() { pump(to, from, func(n int64) { c.bytes.Add(n) }) })
			pumps.Go(func() { pump(from, to, func(int64) {}) })
		}
	})
	return c
}

// space returns how many bytes a file takes on its disk.
func space(t *testing.T, name string) int64 {
	var st unix.Stat_t
	require.NoError(t, unix.Stat(name, &st))
	return st.Blocks * 512
}
