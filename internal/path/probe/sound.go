package probe

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/wire"
)

const (
	maxAnswered  = 8192 // datagrams that a server answers in one test
	maxAddresses = 8    // addresses that it remembers
	volleyWait   = 2 * time.Second
)

// errTooLarge means that this host's own interface rejects a datagram.
var errTooLarge = errors.New("larger than the interface allows")

// addrOf returns the address of a TCP or UDP socket without its port.
func addrOf(a net.Addr) (netip.Addr, bool) {
	at, ok := a.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Addr{}, false
	}
	return at.AddrPort().Addr().Unmap(), true
}

// headers is the size of the IP and UDP headers of a datagram.
func headers(a netip.Addr) int {
	if a.Is4() {
		return 28
	}
	return 48
}

// putHead writes the head of a datagram.
func putHead(b []byte, mark [16]byte, number uint32, size int) {
	copy(b, mark[:])
	binary.BigEndian.PutUint32(b[16:], number)
	binary.BigEndian.PutUint32(b[20:], uint32(size))
}

// parseHead reads the head of a datagram. It returns false if there is none.
func parseHead(b []byte) (mark [16]byte, number uint32, size int, ok bool) {
	if len(b) < wire.DatagramHead {
		return mark, 0, 0, false
	}
	copy(mark[:], b)
	return mark, binary.BigEndian.Uint32(b[16:]), int(binary.BigEndian.Uint32(b[20:])), true
}

// sounder is a server's UDP port.
type sounder struct {
	udp    *soundSocket
	token  [16]byte
	secret [32]byte

	mu    sync.Mutex       // guards what follows
	addrs []netip.AddrPort // addresses that have shown the token, the latest last
}

// proof returns a value that only a host that receives at addr can know.
func (d *sounder) proof(addr netip.AddrPort) (p [16]byte) {
	mac := hmac.New(sha256.New, d.secret[:])
	mac.Write([]byte(addr.String()))
	copy(p[:], mac.Sum(nil))
	return p
}

// serveSound answers datagrams, and sends those that the client requests.
func (s *Session) serveSound(ctx context.Context, c Conn, r *wire.Reader) error {
	s.mu.Lock()
	busy := s.sound
	s.sound = true
	s.mu.Unlock()
	if busy {
		return wire.Errorf(wire.CodeBusy, "a probe has one UDP port at a time")
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sound = false
	}()
	addr, ok := addrOf(c.LocalAddr())
	if !ok {
		return wire.Errorf(wire.CodeUnsupported, "datagrams need TCP beside them")
	}
	udp, err := openSound(addr, s.port)
	if err != nil {
		udp, err = openSound(addr, 0)
	}
	if err != nil {
		return wire.Errorf(wire.CodeUnsupported, "open a UDP port: %v", err)
	}
	d := &sounder{udp: udp}
	_, _ = rand.Read(d.token[:]) // never fails
	_, _ = rand.Read(d.secret[:])
	var reader sync.WaitGroup
	reader.Go(d.answer)
	defer reader.Wait()
	defer udp.Close()
	if _, err := c.Write(wire.Append(nil, &wire.Opened{Port: uint64(udp.port()), Token: d.token})); err != nil {
		return err
	}
	for range maxVolleys {
		m, err := r.Next()
		if err != nil {
			return err
		}
		v, ok := m.(*wire.Volley)
		if !ok {
			continue
		}
		if len(v.Sizes) == 0 {
			return nil
		}
		named, device, err := d.volley(ctx, v)
		if err != nil {
			return err
		}
		out := wire.Append(nil, &wire.Sample{Values: []wire.Value{{Name: "icmp_mtu", Value: int64(named)}, {Name: "local_mtu", Value: int64(device)}}})
		if _, err := c.Write(out); err != nil {
			return err
		}
	}
	return wire.Errorf(wire.CodeProtocol, "too many volleys")
}

