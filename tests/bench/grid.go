package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/path/lab"
)

// grid is a set of scenarios that are shown together.
type grid struct {
	name      string
	title     string
	about     string
	measure   measure
	scenarios []scenario
}

// measure is the quantity in which a grid shows its results.
type measure int

const (
	goodput    measure = iota // bit/s, compared with the limit of the line
	roundTrips                // time of the whole command in RTTs
	hostCost                  // GB/s, and CPU seconds per GB
	treeTime                  // seconds of the whole command, and files per second
	narrowTime                // seconds of the whole command, and the share of rsync's time
	transports                // QUIC beside TCP: bit/s, and the CPU seconds per GB of either end
)

// scenario is a pair of hosts and the data moved between them. Its tests take turns.
type scenario struct {
	link  lab.Link // without a rate: the loopback of one host
	hosts setup
	tests []test
}

// setup is how the two hosts are configured.
type setup int

const (
	asIs         setup = iota // as this machine is
	stockLimits               // buffer limits of Linux before 6.17
	stockCubic                // the same, cubic, and BBR is not allowed
	cubicDefault              // as this machine is, with cubic as default and with BBR allowed
)

// test is one row of a table.
type test struct {
	load  payload
	flags []string      // for fxfer, in addition to the automatic settings
	stop  time.Duration // fxfer is stopped after this time, and its total time is computed; 0: never
	peers []string      // the other programs that take part
	reps  int           // runs of fxfer as an ordinary user
	extra int           // runs of fxfer with CAP_NET_ADMIN
	auto  bool          // as many more runs of fxfer with --compress auto
	whole bool          // other programs run to their end, however long that takes
	again bool          // after each run, programs that compare run once more with nothing left to do
}

// payload is what a test moves. It is either files in one folder or a tree.
type payload struct {
	files   int
	size    int64 // bytes of each file; in a tree of text the mean
	folders int   // of a tree, with equally many files in each
	text    bool  // in a tree: text in files of many sizes instead of random bytes
}

const (
	pageSize  = 4096
	inodeSize = 1024 // about how much a file takes in tmpfs besides its pages
)

func (p payload) tree() bool   { return p.folders > 0 }
func (p payload) bytes() int64 { return int64(p.files) * p.size }

// room returns the memory that the files take, at the source and at the target.
func (p payload) room() int64 {
	return int64(p.files) * ((p.size+pageSize-1)/pageSize*pageSize + inodeSize)
}

func (p payload) String() string {
	switch {
	case p.text:
		return fmt.Sprintf("%s files of text, %s", showCount(p.files), showSize(p.bytes()))
	case p.tree():
		return fmt.Sprintf("%s × %d KiB", showCount(p.files), p.size/kib)
	}
	return fmt.Sprintf("%d × %s", p.files, showSize(p.size))
}

const (
	kib  = 1024
	mb   = 1_000_000
	gb   = 1000 * mb
	mbit = 1_000_000
	gbit = 1000 * mbit

	storyTime = 8 * time.Second // fxfer runs this long with the small buffers of a user story
)

func wan(rate int64, rtt time.Duration, loss float64) lab.Link {
	return lab.Link{Rate: rate, RTT: rtt, Loss: loss, Seed: 7}
}

