package explain

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/fxfer/fxfer/internal/path/diagnose"
)

// ErrNoCapture matches the errors of Capture about files of another format.
var ErrNoCapture = errors.New("this is not a capture in the format pcap or pcapng")

const (
	// traced is the most connections of a capture that are judged. Each takes up to 600 KiB.
	traced = 128
	// noticed is the most connections of a capture that are counted.
	noticed = 4096
	// worthy is how many bytes a connection has moved when its samples are kept.
	worthy = 8 << 10
)

// packets reads the packets of a capture, one after the other.
type packets interface {
	ZeroCopyReadPacketData() ([]byte, gopacket.CaptureInfo, error)
	LinkType() layers.LinkType
}

func openCapture(in io.Reader) (packets, error) {
	buffered := bufio.NewReaderSize(in, 1<<20)
	magic, err := buffered.Peek(4)
	if err != nil {
		return nil, ErrNoCapture
	}
	var p packets
	if bytes.Equal(magic, []byte{0x0a, 0x0d, 0x0d, 0x0a}) {
		p, err = pcapgo.NewNgReader(buffered, pcapgo.NgReaderOptions{WantMixedLinkType: true, SkipUnknownVersion: true})
	} else {
		p, err = pcapgo.NewReader(buffered)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoCapture, err)
	}
	return p, nil
}

// table has the connections of a capture.
type table struct {
	began  time.Time
	at     time.Duration // of the last packet
	all    map[[2]netip.AddrPort]*traffic
	kept   int // that keep samples
	more   int
	others int64 // packets that are no TCP
}

// Capture reads a capture and judges its connections. A capture that ends in the middle of a packet
// is judged up to there. Memory does not depend on its size.
func Capture(ctx context.Context, in io.Reader, name string) (*Report, error) {
	p, err := openCapture(in)
	if err != nil {
		return nil, err
	}
	t := table{all: make(map[[2]netip.AddrPort]*traffic)}
	note := ""
	for n := 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		b, info, err := p.ZeroCopyReadPacketData()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			note = fmt.Sprintf("the capture is damaged after %d packets: %v", n, err)
			break
		}
		link := p.LinkType()
		if len(info.AncillaryData) > 0 { // pcapng can have several interfaces
			if l, ok := info.AncillaryData[0].(layers.LinkType); ok {
				link = l
			}
		}
		if n == 0 {
			t.began = info.Timestamp
		}
		t.at = max(t.at, info.Timestamp.Sub(t.began))
		s, ok := decodeFrame(link, b, info.Length)
		if !ok {
			t.others++
			continue
		}
		s.at = t.at
		t.add(&s)
	}
	return t.report(name, note), nil
}

// add gives a segment to its connection.
func (t *table) add(s *segment) {
	key := [2]netip.AddrPort{s.from, s.to}
	if cmp.Or(s.from.Addr().Compare(s.to.Addr()), cmp.Compare(s.from.Port(), s.to.Port())) > 0 {
		key[0], key[1] = key[1], key[0]
	}
	c := t.all[key]
	if c == nil || s.syn && !s.isAck && c.over(s) {
		if c == nil && len(t.all) >= noticed {
			t.more++
			return
		}
		if c != nil && c.kept { // the same ports once more: the first one is forgotten
			t.kept--
		}
		c = newTraffic(s)
		t.all[key] = c
	}
	if !c.kept && c.moved() >= worthy {
		if t.kept >= traced {
			if !c.left {
				c.left = true
				t.more++
			}
			return
		}
		c.kept = true
		t.kept++
	}
	c.add(s)
}

func (t *table) report(name, note string) *Report {
	r := &Report{What: name, Length: t.at, More: t.more}
	for _, c := range t.all {
		if x := c.connection(t.at); x.Moved() > 0 && (len(x.Cells) > 0 || c.kept) {
			r.Connections = append(r.Connections, x)
		}
	}
	slices.SortFunc(r.Connections, func(a, b Connection) int { // the order of a map is random
		return cmp.Or(cmp.Compare(b.Moved(), a.Moved()), a.Local.Compare(b.Local), a.Remote.Compare(b.Remote))
	})
	r.judge()
	if note != "" {
		r.Notes = append(r.Notes, note)
	}
	if t.others > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d packets were no TCP", t.others))
	}
	return r
}

// connection judges the direction that moved more.
func (c *traffic) connection(end time.Duration) Connection {
	x := Connection{Local: c.ends[0].addr, Remote: c.ends[1].addr, Sent: c.ends[0].fresh, Received: c.ends[1].fresh}
	x.Service = service(x.Local.Port(), x.Remote.Port())
	x.Sends = x.Sent >= x.Received
	from, to := &c.ends[0], &c.ends[1]
	if !x.Sends {
		from, to = to, from
	}
	c.flush(end)
	x.Packets = c.packets(from, to)
	s := &diagnose.Session{Sender: from.samples.All(), SenderHost: from.host(), ReceiverHost: to.host(), Seen: diagnose.Sender}
	if c.opened && (from.scale < 0 || to.scale < 0) {
		s.SenderHost.NoScaling, s.ReceiverHost.NoScaling = off(from.scale < 0), off(to.scale < 0)
	}
	x.judge(s)
	return x
}

func off(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
