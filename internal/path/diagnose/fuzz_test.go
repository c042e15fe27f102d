package diagnose

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzJudge checks that shares stay within their range and all results are numbers, whatever
// samples a peer sends and in whatever order.
func FuzzJudge(f *testing.F) {
	f.Add([]byte{}, uint8(10))
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 40, 0, 0, 0, 0, 5, 0, 0, 0}, uint8(30))
	f.Add([]byte{36, 0, 0, 0, 0, 0, 0, 0, 0x80, 37, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 20, 4, 0, 0, 0, 0, 0, 0, 0}, uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, n uint8) {
		if len(b) > 1<<12 {
			return
		}
		var names []string
		var none Sample
		var h Host
		Fill(&none, &h, 0, func(name string) (int64, bool) { names = append(names, name); return 0, false })
		var series Series
		var peer Host
		for at := 0; at < len(b) || at == 0; at += 90 { // ten numbers per sample
			said := map[string]int64{"at_ns": int64(at/90) * int64(100*time.Millisecond)}
			for x := b[min(at, len(b)):min(at+90, len(b))]; len(x) >= 9; x = x[9:] {
				said[names[int(x[0])%len(names)]] = int64(binary.LittleEndian.Uint64(x[1:]))
			}
			var s Sample
			Fill(&s, &peer, time.Minute, func(name string) (int64, bool) { v, ok := said[name]; return v, ok })
			series.Add(s)
		}
		ours := perSecond(busySender(), float64(n)/10)
		for _, x := range []*Session{
			{Sender: ours, Receiver: series.All(), ReceiverHost: peer}, {Sender: series.All(), Receiver: perSecond(readyReceiver(), float64(n)/10), SenderHost: peer},
		} {
			cells := Cells(x)
			for _, c := range cells {
				require.GreaterOrEqual(t, c.Length, time.Duration(0))
			}
			var sum float64
			for _, v := range Judge(cells, &x.SenderHost, &x.ReceiverHost, &Asked{Here: Sender}) {
				require.True(t, v.Share >= 0 && v.Share <= 1.000001, "%v", v.Share)
				for _, r := range v.Remedies {
					require.False(t, math.IsNaN(r.Expect) || math.IsInf(r.Expect, 0), "%v", r.Expect)
				}
				sum += v.Share
			}
			require.LessOrEqual(t, sum, 1.001)
		}
	})
}
