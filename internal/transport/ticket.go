package transport

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

// Session tickets (RFC 8446, section 4.6.1) of QUIC, for 0-RTT. Both ends sign a connection that is resumed, so that a
// ticket is of no use without the key of whose it is.

// ticketLife bounds the age of a ticket, on either side.
const ticketLife = 24 * time.Hour

// ticketSeal seals the tickets of a server. Its keys are nowhere but in memory, and forgotten after ticketLife at most: what was sent in 0-RTT
// can't be read then by who gets hold of the server's identity. A server that was started anew does not know its tickets.
type ticketSeal struct {
	mu   sync.Mutex
	keys [][32]byte // the first seals
	made time.Time  // the first
	now  func() time.Time
}

func newTicketSeal() *ticketSeal { return &ticketSeal{now: time.Now} }

// with returns the keys as of now.
func (s *ticketSeal) with() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	age := s.now().Sub(s.made)
	if age < 0 || age >= ticketLife {
		s.keys = nil
	}
	if len(s.keys) == 0 || age >= ticketLife/2 {
		var key [32]byte
		_, _ = rand.Read(key[:]) // never fails
		s.keys, s.made = append([][32]byte{key}, s.keys[:min(1, len(s.keys))]...), s.now()
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS13}
	conf.SetSessionTicketKeys(s.keys)
	return conf
}

func (s *ticketSeal) wrap(c tls.ConnectionState, state *tls.SessionState) ([]byte, error) {
	return s.with().EncryptTicket(c, state)
}

func (s *ticketSeal) unwrap(ticket []byte, c tls.ConnectionState) (*tls.SessionState, error) {
	return s.with().DecryptTicket(ticket, c)
}

// ticket is one that a server has given, with what it takes to use it.
type ticket struct {
	given  time.Time
	server ed25519.PublicKey
	label  []byte // what is sent
	state  []byte // of crypto/tls, with the secret
}

const (
	// ticketMagic begins a file with a ticket: its layout, and that of the 0-RTT data.
	ticketMagic = "fxfer ticket 1\n"
	// maxTicket bounds such a file, bytes. One takes about 1.5 KiB.
	maxTicket = 16 << 10
	// maxTickets bounds the files in a folder.
	maxTickets = 64
)

var errTicket = errors.New("no ticket")

// bytes is what a file holds.
func (t *ticket) bytes() []byte {
	b := []byte(ticketMagic)
	b = binary.BigEndian.AppendUint64(b, uint64(t.given.Unix()))
	b = append(b, t.server...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(t.label)))
	b = append(b, t.label...)
	return append(b, t.state...)
}

// parseTicket is the reverse of bytes. What it returns can be used, as far as crypto/tls can tell.
func parseTicket(b []byte) (*ticket, error) {
	rest, ok := bytes.CutPrefix(b, []byte(ticketMagic))
	const fixed = 8 + ed25519.PublicKeySize + 2
	if !ok || len(b) > maxTicket || len(rest) < fixed {
		return nil, errTicket
	}
	label := int(binary.BigEndian.Uint16(rest[fixed-2:]))
	if label == 0 || label > len(rest)-fixed {
		return nil, errTicket
	}
	t := &ticket{
		given:  time.Unix(int64(binary.BigEndian.Uint64(rest)), 0),
		server: rest[8 : 8+ed25519.PublicKeySize],
		label:  rest[fixed : fixed+label],
		state:  rest[fixed+label:],
	}
	_, err := t.session()
	return t, err
}

// session is the ticket for one connection.
func (t *ticket) session() (*tls.ClientSessionState, error) {
	state, err := tls.ParseSessionState(t.state)
	if err != nil {
		return nil, errTicket
	}
	return tls.NewResumptionState(t.label, state)
}

// fresh tells that the server may still know it.
func (t *ticket) fresh(now time.Time) bool {
	age := now.Sub(t.given)
	return age >= 0 && age < ticketLife
}

// ticketBox has the tickets of one server and one client's identity: the last one for the connections of this Group, and one in a file for the
// next. Whoever takes that removes it, so that no two processes can be told to be of one host by it.
type ticketBox struct {
	path string // "" for no file

	mu   sync.Mutex
	last *ticket
	kept bool // in the file
}

// newTicketBox takes the ticket in a folder, if there is one.
func newTicketBox(folder, addr string, own ed25519.PublicKey) *ticketBox {
	if folder == "" {
		return &ticketBox{}
	}
	sum := sha256.Sum256(append([]byte(addr+"\x00"), own...))
	b := &ticketBox{path: filepath.Join(folder, hex.EncodeToString(sum[:16]))}
	f, err := os.Open(b.path)
	if err != nil {
		return b
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTicket+1))
	_ = f.Close()
	if os.Remove(b.path) != nil || err != nil { // another one has it
		return b
	}
	b.last, _ = parseTicket(text)
	return b
}

