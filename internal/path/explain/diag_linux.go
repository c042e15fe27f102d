package explain

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The layouts are those of include/uapi/linux/inet_diag.h and sock_diag.h.
const (
	requestSize = 56 // struct inet_diag_req_v2
	messageSize = 72 // struct inet_diag_msg

	memReceiveBuffer = 1 // SK_MEMINFO_RCVBUF
	memSendBuffer    = 3 // SK_MEMINFO_SNDBUF
)

// states are those of include/net/tcp_states.h in which a connection moves data: established,
// fin-wait-1, fin-wait-2, close-wait, last-ack, closing.
const states = 1<<1 | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 1<<11

// request asks for all TCP sockets of a family.
type request struct{ family uint8 }

func (r *request) Len() int { return requestSize }

func (r *request) Serialize() []byte {
	b := make([]byte, requestSize)
	b[0], b[1] = r.family, unix.IPPROTO_TCP
	b[2] = 1<<(netlink.INET_DIAG_INFO-1) | 1<<(netlink.INET_DIAG_CONG-1) | 1<<(netlink.INET_DIAG_SKMEMINFO-1)
	binary.NativeEndian.PutUint32(b[4:], states)
	return b
}

// dump reads all TCP connections of this thread's network namespace.
func dump() (all []reading, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		req.AddData(&request{family})
		err := req.ExecuteIter(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY, func(msg []byte) bool {
			if r, ok := parseMessage(msg); ok {
				all = append(all, r)
			}
			return true
		})
		// The next look sees what an interrupted dump has missed.
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) && family == unix.AF_INET {
			return nil, fmt.Errorf("%w: sock_diag: %w", ErrUnsupported, err)
		}
	}
	return all, nil
}

// parseMessage reads a struct inet_diag_msg and its attributes.
func parseMessage(b []byte) (r reading, ok bool) {
	if len(b) < messageSize {
		return r, false
	}
	native := binary.NativeEndian
	r.local, r.remote = endOf(b[0], b[4:6], b[8:24]), endOf(b[0], b[6:8], b[24:40])
	r.cookie = native.Uint64(b[44:])
	r.unread, r.inode = int64(native.Uint32(b[56:])), native.Uint32(b[68:])
	attributes, err := nl.ParseRouteAttr(b[messageSize:])
	if err != nil {
		return r, false
	}
	for _, a := range attributes {
		switch a.Attr.Type {
		case netlink.INET_DIAG_INFO:
			r.addInfo(a.Value)
			ok = true
		case netlink.INET_DIAG_CONG:
			r.control = strings.TrimRight(string(a.Value), "\x00")
		case netlink.INET_DIAG_SKMEMINFO:
			if len(a.Value) >= 4*(memSendBuffer+1) {
				r.rcvBuf, r.sndBuf = int64(native.Uint32(a.Value[4*memReceiveBuffer:])), int64(native.Uint32(a.Value[4*memSendBuffer:]))
			}
		}
	}
	return r, ok
}

func endOf(family uint8, port, address []byte) netip.AddrPort {
	if family == unix.AF_INET {
		address = address[:4]
	}
	ip, _ := netip.AddrFromSlice(address) // 4 or 16 bytes
	return netip.AddrPortFrom(ip.Unmap(), binary.BigEndian.Uint16(port))
}

// addInfo adds a struct tcp_info, of which an older kernel knows only the beginning.
func (r *reading) addInfo(b []byte) {
	var t unix.TCPInfo
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&t)), unsafe.Sizeof(t)), b)
	micros := func(n uint64) time.Duration { return time.Duration(n) * time.Microsecond }
	millis := func(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }
	r.mss, r.rcvMSS, r.pmtu = int64(t.Snd_mss), int64(t.Rcv_mss), int64(t.Pmtu)
	r.inFlight, r.notSent, r.cwnd = int64(t.Unacked)*r.mss, int64(t.Notsent_bytes), int64(t.Snd_cwnd)*r.mss
	r.sndWnd, r.rcvWnd = int64(t.Snd_wnd), int64(t.Rcv_wnd)
	r.rtt, r.rcvRTT = micros(uint64(t.Rtt)), micros(uint64(t.Rcv_rtt))
	if t.Min_rtt != math.MaxUint32 { // there is a sample
		r.minRTT = micros(uint64(t.Min_rtt))
	}
	r.busy, r.rwnd, r.sndbuf = micros(t.Busy_time), micros(t.Rwnd_limited), micros(t.Sndbuf_limited)
	r.sinceSent, r.sinceReceived = millis(t.Last_data_sent), millis(t.Last_data_recv)
	r.acked, r.received = int64(t.Bytes_acked), int64(t.Bytes_received)
	r.segments, r.retrans, r.asked = int64(t.Data_segs_out), int64(t.Total_retrans), int64(t.Data_segs_in)
	r.spurious, r.reordered = int64(t.Dsack_dups), int64(t.Reord_seen)
	if rate := t.Max_pacing_rate; rate < math.MaxInt64/8 && rate != math.MaxUint32 {
		r.paceLimit = int64(rate) * 8
	}
}
