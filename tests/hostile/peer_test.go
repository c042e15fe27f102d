// Package hostile attacks a real server and a real client over TLS. Its own peer is written from
// SPEC.md and encodes every message by hand.
package hostile

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
	"github.com/stretchr/testify/require"
)

// patience is how long something may take that has to happen at once, on a busy machine.
const patience = 30 * time.Second

// The types of messages, numbered as in SPEC.md.
const (
	hello, join, welcome, refuse, manifest, entries, endManifest         = 1, 2, 3, 4, 5, 6, 7
	answers, written, resend, endEntry, entryFailed, placed, finished    = 8, 9, 10, 11, 12, 13, 14
	ping, streams, sample, compared, prune, folder, extra, removed, warn = 15, 17, 18, 19, 20, 21, 22, 23, 24
	test                                                                 = 26
)

// The intents, kinds of entries and codes that these tests use.
const (
	push, pull, list, verify, probe                               = 1, 2, 3, 4, 5
	file, dir, symlink, hardlink                                  = 1, 2, 3, 9
	codeVersion, codeTrust, codeRight, codePath                   = 2, 3, 4, 5
	codeNotFound, codeBusy, codeIntegrity, codeUnsupported        = 6, 10, 11, 13
	codeProtocol                                                  = 14
	gone                                                          = 0 // the connection ended without a message
	huge                                                   uint64 = 1<<64 - 1
)

func uv(v uint64) []byte { return binary.AppendUvarint(nil, v) }
func iv(v int64) []byte  { return binary.AppendVarint(nil, v) }
func str(s string) []byte {
	return append(uv(uint64(len(s))), s...)
}
func cat(b ...[]byte) []byte { return bytes.Join(b, nil) }

// message encodes a message with its true length.
func message(kind byte, body ...[]byte) []byte {
	b := cat(body...)
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(b))), b...)
}

// request is a Hello. Zero fields have the values of an honest client.
type request struct {
	version    uint64 // the version minus one
	session    byte
	secret     byte
	intent     uint64
	share      string
	paths      []string
	sockBuf    uint64
	congestion string
	proof      []byte
	target     []byte
	backup     string
	rules      []string
	compress   string
	capability []byte // nil leaves out this and all after compress, unless there is a range

	rangeLog    byte
	rangeNumber uint64
}

func (r request) bytes() []byte {
	paths := uv(uint64(len(r.paths)))
	for _, p := range r.paths {
		paths = append(paths, str(p)...)
	}
	rules := uv(uint64(len(r.rules)))
	for _, p := range r.rules {
		rules = append(rules, str(p)...)
	}
	target := r.target // checksum, update, existing, ignore, sync, readback, numeric, delete
	if target == nil {
		target = make([]byte, 8)
	}
	var later []byte // snapshot, replaces, delta, failures, priority, capability, relayed, range
	if r.capability != nil || r.rangeLog > 0 {
		later = cat(str(""), make([]byte, 16+3), str(string(r.capability)))
	}
	if r.rangeLog > 0 {
		later = cat(later, []byte{0, r.rangeLog}, uv(r.rangeNumber))
	}
	return message(hello, uv(r.version+1), bytes.Repeat([]byte{r.session}, 16), bytes.Repeat([]byte{r.secret}, 32), uv(r.intent), str(r.share), paths,
		[]byte{0}, uv(r.sockBuf), str(r.congestion), uv(0), uv(8), str(string(r.proof)), str("hand"),
		target, iv(0), str(r.backup), []byte{0},
		rules, uv(0), iv(0), []byte{0}, str(r.compress), later)
}

func joining(session, secret byte, stream uint64) []byte {
	return message(join, uv(1), bytes.Repeat([]byte{session}, 16), bytes.Repeat([]byte{secret}, 32), uv(stream), uv(0), str(""))
}

// entryOf encodes an Entry without owner and attributes.
func entryOf(kind byte, path string, rest ...[]byte) []byte {
	return cat([]byte{kind, 0}, str(path), iv(0), uv(0o600), cat(rest...))
}

// fileOf encodes the Entry of a file with blocks of 64 KiB.
func fileOf(path string, size int64) []byte {
	return entryOf(file, path, iv(size), uv(1), uv(1), []byte{16})
}

func announce(first uint64, all ...[]byte) []byte {
	return message(entries, uv(first), uv(uint64(len(all))), cat(all...))
}

// block encodes a header with these fields, and a payload.
type block struct {
	kind, flags byte
	length      uint32
	index, num  uint64
	digest      [32]byte
	raw         uint32
	payload     []byte
}

func (b block) bytes() []byte {
	h := make([]byte, 64)
	h[0], h[1] = b.kind, b.flags
	binary.BigEndian.PutUint32(h[4:], b.length)
	binary.BigEndian.PutUint64(h[8:], b.index)
	binary.BigEndian.PutUint64(h[16:], b.num)
	copy(h[24:], b.digest[:])
	binary.BigEndian.PutUint32(h[56:], b.raw)
	return append(h, b.payload...)
}

// key is an identity of the peer.
type key struct {
	cert tls.Certificate
	pin  string
}

func newKey(t *testing.T) key {
	t.Helper()
	return mustKey()
}

func mustKey() key {
	pub, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, pub, private)
	if err != nil {
		panic(err)
	}
	return key{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, "ed25519:" + base64.RawURLEncoding.EncodeToString(pub)}
}

