package ftp

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/door"
)

const (
	// idleFor is how long a client may give no command.
	idleFor = 5 * time.Minute
	// maxTries bounds the passwords that one connection may try.
	maxTries = 8
	// maxHeld bounds the commands that wait for the end of a transfer.
	maxHeld = 16
	// soonLeast and soonMost bound soon.
	soonLeast = 10 * time.Millisecond
	soonMost  = 250 * time.Millisecond
)

// soon is how long the server waits for what a client does at the same time on its other connection.
// Both take the same way, so it comes later by what the client needs between them, and by less than a
// round trip.
//
// The end of an upload waits for the end of the control connection: a client that dies or gives up
// ends both, often with a good end of TLS, so only the control connection tells its file from a whole
// one. And a data connection that may be of others waits for the client's: see lease.open.
func soon(roundTrip time.Duration) time.Duration { return min(soonLeast+roundTrip, soonMost) }

var (
	errGone    = errors.New("the client has left")
	errAborted = errors.New("the client has aborted the transfer")
	errHeld    = errors.New("too many commands came during a transfer")
	errIdle    = errors.New("the client was silent for too long")
	errQuit    = errors.New("the client has logged out") // in good order
	errTries   = errors.New("the client has tried too many passwords")
	errMixed   = errors.New("the client has sent text behind AUTH, in clear")
)

// control is a control connection. One goroutine runs its commands, and another one reads a line
// when it is asked to.
type control struct {
	ctx      context.Context
	door     *Door
	raw      net.Conn
	client   netip.Addr
	clear    bool // the client needs no TLS
	admitted func()

	tls    *tls.Config // of this connection and its data connections
	secure bool        // the connection has TLS
	conn   net.Conn
	in     *bufio.Reader // of whoever reads
	out    *bufio.Writer
	want   chan struct{} // asks for a line
	lines  chan line
	asked  bool // for a line that has not come
	reader sync.WaitGroup
	held   []string // lines that came during a transfer

	loginBy time.Time // when the login has to be done
	user    string    // who wants to log in, or has
	tries   int
	left    func()     // nil before the login
	tree    *door.Tree // nil before the login
	cwd     string

	protect  bool // data connections have TLS
	ascii    bool
	facts    []string
	data     opener // of the next transfer; nil for none
	epsvAll  bool
	offset   int64  // of the next transfer
	size     int64  // that the client has announced for it; -1 is none
	renaming string // "" is nothing
}

// line is a line of the client, or why there are no more.
type line struct {
	text string
	err  error
}

func newControl(ctx context.Context, d *Door, c net.Conn, admitted func()) *control {
	client := addrOf(c.RemoteAddr())
	return &control{
		ctx: ctx, door: d, raw: c, client: client, clear: d.mayBeClear(client), admitted: admitted,
		tls: ownTickets(d.opt.TLS), want: make(chan struct{}), lines: make(chan line, 1), loginBy: time.Now().Add(door.LoginWithin),
		facts: allFacts, size: -1,
	}
}

// ownTickets returns a copy of cfg with a key of its own for tickets: a session can be resumed only
// where it began.
func ownTickets(cfg *tls.Config) *tls.Config {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	cfg = cfg.Clone()
	cfg.SetSessionTicketKeys([][32]byte{key})
	return cfg
}

// serve runs the commands of the client until it leaves. It returns nil if that was in good order.
func (x *control) serve(implicit bool) error {
	x.use(x.raw)
	if implicit {
		if err := x.startTLS(); err != nil {
			return err
		}
		x.protect = true
	}
	defer close(x.want)
	x.reader.Go(x.read)
	err := x.reply(220, "fxfer: FTP")
	for err == nil {
		var text string
		if text, err = x.next(); err == nil {
			err = x.run(text)
		}
	}
	switch {
	case errors.Is(err, errQuit):
		return nil
	case errors.Is(err, errGone):
		if x.tree == nil {
			return nil
		}
	case errors.Is(err, errLongLine):
		_ = x.reply(500, "%v", err)
	case errors.Is(err, errIdle):
		_ = x.reply(421, "%v", err)
	}
	return err
}

// close gives back what the connection has, which is closed.
func (x *control) close(why error) {
	x.reader.Wait()
	x.setData(nil)
	if x.tree != nil {
		x.tree.Close(why)
		x.left()
	}
}

// use takes a connection for what follows.
func (x *control) use(c net.Conn) {
	x.conn, x.in, x.out = c, bufio.NewReader(c), bufio.NewWriter(replies{c})
}

// replies writes to a control connection, with a deadline for each write: a long reply has several.
type replies struct{ net.Conn }

func (r replies) Write(b []byte) (int, error) {
	_ = r.SetWriteDeadline(time.Now().Add(door.SilentFor))
	return r.Conn.Write(b)
}

// startTLS begins TLS. Nobody reads meanwhile.
func (x *control) startTLS() error {
	if x.asked || x.in.Buffered() > 0 { // somebody between could have sent it; who has asked does not own x.in
		return errMixed
	}
	ctx, cancel := context.WithDeadline(x.ctx, x.loginBy)
	defer cancel()
	c := tls.Server(x.raw, x.tls)
	_ = x.raw.SetDeadline(x.loginBy)
	if err := c.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	_ = x.raw.SetDeadline(time.Time{})
	x.secure = true
	x.use(c)
	return nil
}

