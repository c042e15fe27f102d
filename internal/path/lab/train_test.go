package lab

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// sample describes a packet that the kernel might hand over.
type sample struct {
	v6, udp bool
	options int // bytes of TCP options
	size    int // payload per segment
	payload int
	flags   byte
	id      uint16
	seq     uint32
}

func (s sample) head() int {
	n := 20 + 8
	if s.v6 {
		n = 40 + 8
	}
	if !s.udp {
		n += 12 + s.options
	}
	return n
}

// packet builds the sample as one train, or as the single segment it is. The checksum is left to
// the device.
func (s sample) packet(payload []byte) []byte {
	ipLen := 20
	if s.v6 {
		ipLen = 40
	}
	pkt := make([]byte, vnetLen+s.head(), vnetLen+s.head()+len(payload))
	pkt = append(pkt, payload...)
	ip, l4 := pkt[vnetLen:], pkt[vnetLen+ipLen:]
	proto := byte(protoTCP)
	if s.udp {
		proto = protoUDP
	}
	if s.v6 {
		ip[0], ip[6], ip[7] = 0x60, proto, 64
		binary.BigEndian.PutUint16(ip[4:], uint16(len(l4)))
		copy(ip[8:], bytes.Repeat([]byte{0xfd, 0x77, 0, 1}, 8))
	} else {
		ip[0], ip[8], ip[9] = 0x45, 64, proto
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[4:], s.id)
		copy(ip[12:], []byte{10, 77, 0, 1, 10, 77, 0, 2})
		binary.BigEndian.PutUint16(ip[10:], ^naiveSum(ip[:20]))
	}
	check := 6
	if s.udp {
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
	} else {
		check = 16
		binary.BigEndian.PutUint32(l4[4:], s.seq)
		l4[12], l4[13] = byte(20+s.options)/4<<4, s.flags
	}
	binary.BigEndian.PutUint16(l4[check:], naiveSum(naivePseudo(ip, proto, len(l4))))

	pkt[0] = vnetNeedsCsum
	binary.NativeEndian.PutUint16(pkt[2:], uint16(s.head()))
	binary.NativeEndian.PutUint16(pkt[6:], uint16(ipLen))
	binary.NativeEndian.PutUint16(pkt[8:], uint16(check))
	if len(payload) > s.size {
		binary.NativeEndian.PutUint16(pkt[4:], uint16(s.size))
		switch {
		case s.udp:
			pkt[1] = gsoUDP
		case s.v6:
			pkt[1] = gsoTCPv6
		default:
			pkt[1] = gsoTCPv4
		}
		if s.flags&tcpCWR != 0 && !s.udp {
			pkt[1] |= gsoECN
		}
	}
	return pkt
}

// naiveSum is RFC 1071 in its simplest form.
func naiveSum(b []byte) uint16 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		s += uint32(b[i]) << 8
		if i+1 < len(b) {
			s += uint32(b[i+1])
		}
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

func naivePseudo(ip []byte, proto byte, l4Len int) []byte {
	from, to := 8, 40
	if ip[0]>>4 == 4 {
		from, to = 12, 20
	}
	return binary.BigEndian.AppendUint32(append(bytes.Clone(ip[from:to]), 0, 0, 0, proto), uint32(l4Len))
}

// requireIntact checks the lengths and checksums of one segment like a receiver without offloads.
func requireIntact(t *testing.T, pkt []byte) {
	t.Helper()
	require.True(t, intact(t, pkt), "checksum")
}

func intact(t *testing.T, pkt []byte) bool {
	t.Helper()
	require.Zero(t, pkt[0]&vnetNeedsCsum, "the checksum is complete")
	require.Equal(t, byte(gsoNone), pkt[1])
	ip := pkt[vnetLen:]
	var l4 []byte
	var proto byte
	if ip[0]>>4 == 4 {
		l4, proto = ip[20:], ip[9]
		require.Equal(t, len(ip), int(binary.BigEndian.Uint16(ip[2:])))
		require.Equal(t, uint16(0xffff), naiveSum(ip[:20]), "IP header checksum")
	} else {
		l4, proto = ip[40:], ip[6]
		require.Equal(t, len(l4), int(binary.BigEndian.Uint16(ip[4:])))
	}
	return naiveSum(append(naivePseudo(ip, proto, len(l4)), l4...)) == 0xffff
}

