package explain

import (
	"errors"
	"net/netip"
	"os/exec"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
)

// Target is what Watch looks at. Exactly one field is set.
type Target struct {
	PID     int // a process, with its children
	Port    int // TCP connections with this port at either end
	Command *exec.Cmd
}

// Errors of Watch that the user can do something about.
var (
	ErrNoProcess = errors.New("there is no such process")
	ErrForbidden = errors.New("it belongs to another user")
)

// watched is the most connections that are followed. Each takes up to 600 KiB.
const watched = 128

// watch gathers looks at the sockets of a host. It is not safe for concurrent use.
type watch struct {
	ours    func(*reading) (program string, ok bool)
	follows map[uint64]*follow // by cookie
	idle    map[uint64]int64   // bytes that connections had moved which have not moved since
	order   []uint64
	more    map[uint64]bool // connections that moved data, and that there was no room for
	looks   int
}

func newWatch(ours func(*reading) (string, bool)) *watch {
	return &watch{ours: ours, follows: map[uint64]*follow{}, idle: map[uint64]int64{}, more: map[uint64]bool{}}
}

// look adds all sockets of the host at one moment.
func (w *watch) look(at time.Duration, sockets []reading) {
	type ends struct{ local, remote netip.AddrPort }
	byEnds := make(map[ends]*reading, len(sockets))
	for i := range sockets {
		byEnds[ends{sockets[i].local, sockets[i].remote}] = &sockets[i]
	}
	alive := make(map[uint64]bool, len(w.idle))
	for i := range sockets {
		r := &sockets[i]
		alive[r.cookie] = true
		peer := byEnds[ends{r.remote, r.local}]
		if f := w.follows[r.cookie]; f != nil {
			f.add(at, r, peer, false)
			continue
		}
		if program, ok := w.ours(r); ok && (peer == nil || w.follows[peer.cookie] == nil) {
			w.meet(at, r, peer, program)
		}
	}
	for cookie := range w.idle {
		if !alive[cookie] {
			delete(w.idle, cookie)
		}
	}
	w.looks++
}

// meet decides whether to follow a connection that belongs to the target: from the moment on at
// which it moves data.
func (w *watch) meet(at time.Duration, r, peer *reading, program string) {
	before, known := w.idle[r.cookie]
	if !known && w.looks == 0 || known && r.moved() == before || r.moved() == 0 {
		w.idle[r.cookie] = r.moved()
		return
	}
	if len(w.order) >= watched {
		w.more[r.cookie] = true
		return
	}
	delete(w.idle, r.cookie)
	f := &follow{program: program}
	f.add(at, r, peer, !known)
	w.follows[r.cookie] = f
	w.order = append(w.order, r.cookie)
}

// report judges the connections.
func (w *watch) report(what string, length time.Duration, here diagnose.Host) *Report {
	r := &Report{What: what, Length: length, More: len(w.more)}
	for _, cookie := range w.order {
		if c := w.follows[cookie].connection(here); c.Moved() > 0 && len(c.Cells) > 0 {
			r.Connections = append(r.Connections, c)
		}
	}
	r.judge()
	return r
}
