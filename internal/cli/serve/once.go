package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/ssh"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// once serves the one client whose request is the argument, or else comes on in. It ends when in ends
// or falls silent.
func once(parent context.Context, args []string, in io.Reader, out, errs io.Writer) error {
	late := time.AfterFunc(ssh.SilentAfter, func() { os.Exit(1) }) // nothing else ends a read of standard input
	defer late.Stop()
	r := bufio.NewReader(in)
	q, err := readRequest(args, r)
	if err != nil {
		return err
	}
	if q.Uploaded {
		removeSelf()
	}
	if q.Protocol != fxfer.ProtocolVersion {
		if err := ssh.WriteAnswer(out, &ssh.Answer{Protocol: fxfer.ProtocolVersion}); err != nil {
			return err
		}
		code, _ := strconv.Atoi(ssh.VersionDiffers)
		return exit.With(code)
	}
	client, here := connectionOfSSH(os.Getenv("SSH_CONNECTION"))
	server, a, err := oneTimeServer(q, client != "", errs)
	if err != nil {
		kind, _ := exit.Classify(err)
		_ = ssh.WriteAnswer(out, &ssh.Answer{Protocol: fxfer.ProtocolVersion, Error: err.Error(), Kind: kind})
		return exit.With(1)
	}
	// ssh may end while the client is to hear of a call. That must not end the process before the
	// server has ended.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := exit.Interruptible(parent)
	defer stop()
	ctx, end := context.WithCancel(ctx)
	defer end()
	a.Address, a.Calls = here, client != ""
	if err := ssh.WriteAnswer(out, a); err != nil {
		end()
	}
	late.Stop()
	go func() {
		defer end()
		c := caller{server: server, client: client, out: out, slots: make(chan struct{}, callsAtOnce)}
		heed(r, func(call *ssh.Call) { c.call(ctx, call) })
	}()
	return server.Serve(ctx)
}

func readRequest(args []string, r *bufio.Reader) (*ssh.Request, error) {
	if len(args) == 0 {
		return ssh.ReadRequest(r)
	}
	q, err := ssh.ParseRequest(args[0])
	if err != nil {
		return nil, exit.Usage("for example: fxfer send FILE host:folder", "--once is for ssh, which says what to serve: %w", err)
	}
	return q, nil
}

// connectionOfSSH returns the addresses of the client and of this host in what sshd says about the
// connection: addresses and ports of both ends. They are "" if it says nothing.
func connectionOfSSH(text string) (client, here string) {
	words := strings.Fields(text)
	if len(words) != 4 {
		return "", ""
	}
	from, err := netip.ParseAddr(words[0])
	to, failed := netip.ParseAddr(words[2])
	if err != nil || failed != nil {
		return "", ""
	}
	return from.String(), to.String()
}

const (
	// callsAtOnce bounds the connections to the client that are being made at a time.
	callsAtOnce = 64
	// callWithin is how long one may take.
	callWithin = 15 * time.Second
)

// caller connects to the client. A firewall may let that through and not the other way.
type caller struct {
	server *fxfer.Server
	client string // its address
	slots  chan struct{}

	mu  sync.Mutex // held while writing to out
	out io.Writer
}

// call begins a call. The client hears if it fails, at once if too many are being made: whoever reads
// the client's lines must not miss their end.
func (c *caller) call(ctx context.Context, call *ssh.Call) {
	if c.client == "" {
		return
	}
	select {
	case c.slots <- struct{}{}:
	default:
		c.failed(ctx, call.ID)
		return
	}
	go func() { // it ends with ctx, or with the process
		defer func() { <-c.slots }()
		calling, cancel := context.WithTimeout(ctx, callWithin)
		defer cancel()
		if c.server.Call(calling, net.JoinHostPort(c.client, strconv.Itoa(call.Port)), call.ID[:]) != nil {
			c.failed(ctx, call.ID)
		}
	}()
}

// failed tells the client that a call has failed, unless ctx is done.
func (c *caller) failed(ctx context.Context, id ssh.CallID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() == nil {
		_ = ssh.WriteFailed(c.out, id)
	}
}

// heed hands on the calls that r asks for. It returns when r ends or is silent for too long. A
// reader that hangs ends with the process.
func heed(r *bufio.Reader, call func(*ssh.Call)) {
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for {
			asked, err := ssh.ReadCall(r)
			if err != nil {
				return
			}
			heard <- struct{}{}
			if asked != nil {
				call(asked)
			}
		}
	}()
	silence := time.NewTimer(ssh.SilentAfter)
	defer silence.Stop()
	for {
		select {
		case _, more := <-heard:
			if !more {
				return
			}
			silence.Reset(ssh.SilentAfter)
		case <-silence.C:
			return
		}
	}
}

// removeSelf removes the file of this program, if it is in a folder that the script of an upload has
// made. Systems that can't remove the file of a running program leave that to the script. The folder
// is the script's in any case: as long as it is there, nobody else can make one of its name.
func removeSelf() {
	if name, err := os.Executable(); err == nil && strings.HasPrefix(filepath.Base(filepath.Dir(name)), "fxfer.") {
		_ = os.Remove(name)
	}
}