// answer answers datagrams that carry the token, until the port is closed. An answer is always
// smaller than its request.
func (d *sounder) answer() {
	buf := make([]byte, largest)
	out := make([]byte, wire.DatagramHead)
	for range maxAnswered {
		n, from, err := d.udp.read(buf)
		if err != nil {
			return
		}
		mark, number, size, ok := parseHead(buf[:n])
		if !ok || size != n || subtle.ConstantTimeCompare(mark[:], d.token[:]) != 1 {
			continue
		}
		d.mu.Lock()
		if i := slices.Index(d.addrs, from); i < 0 {
			if d.addrs = append(d.addrs, from); len(d.addrs) > maxAddresses {
				d.addrs = slices.Delete(d.addrs, 0, 1)
			}
		}
		d.mu.Unlock()
		putHead(out, d.proof(from), number, n)
		_ = d.udp.send(from, out) // an error counts as loss
	}
}

// volley sends the datagrams that a client requests, to the address that it has proven.
func (d *sounder) volley(ctx context.Context, v *wire.Volley) (named, device int, err error) {
	var to netip.AddrPort
	d.mu.Lock()
	for _, a := range d.addrs {
		if p := d.proof(a); subtle.ConstantTimeCompare(p[:], v.Proof[:]) == 1 {
			to = a
		}
	}
	d.mu.Unlock()
	if !to.IsValid() {
		return 0, 0, wire.Errorf(wire.CodeProtocol, "datagrams go only to a proven address")
	}
	sendSizes(d.udp, to, d.token, uint32(v.First), v.Sizes)
	select {
	case <-ctx.Done():
	case <-time.After(min(time.Duration(v.Time)*time.Millisecond, volleyWait)):
	}
	named, device = d.udp.mtus()
	return named, device, nil
}

// sendSizes sends a datagram of each size. It returns the sizes that the interface rejects.
func sendSizes(udp *soundSocket, to netip.AddrPort, mark [16]byte, first uint32, sizes []uint64) (refused []uint64) {
	buf := make([]byte, largest)
	for i, n := range sizes {
		putHead(buf, mark, first+uint32(i), int(n))
		if errors.Is(udp.send(to, buf[:n]), errTooLarge) {
			refused = append(refused, n)
		}
	}
	return refused
}

// sounding is a client's side of the path MTU search.
type sounding struct {
	conn   Conn
	r      *wire.Reader
	udp    *soundSocket
	server netip.AddrPort
	token  [16]byte
	proof  [16]byte
	number uint32
	rtt    time.Duration
	buf    []byte
	late   time.Duration // what answers need beyond a few round trips
}

// errFiltered means that no datagram is answered.
var errFiltered = errors.New("no datagram is answered: UDP is filtered on the way")

// sound finds the path MTU in both directions.
func sound(ctx context.Context, c Conn, rtt time.Duration) (up, down PathMTU, err error) {
	here, ok := addrOf(c.LocalAddr())
	there, ok2 := addrOf(c.RemoteAddr())
	if !ok || !ok2 {
		return up, down, errors.ErrUnsupported
	}
	udp, err := openSound(here, 0)
	if err != nil {
		return up, down, err
	}
	defer udp.Close()
	defer context.AfterFunc(ctx, func() { udp.Close() })()
	if _, err := c.Write(wire.Append(nil, &wire.Test{Kind: wire.Sound, Time: 30_000})); err != nil {
		return up, down, err
	}
	s := &sounding{conn: c, r: wire.NewReader(c, wire.MaxFirstMessage), udp: udp, rtt: rtt, buf: make([]byte, largest)}
	m, err := s.r.Next()
	if err != nil {
		return up, down, err
	}
	d, ok := m.(*wire.Opened)
	if !ok {
		return up, down, refusal(m)
	}
	s.server, s.token = netip.AddrPortFrom(there, uint16(d.Port)), d.Token
	if up, err = s.search(ctx, Up, s.send); err != nil {
		return up, down, err
	}
	if down, err = s.search(ctx, Down, s.ask); err != nil {
		return up, down, err
	}
	_, err = c.Write(wire.Append(nil, &wire.Volley{}))
	return up, down, err
}

// refusal turns a server's message into an error.
func refusal(m wire.Message) error {
	if r, ok := m.(*wire.Refuse); ok {
		return &wire.Error{Code: r.Code, Text: r.Text, Remote: true}
	}
	return wire.Errorf(wire.CodeProtocol, "the server answered a test with a message of type %d", m.Type())
}

