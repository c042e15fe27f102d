package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A lab that stays up is held by a process that serves a control socket. The socket has an abstract name (unix(7)), so
// that no file is left when the process is killed, and both sides check that the other belongs to the same user. It is
// open in the hosts of the lab too.
//
// A connection carries one request: a byte, with the three standard files of the command attached if it is an exec, and
// a JSON request. The reply is JSON. During an exec more requests may follow, each with a signal to pass on.

type request struct {
	Op     string         `json:"op"` // set, exec, down
	Change *Change        `json:"change,omitempty"`
	Side   string         `json:"side,omitempty"` // left, right
	Path   string         `json:"path,omitempty"`
	Args   []string       `json:"args,omitempty"`
	Env    []string       `json:"env,omitempty"`
	Dir    string         `json:"dir,omitempty"`
	Signal syscall.Signal `json:"signal,omitempty"`
}

type reply struct {
	Error    string      `json:"error,omitempty"`
	Code     int         `json:"code,omitempty"`
	Counters [2]Counters `json:"counters"`
}

const (
	stopGrace    = 3 * time.Second
	requestLimit = 10 * time.Second
)

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$`)

func controlAddr(name string) (*net.UnixAddr, error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("lab name %q: %w", name, ErrName)
	}
	uid, err := outerUID()
	if err != nil {
		return nil, err
	}
	return &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("@fxfer-lab-%d-%s", uid, name)}, nil
}

// outerUID returns the user's ID outside the user namespace that Elevate made, if any.
func outerUID() (int, error) {
	uid := os.Geteuid()
	f, err := os.Open("/proc/self/uid_map")
	if errors.Is(err, os.ErrNotExist) {
		return uid, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find the user's ID: %w", err)
	}
	defer f.Close()
	var inside, outside, size int
	for {
		if _, err := fmt.Fscan(f, &inside, &outside, &size); err != nil {
			return uid, nil
		}
		if uid >= inside && uid-inside < size {
			return outside + uid - inside, nil
		}
	}
}

// checkPeer fails unless the process at the other end runs as this user.
func checkPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if credErr != nil {
		return fmt.Errorf("read the peer's identity: %w", credErr)
	}
	if int(cred.Uid) != os.Geteuid() {
		return errors.New("the control socket belongs to another user")
	}
	return nil
}

// Control is the server side of a named lab.
type Control struct {
	addr     *net.UnixAddr
	listener *net.UnixListener
}

// ListenControl reserves the name for a lab of this user. The caller closes it or calls Serve.
func ListenControl(name string) (*Control, error) {
	addr, err := controlAddr(name)
	if err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", addr)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("lab %s is up already", name)
	}
	if err != nil {
		return nil, fmt.Errorf("open the control socket: %w", err)
	}
	return &Control{addr: addr, listener: l}, nil
}

// Close frees the name.
func (c *Control) Close() error { return c.listener.Close() }

// listenIn opens the control socket in the hosts of l too: abstract names belong to a network
// namespace, and a command in the lab may want to change the link.
func (c *Control) listenIn(l *Lab) ([]*net.UnixListener, error) {
	listeners := []*net.UnixListener{c.listener}
	for _, h := range l.hosts {
		err := h.Do(func() error {
			ln, err := net.ListenUnix("unix", c.addr)
			if err == nil {
				listeners = append(listeners, ln)
			}
			return err
		})
		if err != nil {
			return listeners, fmt.Errorf("open the control socket in the lab: %w", err)
		}
	}
	return listeners, nil
}

// Serve handles requests for l until a request or ctx ends it. Then it closes l and c.
func (c *Control) Serve(ctx context.Context, l *Lab) error {
	ctx, down := context.WithCancel(ctx)
	defer down()
	listeners, err := c.listenIn(l)
	if err != nil {
		down()
	}
	context.AfterFunc(ctx, func() {
		for _, ln := range listeners {
			_ = ln.Close()
		}
	})
	var loops, conns sync.WaitGroup
	var mu sync.Mutex           // guards leaving and err
	var leaving []*net.UnixConn // connections that asked for the end
	for _, ln := range listeners {
		loops.Go(func() {
			defer down()
			for {
				conn, acceptErr := ln.AcceptUnix()
				if acceptErr != nil {
					if ctx.Err() == nil {
						mu.Lock()
						err = errors.Join(err, fmt.Errorf("accept on the control socket: %w", acceptErr))
						mu.Unlock()
					}
					return
				}
				conns.Go(func() {
					if checkPeer(conn) != nil || c.handle(ctx, l, conn) {
						conn.Close()
						return
					}
					mu.Lock()
					leaving = append(leaving, conn)
					mu.Unlock()
					down()
				})
			}
		})
	}
	loops.Wait()
	err = errors.Join(err, l.Close())
	conns.Wait()
	last := newReply(l, err)
	for _, conn := range leaving {
		_ = json.NewEncoder(conn).Encode(last) // the client may be gone
		conn.Close()
	}
	return err
}

func newReply(l *Lab, err error) reply {
	var r reply
	r.Counters[0], r.Counters[1] = l.Counters()
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// handle serves one connection. It returns false if the client asked for the end of the lab.
func (c *Control) handle(ctx context.Context, l *Lab, conn *net.UnixConn) bool {
	if conn.SetDeadline(time.Now().Add(requestLimit)) != nil {
		return true
	}
	files, err := receiveFiles(conn)
	if err != nil {
		return true
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	in := json.NewDecoder(conn)
	var req request
	if in.Decode(&req) != nil || conn.SetDeadline(time.Time{}) != nil {
		return true
	}
	var answer reply
	switch {
	case req.Op == "down":
		return false
	case req.Op == "set" && req.Change != nil:
		answer = newReply(l, l.Set(*req.Change))
	case req.Op == "exec" && len(files) == 3:
		code, err := execute(ctx, l, req, files, in)
		answer = newReply(l, err)
		answer.Code = code
	default:
		answer = newReply(l, fmt.Errorf("the lab's process doesn't know the request %q", req.Op))
	}
	_ = json.NewEncoder(conn).Encode(answer) // the client may be gone
	return true
}

// execute runs the command of req until the command ends or the client disconnects.
func execute(ctx context.Context, l *Lab, req request, files []*os.File, in *json.Decoder) (int, error) {
	host := l.Left
	if req.Side == "right" {
		host = l.Right
	}
	cmd := host.Command(context.WithoutCancel(ctx), req.Path)
	cmd.Args, cmd.Dir = req.Args, req.Dir
	cmd.Env = slices.Concat(req.Env, l.environ())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[2]
	cmd.Detach()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	done := make(chan struct{})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			var more request
			if in.Decode(&more) != nil {
				return
			}
			if more.Signal > 0 {
				_ = unix.Kill(-cmd.Process.Pid, more.Signal) // it may have ended
			}
		}
	}()
	go func() {
		select {
		case <-gone:
			cmd.Stop(done, stopGrace)
		case <-done:
		}
	}()
	err := cmd.Wait()
	close(done)
	return exitCode(err)
}

// receiveFiles reads the first byte of a request and the files attached to it.
func receiveFiles(conn *net.UnixConn) ([]*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(3*4))
	_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return nil, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "stdio"+strconv.Itoa(len(files))))
		}
	}
	return files, nil
}

// Client speaks to a named lab of this user.
type Client struct {
	name string
	addr *net.UnixAddr
}

// Dial returns a client for the named lab, or an error if there is none. It need not be closed.
func Dial(name string) (*Client, error) {
	addr, err := controlAddr(name)
	if err != nil {
		return nil, err
	}
	c := &Client{name: name, addr: addr}
	conn, err := c.connect()
	if err != nil {
		return nil, err
	}
	return c, conn.Close()
}

func (c *Client) connect() (*net.UnixConn, error) {
	conn, err := net.DialUnix("unix", nil, c.addr)
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, fmt.Errorf("%w %s", ErrNoLab, c.name)
	}
	if err != nil {
		return nil, fmt.Errorf("reach lab %s: %w", c.name, err)
	}
	if err := checkPeer(conn); err != nil {
		conn.Close()
		return nil, fmt.Errorf("reach lab %s: %w", c.name, err)
	}
	return conn, nil
}

// Set changes the lab's link, like Lab.Set.
func (c *Client) Set(change Change) error {
	_, err := c.ask(request{Op: "set", Change: &change}, nil, nil)
	return err
}

// Down ends the lab and everything that runs in it. It returns the counters when the lab is gone.
func (c *Client) Down() (leftToRight, rightToLeft Counters, err error) {
	r, err := c.ask(request{Op: "down"}, nil, nil)
	return r.Counters[0], r.Counters[1], err
}

// Exec runs a command on the host side, left or right, with this process' input, output,
// environment, working directory and signals. It returns the command's exit code, or 128 + n if
// signal n ended it.
func (c *Client) Exec(side string, args ...string) (int, error) {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return 0, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return 0, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	defer signal.Stop(signals)
	r, err := c.ask(request{Op: "exec", Side: side, Path: path, Args: args, Env: os.Environ(), Dir: dir},
		unix.UnixRights(0, 1, 2), signals)
	return r.Code, err
}

// ask sends a request with attached files. It passes signals on until the reply arrives, and
// returns that.
func (c *Client) ask(req request, rights []byte, signals <-chan os.Signal) (reply, error) {
	conn, err := c.connect()
	if err != nil {
		return reply{}, err
	}
	defer conn.Close()
	if _, _, err := conn.WriteMsgUnix([]byte{0}, rights, nil); err != nil {
		return reply{}, fmt.Errorf("ask lab %s: %w", c.name, err)
	}
	out := json.NewEncoder(conn)
	if err := out.Encode(req); err != nil {
		return reply{}, fmt.Errorf("ask lab %s: %w", c.name, err)
	}
	type result struct {
		reply
		err error
	}
	answer := make(chan result, 1)
	go func() {
		var r result
		r.err = json.NewDecoder(conn).Decode(&r.reply)
		answer <- r
	}()
	for {
		select {
		case s := <-signals:
			// An error needs no handling: the missing reply shows a broken connection.
			_ = out.Encode(request{Op: "signal", Signal: s.(syscall.Signal)})
		case r := <-answer:
			if errors.Is(r.err, io.EOF) {
				return r.reply, fmt.Errorf("lab %s ended", c.name)
			}
			if r.err != nil {
				return r.reply, fmt.Errorf("ask lab %s: %w", c.name, r.err)
			}
			if r.Error != "" {
				return r.reply, errors.New(r.Error)
			}
			return r.reply, nil
		}
	}
}
