package faults

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// opKind is the kind of an op.
type opKind uint8

const (
	opCreate     opKind = iota // a new file gets the name path
	opWrite                    // data at off
	opZero                     // size zeros at off, within the file
	opResize                   // to size
	opExtend                   // to size, unless it is larger
	opUnlink                   // remove path, which is a file or an empty folder
	opRename                   // from path to to
	opLink                     // the file gets the name path, too
	opMkdir                    // path
	opSyncFile                 // the content of the file
	opSyncFolder               // the names in the folder path
	opSyncAll                  // everything
)

// op is one change below a folder, or a sync. Paths are relative to the folder, which is ".".
type op struct {
	kind      opKind
	node      int // the file, from 1 up
	path, to  string
	off, size int64
	data      []byte
	from      int // a sync covers the ops that had ended when it began: those before this one
}

// recorder traces a process with ptrace(2) and records how it changes the content and names of
// files below dir. It records an op when its system call has returned. A sync begins only after the
// calls of all ops that it covers have returned.
type recorder struct {
	dir     string
	pid     int
	memory  *os.File
	files   map[fileKey]int
	last    int // node
	pending map[int]call
	ops     []op
	count   atomic.Int64  // of ops
	ended   chan struct{} // closed at the end; read the rest only after that
	status  unix.WaitStatus
	err     error
}

// fileKey identifies a file while it exists.
type fileKey struct{ dev, ino uint64 }

// call is a system call under way.
type call struct {
	nr   uint64
	args [6]uint64
	op   op
	ok   bool // the recorder records this call
}

// syscallInfo is struct ptrace_syscall_info of ptrace(2).
type syscallInfo struct {
	op     uint8
	_      [3]byte
	arch   uint32
	ip, sp uint64
	nr     uint64 // at exit, the result
	args   [6]uint64
}

// record starts c and traces it. The caller must not wait for c. Files that dir contains already
// have the nodes in known.
func record(c *exec.Cmd, dir string, known map[fileKey]int) (*recorder, error) {
	r := &recorder{dir: dir, files: known, last: len(known), pending: map[int]call{}, ended: make(chan struct{})}
	c.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Setpgid: true}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: only this thread may trace, and it ends with the goroutine
		defer close(r.ended)
		err := c.Start()
		if err == nil {
			r.pid = c.Process.Pid
			err = r.attach()
		}
		started <- err
		if err == nil {
			r.err = r.trace()
			r.memory.Close()
		}
	}()
	return r, <-started
}

// attach waits for the stop after execve.
func (r *recorder) attach() error {
	var status unix.WaitStatus
	if _, err := unix.Wait4(r.pid, &status, unix.WALL, nil); err != nil {
		return fmt.Errorf("wait for the traced process: %w", err)
	}
	if err := unix.PtraceSetOptions(r.pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACEEXEC|unix.PTRACE_O_EXITKILL); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	if err := r.open(); err != nil {
		return err
	}
	return unix.PtraceSyscall(r.pid, 0)
}

// open opens the memory of the program that the process executes now: a server that was built with
// cgo executes itself once more.
func (r *recorder) open() (err error) {
	if r.memory != nil {
		r.memory.Close()
	}
	clear(r.pending)
	r.memory, err = os.Open(fmt.Sprintf("/proc/%d/mem", r.pid))
	return err
}

// trace runs until the process has ended.
func (r *recorder) trace() error {
	known := map[int]bool{r.pid: true} // threads
	for {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-r.pid, &status, unix.WALL, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for the traced process: %w", err)
		}
		if !status.Stopped() {
			if tid == r.pid {
				r.status = status
				return nil
			}
			continue
		}
		deliver := 0
		switch s := status.StopSignal(); {
		case s == unix.SIGTRAP|0x80:
			r.stopped(tid)
		case s == unix.SIGTRAP && status.TrapCause() == unix.PTRACE_EVENT_EXEC:
			if err := r.open(); err != nil {
				return err
			}
		case s == unix.SIGTRAP: // a new thread
		case s == unix.SIGSTOP && !known[tid]: // a new thread stops first
		default:
			deliver = int(s)
		}
		known[tid] = true
		if err := unix.PtraceSyscall(tid, deliver); err != nil && err != unix.ESRCH { // the thread was killed
			return fmt.Errorf("trace: %w", err)
		}
	}
}

