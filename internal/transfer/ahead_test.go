package transfer

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"

	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/wire"
)

// TestAhead reads files of all sizes from a stream that comes in pieces, and leaves some out: each
// digest must be that of its own bytes, whatever was digested before.
func TestAhead(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 20 {
		var stream []byte
		same, each := rng.IntN(digest.MaxSmall+1), 0
		if round%2 == 0 { // so files lie at the same places of the buffer again and again
			each = (1 + rng.IntN(5)) * (wire.BlockHeaderLen + same)
		}
		for range 500 {
			size := rng.IntN(digest.MaxSmall + 1)
			switch choice := rng.IntN(8); {
			case each > 0:
				size = same
			case choice == 0:
				size = rng.IntN(4)
			case choice == 1:
				size = digest.MaxSmall
			case choice == 2:
				size += digest.MaxSmall
			}
			var head [wire.BlockHeaderLen]byte
			h := wire.BlockHeader{Whole: rng.IntN(20) > 0, Sparse: rng.IntN(20) == 0, Length: uint32(size)}
			h.Put(head[:])
			stream = append(stream, head[:]...)
			stream = append(stream, randomBytes(rng, size)...)
		}
		p := packets{stream: parts{bytes.NewReader(stream), rng, each}}
		room, ahead := make([]byte, 2*digest.MaxSmall+1), 0
		for {
			var head [wire.BlockHeaderLen]byte
			if _, err := io.ReadFull(&p, head[:]); err != nil {
				require.ErrorIs(t, err, io.EOF)
				break
			}
			h, err := wire.ParseBlockHeader(head[:])
			require.NoError(t, err)
			n := int(h.Length)
			if !isShort(&h) || rng.IntN(5) == 0 { // as if its entry were resolved
				_, err := io.ReadFull(&p, room[:n])
				require.NoError(t, err)
				continue
			}
			require.NoError(t, p.gather(n))
			got := p.ahead.sum(nil, p.buf, n)
			require.Equal(t, blake3.Sum256(p.take(n)), got, "%d bytes", n)
			ahead++
		}
		require.Positive(t, ahead)
	}
}

// parts is a stream that gives each bytes at a time, or any number if each is 0.
type parts struct {
	*bytes.Reader
	rng  *rand.Rand
	each int
}

func (p parts) Read(b []byte) (int, error) {
	n := p.each
	if n == 0 {
		n = 1 + p.rng.IntN(len(b))
	}
	return p.Reader.Read(b[:min(n, len(b))])
}

func (parts) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
func (parts) Close() error              { return nil }

// asking is a stream that notes how much it is asked for.
type asking struct {
	io.Reader
	asked *[]int
}

func (a asking) Read(b []byte) (int, error) {
	*a.asked = append(*a.asked, len(b))
	return a.Reader.Read(b)
}

func (asking) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
func (asking) Close() error              { return nil }

// TestPackets: small pieces come through the buffer, many at a time. A large one does not, and what
// may be the next one is not read into the buffer with its header.
func TestPackets(t *testing.T) {
	t.Parallel()
	const large, small = 100 << 10, 1000
	pieces := []int{10, large, 10, large, 10, small, 10, small, 10, large, 10}
	var stream []byte
	for i, n := range pieces {
		stream = append(stream, bytes.Repeat([]byte{byte(i)}, n)...)
	}
	var asked []int
	p := packets{stream: asking{bytes.NewReader(stream), &asked}}
	for i, n := range pieces {
		got := make([]byte, n)
		_, err := io.ReadFull(&p, got)
		require.NoError(t, err)
		require.Equal(t, bytes.Repeat([]byte{byte(i)}, n), got)
	}
	_, err := p.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	rest := large - packetRoom + 10
	require.Equal(t, []int{
		packetRoom, rest, // with the first header, as before it is known what comes
		10, large, 10, packetRoom, // the last one has three small pieces, and a part of the next
		large - (packetRoom - 2*small - 20), 10, packetRoom,
	}, asked)
}
