package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

const (
	// CapabilityTTL is how long a capability is valid by default.
	CapabilityTTL = 7 * 24 * time.Hour
	// CapabilityUses is in how many sessions it may be used by default.
	CapabilityUses = 100
	// MaxCapabilityUses bounds the uses that users ask for.
	MaxCapabilityUses = 1_000_000
	// MaxCapabilityTTL is how far the end of a capability may be away: a server remembers each one
	// until then.
	MaxCapabilityTTL = 30 * 24 * time.Hour
	// MaxCapability bounds an encoded capability, in bytes.
	MaxCapability = 5 << 10
	// MaxCapabilityPath bounds its path, in bytes.
	MaxCapabilityPath = 4096

	// capabilityContext begins what is signed, so that it means nothing elsewhere: what TLS 1.3 signs
	// begins with 64 spaces (RFC 8446, section 4.4.3).
	capabilityContext = "fxfer capability v1\x00"
)

// Errors of capabilities.
var (
	ErrCapabilityMalformed = errors.New("the capability is malformed")
	ErrCapabilitySignature = errors.New("the capability's signature is wrong")
	ErrCapabilityServer    = errors.New("the capability is for another server")
	ErrCapabilityHolder    = errors.New("the capability is for another holder")
	ErrCapabilityExpired   = errors.New("the capability has expired")
	ErrCapabilityTooLong   = errors.New("the capability is valid for too long")
	ErrCapabilityPath      = errors.New("the capability is for another share or path")
	ErrCapabilityUsed      = errors.New("the capability has been used up")
	ErrCapabilityMany      = errors.New("this user has too many capabilities here that have not expired")
)

// Capability is a statement that a user signs: Holder may act for User at Server, below Path in
// Share, with Rights at most, until Until, in Uses sessions. It gives the holder nothing that the
// user may not do at that time.
type Capability struct {
	User, Holder, Server Pin
	Nonce                [16]byte // names it among those of its user
	Until                time.Time
	Uses                 uint32
	Rights               Rights
	Share                string
	Path                 string // below the share; "." is all of it
}

// Sign signs the capability for the user with this key, which becomes User. It chooses Nonce, and
// returns the encoded capability. It fails if a field cannot be encoded.
func (c Capability) Sign(key ed25519.PrivateKey) ([]byte, error) {
	c.User = PinOfPrivate(key)
	_, _ = rand.Read(c.Nonce[:]) // never fails
	return c.signAs(key)
}

// signAs is Sign with the User and the Nonce that it has.
func (c Capability) signAs(key ed25519.PrivateKey) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	b := []byte(capabilityContext)
	for _, pin := range []Pin{c.User, c.Holder, c.Server} {
		public, _ := pin.Key() // checked
		b = append(b, public...)
	}
	b = append(b, c.Nonce[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Until.Unix()))
	b = binary.BigEndian.AppendUint32(b, c.Uses)
	b = append(b, byte(c.Rights))
	for _, s := range []string{c.Share, c.Path} {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	return append(b, ed25519.Sign(key, b)...), nil
}

// check returns an error unless the capability can be encoded.
func (c *Capability) check() error {
	for _, pin := range []Pin{c.User, c.Holder, c.Server} {
		if _, err := pin.Key(); err != nil {
			return err
		}
	}
	switch {
	case c.Until.Unix() <= 0, c.Uses == 0, c.Rights == 0, c.Rights&^anyRight != 0:
		return fmt.Errorf("%w: it allows nothing", ErrCapabilityMalformed)
	case len(c.Path) > MaxCapabilityPath || !fs.ValidPath(c.Path):
		return fmt.Errorf("%w: %q is not a path", ErrCapabilityMalformed, clip(c.Path))
	}
	return CheckShare(c.Share)
}

// ParseCapability reads an encoded capability and verifies its signature by the key of its User.
// Each capability has one encoding. It fails with ErrCapabilityMalformed or ErrCapabilitySignature.
func ParseCapability(b []byte) (c Capability, err error) {
	const fixed = len(capabilityContext) + 3*ed25519.PublicKeySize + 16 + 8 + 4 + 1
	if len(b) > MaxCapability || len(b) < fixed+ed25519.SignatureSize || string(b[:len(capabilityContext)]) != capabilityContext {
		return c, ErrCapabilityMalformed
	}
	signed, signature := b[:len(b)-ed25519.SignatureSize], b[len(b)-ed25519.SignatureSize:]
	rest := signed[len(capabilityContext):]
	take := func(n int) (part []byte) {
		part, rest = rest[:n], rest[n:]
		return part
	}
	for _, pin := range []*Pin{&c.User, &c.Holder, &c.Server} {
		*pin = PinOf(take(ed25519.PublicKeySize))
	}
	copy(c.Nonce[:], take(16))
	c.Until = time.Unix(int64(binary.BigEndian.Uint64(take(8))), 0)
	c.Uses = binary.BigEndian.Uint32(take(4))
	c.Rights = Rights(take(1)[0])
	for _, s := range []*string{&c.Share, &c.Path} {
		if len(rest) < 2 {
			return Capability{}, ErrCapabilityMalformed
		}
		n := int(binary.BigEndian.Uint16(take(2)))
		if len(rest) < n {
			return Capability{}, ErrCapabilityMalformed
		}
		*s = string(take(n))
	}
	if len(rest) > 0 || c.check() != nil {
		return Capability{}, ErrCapabilityMalformed
	}
	user, _ := c.User.Key() // checked
	if !ed25519.Verify(user, signed, signature) {
		return Capability{}, ErrCapabilitySignature
	}
	return c, nil
}

// Admits returns why a session of this peer at this server does not fall under the capability, or
// nil. path is below the share, "." for the share itself. How often it was used does not count.
func (c *Capability) Admits(server Pin, peer Principal, share, path string, now time.Time) error {
	switch {
	case c.Server != server:
		return ErrCapabilityServer
	case Principal(c.Holder) != peer:
		return ErrCapabilityHolder
	case !now.Before(c.Until):
		return ErrCapabilityExpired
	case c.Until.After(now.Add(MaxCapabilityTTL)):
		return ErrCapabilityTooLong
	case c.Share != share, !fs.ValidPath(path), c.Path != "." && path != c.Path && !strings.HasPrefix(path, c.Path+"/"):
		return ErrCapabilityPath
	}
	return nil
}
