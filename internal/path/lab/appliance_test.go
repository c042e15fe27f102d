package lab

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A SYN loses its window scale option and keeps all others. Other segments keep theirs. Checksums
// are right.
func TestLineUnscaled(t *testing.T) {
	before := []byte{2, 4, 5, 180, 1, 3, 3, 7, 4, 2, 3, 3, 9, 0, 3, 3} // MSS, scale at an odd offset and at an even one, SACK, end
	after := []byte{2, 4, 5, 180, 1, 1, 1, 1, 4, 2, 1, 1, 1, 0, 3, 3}
	for _, v6 := range []bool{false, true} {
		for _, whole := range []bool{false, true} { // whether the checksum is complete
			for flags, want := range map[byte][]byte{0x02: after, 0x12: after, 0x10: before} {
				ln := testLine(t, Link{Rate: 1e9, Unscaled: true})
				s := sample{v6: v6, size: 1400, options: len(before), flags: flags}
				pkt := s.packet(nil)
				l4 := tcpHeader(pkt)
				copy(pkt[l4+20:], before)
				binary.BigEndian.PutUint16(pkt[l4+16:], 0)
				binary.BigEndian.PutUint16(pkt[l4+16:], naiveSum(naivePseudo(pkt[vnetLen:], protoTCP, len(pkt)-l4)))
				if whole {
					complete(pkt, nil)
				}
				ln.offer(0, pkt)
				got := ln.take(never - 1)
				require.Len(t, got, 1)
				require.Equal(t, want, bytes.Clone(got[0].pkt[l4+20:l4+20+len(want)]))
				complete(got[0].pkt, nil)
				require.True(t, intact(t, got[0].pkt))
			}
		}
	}
}

func TestLineBlockedProtocol(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, udp := range []bool{false, true} {
			for _, link := range []Link{{Rate: 1e9, NoTCP: true}, {Rate: 1e9, NoUDP: true}} {
				ln := testLine(t, link)
				ln.offer(0, sample{v6: v6, udp: udp, size: 1400}.packet(make([]byte, 100)))
				require.Equal(t, link.NoTCP == udp, len(ln.take(never-1)) > 0)
			}
		}
	}
}

// Policed UDP keeps to its rate, after a burst when idle. TCP is not policed.
func TestLinePolicedUDP(t *testing.T) {
	for _, udp := range []bool{false, true} {
		ln := testLine(t, Link{Rate: 1e9, BufferBDP: 100, PoliceUDP: 8e6})
		n := 0
		for now := int64(0); now < int64(time.Second); now += int64(time.Millisecond) {
			for range 4 { // 4 × 1000 × 1538 bytes
				ln.offer(now, sample{udp: udp, size: 1472}.packet(make([]byte, 1472)))
			}
			n += len(ln.take(now))
		}
		if n += len(ln.take(never - 1)); udp {
			require.InDelta(t, 8e6/8/1538*1.01, n, 10)
		} else {
			require.Equal(t, 4000, n)
		}
	}
}
