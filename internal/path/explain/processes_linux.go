package explain

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
)

// processes knows the sockets of a process and its children.
type processes struct {
	root    int
	names   map[uint32]string // of the processes that have these sockets, by inode
	checked map[uint32]bool   // inodes that were there at the last scan
	at      time.Duration
}

// again is how often a socket is looked for that belonged to others.
const again = time.Second

// owns reports whether a socket belongs to the processes.
func (p *processes) owns(r *reading) (program string, ok bool) {
	program, ok = p.names[r.inode]
	return program, ok && r.inode != 0
}

// gone reports whether the process has ended.
func (p *processes) gone() bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", p.root))
	return errors.Is(err, fs.ErrNotExist)
}

// update scans anew if there are sockets that nobody knows.
func (p *processes) update(at time.Duration, sockets []reading) {
	fresh := p.checked == nil || at-p.at >= again
	for i := range sockets {
		fresh = fresh || !p.checked[sockets[i].inode]
	}
	if !fresh {
		return
	}
	_ = p.scan() // the process may have ended meanwhile
	p.at, p.checked = at, make(map[uint32]bool, len(sockets))
	for i := range sockets {
		p.checked[sockets[i].inode] = true
	}
}

// scan finds the sockets of the process and its children. A child that this user may not look at is
// left out.
func (p *processes) scan() error {
	found, err := sockets(p.root)
	if err != nil {
		return err
	}
	p.names = make(map[uint32]string)
	p.add(p.root, found)
	for todo := children(p.root); len(todo) > 0; todo = todo[1:] {
		if found, err := sockets(todo[0]); err == nil {
			p.add(todo[0], found)
		}
		todo = append(todo, children(todo[0])...)
	}
	return nil
}

func (p *processes) add(pid int, inodes []uint32) {
	if len(inodes) == 0 {
		return
	}
	name := programName(pid)
	for _, inode := range inodes {
		if p.names[inode] == "" {
			p.names[inode] = name
		}
	}
}

// sockets returns the inodes of the sockets that a process has open.
func sockets(pid int) (inodes []uint32, err error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNoProcess
	case errors.Is(err, fs.ErrPermission):
		return nil, ErrForbidden
	case err != nil:
		return nil, err
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // it is closed
		}
		if text, ok := strings.CutPrefix(target, "socket:["); ok {
			if n, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 32); err == nil {
				inodes = append(inodes, uint32(n))
			}
		}
	}
	return inodes, nil
}

// children returns the processes that a process has started and that still run.
func children(pid int) (pids []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is right
	for _, t := range tasks {
		text, _ := os.ReadFile(t) // the thread may have ended
		for f := range bytes.FieldsSeq(text) {
			if n, err := strconv.Atoi(string(f)); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// programName is the name of a process with its id.
func programName(pid int) string {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // it may have ended
	return fmt.Sprintf("%s (process %d)", bytes.TrimSpace(name), pid)
}

// thisHost has the limits of socket buffers on this host.
func thisHost() diagnose.Host {
	h := diagnose.Host{Name: "this host"}
	read := func(name string, values ...*int64) {
		text, _ := os.ReadFile("/proc/sys/net/ipv4/" + name) // 0 is unknown
		for i, f := range strings.Fields(string(text)) {
			if i < len(values) {
				*values[i], _ = strconv.ParseInt(f, 10, 64)
			}
		}
	}
	read("tcp_rmem", &h.RmemMin, &h.RmemDefault, &h.RmemMax)
	read("tcp_wmem", &h.WmemMin, &h.WmemDefault, &h.WmemMax)
	on := int64(1)
	read("tcp_window_scaling", &on)
	h.NoScaling = 1 - min(on, 1)
	return h
}