// read reads a line whenever one is wanted.
func (x *control) read() {
	for range x.want {
		text, err := readLine(x.in)
		if err != nil && !errors.Is(err, errLongLine) {
			err = errGone
		}
		x.lines <- line{text, err}
	}
}

// ask asks for a line, unless that is done.
func (x *control) ask() {
	if !x.asked {
		x.asked = true
		x.want <- struct{}{}
	}
}

// next waits for the next command.
func (x *control) next() (string, error) {
	if len(x.held) > 0 {
		text := x.held[0]
		x.held = x.held[1:]
		return text, nil
	}
	x.ask()
	patience := idleFor
	if x.tree == nil {
		patience = min(patience, time.Until(x.loginBy))
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case l := <-x.lines:
		x.asked = false
		return l.text, l.err
	case <-timer.C:
		return "", errIdle
	case <-x.ctx.Done():
		return "", x.ctx.Err()
	}
}

// reply sends a reply of one line. Its error ends the connection.
func (x *control) reply(code int, format string, args ...any) error {
	fmt.Fprintf(x.out, "%d %s\r\n", code, oneLine(fmt.Sprintf(format, args...)))
	return x.flush()
}

// replyLines sends a reply of several lines.
func (x *control) replyLines(code int, head string, lines []string) error {
	fmt.Fprintf(x.out, "%d-%s\r\n", code, oneLine(head))
	for _, l := range lines {
		fmt.Fprintf(x.out, " %s\r\n", oneLine(l))
	}
	return x.reply(code, "That is all")
}

func (x *control) flush() error {
	if x.out.Flush() != nil {
		return errGone
	}
	return nil
}

// oneLine keeps a name from forging a line of a reply.
func oneLine(s string) string { return lineEnds.Replace(s) }

var lineEnds = strings.NewReplacer("\r", "?", "\n", "?")

// codes are the replies to what failed before anything has moved.
var codes = map[door.Fault]int{
	door.NotFound: 550, door.Denied: 550, door.Exists: 550, door.NotEmpty: 550, door.NoSpace: 552,
	door.Busy: 450, door.Unsupported: 550,
}

// fail replies that a command has failed.
func (x *control) fail(err error) error {
	fault, text := door.FaultOf(err)
	code := codes[fault]
	if code == 0 {
		code = 451
	}
	return x.reply(code, "%s", text)
}

// answer replies to a command that is done, or has failed.
func (x *control) answer(err error, code int, text string) error {
	if err != nil {
		return x.fail(err)
	}
	return x.reply(code, "%s", text)
}

// abs is the path that an argument means.
func (x *control) abs(arg string) string {
	if strings.HasPrefix(arg, "/") {
		return path.Clean(arg)
	}
	return path.Join(x.cwd, arg)
}

// setData replaces what opens the data connection of the next transfer.
func (x *control) setData(o opener) {
	if x.data != nil {
		x.data.close()
	}
	x.data = o
}

// during runs work while it takes commands: ABOR and the end of the connection end the work, STAT is
// answered, and others wait. status describes the work. It returns the error of the work, or
// errAborted. The second error ends the connection.
func (x *control) during(status func() string, work func(ctx context.Context) error) (err, ended error) {
	ctx, cancel := context.WithCancelCause(x.ctx)
	defer cancel(nil)
	done := make(chan struct{})
	var result error // when done is closed
	go func() { result = work(ctx); close(done) }()
	for ended == nil {
		lines := x.lines
		x.ask()
		select {
		case <-done:
			return result, nil
		case l := <-lines:
			x.asked = false
			err, ended = x.meanwhile(l, status)
			if errors.Is(err, errAborted) {
				cancel(errAborted)
				<-done
				return errAborted, nil
			}
		case <-x.ctx.Done():
			ended = x.ctx.Err()
		}
	}
	cancel(ended)
	<-done
	return ended, ended
}

// meanwhile takes a line that comes during a transfer. The second error ends the connection.
func (x *control) meanwhile(l line, status func() string) (err, ended error) {
	if l.err != nil {
		return nil, l.err
	}
	command, arg, _ := parseLine(l.text)
	switch {
	case command == "ABOR":
		return errAborted, nil
	case command == "STAT" && arg == "":
		return nil, x.reply(213, "%s", status())
	case len(x.held) == maxHeld:
		return nil, errHeld
	}
	x.held = append(x.held, l.text)
	return nil, nil
}

// stays waits for the end of the control connection for a moment. It returns what during does.
func (x *control) stays(status func() string) (err, ended error) {
	err, ended = x.during(status, func(ctx context.Context) error {
		timer := time.NewTimer(soon(x.door.opt.RoundTrip(x.raw)))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return nil
	})
	if err != nil {
		return err, ended
	}
	select {
	case l := <-x.lines: // it came in the last moment
		x.asked = false
		err, ended = x.meanwhile(l, status)
	default:
	}
	return cmp.Or(err, ended), ended
}

// bye ends TLS, if there is any.
func (x *control) bye() {
	if c, ok := x.conn.(*tls.Conn); ok {
		_ = c.CloseWrite()
	}
}