// oneTimeServer makes the server for a request. It listens already. calls says that it may have to
// connect to the client.
func oneTimeServer(q *ssh.Request, calls bool, errs io.Writer) (*fxfer.Server, *ssh.Answer, error) {
	place, err := placeOf(q.Paths)
	if err == nil && q.Dir != "" {
		err = place.move(q.Dir, q.Share)
	}
	if err != nil {
		return nil, nil, err
	}
	rights := identity.Read
	if q.Write {
		rights |= identity.Write
	}
	opt := fxfer.ServerOptions{
		Ephemeral: true, Calls: calls, StandardCrypto: q.Crypto, PartialAge: -1, // looking for old ones might take long
		Log:     slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: slog.LevelError})),
		Shares:  []fxfer.Share{{Name: place.name, Dir: place.dir, Rights: rights}},
		Clients: []fxfer.Admission{{Key: q.Client, Name: "ssh", Rights: map[string]fxfer.Rights{place.name: rights}}},
	}
	server, err := listenWithin(opt, q.Ports)
	if err != nil {
		return nil, nil, err
	}
	_ = server.Confine() // not every kernel can; the client may do what its login may
	a := &ssh.Answer{Protocol: q.Protocol, Pin: server.Pin(), Share: place.name, Dir: place.dir, Paths: place.paths, Empty: place.empty()}
	if _, port, err := net.SplitHostPort(server.Addr().String()); err == nil {
		a.Port, _ = strconv.Atoi(port)
	}
	return server, a, nil
}

// listenWithin makes a server that listens on one of the ports.
func listenWithin(opt fxfer.ServerOptions, ports ssh.Ports) (server *fxfer.Server, err error) {
	if ports.First < 0 || ports.Last > 65535 {
		return nil, exit.Usage("", "there are no ports %d-%d", ports.First, ports.Last)
	}
	for port := ports.First; port <= ports.Last; port++ {
		opt.Listen = ":" + strconv.Itoa(port)
		if server, err = fxfer.NewServer(opt); !errors.Is(err, syscall.EADDRINUSE) {
			return server, err
		}
	}
	// A server that was cut off from its client has its port for up to two minutes.
	return nil, &fxfer.Error{Kind: fxfer.KindUnreachable, Err: fmt.Errorf("no port of %d-%d is free", ports.First, ports.Last)}
}

// oncePlace is a folder with all that a client asked for.
type oncePlace struct {
	dir   string // without symlinks
	name  string // of the share
	paths []string
}

// placeOf returns the deepest folder that has all paths. For one path that is the folder itself, or
// the nearest one above that exists. Among several, a link stands for itself, except if a slash
// follows it.
func placeOf(paths []string) (p oncePlace, err error) {
	var rests []string
	for i, path := range paths {
		at, rest, err := existing(path)
		if err != nil {
			return p, err
		}
		if len(paths) > 1 && rest == "" && ssh.NameOf(path) != "" && isLink(at) {
			// The folder that it leads to has another name.
			at, rest = filepath.Dir(at), filepath.Base(at)
		}
		real, err := filepath.EvalSymlinks(at)
		if err != nil {
			return p, diskError(err)
		}
		rests = append(rests, filepath.Join(real, rest))
		if i == 0 {
			p.dir, p.name = real, filepath.Base(at)
			continue
		}
		for !within(real, p.dir) {
			p.dir = filepath.Dir(p.dir)
			p.name = filepath.Base(p.dir)
		}
	}
	if len(paths) == 0 {
		return p, exit.Usage("", "the request names no path")
	}
	if identity.CheckShare(p.name) != nil || p.name == string(filepath.Separator) {
		p.name = "files"
	}
	for _, rest := range rests {
		rel, err := filepath.Rel(p.dir, rest)
		if err != nil {
			return p, fmt.Errorf("find the folder of all paths: %w", err)
		}
		if rel = filepath.ToSlash(rel); rel == "." {
			rel = ""
		}
		p.paths = append(p.paths, rel)
	}
	return p, nil
}

// move makes dir the folder, under a name. It fails if not all paths are in it.
func (p *oncePlace) move(dir, name string) error {
	for i, path := range p.paths {
		rel, err := filepath.Rel(dir, filepath.Join(p.dir, filepath.FromSlash(path)))
		if err != nil || rel != "." && !filepath.IsLocal(rel) {
			return exit.Usage("", "%s is not in %s any more", path, dir)
		}
		if p.paths[i] = filepath.ToSlash(rel); rel == "." {
			p.paths[i] = ""
		}
	}
	p.dir, p.name = dir, name
	return identity.CheckShare(name)
}

// empty reports whether there is nothing at any of the paths, or only an empty folder.
func (p *oncePlace) empty() bool {
	return !slices.ContainsFunc(p.paths, func(path string) bool {
		name := filepath.Join(p.dir, filepath.FromSlash(path))
		info, err := os.Lstat(name)
		if err != nil || !info.IsDir() {
			return !errors.Is(err, fs.ErrNotExist)
		}
		f, err := os.Open(name)
		if err != nil {
			return true
		}
		defer f.Close()
		_, err = f.Readdirnames(1)
		return !errors.Is(err, io.EOF)
	})
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && (rel == "." || filepath.IsLocal(rel)) || filepath.Dir(dir) == dir
}

// existing splits a path into a folder that exists and the rest. A relative path, and one that
// begins with ~/, is below the home folder.
func existing(path string) (dir, rest string, err error) {
	if strings.ContainsRune(path, 0) {
		return "", "", exit.Usage("", "a path can't hold a NUL")
	}
	path = filepath.FromSlash(path)
	if below, ok := strings.CutPrefix(path, "~"); ok && (below == "" || os.IsPathSeparator(below[0])) {
		path = "." + below
	}
	if !filepath.IsAbs(path) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", "", fmt.Errorf("find the home folder: %w", err)
		}
		path = filepath.Join(home, path)
	}
	for dir = filepath.Clean(path); ; {
		info, err := os.Stat(dir)
		if err == nil && info.IsDir() {
			return dir, rest, nil
		}
		above := filepath.Dir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) || above == dir {
			return "", "", diskError(err)
		}
		dir, rest = above, filepath.Join(filepath.Base(dir), rest)
	}
}

func diskError(err error) error { return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err} }
