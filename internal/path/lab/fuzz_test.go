package lab

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzTrain checks that the pieces of a train hold its payload, each byte once, whatever a TUN
// device delivers.
func FuzzTrain(f *testing.F) {
	for _, s := range []sample{{size: 100, payload: 250}, {v6: true, size: 10, payload: 25}, {udp: true, size: 7, payload: 20}, {size: 100, payload: 50}} {
		f.Add(s.packet(make([]byte, s.payload)))
	}
	short := sample{size: 100, payload: 250}.packet(make([]byte, 250))
	short[vnetLen+20+12] = 0 // a TCP header of length 0
	f.Add(short)
	f.Fuzz(func(t *testing.T, pkt []byte) {
		if len(pkt) <= vnetLen {
			return
		}
		tr := parseTrain(pkt)
		if tr.segs == 1 {
			return
		}
		var got []byte
		dst := make([]byte, maxHeader)
		for a := range tr.segs {
			n, payload := tr.cut(dst, pkt, a, a+1)
			require.LessOrEqual(t, n, maxHeader)
			got = append(got, payload...)
			if n%2 == 0 {
				complete(dst[:n], payload)
			}
		}
		require.Equal(t, pkt[tr.head:], got)
	})
}
