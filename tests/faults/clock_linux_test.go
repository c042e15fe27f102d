package faults

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A clock is the wall clock of a host, as its processes see it. The kernel has only one for all. So
// clockName starts the program: it hides the vDSO, which would return the time without a system
// call, and adds the number in a file to the kernel's answers. The file is in the program's home.
type clock struct{ file string }

const (
	clockName = "clocked" // argv[0]
	clockFile = "clock"   // in FXFER_HOME: ns to add, little-endian
)

func init() {
	if filepath.Base(os.Args[0]) == clockName {
		runtime.LockOSThread() // only this thread may trace
		code, err := clockMain()
		if err != nil {
			fmt.Fprintln(os.Stderr, clockName+":", err)
		}
		os.Exit(code)
	}
}

// set makes the clock differ by d from the real one.
func (c *clock) set(d time.Duration) error {
	f, err := os.OpenFile(c.file, os.O_WRONLY|os.O_CREATE, 0o644) // it is never empty after it was set
	if err != nil {
		return err
	}
	_, err = f.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(d)), 0)
	return errors.Join(err, f.Close())
}

// clocked gives both hosts clocks of their own.
func (t *trial) clocked() error {
	t.x.Program = clockName
	for i, home := range []string{"/server", "/client"} {
		t.clocks[i] = &clock{t.folder.Abs(t.x.Home + home + "/" + clockFile)}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	to := t.folder.Abs(clockName)
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	binary, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	// Trials run at the same time, and none may read half of the file.
	next := t.folder.Abs(t.dir + "/" + clockName)
	return errors.Join(os.WriteFile(next, binary, 0o755), os.Rename(next, to))
}

// TestClock checks that a program sees another time than this one.
func TestClock(t *testing.T) {
	t.Parallel()
	date, err := exec.LookPath("date")
	if err == nil {
		date, err = filepath.EvalSymlinks(date)
	}
	if err != nil || filepath.Base(date) != "date" {
		t.Skip("there is no date(1) that works under another name")
	}
	dir := t.TempDir()
	require.NoError(t, run("cp", date, filepath.Join(dir, "fxfer")))
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(dir, clockName)))
	c := &clock{filepath.Join(dir, clockFile)}
	for _, ahead := range []time.Duration{0, 25 * time.Hour, -25 * time.Hour} {
		require.NoError(t, c.set(ahead))
		cmd := exec.Command(filepath.Join(dir, clockName), "+%s")
		cmd.Env = append(os.Environ(), "FXFER_HOME="+dir)
		began := time.Now()
		out, err := cmd.CombinedOutput()
		if bytes.Contains(out, []byte("not permitted")) {
			t.Skipf("ptrace(2) is not permitted: %s", out)
		}
		require.NoError(t, err, "%s", out)
		said, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
		require.NoError(t, err)
		require.WithinDuration(t, began.Add(ahead), time.Unix(said, 0), time.Since(began)+time.Second)
	}
}

// clockMain runs the program with its arguments and a changeable clock. It returns the program's
// exit code.
func clockMain() (int, error) {
	program := filepath.Join(filepath.Dir(os.Args[0]), "fxfer")
	offset, err := os.OpenFile(filepath.Join(os.Getenv("FXFER_HOME"), clockFile), os.O_RDONLY|os.O_CREATE, 0o644)
	if err != nil {
		return 1, err
	}
	if err := stopAtClock(); err != nil {
		return 1, err
	}
	c := exec.Command(program, os.Args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := c.Start(); err != nil {
		return 1, err
	}
	t := &clockTracer{pid: c.Process.Pid, offset: offset}
	return t.run()
}

// stopAtClock makes the children of this thread stop for their tracer when they ask the kernel for
// the wall clock.
func stopAtClock() error {
	// In struct seccomp_data, the number of the call is at 0, the architecture at 4, and the lower
	// half of the first argument at 16.
	const nr, arg0 = 0, 16
	const load, equal, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: load, K: nr},
		{Code: equal, K: unix.SYS_CLOCK_GETTIME, Jf: 3},
		{Code: load, K: arg0},
		{Code: equal, K: unix.CLOCK_REALTIME, Jf: 1},
		{Code: answer, K: unix.SECCOMP_RET_TRACE},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program))); errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}