// search calls try with sizes until the search has ended. try records the results.
func (s *sounding) search(ctx context.Context, d Direction, try func(*mtuSearch, []uint64) error) (PathMTU, error) {
	head := headers(s.server.Addr())
	least := customary[0]
	if head > 28 {
		least = customary[1]
	}
	found := newMTUSearch()
	for ctx.Err() == nil {
		var sizes []uint64
		for _, n := range found.next(least) {
			sizes = append(sizes, uint64(min(n-head, 65507)))
		}
		if len(sizes) == 0 {
			p := found.result(d)
			if !p.Measured {
				return p, errFiltered
			}
			return p, nil
		}
		if err := try(found, sizes); err != nil {
			return PathMTU{}, err
		}
		s.number += uint32(len(sizes))
	}
	return PathMTU{}, context.Cause(ctx)
}

// patience is how long to wait for an answer.
func (s *sounding) patience() time.Duration { return 3*s.rtt/2 + 100*time.Millisecond + s.late }

// lateAnswer is how much longer to wait after each answer that came late.
const lateAnswer = 100 * time.Millisecond

// send tries sizes from this host to the server.
func (s *sounding) send(found *mtuSearch, sizes []uint64) error {
	head := headers(s.server.Addr())
	refused := sendSizes(s.udp, s.server, s.token, s.number, sizes)
	waiting := len(sizes) - len(refused)
	s.udp.deadline(time.Now().Add(s.patience()))
	for waiting > 0 {
		n, from, err := s.udp.read(s.buf)
		if err != nil {
			break
		}
		mark, number, size, ok := parseHead(s.buf[:n])
		i := int(number) - int(s.number)
		switch {
		case from != s.server || !ok || found.passed[size+head]:
		case i >= 0 && i < len(sizes) && size == int(sizes[i]):
			s.proof = mark
			found.passed[size+head] = true
			waiting--
		case i < 0 && found.tries[size+head] > 0: // a narrow line: the answer comes late
			s.proof = mark
			found.passed[size+head] = true
			s.late += lateAnswer
		}
	}
	s.note(found, sizes, refused)
	return nil
}

// note records the sizes that did not pass.
func (s *sounding) note(found *mtuSearch, sizes, refused []uint64) {
	head := headers(s.server.Addr())
	named, device := s.udp.mtus()
	found.learn(named, device)
	for _, n := range sizes {
		if size := int(n) + head; !found.passed[size] {
			found.tries[size]++
			if slices.Contains(refused, n) {
				found.tries[size] = mtuTries
			}
		}
	}
}

func (s *mtuSearch) learn(named, device int) {
	if named > 0 && (s.named == 0 || named < s.named) {
		s.named = named
	}
	if device > 0 {
		s.device = device
	}
}

// ask tries sizes from the server to this host.
func (s *sounding) ask(found *mtuSearch, sizes []uint64) error {
	head := headers(s.server.Addr())
	wait := s.rtt + 100*time.Millisecond
	_, err := s.conn.Write(wire.Append(nil, &wire.Volley{Proof: s.proof, First: uint64(s.number), Sizes: sizes, Time: uint64(wait.Milliseconds())}))
	if err != nil {
		return err
	}
	// The server reports after it has sent everything. Datagrams that are not here by then are
	// lost.
	done := make(chan error, 1)
	var sample *wire.Sample
	go func() {
		m, err := s.r.Next()
		if err == nil {
			var ok bool
			if sample, ok = m.(*wire.Sample); !ok {
				err = refusal(m)
			}
		}
		s.udp.deadline(time.Unix(1, 0))
		done <- err
	}()
	s.udp.deadline(time.Time{})
	for {
		n, from, err := s.udp.read(s.buf)
		if err != nil {
			break
		}
		mark, number, size, ok := parseHead(s.buf[:n])
		i := int(number - s.number)
		if from == s.server && ok && mark == s.token && size == n && i >= 0 && i < len(sizes) && n == int(sizes[i]) {
			found.passed[n+head] = true
		}
	}
	if err := <-done; err != nil {
		return err
	}
	var named, device int
	for _, v := range sample.Values {
		switch n := int(min(max(v.Value, 0), largest)); v.Name {
		case "icmp_mtu":
			named = n
		case "local_mtu":
			device = n
		}
	}
	found.learn(named, device)
	for _, n := range sizes {
		if size := int(n) + head; !found.passed[size] {
			found.tries[size]++
			if device > 0 && size > device {
				found.tries[size] = mtuTries
			}
		}
	}
	return nil
}
