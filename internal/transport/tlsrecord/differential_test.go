package tlsrecord

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// line is one direction of a connection in memory. It takes any amount.
type line struct {
	mu    sync.Mutex // guards the rest
	more  sync.Cond
	bytes []byte
	ended bool
	waits bool // Read waits for bytes
}

var errLineEmpty = errors.New("nothing is on the line")

func (l *line) read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.waits && len(l.bytes) == 0 && !l.ended {
		l.more.Wait()
	}
	if len(l.bytes) == 0 && l.ended {
		return 0, io.EOF
	}
	if len(l.bytes) == 0 {
		return 0, errLineEmpty
	}
	n := copy(p, l.bytes)
	l.bytes = l.bytes[n:]
	return n, nil
}

func (l *line) write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes = append(l.bytes, p...)
	l.more.Broadcast()
	return len(p), nil
}

func (l *line) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.more.Broadcast()
	return nil
}

// wait says whether Read waits from now on.
func (l *line) wait(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits = on
}

// lineEnd is an end of a connection in memory, as a Socket.
type lineEnd struct {
	net.Conn
	in, out *line
}

func (e *lineEnd) Read(p []byte) (int, error)       { return e.in.read(p) }
func (e *lineEnd) Write(p []byte) (int, error)      { return e.out.write(p) }
func (e *lineEnd) CloseWrite() error                { return e.out.end() }
func (e *lineEnd) Close() error                     { return e.out.end() }
func (e *lineEnd) Hurry()                           {}
func (e *lineEnd) Await(int)                        {}
func (e *lineEnd) SetDeadline(time.Time) error      { return nil }
func (e *lineEnd) SetReadDeadline(time.Time) error  { return nil }
func (e *lineEnd) SetWriteDeadline(time.Time) error { return nil }

// joined is a Conn and a crypto/tls connection that have had their handshake.
type joined struct {
	own      *Conn
	other    *tls.Conn
	toOther  *line
	toOwn    *line
	rng      *rand.Rand
	contents *rand.ChaCha8
}

func join(t *testing.T, ownConf, otherConf *tls.Config, client bool, seed uint64) *joined {
	j := &joined{toOther: &line{waits: true}, toOwn: &line{waits: true}, rng: rand.New(rand.NewPCG(seed, 0)), contents: rand.NewChaCha8([32]byte{byte(seed)})}
	j.toOther.more.L, j.toOwn.more.L = &j.toOther.mu, &j.toOwn.mu
	j.own = New(&lineEnd{in: j.toOwn, out: j.toOther})
	far := &lineEnd{in: j.toOther, out: j.toOwn}
	j.other = tls.Client(far, otherConf)
	if client {
		j.other = tls.Server(far, otherConf)
	}
	done := make(chan error, 1)
	go func() { done <- j.other.Handshake() }()
	shake := j.own.Server
	if client {
		shake = j.own.Client
	}
	require.NoError(t, shake(context.Background(), ownConf))
	require.NoError(t, <-done)
	j.toOther.wait(false)
	j.toOwn.wait(false)
	return j
}

// move sends n bytes, in writes of any size, and reads them, in reads of any size.
func (j *joined) move(t *testing.T, n int, fromOwn bool) {
	var from, to io.ReadWriter = j.own, j.other
	if !fromOwn {
		from, to = to, from
	}
	want := make([]byte, n)
	_, _ = j.contents.Read(want)
	for rest := bytes.Clone(want); len(rest) > 0; {
		p := rest[:1+j.rng.IntN(len(rest))]
		rest = rest[len(p):]
		var err error
		if header := j.rng.IntN(len(p) + 1); fromOwn && j.rng.IntN(2) == 0 {
			_, err = j.own.WriteBuffers(p[:header], p[header:])
		} else {
			_, err = from.Write(p)
		}
		require.NoError(t, err)
	}
	got := make([]byte, n+maxRecord)
	for at := 0; at < n; {
		m, err := to.Read(got[at : at+1+j.rng.IntN(len(got)-at)])
		require.NoError(t, err)
		at += m
	}
	require.True(t, bytes.Equal(want, got[:n]))
}

