package identity

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// InviteTTL is how long an invitation is open unless told otherwise.
const InviteTTL = 10 * time.Minute

const (
	exporterSize  = 32
	tokenBytes    = 18 // 144 bits, 24 characters without an odd last one
	maxInvites    = 256
	rememberFor   = time.Hour // so long after its end an invitation still gets its own error
	inviteContext = "fxfer invitation v1\x00"
)

// What Redeem refuses. Only a holder of the real token can learn that it is expired or used: anyone else's proof matches none.
var (
	ErrInviteUnknown = errors.New("this invitation is not known here")
	ErrInviteExpired = errors.New("this invitation has expired")
	ErrInviteUsed    = errors.New("this invitation has been used already")
)

// Invites are the invitations of one serving process. They are kept in memory only, so a restart ends them. The methods may
// be called concurrently.
type Invites struct {
	now func() time.Time

	mu   sync.Mutex
	list []*invite // oldest first, at most maxInvites
}

type invite struct {
	token   string
	grants  Grants
	expires time.Time
	used    bool
}

// NewInvites returns an empty set which takes the time from now, usually time.Now.
func NewInvites(now func() time.Time) *Invites { return &Invites{now: now} }

// New opens an invitation that enrols one client with grants, and returns its secret token of 24 base64url characters. It is
// open for ttl, or for InviteTTL if ttl is 0. New fails while 256 invitations are open.
func (i *Invites) New(grants Grants, ttl time.Duration) (token string, err error) {
	if err := grants.check(); err != nil {
		return "", fmt.Errorf("invite: %w", err)
	}
	switch {
	case ttl < 0:
		return "", fmt.Errorf("invite: the time %v is negative", ttl)
	case ttl == 0:
		ttl = InviteTTL
	}
	secret := make([]byte, tokenBytes)
	if _, err := rand.Read(secret); err != nil {
		return "", fmt.Errorf("invite: %w", err)
	}
	token = base64.RawURLEncoding.EncodeToString(secret)

	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.now()
	i.forgetLocked(now)
	if len(i.list) >= maxInvites {
		ended := slices.IndexFunc(i.list, func(v *invite) bool { return v.used || !now.Before(v.expires) })
		if ended < 0 {
			return "", fmt.Errorf("invite: %d invitations are open already", maxInvites)
		}
		i.list = slices.Delete(i.list, ended, ended+1)
	}
	i.list = append(i.list, &invite{token: token, grants: maps.Clone(grants), expires: now.Add(ttl)})
	return token, nil
}

// InviteProof returns what a client shows instead of the token: HMAC-SHA-256, keyed by the token, over a context string and
// the exporter value of its TLS connection (32 bytes, RFC 8446 section 7.5). It is worth nothing on any other connection.
func InviteProof(token string, exporter []byte) [32]byte {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte(inviteContext))
	mac.Write(exporter)
	return [32]byte(mac.Sum(nil))
}

// Redeem spends the invitation whose token made the proof on the connection with this exporter value, and returns its grants.
// Of any number of calls with the same token one succeeds. It fails with ErrInviteUnknown, ErrInviteExpired or ErrInviteUsed;
// the last two are told apart for an hour after the invitation's expiry. Its time doesn't depend on which token matches.
func (i *Invites) Redeem(proof [32]byte, exporter []byte) (Grants, error) {
	if len(exporter) != exporterSize {
		return nil, fmt.Errorf("redeem an invitation: exporter value of %d bytes, expected %d", len(exporter), exporterSize)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.now()
	i.forgetLocked(now)
	match := -1
	for n, v := range i.list {
		want := InviteProof(v.token, exporter)
		match = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(want[:], proof[:]), n, match)
	}
	if match < 0 {
		return nil, ErrInviteUnknown
	}
	v := i.list[match]
	switch {
	case v.used:
		return nil, ErrInviteUsed
	case !now.Before(v.expires):
		return nil, ErrInviteExpired
	}
	v.used = true
	return maps.Clone(v.grants), nil
}

// forgetLocked drops the invitations that ended long ago.
func (i *Invites) forgetLocked(now time.Time) {
	i.list = slices.DeleteFunc(i.list, func(v *invite) bool { return !now.Before(v.expires.Add(rememberFor)) })
}
