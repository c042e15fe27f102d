package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/fxfer/fxfer/internal/path/lab"
)

const stopGrace = 3 * time.Second // after SIGTERM

// stage is a pair of hosts with servers on them. Data moves from the sender to the receiver, which
// may be the same host.
type stage struct {
	*folder
	lab      *lab.Lab
	loopback bool
	rtt      time.Duration

	sender, receiver         *lab.Host
	senderAddr, receiverAddr netip.Addr

	undo func() error
}

// newStage starts the lab of a scenario. The caller closes the stage.
func newStage(f *folder, sc scenario) (*stage, error) {
	link := sc.link
	if link.Rate == 0 {
		link.Rate = gbit // nothing crosses it
	}
	l, err := lab.Start(link)
	if err != nil {
		return nil, err
	}
	undo, err := setUpHosts(l, sc.hosts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up the hosts: %w", err), l.Close())
	}
	s := &stage{folder: f, lab: l, rtt: link.RTT, sender: l.Left, receiver: l.Right, undo: undo}
	s.senderAddr, s.receiverAddr = l.Left.Addr(), l.Right.Addr()
	if sc.link.Rate == 0 {
		local := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		s.loopback, s.receiver, s.senderAddr, s.receiverAddr = true, l.Left, local, local
	}
	return s, nil
}

// close stops the servers, removes the lab and restores the limits of the machine.
func (s *stage) close() error { return errors.Join(s.lab.Close(), s.undo()) }

// quiesce waits until nothing has crossed the link for a while. Otherwise packets of a stopped
// command would disturb the next command.
func (s *stage) quiesce(ctx context.Context) {
	if s.loopback {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	look := time.NewTicker(200*time.Millisecond + s.rtt)
	defer look.Stop()
	before := int64(-1)
	for {
		there, back := s.lab.Counters()
		now := there.Sent + there.Delivered + back.Sent + back.Delivered
		if now == before {
			return
		}
		before = now
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

func hostPort(a netip.Addr, port int) string { return a.String() + ":" + strconv.Itoa(port) }
