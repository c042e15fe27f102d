package lab

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tooBigLine offers a packet of unfragmentable segments to a line with a path MTU of 1308 bytes.
func tooBigLine(t *testing.T, mute bool, pkt []byte) (*line, []arrival) {
	t.Helper()
	ln := testLine(t, Link{Rate: 1e9, RTT: 10 * time.Millisecond, PMTU: 1308, BlackHole: mute})
	ln.offer(0, pkt)
	return ln, ln.take(never - 1)
}

func dontFragment(pkt []byte) []byte {
	ip := pkt[vnetLen:]
	ip[6] |= ipDF
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^naiveSum(ip[:20]))
	return pkt
}

func TestTooBigAnswer(t *testing.T) {
	payload := randomPayload(rand.New(rand.NewPCG(1, 1)), 2*1448+100)
	for _, v6 := range []bool{false, true} {
		pkt := sample{v6: v6, options: 12, size: 1448, seq: 77}.packet(payload)
		if !v6 {
			dontFragment(pkt)
		}
		ln, got := tooBigLine(t, false, bytes.Clone(pkt))
		require.EqualValues(t, 2, ln.count.tooBig.Load())
		require.EqualValues(t, 1, ln.count.delivered.Load(), "the last segment is small")
		require.Len(t, got, 3)
		for i, a := range got[:2] {
			require.GreaterOrEqual(t, a.at, ln.delay)
			require.LessOrEqual(t, a.at, ln.free+ln.delay)
			ip := a.pkt[vnetLen:]
			if v6 {
				require.EqualValues(t, protoICMPv6, ip[6])
				require.Equal(t, router6[:], ip[8:24])
				require.Equal(t, pkt[vnetLen+8:][:16], ip[24:40], "to the sender")
				require.Equal(t, []byte{2, 0}, ip[40:42])
				require.EqualValues(t, 1308, binary.BigEndian.Uint32(ip[44:]))
				require.EqualValues(t, 0xffff, naiveSum(append(naivePseudo(ip, protoICMPv6, len(ip)-40), ip[40:]...)))
				require.EqualValues(t, len(ip)-40, binary.BigEndian.Uint16(ip[4:]))
				require.LessOrEqual(t, len(ip), 1280)
				require.EqualValues(t, 77+1448*i, binary.BigEndian.Uint32(ip[48+40+4:]), "the sequence number quoted")
				continue
			}
			require.EqualValues(t, protoICMP, ip[9])
			require.EqualValues(t, 0xffff, naiveSum(ip[:20]))
			require.Equal(t, pkt[vnetLen+12:][:4], ip[16:20], "to the sender")
			require.Equal(t, []byte{3, 4}, ip[20:22])
			require.EqualValues(t, 1308, binary.BigEndian.Uint16(ip[26:]))
			require.EqualValues(t, 0xffff, naiveSum(ip[20:]))
			require.EqualValues(t, len(ip), binary.BigEndian.Uint16(ip[2:]))
			require.LessOrEqual(t, len(ip), 576)
			require.EqualValues(t, 77+1448*i, binary.BigEndian.Uint32(ip[28+20+4:]), "the sequence number quoted")
		}
	}
}

func TestBlackHoleIsSilent(t *testing.T) {
	ln, got := tooBigLine(t, true, dontFragment(trainOf(10)))
	require.Empty(t, got)
	require.EqualValues(t, 10, ln.count.tooBig.Load())
	_, got = tooBigLine(t, true, dontFragment(segmentOf(1308-20-32, 0)))
	require.Len(t, got, 1, "what just fits passes")
	_, got = tooBigLine(t, true, dontFragment(segmentOf(1308-20-32+1, 0)))
	require.Empty(t, got)
}

// A packet that may be fragmented arrives in pieces that make up the whole, even through a black
// hole.
func TestFragments(t *testing.T) {
	payload := randomPayload(rand.New(rand.NewPCG(1, 1)), 3*1448)
	ln, got := tooBigLine(t, true, sample{options: 12, size: 1448, seq: 5}.packet(payload))
	require.EqualValues(t, 3, ln.count.tooBig.Load())
	require.EqualValues(t, 3, ln.count.delivered.Load())
	require.Len(t, got, 6)
	var all []byte
	for i := 0; i < len(got); i += 2 {
		var l4 []byte
		for k, a := range got[i : i+2] {
			ip := a.pkt[vnetLen:]
			require.LessOrEqual(t, len(ip), 1308)
			require.EqualValues(t, len(ip), binary.BigEndian.Uint16(ip[2:]))
			require.EqualValues(t, 0xffff, naiveSum(ip[:20]))
			require.EqualValues(t, len(l4)/8, binary.BigEndian.Uint16(ip[6:])&0x1fff)
			require.Equal(t, k == 0, ip[6]&ipMF != 0)
			require.Equal(t, got[i].pkt[vnetLen+4:][:2], ip[4:6], "the same identification")
			l4 = append(l4, ip[20:]...)
		}
		require.EqualValues(t, 0xffff, naiveSum(append(naivePseudo(got[i].pkt[vnetLen:], protoTCP, len(l4)), l4...)))
		all = append(all, l4[32:]...)
	}
	require.Equal(t, payload, all)
}