// Steps of a script. Any other byte moves that many times 67 bytes, which is up to 17,085.
const (
	stepFromOther = iota // the next bytes go the other way
	stepFromOwn
	stepUpdate  // our next record has a new key
	stepRequest // and the other end has to change its key as well
	stepAdmit
	stepAlert   // the rest of the script is the alert
	stepAlter   // the next record to the other end arrives with a wrong bit
	stepAltered // the next record from the other end does
	steps
)

// FuzzAgainstCryptoTLS lets our records and those of crypto/tls talk: any sizes, key updates, alerts
// and altered records, in both directions, with ours as the client or the server.
func FuzzAgainstCryptoTLS(f *testing.F) {
	f.Add([]byte{100, 0, 100, 2, 1, 255, 0, 80}, uint64(1), true)
	f.Add([]byte{3, 9, 0, 9, 3, 1, 9, 0, 9, 4, 255, 1, 255, 255}, uint64(2), false)
	f.Add([]byte{50, 5, 80}, uint64(3), true)
	f.Add([]byte{50, 6, 3}, uint64(4), false)
	f.Add([]byte{50, 7, 200}, uint64(5), true)
	ownClient, ownServer := clientConfig(f), serverConfig(f)
	otherClient, otherServer := clientConfig(f), serverConfig(f)
	f.Fuzz(func(t *testing.T, script []byte, seed uint64, client bool) {
		ownConf, otherConf := ownServer, otherClient
		if client {
			ownConf, otherConf = ownClient, otherServer
		}
		j := join(t, ownConf, otherConf, client, seed)
		fromOwn := true
		for i, step := range script[:min(len(script), 64)] {
			switch step {
			case stepFromOther, stepFromOwn:
				fromOwn = step == stepFromOwn
			case stepUpdate:
				require.NoError(t, j.own.out.keyUpdate())
			case stepRequest:
				require.NoError(t, j.own.out.control(keyUpdateType, 0, 0, 1, 1, recordHandshake))
				require.NoError(t, j.own.out.update())
				j.move(t, 1, true) // crypto/tls answers when it reads
			case stepAdmit:
				j.own.Admit()
			case stepAlert:
				j.alert(t, append(script[i+1:], 80)[0])
				return
			case stepAlter, stepAltered:
				j.alter(t, step == stepAlter)
				return
			default:
				j.move(t, int(step)*67, fromOwn)
			}
		}
		require.NoError(t, j.own.CloseWrite())
		_, err := j.other.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		require.NoError(t, j.other.CloseWrite())
		_, err = j.own.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
	})
}

// alert sends an alert, about which crypto/tls must say what the standard says.
func (j *joined) alert(t *testing.T, desc uint8) {
	j.own.sendAlert(desc, net.ErrClosed)
	_, err := j.other.Read(make([]byte, 1))
	switch desc {
	case alertCloseNotify:
		require.Equal(t, io.EOF, err)
	case alertUserCanceled:
		require.Error(t, err)
	default:
		require.EqualError(t, err, "remote error: "+tls.AlertError(desc).Error())
	}
}

// alter flips a bit of a record. Its receiver must refuse it and say why to its sender.
func (j *joined) alter(t *testing.T, fromOwn bool) {
	var from, to io.ReadWriter = j.own, j.other
	on := j.toOther
	if !fromOwn {
		from, to, on = to, from, j.toOwn
	}
	content := make([]byte, 1+j.rng.IntN(1000))
	_, err := from.Write(content)
	require.NoError(t, err)
	on.mu.Lock()
	flip(on.bytes, 8*headerLen+j.rng.IntN(8*(len(on.bytes)-headerLen)))
	on.mu.Unlock()
	n, err := to.Read(make([]byte, 2000))
	require.Zero(t, n)
	require.Error(t, err)
	_, err = from.Read(make([]byte, 1))
	require.ErrorContains(t, err, "bad record MAC")
}