// clockTracer traces a program from its execve on.
type clockTracer struct {
	pid    int
	offset *os.File
	memory *os.File
	asked  map[int]uint64 // by thread: the address to which the kernel will write the time
}

func (t *clockTracer) run() (int, error) {
	var status unix.WaitStatus
	if _, err := unix.Wait4(t.pid, &status, unix.WALL, nil); err != nil { // the stop after execve
		return 1, err
	}
	options := unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_EXITKILL
	if err := unix.PtraceSetOptions(t.pid, options); err != nil {
		return 1, err
	}
	var err error
	if t.memory, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", t.pid), os.O_RDWR, 0); err != nil {
		return 1, err
	}
	if err := t.hideVDSO(); err != nil {
		return 1, err
	}
	t.asked = make(map[int]uint64)
	known := map[int]bool{t.pid: true}
	if err := unix.PtraceCont(t.pid, 0); err != nil {
		return 1, err
	}
	for {
		tid, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 1, err
		case status.Exited() && tid == t.pid:
			return status.ExitStatus(), nil
		case status.Signaled() && tid == t.pid:
			return 128 + int(status.Signal()), nil
		case !status.Stopped():
			continue
		}
		deliver, goOn := 0, unix.PtraceCont
		switch s := status.StopSignal(); {
		case s == unix.SIGTRAP && status.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
			if info, ok := infoOf(tid); ok {
				t.asked[tid] = info.args[1]
				goOn = unix.PtraceSyscall // until the kernel has answered
			}
		case s == unix.SIGTRAP|0x80:
			if err := t.answered(tid); err != nil {
				return 1, err
			}
		case s == unix.SIGTRAP: // a new thread
		case s == unix.SIGSTOP && !known[tid]: // a new thread stops first
		default:
			deliver = int(s)
		}
		known[tid] = true
		if err := goOn(tid, deliver); err != nil && !errors.Is(err, unix.ESRCH) { // the thread was killed
			return 1, err
		}
	}
}

func infoOf(tid int) (info syscallInfo, ok bool) {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	return info, errno == 0
}

// answered changes the time that the kernel has just returned to a thread.
func (t *clockTracer) answered(tid int) error {
	address := int64(t.asked[tid])
	delete(t.asked, tid)
	var b [16]byte // struct timespec
	if address == 0 {
		return nil
	}
	if _, err := t.memory.ReadAt(b[:], address); err != nil {
		return nil // the thread was killed
	}
	var file [8]byte
	if _, err := t.offset.ReadAt(file[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	ns := int64(binary.NativeEndian.Uint64(b[:]))*1e9 + int64(binary.NativeEndian.Uint64(b[8:])) + int64(binary.LittleEndian.Uint64(file[:]))
	binary.NativeEndian.PutUint64(b[:], uint64(ns/1e9))
	binary.NativeEndian.PutUint64(b[8:], uint64(ns%1e9))
	_, _ = t.memory.WriteAt(b[:], address)
	return nil
}

// hideVDSO hides the vDSO from a program that was just executed. The program would find it by
// getauxval(3).
func (t *clockTracer) hideVDSO() error {
	const atIgnore, atVDSO = 1, 33 // AT_IGNORE, AT_SYSINFO_EHDR of elf.h
	info, ok := infoOf(t.pid)
	if !ok {
		return errors.New("PTRACE_GET_SYSCALL_INFO fails")
	}
	at := int64(info.sp)
	word := func() (v uint64, err error) {
		var b [8]byte
		_, err = t.memory.ReadAt(b[:], at)
		at += 8
		return binary.NativeEndian.Uint64(b[:]), err
	}
	argc, err := word()
	at += 8 * int64(argc+1)
	for v := uint64(1); v != 0 && err == nil; { // skip the environment
		v, err = word()
	}
	for err == nil {
		var kind uint64
		if kind, err = word(); err == nil && kind == atVDSO {
			var b [8]byte
			binary.NativeEndian.PutUint64(b[:], atIgnore)
			_, err = t.memory.WriteAt(b[:], at-8)
			return err
		}
		if kind == 0 {
			return errors.New("there is no vDSO to hide")
		}
		at += 8
	}
	return err
}
