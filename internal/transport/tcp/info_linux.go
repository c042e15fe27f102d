package tcp

import (
	"math"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/internal/transport/socket"
	"github.com/fxfer/fxfer/internal/transport/stream"
)

// tcpStates are in the order of include/net/tcp_states.h, from 1.
var tcpStates = [...]string{
	"", "established", "syn-sent", "syn-received", "fin-wait-1", "fin-wait-2", "time-wait", "closed",
	"close-wait", "last-ack", "listen", "closing", "syn-received",
}

func infoOf(raw syscall.RawConn) (stream.Info, bool) {
	var info stream.Info
	err := socket.Control(raw, func(fd int) error {
		t, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return err
		}
		info = fromTCPInfo(t)
		info.Congestion, _ = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		info.SndBuf, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
		info.RcvBuf, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
		if info.Congestion == "bbr" {
			if b, err := unix.GetsockoptTCPCCBBRInfo(fd, unix.IPPROTO_TCP, unix.TCP_CC_INFO); err == nil {
				info.BBR = &stream.BBRInfo{
					Bandwidth:  float64(uint64(b.Bw_hi)<<32 | uint64(b.Bw_lo)),
					MinRTT:     micros(b.Min_rtt),
					PacingGain: float64(b.Pacing_gain) / 256, // BBR_UNIT in net/ipv4/tcp_bbr.c
					CwndGain:   float64(b.Cwnd_gain) / 256,
				}
			}
		}
		return nil
	})
	return info, err == nil
}

// fromTCPInfo translates struct tcp_info of include/uapi/linux/tcp.h.
func fromTCPInfo(t *unix.TCPInfo) stream.Info {
	mss := int(t.Snd_mss)
	info := stream.Info{
		RTT: micros(t.Rtt), MinRTT: micros(t.Min_rtt), RTTVar: micros(t.Rttvar),
		SndMSS: mss, PMTU: int(t.Pmtu), Reordering: int(t.Reordering),
		Cwnd: int(t.Snd_cwnd) * mss, SndWnd: int(t.Snd_wnd), RcvWnd: int(t.Rcv_wnd), RcvSpace: int(t.Rcv_space),
		InFlight: int(t.Unacked) * mss, Flying: (int(t.Unacked) - int(t.Sacked) - int(t.Lost) + int(t.Retrans)) * mss,
		NotSent:    int(t.Notsent_bytes),
		BytesAcked: t.Bytes_acked, BytesSent: t.Bytes_sent, BytesReceived: t.Bytes_received, BytesRetrans: t.Bytes_retrans,
		Delivered:   uint64(t.Delivered),
		RetransSegs: uint64(t.Total_retrans), DataSegs: uint64(t.Data_segs_out), DataSegsIn: uint64(t.Data_segs_in),
		SpuriousSegs: uint64(t.Dsack_dups), Reordered: uint64(t.Reord_seen),
		DeliveryRate: float64(t.Delivery_rate), PacingRate: float64(t.Pacing_rate),
		// The field has one bit, in the byte before tcpi_rto that unix.TCPInfo leaves as padding.
		AppLimited: (*[8]byte)(unsafe.Pointer(t))[7]&1 != 0,
		BusyTime:   time.Duration(t.Busy_time) * time.Microsecond, RwndLimited: time.Duration(t.Rwnd_limited) * time.Microsecond,
		SndbufLimited: time.Duration(t.Sndbuf_limited) * time.Microsecond,
	}
	// tcpi_options has the TCPI_OPT_ flags. The next byte has two scales of 4 bits.
	info.Timestamps, info.SACK = t.Options&1 != 0, t.Options&2 != 0
	info.WindowScaling, info.ECN = t.Options&4 != 0, t.Options&8 != 0
	scales := (*[8]byte)(unsafe.Pointer(t))[6]
	info.SndScale, info.RcvScale = int(scales&15), int(scales>>4)
	info.RcvMSS, info.AdvMSS = int(t.Rcv_mss), int(t.Advmss)
	if t.Pacing_rate == math.MaxUint64 {
		info.PacingRate = math.Inf(1)
	}
	if t.Min_rtt == math.MaxUint32 { // no sample yet
		info.MinRTT = 0
	}
	if int(t.State) < len(tcpStates) {
		info.State = tcpStates[t.State]
	}
	return info
}

func micros(n uint32) time.Duration { return time.Duration(n) * time.Microsecond }