// stopped handles a thread at the beginning or the end of a system call.
func (r *recorder) stopped(tid int) {
	var info syscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return // the thread was killed
	}
	defer func() { r.count.Store(int64(len(r.ops))) }()
	switch info.op {
	case unix.PTRACE_SYSCALL_INFO_ENTRY:
		c := call{nr: info.nr, args: info.args}
		if r.begin(&c); c.ok {
			r.pending[tid] = c
		}
	case unix.PTRACE_SYSCALL_INFO_EXIT:
		c, ok := r.pending[tid]
		delete(r.pending, tid)
		if result := int64(info.nr); ok && result >= 0 {
			r.end(c, result)
		}
	}
}

// begin reads everything that exists only before the call.
func (r *recorder) begin(c *call) {
	fd := int(int32(c.args[0]))
	switch c.nr {
	case unix.SYS_OPENAT:
		c.ok = c.args[2]&unix.O_CREAT != 0 || isUnnamed(c)
	case unix.SYS_WRITE, unix.SYS_PWRITE64:
		c.op = op{kind: opWrite, node: r.node(fd), off: int64(c.args[3])}
		if c.ok = c.op.node != 0; !c.ok {
			return
		}
		if c.nr == unix.SYS_WRITE {
			c.op.off = r.position(fd)
		}
		c.op.data = make([]byte, c.args[2])
		_, err := r.memory.ReadAt(c.op.data, int64(c.args[1]))
		r.note(err)
	case unix.SYS_FTRUNCATE:
		c.op = op{kind: opResize, node: r.node(fd), size: int64(c.args[1])}
		c.ok = c.op.node != 0
	case unix.SYS_FALLOCATE:
		c.op = op{kind: opExtend, node: r.node(fd), off: int64(c.args[2]), size: int64(c.args[2] + c.args[3])}
		c.ok = c.op.node != 0
		switch mode := c.args[1]; {
		case mode&unix.FALLOC_FL_PUNCH_HOLE != 0:
			c.op.kind, c.op.size = opZero, int64(c.args[3])
		case mode&unix.FALLOC_FL_KEEP_SIZE != 0:
			c.ok = false
		}
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		c.op = op{kind: opSyncFile, node: r.node(fd), from: len(r.ops)}
		if c.ok = c.op.node != 0; !c.ok {
			c.op.kind = opSyncFolder
			c.op.path, c.ok = r.fdPath(fd)
		}
	case unix.SYS_SYNCFS:
		_, c.ok = r.fdPath(fd)
		c.op = op{kind: opSyncAll, from: len(r.ops)}
	case unix.SYS_UNLINKAT:
		c.op.kind = opUnlink
		c.op.path, c.ok = r.at(fd, c.args[1])
	case unix.SYS_MKDIRAT:
		c.op.kind = opMkdir
		c.op.path, c.ok = r.at(fd, c.args[1])
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		var to bool
		c.op.kind = opRename
		c.op.path, c.ok = r.at(fd, c.args[1])
		c.op.to, to = r.at(int(int32(c.args[2])), c.args[3])
		if c.ok != to {
			r.note(fmt.Errorf("%q was renamed across the border to %q", c.op.path, c.op.to))
		}
	case unix.SYS_LINKAT:
		c.op.kind = opLink
		c.op.path, c.ok = r.at(int(int32(c.args[2])), c.args[3])
	}
}

// isUnnamed reports whether an openat makes a file without a name.
func isUnnamed(c *call) bool { return c.args[2]&unix.O_TMPFILE == unix.O_TMPFILE }

// end records a call that succeeded.
func (r *recorder) end(c call, result int64) {
	switch c.nr {
	case unix.SYS_OPENAT:
		path, ok := r.fdPath(int(result))
		if !ok {
			return
		}
		key, _ := statOf(r.link(int(result)))
		node, known := r.files[key]
		if isUnnamed(&c) { // its first name comes as a link
			r.last++
			r.files[key] = r.last
			return
		}
		if !known || c.args[2]&unix.O_EXCL != 0 { // otherwise the number may belong to a file that is gone
			r.last++
			node = r.last
			r.files[key] = node
			r.ops = append(r.ops, op{kind: opCreate, node: node, path: path})
		}
		if c.args[2]&unix.O_TRUNC != 0 {
			r.ops = append(r.ops, op{kind: opResize, node: node})
		}
		return
	case unix.SYS_WRITE, unix.SYS_PWRITE64:
		c.op.data = c.op.data[:result]
	case unix.SYS_LINKAT:
		key, _ := statOf(filepath.Join(r.dir, c.op.path))
		c.op.node = r.files[key]
	}
	r.ops = append(r.ops, c.op)
}