func randomPayload(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func TestParseTrain(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, test := range []struct {
		name    string
		sample  sample
		segs    int
		wire    int64
		ipBytes int
	}{
		{"full segment", sample{options: 12, size: 1448, payload: 1448}, 1, 1538, 1500},
		{"acknowledgement", sample{options: 12, size: 1448}, 1, 90, 52},
		{"minimum frame", sample{udp: true, size: 1448, payload: 1}, 1, 84, 29},
		{"train", sample{options: 12, size: 1448, payload: 44 * 1448}, 44, 44 * 1538, 44 * 1500},
		{"ragged train", sample{options: 12, size: 1448, payload: 2*1448 + 100}, 3, 2*1538 + 190, 2*1500 + 152},
		{"train over IPv6", sample{v6: true, options: 12, size: 1428, payload: 3 * 1428}, 3, 3 * 1538, 3 * 1500},
		{"UDP train", sample{udp: true, size: 1452, payload: 5 * 1452}, 5, 5 * 1518, 5 * 1480},
	} {
		pkt := test.sample.packet(randomPayload(rng, test.sample.payload))
		tr := parseTrain(pkt)
		require.Equal(t, test.segs, tr.segs, test.name)
		require.Equal(t, test.wire, tr.wire(0, tr.segs), test.name)
		require.Equal(t, test.ipBytes, tr.ipBytes(0, tr.segs), test.name)
	}
}

// A packet that can't be cut is one segment, whatever its headers claim.
func TestParseTrainHostile(t *testing.T) {
	good := sample{options: 12, size: 1448, payload: 5 * 1448}.packet(make([]byte, 5*1448))
	for name, spoil := range map[string]func([]byte) []byte{
		"cut short":             func(p []byte) []byte { return p[:vnetLen+30] },
		"no segment size":       func(p []byte) []byte { p[4], p[5] = 0, 0; return p },
		"header start far away": func(p []byte) []byte { p[6], p[7] = 0xff, 0xff; return p },
		"header without data":   func(p []byte) []byte { return p[:vnetLen+52] },
		"unknown kind":          func(p []byte) []byte { p[1] = 9; return p },
	} {
		pkt := spoil(bytes.Clone(good))
		tr := parseTrain(pkt)
		require.Equal(t, 1, tr.segs, name)
		require.Equal(t, len(pkt)-vnetLen, tr.ipBytes(0, 1), name)
	}
}

func TestCut(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 300 {
		s := sample{
			v6: rng.IntN(2) == 0, udp: rng.IntN(4) == 0, options: 4 * rng.IntN(11), size: 1 + rng.IntN(1500),
			flags: byte(rng.Uint32()), id: uint16(rng.Uint32()), seq: rng.Uint32(),
		}
		s.payload = s.size + 1 + rng.IntN(min(60*s.size, 60000-s.size))
		payload := randomPayload(rng, s.payload)
		pkt := s.packet(payload)
		if rng.IntN(2) == 0 { // as a host forwards it: the first bytes of the payload are with the header
			binary.NativeEndian.PutUint16(pkt[2:], uint16(len(pkt)-vnetLen))
		}
		tr := parseTrain(pkt)
		name := fmt.Sprintf("round %d: %+v", round, s)
		require.Equal(t, (s.payload+s.size-1)/s.size, tr.segs, name)

		// A shorter train from the middle, cut again, gives the same segments as the whole train.
		a := rng.IntN(tr.segs - 1)
		b := a + 1 + rng.IntN(tr.segs-a)
		var part []byte
		{
			var hdr [maxHeader]byte
			n, body := tr.cut(hdr[:], pkt, a, b)
			part = append(bytes.Clone(hdr[:n]), body...)
		}
		sub := parseTrain(part)
		require.Equal(t, b-a, sub.segs, name)
		for i := a; i < b; i++ {
			var whole, again [maxHeader]byte
			n, body := tr.cut(whole[:], pkt, i, i+1)
			require.Equal(t, payload[i*s.size:min((i+1)*s.size, len(payload))], body, name)
			want := append(bytes.Clone(whole[:n]), body...)
			got := part
			if sub.segs > 1 {
				m, rest := sub.cut(again[:], part, i-a, i-a+1)
				got = append(bytes.Clone(again[:m]), rest...)
			}
			require.Equal(t, want, got, name)
			require.LessOrEqual(t, int(binary.NativeEndian.Uint16(got[2:])), len(got)-vnetLen, name) // the kernel rejects more

			complete(whole[:n], body)
			seg := append(bytes.Clone(whole[:n]), body...)
			requireIntact(t, seg)
			ip := seg[vnetLen:]
			if !s.v6 {
				require.Equal(t, s.id+uint16(i), binary.BigEndian.Uint16(ip[4:]), name)
			}
			if l4 := seg[tr.l4:]; !s.udp {
				want := s.flags
				if i > 0 {
					want &^= tcpCWR
				}
				if i < tr.segs-1 {
					want &^= tcpFIN | tcpPSH
				}
				require.Equal(t, want, l4[13], name)
				require.Equal(t, s.seq+uint32(i*s.size), binary.BigEndian.Uint32(l4[4:]), name)
			}
		}
	}
}

func TestSum(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		b := randomPayload(rng, rng.IntN(100))
		// Both forms of zero are the same in ones' complement.
		require.Equal(t, naiveSum(b)%0xffff, fold(sum(0, b))%0xffff)
	}
}