var grids = []grid{
	{
		name: "seeds", title: "Two field stories", measure: goodput,
		about: "A DVD image over 1 Gbit/s × 10 ms took 15 minutes with programs that keep 64 KiB in flight. The backup over 15 ms moved 10 Mbit/s " +
			"with a window of 17,520 bytes. With these socket buffers fxfer is as slow as they were. It is stopped after a few seconds, and its time is computed.",
		scenarios: []scenario{
			{link: wan(gbit, 10*time.Millisecond, 0), hosts: stockLimits, tests: []test{
				{load: payload{files: 1, size: 4700 * mb}, reps: 3, extra: 1},
				{load: payload{files: 1, size: 4700 * mb}, flags: []string{"--sock-buf", "64KiB", "--streams", "1"}, stop: storyTime, reps: 1},
			}},
			{link: wan(gbit, 15*time.Millisecond, 0), tests: []test{
				{load: payload{files: 1, size: 2500 * mb}, reps: 3, extra: 1},
				{load: payload{files: 1, size: 2500 * mb}, flags: []string{"--sock-buf", "17520", "--streams", "1"}, stop: storyTime, reps: 1},
			}},
		},
	},
	{
		name: "rtt", title: "Rate and distance", measure: goodput,
		about: "Two processors carry both ends, the encryption, the digests and the emulated line, so at 10 Gbit/s these rows compare their work.",
		scenarios: []scenario{
			{link: wan(gbit, 10*time.Millisecond, 0), tests: []test{halfFile(filePeers)}},
			{link: wan(gbit, 50*time.Millisecond, 0), tests: []test{oneFile, tenFiles}},
			{link: wan(gbit, 120*time.Millisecond, 0), tests: []test{oneFile, tenFiles}},
			{link: wan(10*gbit, 10*time.Millisecond, 0), tests: []test{fourFiles}},
			{link: wan(10*gbit, 50*time.Millisecond, 0), tests: []test{fourFiles}},
		},
	},
	{
		name: "loss", title: "Loss", measure: goodput,
		about: "Segments are lost at random, each way. Stock hosts have cubic, allow no other congestion control but reno, and have the buffer limits of Linux before 6.17.",
		scenarios: []scenario{
			lossy(0.0001, asIs, filePeers), lossy(0.001, asIs, nil), lossy(0.01, asIs, filePeers),
			lossy(0, stockCubic, filePeers), lossy(0.0001, stockCubic, nil),
		},
	},
	{
		name: "short", title: "Short and cold", measure: roundTrips,
		about: "The time of the whole command in round trips, from the start of the process to its end.",
		scenarios: []scenario{{link: wan(gbit, 100*time.Millisecond, 0), tests: []test{
			{load: payload{files: 1, size: 1 * mb}, peers: filePeers, reps: 5, extra: 5},
			{load: payload{files: 1, size: 10 * mb}, peers: filePeers, reps: 5, extra: 5},
		}}},
	},
	{
		name: "narrow", title: "Narrow and far", measure: narrowTime,
		about: "290 KB over a modem, over ISDN and over slow DSL, near and by satellite, with queues of 8, 16 and 64 KiB before the line. The time of the whole command, cold. " +
			"The handshakes of many streams at once would fill such a queue for half a minute.",
		scenarios: narrow(),
	},
	{
		name: "host", title: "The host alone", measure: hostCost,
		about: "Over the loopback of one host. CPU seconds are those of the whole machine.",
		scenarios: []scenario{{tests: []test{
			{load: payload{files: 1, size: 2000 * mb}, peers: filePeers, reps: 5, extra: 3},
		}}},
	},
	{
		name: "trees", title: "Trees", measure: treeTime,
		about: "The time of the whole command, from the start of the process until the last file has its name, and how many files a second that makes. " +
			"\"Again\" is the same command once more, which finds nothing to do. Contenders without a projection are repeated as often as fxfer. " +
			"After fxfer's first run all content is compared with the source. Without flags fxfer doesn't compress.",
		scenarios: []scenario{
			{link: wan(gbit, 50*time.Millisecond, 0), tests: []test{
				{load: payload{files: 10_000, size: 4 * kib, folders: 10}, peers: treePeers, reps: 3},
			}},
			{tests: []test{
				{load: payload{files: 1_000_000, size: kib, folders: 1000}, peers: []string{"tar", "rsync"}, reps: 3, again: true},
			}},
			{link: wan(100*mbit, 20*time.Millisecond, 0), tests: []test{
				{load: payload{files: 2048, size: 32 * kib, folders: 16, text: true}, reps: 5, auto: true},
				{load: payload{files: 512, size: 128 * kib, folders: 16}, reps: 5, auto: true},
			}},
		},
	},
	{
		name: "transports", title: "QUIC and TCP", measure: transports,
		about: "fxfer with `--transport quic` and with `--transport tcp` in turn. CPU seconds are those of the sender's and of the receiver's process, user and system. " +
			"Segments are lost at random, each way; the line's queue drops its tail.",
		scenarios: []scenario{
			{link: wan(gbit, 10*time.Millisecond, 0), tests: []test{longFile}},
			{link: wan(gbit, 50*time.Millisecond, 0), tests: []test{longFile}},
			{link: wan(gbit, 120*time.Millisecond, 0), tests: []test{longFile}},
			{link: wan(gbit, 50*time.Millisecond, 0.0001), tests: []test{longFile}},
			{link: wan(gbit, 50*time.Millisecond, 0.001), tests: []test{longFile}},
			{link: wan(300*mbit, 80*time.Millisecond, 0), tests: []test{{load: payload{files: 1, size: 800 * mb}, reps: 3}}},
			{tests: []test{{load: payload{files: 1, size: 2000 * mb}, reps: 3}}},
		},
	},
}