// usable returns the ticket to use, nil if there is none. expect has to approve of the server that gave it.
func (b *ticketBox) usable(expect func(ed25519.PublicKey) error) *ticket {
	b.mu.Lock()
	t := b.last
	b.mu.Unlock()
	if t == nil || !t.fresh(time.Now()) || expect(t.server) != nil {
		return nil
	}
	return t
}

// keep takes a new one. The first goes to the file, too.
func (b *ticketBox) keep(t *ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = t
	if b.path == "" || b.kept {
		return
	}
	b.kept = true
	folder := filepath.Dir(b.path)
	if os.MkdirAll(folder, 0o700) != nil {
		return
	}
	f, err := os.CreateTemp(folder, "new-") // of mode 0600
	if err != nil {
		return
	}
	_, err = f.Write(t.bytes())
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), b.path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return
	}
	dropTickets(folder)
}

// dropTickets removes the oldest files of a folder that are too many. Some command has a whole handshake instead.
func dropTickets(folder string) {
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) <= maxTickets {
		return
	}
	changed := func(e os.DirEntry) time.Time {
		info, err := e.Info()
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	slices.SortFunc(entries, func(x, y os.DirEntry) int { return changed(x).Compare(changed(y)) })
	for _, e := range entries[:len(entries)-maxTickets] {
		_ = os.Remove(filepath.Join(folder, e.Name()))
	}
}

// ticketCache is a ticketBox for crypto/tls, of one connection.
type ticketCache struct {
	box    *ticketBox
	use    *ticket                           // nil for none
	server atomic.Pointer[ed25519.PublicKey] // which has shown it
}

// Get returns the ticket to use.
func (c *ticketCache) Get(string) (*tls.ClientSessionState, bool) {
	if c.use == nil {
		return nil, false
	}
	session, err := c.use.session()
	return session, err == nil
}

// Put takes a ticket of the server.
func (c *ticketCache) Put(_ string, session *tls.ClientSessionState) {
	label, state, err := session.ResumptionState()
	server := c.server.Load()
	if err != nil || state == nil || len(label) > maxTicket || server == nil {
		return
	}
	text, err := state.Bytes()
	if err != nil {
		return
	}
	t := &ticket{given: time.Now(), server: *server, label: label, state: text}
	if len(t.bytes()) <= maxTicket {
		c.box.keep(t)
	}
}

// resumedLabel names the channel binding that is signed (RFC 8446, section 7.5).
const resumedLabel = "EXPORTER-fxfer-resumed"

// Who signs a resumed connection.
const (
	clientSigns = "client"
	serverSigns = "server"
)

// resumption is what either end of a resumed connection signs: the ticket says whose connection it is, but not that they are there.
func resumption(state *tls.ConnectionState, who string) ([]byte, error) {
	exported, err := state.ExportKeyingMaterial(resumedLabel, nil, 32)
	if err != nil {
		return nil, err
	}
	return append([]byte("fxfer: a resumed connection, "+who+"\x00"), exported...), nil
}

// ErrImpostor says that the other end of a resumed connection has a ticket, but not the key that it is of.
var ErrImpostor = errors.New("the peer has a ticket, but not its owner's key")

// show opens a stream with the signature of this end of a resumed connection.
func (l *link) show(key crypto.PrivateKey, who string) (*quic.SendStream, error) {
	message, err := resumption(&l.tls, who)
	if err != nil {
		return nil, err
	}
	signature, err := key.(crypto.Signer).Sign(rand.Reader, message, crypto.Hash(0))
	if err != nil {
		return nil, err
	}
	s, err := l.conn.OpenUniStream()
	if err != nil {
		return nil, err
	}
	_, err = s.Write(signature)
	return s, err
}

// shown waits for the stream with the signature of the peer of a resumed connection.
func (l *link) shown(ctx context.Context, who string) (*quic.ReceiveStream, error) {
	message, err := resumption(&l.tls, who)
	if err != nil {
		return nil, err
	}
	s, err := l.conn.AcceptUniStream(ctx)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { s.CancelRead(codeClosed) })()
	var signature [ed25519.SignatureSize]byte
	if _, err := io.ReadFull(s, signature[:]); err != nil {
		return nil, err
	}
	if len(l.peer) != ed25519.PublicKeySize || !ed25519.Verify(l.peer, message, signature[:]) {
		return nil, ErrImpostor
	}
	return s, nil
}