func (k key) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"fxfer/1"}, InsecureSkipVerify: true, Certificates: []tls.Certificate{k.cert}} //nolint:gosec // it accepts any server
}

// site is a real server, and the files around its shares.
type site struct {
	*fxfer.Server
	root, home string
	known      key // a key with all rights on all shares
	before     map[string]string
}

// serve starts a server with three shares: data (rw), ro and wo. At the end it stops the server,
// and checks that nothing outside of data has changed.
func serve(t *testing.T, opt fxfer.ServerOptions) *site {
	t.Helper()
	s := &site{root: t.TempDir(), home: t.TempDir(), known: newKey(t)}
	require.NoError(t, os.WriteFile(filepath.Join(s.home, "authorized_clients"), []byte(s.known.pin+" *=rw\n"), 0o600))
	for _, name := range []string{"data", "ro", "wo", "outside"} {
		require.NoError(t, os.Mkdir(filepath.Join(s.root, name), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(s.root, name, "secret"), []byte("do not touch"), 0o600))
	}
	require.NoError(t, os.Symlink("../outside", filepath.Join(s.root, "data", "way")))
	opt.Home, opt.Listen = s.home, "127.0.0.1:0"
	for _, share := range []fxfer.Share{{Name: "data", Rights: 3}, {Name: "ro", Rights: 1}, {Name: "wo", Rights: 2}} {
		share.Dir = filepath.Join(s.root, share.Name)
		opt.Shares = append(opt.Shares, share)
	}
	var err error
	s.Server, err = fxfer.NewServer(opt)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	s.before = s.look(t)
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, s.before, s.look(t), "what is outside of the share")
	})
	return s
}

// look describes everything that is not below the share data.
func (s *site) look(t *testing.T) map[string]string {
	t.Helper()
	seen := map[string]string{}
	err := filepath.WalkDir(s.root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == filepath.Join(s.root, "data"):
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := ""
		if d.Type().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(b)
		}
		seen[path] = fmt.Sprint(info.Mode(), text)
		return nil
	})
	require.NoError(t, err)
	return seen
}

// url returns the URL of a path in the share data, with an invitation for a real client.
func (s *site) url(t *testing.T, path string) fxfer.URL {
	t.Helper()
	text, err := s.Invite(fxfer.InviteOptions{Host: "127.0.0.1"})
	require.NoError(t, err)
	u, err := fxfer.ParseURL(text)
	require.NoError(t, err)
	u.Path = path
	return u
}

// honest lets a real client send a file, and checks that it arrived.
func (s *site) honest(t *testing.T) {
	t.Helper()
	c, err := fxfer.NewClient(fxfer.Options{Home: t.TempDir(), Transport: carrier})
	require.NoError(t, err)
	content := make([]byte, 3<<20)
	_, _ = rand.Read(content)
	source := filepath.Join(t.TempDir(), "honest")
	require.NoError(t, os.WriteFile(source, content, 0o600))
	_, err = c.Send(t.Context(), []string{source}, s.url(t, ""), fxfer.Transfer{})
	require.NoError(t, err, "another client's transfer")
	got, err := os.ReadFile(filepath.Join(s.root, "data", "honest"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got))
}

// line is a connection of the peer.
type line struct {
	net.Conn
	r *bufio.Reader
}

// dial connects with a key. Everything fails that the server has not done after patience.
func (s *site) dial(t *testing.T, k key) *line {
	t.Helper()
	c, err := dialBy(t, s.Addr(), k, carrier == fxfer.TransportQUIC)
	require.NoError(t, err)
	return newLine(t, c)
}

// dialBy connects over QUIC or over TCP.
func dialBy(t *testing.T, addr net.Addr, k key, quic bool) (net.Conn, error) {
	t.Helper()
	if quic {
		return dialQUIC(t, addr, k)
	}
	return tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", addr.String(), k.config())
}

func newLine(t *testing.T, c net.Conn) *line {
	t.Helper()
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return &line{c, bufio.NewReader(c)}
}

// say sends bytes. It ignores errors, because the server's answer shows whether it accepted them.
func (l *line) say(b ...[]byte) { _, _ = l.Write(cat(b...)) }

// next reads a message. After the last one the type is 0. If the server is silent, next panics,
// because nothing may hang.
func (l *line) next() (kind byte, body []byte) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(l.r, head); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			panic("the other side neither answers nor ends")
		}
		return 0, nil
	}
	body = make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(l.r, body); err != nil {
		return 0, nil
	}
	return head[0], body
}

// await reads messages until one has this type.
func (l *line) await(t *testing.T, want byte) []byte {
	t.Helper()
	for {
		kind, body := l.next()
		if kind == want {
			return body
		}
		if kind == refuse {
			code, n := binary.Uvarint(body)
			require.FailNow(t, "refused", "code %d: %q", code, body[n:])
		}
		require.NotZero(t, kind, "the other side ended")
	}
}

// refusal reads to the end. It returns the code of the Refuse, or gone if there is none.
func (l *line) refusal() (code uint64, text string) {
	for {
		kind, body := l.next()
		switch kind {
		case 0:
			return code, text
		case refuse:
			n := 0
			code, n = binary.Uvarint(body)
			text = strings.ToValidUTF8(string(body[n:]), "?")
		}
	}
}

// finish closes the connection after the server has seen everything.
func (l *line) finish() {
	if c, ok := l.Conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
}
