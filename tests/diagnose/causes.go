package main

import (
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

const (
	kib  = 1 << 10
	mib  = 1 << 20
	mbit = 1_000_000

	span    = 5 * time.Second // planned length of a trial
	largest = 600 * mib       // most bytes to send
)

// cause is something that limits a transfer, and what fxfer should say about it.
type cause struct {
	name  string
	about string // what the trial does, for the report
	right []answer
	trial func(r *draws) trial
}

// answer is a short verdict.
type answer struct {
	limiter diagnose.Limiter
	side    diagnose.Side
}

// trial is one transfer from the left host to the right one, with a cause that limits it.
type trial struct {
	link  lab.Link
	get   bool // the right host is the client
	bytes int64
	files int // number of files that the bytes are spread over; 0 is one

	left, right, machine []hosts.Setting
	flags, serverFlags   []string
	source, target       disk
	leftCPU, rightCPU    float64       // share of one processor that fxfer may use; 0 is all processors
	stdin                int64         // bytes/s that a program feeds to fxfer; 0: fxfer sends a file
	cross                *lab.Cross    // others on the line, nil for none
	initcwnd             int           // of the left host's route; 0 is the default
	later                time.Duration // time after which the link loses its PMTU or all packets; 0: before the transfer
	down                 time.Duration // how long all packets vanish then; 0: they do not
	fails                bool          // the transfer may fail
}

// draws makes the random choices of one row and seed.
type draws struct{ *rand.Rand }

func newDraws(row string, seed uint64) *draws {
	h := fnv.New64a()
	_, _ = h.Write([]byte(row)) // never fails
	return &draws{rand.New(rand.NewPCG(seed, h.Sum64()))}
}

func (r *draws) between(low, high int64) int64 { return low + r.Int64N(high-low+1) }

// line draws a path of 300 to 1000 Mbit/s and 20 to 60 ms.
func (r *draws) line() lab.Link {
	return lab.Link{Rate: r.between(300, 1000) * mbit, RTT: r.millis(20, 60), Seed: r.Uint64()}
}

// wide draws a path on which a small window is far too small.
func (r *draws) wide() lab.Link {
	return lab.Link{Rate: r.between(500, 1000) * mbit, RTT: r.millis(30, 60), Seed: r.Uint64()}
}

func (r *draws) millis(low, high int64) time.Duration {
	return time.Duration(r.between(low*1000, high*1000)) * time.Microsecond
}

// bytesAt returns how many bytes to send at a goodput in bit/s, so that the trial has its planned
// length.
func bytesAt(bitsPerSecond float64) int64 {
	return max(256*kib, min(largest, int64(bitsPerSecond/8*span.Seconds())))
}

// payloadLimit is the goodput of TCP on a line: 1538 bytes on Ethernet carry a segment of 1448.
func payloadLimit(rate int64) float64 { return float64(rate) * 1448 / 1538 }

// windowLimit is the goodput of n streams with a window of this many bytes each.
func windowLimit(window int64, n int, rtt time.Duration) float64 {
	return float64(window) * 8 * float64(n) / rtt.Seconds()
}

// shared is a transfer beside others who were there first. It expects that part of the line.
func shared(r *draws, others lab.Cross, part float64) trial {
	l := lab.Link{Rate: r.between(30, 100) * mbit, RTT: r.millis(10, 20), Seed: r.Uint64()}
	return trial{link: l, machine: loseEarly, cross: &others, bytes: 4 * bytesAt(part*payloadLimit(l.Rate))}
}

func setting(name string, values ...int64) hosts.Setting {
	s := hosts.Setting{Name: name}
	for i, v := range values {
		if i > 0 {
			s.Value += " "
		}
		s.Value += strconv.FormatInt(v, 10)
	}
	return s
}

// stockMax are the limits of explicit socket buffers on most hosts. They are too low for a long
// path.
var stockMax = []hosts.Setting{setting("net/core/rmem_max", 212992), setting("net/core/wmem_max", 212992)}

// wideMax lets one stream's explicit buffers hold more than the BDP of each line here.
var wideMax = []hosts.Setting{setting("net/core/rmem_max", 16*mib), setting("net/core/wmem_max", 16*mib)}

// loseEarly allows everyone to use the congestion controls that take loss for congestion.
var loseEarly = []hosts.Setting{{Name: hosts.AllowedCC, Value: "reno cubic bbr"}}

// noProbing keeps the kernel from noticing a black hole.
var noProbing = []hosts.Setting{setting("net/ipv4/tcp_mtu_probing", 0)}

var causes = []cause{
	{
		name: "small tcp_rmem", about: "the receiving host's tcp_rmem ends at 192 to 512 KiB, rmem_max is 208 KiB; one or two streams",
		right: []answer{{diagnose.ReceiverWindow, diagnose.Receiver}},
		trial: func(r *draws) trial {
			l, n, most := r.wide(), int(r.between(1, 2)), r.between(192, 512)*kib
			return trial{link: l, machine: stockMax, right: []hosts.Setting{setting("net/ipv4/tcp_rmem", 4096, min(131072, most), most)},
				flags: []string{"--streams", strconv.Itoa(n)}, bytes: bytesAt(windowLimit(most/2, n, l.RTT))}
		},
	},
	{
		name: "small tcp_wmem", about: "the sending host's tcp_wmem ends at 128 to 416 KiB, wmem_max is 208 KiB; one or two streams",
		right: []answer{{diagnose.SenderBuffer, diagnose.Sender}},
		trial: func(r *draws) trial {
			l, n, most := r.wide(), int(r.between(1, 2)), r.between(128, 416)*kib
			return trial{link: l, machine: stockMax, left: []hosts.Setting{setting("net/ipv4/tcp_wmem", 4096, 16384, most)},
				flags: []string{"--streams", strconv.Itoa(n)}, bytes: bytesAt(windowLimit(most/2, n, l.RTT))}
		},
	},
	{
		name: "get, small tcp_rmem", about: "the same limit as in the first row, on the host of a client that gets",
		right: []answer{{diagnose.ReceiverWindow, diagnose.Receiver}},
		trial: func(r *draws) trial {
			l, n, most := r.wide(), int(r.between(1, 2)), r.between(192, 512)*kib
			return trial{link: l, get: true, machine: stockMax, right: []hosts.Setting{setting("net/ipv4/tcp_rmem", 4096, min(131072, most), most)},
				flags: []string{"--streams", strconv.Itoa(n)}, bytes: bytesAt(windowLimit(most/2, n, l.RTT))}
		},
	},
	{
		name: "--sock-buf, client", about: "`--sock-buf` of 64 to 128 KiB at the client, which sets it on both ends; one to four streams",
		right: []answer{{diagnose.ReceiverWindow, diagnose.Receiver}, {diagnose.SenderBuffer, diagnose.Sender}},
		trial: func(r *draws) trial {
			l, n, size := r.wide(), int(r.between(1, 4)), r.between(64, 128)*kib
			return trial{link: l, flags: []string{"--streams", strconv.Itoa(n), "--sock-buf", strconv.FormatInt(size, 10)}, bytes: bytesAt(windowLimit(size, n, l.RTT))}
		},
	},
	{
		name: "--sock-buf, server", about: "`--sock-buf` of 64 to 128 KiB at the receiving server; one to four streams",
		right: []answer{{diagnose.ReceiverWindow, diagnose.Receiver}},
		trial: func(r *draws) trial {
			l, n, size := r.wide(), int(r.between(1, 4)), r.between(64, 128)*kib
			return trial{link: l, flags: []string{"--streams", strconv.Itoa(n)}, serverFlags: []string{"--sock-buf", strconv.FormatInt(size, 10)},
				bytes: bytesAt(windowLimit(size, n, l.RTT))}
		},
	},
	{
		name: "loss, cubic", about: "0.5 % of the segments are lost at random, `--congestion cubic`, one to four streams",
		right: []answer{{diagnose.RandomLoss, diagnose.Path}},
		trial: func(r *draws) trial {
			l, n := r.line(), int(r.between(1, 4))
			l.Loss = 0.005
			return trial{link: l, machine: loseEarly, flags: []string{"--congestion", "cubic", "--streams", strconv.Itoa(n)},
				bytes: bytesAt(float64(n) * 1448 * 8 * 1.22 / l.RTT.Seconds() / 0.0707)}
		},
	},
	{
		name: "loss, cubic, automatic streams", about: "0.5 % of the segments are lost at random, `--congestion cubic`",
		right: []answer{{diagnose.RandomLoss, diagnose.Path}},
		trial: func(r *draws) trial {
			l := r.wide()
			l.Loss = 0.005
			return trial{link: l, machine: loseEarly, flags: []string{"--congestion", "cubic"}, bytes: bytesAt(20 * 1448 * 8 * 1.22 / l.RTT.Seconds() / 0.0707)}
		},
	},
	{
		name: "reordering", about: "0.2 to 0.5 % of the segments are overtaken; one stream of reno without timestamps. Linux before 6.17 sends them again; " +
			"later kernels wait, and fill the line",
		right: []answer{{diagnose.Reordering, diagnose.Path}, {diagnose.LineRate, diagnose.Path}},
		trial: func(r *draws) trial {
			l := r.wide()
			l.Reorder = float64(r.between(20, 50)) / 10000
			dull := []hosts.Setting{setting("net/ipv4/tcp_recovery", 0), setting("net/ipv4/tcp_max_reordering", 3), setting("net/ipv4/tcp_timestamps", 0)}
			return trial{link: l, machine: wideMax, left: dull, right: dull, flags: []string{"--congestion", "reno", "--streams", "1"}, bytes: bytesAt(500 * mbit)}
		},
	},
	{
		name: "the line", about: "a line of 150 to 250 Mbit/s",
		right: []answer{{diagnose.LineRate, diagnose.Path}},
		trial: func(r *draws) trial {
			l := r.line()
			l.Rate = r.between(150, 250) * mbit
			return trial{link: l, bytes: bytesAt(payloadLimit(l.Rate))}
		},
	},
	{
		name: "the line, cubic", about: "the same with `--congestion cubic`",
		right: []answer{{diagnose.LineRate, diagnose.Path}},
		trial: func(r *draws) trial {
			l := r.line()
			l.Rate = r.between(150, 250) * mbit
			return trial{link: l, machine: loseEarly, flags: []string{"--congestion", "cubic"}, bytes: bytesAt(payloadLimit(l.Rate))}
		},
	},
	{
		name: "deep queue", about: "80 to 120 Mbit/s × 15 to 25 ms with a queue of 3 to 6 MB, which fxfer leaves empty",
		right: []answer{{diagnose.LineRate, diagnose.Path}},
		trial: func(r *draws) trial {
			l := lab.Link{Rate: r.between(80, 120) * mbit, RTT: r.millis(15, 25), Buffer: r.between(3_000_000, 6_000_000), Seed: r.Uint64()}
			return trial{link: l, machine: loseEarly, flags: []string{"--congestion", "cubic"}, bytes: bytesAt(payloadLimit(l.Rate))}
		},
	},
	{
		name: "shared with a cubic flow", about: "a connection with cubic was there first",
		right: []answer{{diagnose.SharedLine, diagnose.Path}},
		trial: func(r *draws) trial { return shared(r, lab.Cross{Congestion: "cubic", Flows: 1}, 0.4) },
	},
	{
		name: "shared with several flows", about: "4 to 8 connections with cubic were there first",
		right: []answer{{diagnose.SharedLine, diagnose.Path}},
		trial: func(r *draws) trial {
			n := int(r.between(4, 8))
			return shared(r, lab.Cross{Congestion: "cubic", Flows: n}, 1.5/float64(n+1))
		},
	},
	{
		name: "own priority", about: "the same as with one flow, for 15 s, and fxfer has `--priority low`",
		right: []answer{{diagnose.OwnPriority, diagnose.Sender}},
		trial: func(r *draws) trial {
			t := shared(r, lab.Cross{Congestion: "cubic", Flows: 1, To: othersFirst + 3*span}, 0.1)
			t.flags = []string{"--priority", "low"}
			return t
		},
	},
	{
		name: "policed", about: "a policer drops what exceeds 30 to 60 Mbit/s of a line of 100 Mbit/s, and a burst of 128 KiB",
		right: []answer{{diagnose.Policed, diagnose.Path}},
		trial: func(r *draws) trial {
			l := lab.Link{Rate: 100 * mbit, RTT: r.millis(10, 20), Police: r.between(30, 60) * mbit, PoliceBurst: 128 * kib, Seed: r.Uint64()}
			return trial{link: l, bytes: 2 * bytesAt(payloadLimit(l.Police))}
		},
	},
	{
		name: "SACK off", about: "0.5 % of the segments are lost at random, and `tcp_sack` is 0 at the receiving host; four streams of BBR, which would fill the line",
		right: []answer{{diagnose.NoSACK, diagnose.Receiver}},
		trial: func(r *draws) trial {
			l := r.wide()
			l.Loss = 0.005
			return trial{link: l, machine: loseEarly, right: []hosts.Setting{setting("net/ipv4/tcp_sack", 0)}, flags: []string{"--streams", "4"}, bytes: bytesAt(100 * mbit)}
		},
	},
	{
		name: "--sock-buf above the BDP", about: "one stream with a `--sock-buf` of 3 to 4 times the BDP of 60 to 100 Mbit/s × 10 to 20 ms, and a queue as long",
		right: []answer{{diagnose.LineRate, diagnose.Path}},
		trial: func(r *draws) trial {
			l := lab.Link{Rate: r.between(60, 100) * mbit, RTT: r.millis(10, 20), BufferBDP: 4, Seed: r.Uint64()}
			size := r.between(30, 40) * int64(float64(l.Rate)/80*l.RTT.Seconds())
			return trial{link: l, machine: wideMax,
				flags: []string{"--streams", "1", "--sock-buf", strconv.FormatInt(size, 10)}, bytes: bytesAt(payloadLimit(l.Rate))}
		},
	},
	{
		name: "narrow line", about: "128 to 1024 kbit/s × 50 to 300 ms with a queue of 16 to 64 KiB",
		right: []answer{{diagnose.NarrowLine, diagnose.Path}},
		trial: func(r *draws) trial {
			l := lab.Link{Rate: r.between(128, 1024) * 1000, RTT: r.millis(50, 300), Buffer: r.between(16, 64) * kib, Seed: r.Uint64()}
			return trial{link: l, bytes: 3 * int64(payloadLimit(l.Rate)/8*span.Seconds())}
		},
	},
	{
		name: "outage", about: "all packets vanish for 4 to 8 s, from the second second of a transfer of 5 s over 50 to 100 Mbit/s × 10 to 20 ms on",
		right: []answer{{diagnose.Outage, diagnose.Path}},
		trial: func(r *draws) trial {
			l := lab.Link{Rate: r.between(50, 100) * mbit, RTT: r.millis(10, 20), Seed: r.Uint64()}
			return trial{link: l, later: 2 * time.Second, down: r.millis(4000, 8000), bytes: bytesAt(payloadLimit(l.Rate))}
		},
	},
	{
		name: "slow source disk", about: "the source lies on a disk that reads 5 to 15 MB/s",
		right: []answer{{diagnose.SourceDisk, diagnose.Sender}},
		trial: func(r *draws) trial {
			rate := r.between(5_000_000, 15_000_000)
			return trial{link: r.line(), source: disk{read: rate}, bytes: bytesAt(float64(rate) * 8)}
		},
	},
	{
		name: "get, slow source disk", about: "the same at a server that a client gets from",
		right: []answer{{diagnose.SourceDisk, diagnose.Sender}},
		trial: func(r *draws) trial {
			rate := r.between(5_000_000, 15_000_000)
			return trial{link: r.line(), get: true, source: disk{read: rate}, bytes: bytesAt(float64(rate) * 8)}
		},
	},
	{
		name: "slow to open", about: "1200 files on a disk that takes 4 to 8 ms to open each",
		right: []answer{{diagnose.SourceDisk, diagnose.Sender}},
		trial: func(r *draws) trial {
			return trial{link: r.line(), source: disk{open: r.millis(4, 8)}, files: 1200, bytes: 1200 * 8 * kib}
		},
	},
	{
		name: "slow target disk", about: "the target lies on a disk that writes 5 to 15 MB/s",
		right: []answer{{diagnose.TargetDisk, diagnose.Receiver}},
		trial: func(r *draws) trial {
			rate := r.between(5_000_000, 15_000_000)
			return trial{link: r.line(), target: disk{write: rate}, bytes: bytesAt(float64(rate) * 8)}
		},
	},
	{
		name: "sync", about: "300 files with `--sync file`, on a disk that takes 8 to 20 ms to sync",
		right: []answer{{diagnose.Sync, diagnose.Receiver}},
		trial: func(r *draws) trial {
			return trial{link: r.line(), target: disk{sync: r.millis(8, 20)}, files: 300, flags: []string{"--sync", "file"}, bytes: 300 * 32 * kib}
		},
	},
	{
		name: "slow sender CPU", about: "fxfer gets 2 to 4 % of a processor at the sending host",
		right: []answer{{diagnose.SenderCPU, diagnose.Sender}},
		trial: func(r *draws) trial {
			l, share := r.wide(), float64(r.between(20, 40))/1000
			return trial{link: l, leftCPU: share, bytes: bytesAt(share * 6e9)}
		},
	},
	{
		name: "slow receiver CPU", about: "fxfer gets 2.5 to 4.5 % of a processor at the receiving host",
		right: []answer{{diagnose.ReceiverCPU, diagnose.Receiver}},
		trial: func(r *draws) trial {
			l, share := r.wide(), float64(r.between(25, 45))/1000
			return trial{link: l, rightCPU: share, bytes: bytesAt(share * 5e9)}
		},
	},
	{
		name: "rate limit", about: "`--rate-limit` of 30 to 80 Mbit/s",
		right: []answer{{diagnose.RateLimit, diagnose.Sender}},
		trial: func(r *draws) trial {
			rate := r.between(30, 80)
			return trial{link: r.line(), flags: []string{"--rate-limit", strconv.FormatInt(rate, 10) + "mbit"}, bytes: bytesAt(float64(rate * mbit))}
		},
	},
	{
		name: "short transfer", about: "2 to 6 MB over 1 Gbit/s × 100 ms",
		right: []answer{{diagnose.SlowStart, diagnose.Path}, {diagnose.SlowStart, diagnose.Sender}},
		trial: func(r *draws) trial {
			return trial{link: lab.Link{Rate: 1000 * mbit, RTT: 100 * time.Millisecond, Seed: r.Uint64()}, bytes: r.between(2_000_000, 6_000_000)}
		},
	},
	{
		name: "small initcwnd", about: "the same with one stream, and a route whose initcwnd is 1 or 2",
		right: []answer{{diagnose.InitialWindow, diagnose.Sender}, {diagnose.InitialWindow, diagnose.Path}},
		trial: func(r *draws) trial {
			return trial{link: lab.Link{Rate: 1000 * mbit, RTT: 100 * time.Millisecond, Seed: r.Uint64()}, initcwnd: int(r.between(1, 2)),
				flags: []string{"--streams", "1"}, bytes: r.between(1_000_000, 2_000_000)}
		},
	},
	{
		name: "slow stdin", about: "a program feeds 4 to 12 MB/s to `fxfer send -`",
		right: []answer{{diagnose.Silent, diagnose.Sender}},
		trial: func(r *draws) trial {
			rate := r.between(4_000_000, 12_000_000)
			return trial{link: r.line(), stdin: rate, bytes: bytesAt(float64(rate) * 8)}
		},
	},
	{
		name: "MTU black hole", about: "packets above 1300 to 1450 bytes vanish without ICMP, `tcp_mtu_probing` 0",
		right: []answer{{diagnose.BlackHole, diagnose.Path}},
		trial: func(r *draws) trial {
			l := r.line()
			l.PMTU, l.BlackHole = int(r.between(1300, 1450)), true
			return trial{link: l, left: noProbing, right: noProbing, bytes: bytesAt(payloadLimit(l.Rate)) / 4, fails: true}
		},
	},
	{
		name: "MTU black hole, later", about: "the same from the second second of a transfer on",
		right: []answer{{diagnose.BlackHole, diagnose.Path}},
		trial: func(r *draws) trial {
			l := r.line()
			l.PMTU, l.BlackHole = int(r.between(1300, 1450)), true
			return trial{link: l, left: noProbing, right: noProbing, later: 2 * time.Second, bytes: bytesAt(payloadLimit(l.Rate)), fails: true}
		},
	},
}