var (
	filePeers = []string{"lftp", "rsync", "scp", "smbclient", "rclone"}
	treePeers = []string{"tar", "lftp", "rsync", "scp", "rclone"}

	// These take more than 20 s at 1 Gbit/s.
	oneFile  = test{load: payload{files: 1, size: 2500 * mb}, peers: filePeers, reps: 3, extra: 1}
	tenFiles = test{load: payload{files: 10, size: 250 * mb}, reps: 3}
	longFile = test{load: payload{files: 1, size: 2500 * mb}, reps: 3}

	fourFiles = test{load: payload{files: 4, size: 1000 * mb}, peers: filePeers, reps: 3, extra: 1}
)

func halfFile(peers []string) test {
	return test{load: payload{files: 1, size: 1250 * mb}, peers: peers, reps: 3, extra: 1}
}

// narrow returns lines of 9.6 to 512 kbit/s.
func narrow() (all []scenario) {
	for _, rate := range []int64{9600, 26_400, 64_000, 128_000, 512_000} {
		for _, rtt := range []time.Duration{150 * time.Millisecond, 700 * time.Millisecond} {
			for _, queue := range []int64{8, 16, 64} {
				link := wan(rate, rtt, 0)
				link.Buffer = queue * kib
				all = append(all, scenario{link: link, tests: []test{
					{load: payload{files: 1, size: 290_000}, peers: []string{"rsync"}, whole: true, reps: 3},
				}})
			}
		}
	}
	return all
}

func lossy(loss float64, h setup, peers []string) scenario {
	return scenario{link: wan(gbit, 50*time.Millisecond, loss), hosts: h, tests: []test{halfFile(peers)}}
}

// scaled returns the scenario with reps runs, if reps is positive. Quick scenarios have small
// payloads and single runs, which is enough to see that everything works.
func (sc scenario) scaled(reps int, quick bool) scenario {
	tests := slices.Clone(sc.tests)
	for i := range tests {
		t := &tests[i]
		if quick {
			if t.load.size > 100*mb {
				t.load.size /= 20
			}
			if t.load.files > 10_000 {
				t.load.files /= 20
			}
			t.stop /= 2
			t.reps, t.extra = 1, min(t.extra, 1)
		}
		if reps > 0 {
			t.reps, t.extra = reps, min(t.extra, reps)
		}
	}
	sc.tests = tests
	return sc
}

// rowName describes t in the scenario. The flag -rows selects rows by it.
func (sc scenario) rowName(t test) string {
	var parts []string
	if sc.link.Rate == 0 {
		parts = append(parts, "loopback")
	} else {
		parts = append(parts, showRate(float64(sc.link.Rate))+" × "+showMillis(sc.link.RTT))
	}
	if sc.link.Buffer > 0 {
		parts = append(parts, fmt.Sprintf("queue %d KiB", sc.link.Buffer/kib))
	}
	if sc.link.Loss > 0 {
		parts = append(parts, "loss "+strconv.FormatFloat(sc.link.Loss*100, 'g', -1, 64)+" %")
	}
	switch sc.hosts {
	case stockLimits:
		parts = append(parts, "stock limits")
	case stockCubic:
		parts = append(parts, "stock hosts")
	case asIs, cubicDefault:
	}
	parts = append(parts, t.load.String())
	if len(t.flags) > 0 {
		parts = append(parts, strings.Join(t.flags, " "))
	}
	return strings.Join(parts, ", ")
}

func showMillis(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'g', 4, 64) + " ms"
}

// showCount formats n with a comma before each group of three digits.
func showCount(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func showSize(bytes int64) string {
	if bytes >= gb {
		return strconv.FormatFloat(float64(bytes)/gb, 'g', 4, 64) + " GB"
	}
	return strconv.FormatFloat(float64(bytes)/mb, 'g', 4, 64) + " MB"
}

func showRate(bits float64) string {
	switch {
	case bits >= gbit:
		return strconv.FormatFloat(bits/gbit, 'g', 3, 64) + " Gbit/s"
	case bits >= 99.95*mbit:
		return strconv.FormatFloat(bits/mbit, 'f', 0, 64) + " Mbit/s"
	case bits < mbit:
		return strconv.FormatFloat(bits/1000, 'g', 3, 64) + " kbit/s"
	}
	return strconv.FormatFloat(bits/mbit, 'f', 1, 64) + " Mbit/s"
}