func (r *recorder) note(err error) {
	if r.err == nil {
		r.err = err
	}
}

// node returns the file of a descriptor, or 0 if the file is not below the folder.
func (r *recorder) node(fd int) int {
	key, ok := statOf(r.link(fd))
	if !ok {
		return 0
	}
	return r.files[key]
}

func (r *recorder) link(fd int) string { return fmt.Sprintf("/proc/%d/fd/%d", r.pid, fd) }

func statOf(name string) (fileKey, bool) {
	var st unix.Stat_t
	err := unix.Stat(name, &st)
	return fileKey{st.Dev, st.Ino}, err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

// fdPath returns the path of a descriptor, if that is below the folder.
func (r *recorder) fdPath(fd int) (string, bool) {
	name, err := os.Readlink(r.link(fd))
	if err != nil {
		return "", false
	}
	return r.below(name)
}

// at returns the path that a call names by the descriptor of a folder and a string in memory.
func (r *recorder) at(fd int, address uint64) (string, bool) {
	b := make([]byte, unix.PathMax)
	n, _ := r.memory.ReadAt(b, int64(address)) // the read may stop at the end of a page
	name, _, found := bytes.Cut(b[:n], []byte{0})
	if !found {
		return "", false
	}
	if filepath.IsAbs(string(name)) {
		return r.below(string(name))
	}
	folder := fmt.Sprintf("/proc/%d/cwd", r.pid)
	if fd != unix.AT_FDCWD {
		folder = r.link(fd)
	}
	above, err := os.Readlink(folder)
	if err != nil {
		return "", false
	}
	return r.below(filepath.Join(above, string(name)))
}

func (r *recorder) below(name string) (string, bool) {
	rest, err := filepath.Rel(r.dir, name)
	return rest, err == nil && rest != ".." && !strings.HasPrefix(rest, "../")
}

// position returns the offset of the next write(2).
func (r *recorder) position(fd int) (pos int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", r.pid, fd))
	r.note(err)
	_, err = fmt.Sscanf(string(text), "pos: %d", &pos)
	r.note(err)
	return pos
}

// kill ends the process and returns when the record is complete.
func (r *recorder) kill() {
	_ = unix.Kill(r.pid, unix.SIGKILL)
	<-r.ended
}

// inodes returns the number in the file system of each file that had a name last.
func (r *recorder) inodes() map[int]uint64 {
	all := map[int]uint64{}
	for key, node := range r.files {
		all[node] = key.ino
	}
	return all
}

// beside has the content of a checkpoint file name another inode, if it names this one: the partial file
// is a copy. See internal/disk/checkpoint.go for the format.
func beside(b []byte, partial, copied uint64) {
	const inode, sum = 320, 508
	table := crc32.MakeTable(crc32.Castagnoli)
	if len(b) < sum+4 || binary.LittleEndian.Uint32(b[sum:]) != crc32.Checksum(b[:sum], table) || binary.LittleEndian.Uint64(b[inode:]) != partial {
		return
	}
	binary.LittleEndian.PutUint64(b[inode:], copied)
	binary.LittleEndian.PutUint32(b[sum:], crc32.Checksum(b[:sum], table))
}

// bootless changes the content of a checkpoint file to that of an earlier boot, because a power cut
// ends the present one.
func bootless(b []byte) {
	const header, record = 512, 48
	table := crc32.MakeTable(crc32.Castagnoli)
	for index := uint64(0); header+(index+1)*record <= uint64(len(b)); index++ {
		r := b[header+index*record:][:record]
		var seed [16]byte
		copy(seed[:], b[48:56])
		binary.LittleEndian.PutUint64(seed[8:], index)
		sum := func() uint32 { return crc32.Update(crc32.Checksum(seed[:], table), table, r[:44]) }
		if binary.LittleEndian.Uint32(r[44:]) != sum() {
			return
		}
		if r[0] == 4 { // the boot
			r[12] ^= 0xff
			binary.LittleEndian.PutUint32(r[44:], sum())
		}
	}
}
