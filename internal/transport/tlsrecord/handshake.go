package tlsrecord

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/fxfer/fxfer/internal/transport/stream"
)

// maxHandshake bounds what a peer may send before it is authenticated. An honest peer sends about 3
// KiB, and as much again for each further certificate. quic-go accepts 16 KiB at each of two
// levels; a ClientHello needs 2 KiB.
const maxHandshake = 20 << 10

// errHandshakeTooLong means that a peer sent more than any honest handshake needs.
var errHandshakeTooLong = errors.New("handshake is too long")

// handshake authenticates both ends over raw, as the client or as the server. It closes raw if ctx
// ends first.
func (c *Conn) handshake(ctx context.Context, raw net.Conn, conf *tls.Config, client bool) error {
	var sec secrets
	conf = conf.Clone()
	conf.KeyLogWriter = &sec
	t, err := authenticate(ctx, &handshakeConn{Conn: raw}, conf, client)
	if err != nil {
		return err
	}
	state := t.ConnectionState()
	s, err := suiteOf(state.CipherSuite)
	if err != nil {
		return err
	}
	ours, theirs := sec.client, sec.server
	if !client {
		ours, theirs = theirs, ours
	}
	if err := c.out.setSecret(s, ours); err != nil {
		return err
	}
	if err := c.in.setSecret(s, theirs); err != nil {
		return err
	}
	c.state.Store(&state)
	return nil
}

// authenticate lets crypto/tls do a handshake.
func authenticate(ctx context.Context, raw net.Conn, conf *tls.Config, client bool) (*tls.Conn, error) {
	t := tls.Server(raw, conf)
	if client {
		t = tls.Client(raw, conf)
	}
	if err := t.HandshakeContext(ctx); err != nil {
		if ctx.Err() == nil && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, alerted(err)
	}
	return t, nil
}

// export is the Exporter of a connection in this state.
func export(state *tls.ConnectionState, label string, length int) ([]byte, error) {
	if state == nil {
		return nil, stream.ErrNoHandshake
	}
	return state.ExportKeyingMaterial(label, nil, length)
}

// alerted makes a peer's alert visible to errors.As as a tls.AlertError. crypto/tls uses a type of
// its own for it.
func alerted(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return err
	}
	for n := range 256 {
		if alert := tls.AlertError(n); op.Err.Error() == alert.Error() {
			return fmt.Errorf("remote error: %w", alert)
		}
	}
	return err
}

// secrets are the first application traffic secrets of a connection (RFC 8446, section 7.1).
// crypto/tls reveals them only to its key log. So each connection has a key log of its own, which
// keeps these two in memory and writes nothing anywhere.
type secrets struct {
	client, server []byte
}

// Write takes one line of the key log: label, client random and secret in hexadecimal.
func (s *secrets) Write(line []byte) (int, error) {
	f := bytes.Fields(line)
	if len(f) != 3 {
		return 0, errors.New("key log line is malformed")
	}
	var to *[]byte
	switch string(f[0]) {
	case "CLIENT_TRAFFIC_SECRET_0":
		to = &s.client
	case "SERVER_TRAFFIC_SECRET_0":
		to = &s.server
	default:
		return len(line), nil
	}
	secret, err := hex.AppendDecode(nil, f[2])
	if err != nil {
		return 0, fmt.Errorf("key log secret: %w", err)
	}
	*to = secret
	return len(line), nil
}

// handshakeConn gives crypto/tls exactly the records that it asks for. Otherwise crypto/tls reads
// ahead, and the reader would miss records that came right behind the handshake.
type handshakeConn struct {
	net.Conn
	header [headerLen]byte
	have   int // header bytes read
	body   int // bytes of the present record still to come
	total  int
}

func (h *handshakeConn) Read(p []byte) (int, error) {
	if h.total >= maxHandshake {
		return 0, errHandshakeTooLong
	}
	if h.body == 0 && h.have == headerLen {
		h.have = 0
	}
	inHeader := h.have < headerLen
	want := h.body
	if inHeader {
		want = headerLen - h.have
	}
	n, err := h.Conn.Read(p[:min(len(p), want)])
	h.total += n
	if inHeader {
		h.have += copy(h.header[h.have:], p[:n])
		if h.have == headerLen {
			h.body = int(binary.BigEndian.Uint16(h.header[3:]))
		}
	} else {
		h.body -= n
	}
	return n, err
}
