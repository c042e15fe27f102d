package identity

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// InviteTTL is how long an invitation is valid by default.
const InviteTTL = 10 * time.Minute

const (
	exporterSize  = 32
	tokenBytes    = 18 // 144 bits: 24 characters, all bits of the last one used
	maxInvites    = 256
	rememberFor   = time.Hour // how long after its end an invitation still gets its own error
	inviteContext = "fxfer invitation v1\x00"
)

// Errors of Redeem. Only a holder of the real token can learn that it is expired or used. Any other
// proof matches no invitation.
var (
	ErrInviteUnknown = errors.New("this invitation is not known here")
	ErrInviteExpired = errors.New("this invitation has expired")
	ErrInviteUsed    = errors.New("this invitation has been used already")
)

// invite is one line of the file invitations.
type invite struct {
	token   string
	grants  Grants
	expires time.Time
	used    bool
	comment string
}

const invitesHeader = "# Invitations given out, one a line: token share=rights[,share=…] until open|used  # comment\n"

// inviteCache is the content of the file invitations at the last read.
type inviteCache struct {
	info   fs.FileInfo // nil: nothing read yet, or no file
	readAt time.Time
	list   []invite
}

// Invite makes an invitation that admits one client with grants, and returns its secret token of 24
// base64url characters. It is valid for ttl, or for InviteTTL if ttl is 0, with any process that
// uses this store. Invite fails while 256 invitations are open.
func (s *Store) Invite(grants Grants, ttl time.Duration, comment string) (token string, err error) {
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
	now := s.now()
	err = s.update(invitesFile, func(text string) (string, error) {
		list := recent(parseInvites(text), now)
		if len(list) >= maxInvites {
			ended := slices.IndexFunc(list, func(v invite) bool { return v.used || !now.Before(v.expires) })
			if ended < 0 {
				return "", fmt.Errorf("invite: %d invitations are open already", maxInvites)
			}
			list = slices.Delete(list, ended, ended+1)
		}
		list = append(list, invite{token: token, grants: grants, expires: now.Add(ttl), comment: cleanComment(comment)})
		return formatInvites(list), nil
	})
	return token, err
}

// InviteProof returns what a client shows instead of the token: HMAC-SHA-256, keyed by the token,
// over a context string and the exporter value of its TLS connection (32 bytes, RFC 8446 section
// 7.5). The proof is worth nothing on another connection.
func InviteProof(token string, exporter []byte) [32]byte {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte(inviteContext))
	mac.Write(exporter)
	return [32]byte(mac.Sum(nil))
}

// Redeem spends the invitation whose token made the proof on the connection with this exporter
// value. It returns the invitation's grants and comment. Of all calls with the same token, one
// succeeds, across processes and even if one of them is killed. Redeem fails with ErrInviteUnknown,
// ErrInviteExpired or ErrInviteUsed. It distinguishes the last two for an hour after the
// invitation's expiry. Its duration does not depend on which token matches.
func (s *Store) Redeem(proof [32]byte, exporter []byte) (grants Grants, comment string, err error) {
	if len(exporter) != exporterSize {
		return nil, "", fmt.Errorf("redeem an invitation: exporter value of %d bytes, expected %d", len(exporter), exporterSize)
	}
	list, err := s.readInvites()
	if err != nil {
		return nil, "", fmt.Errorf("redeem an invitation: %w", err)
	}
	now := s.now()
	v, err := redeemable(list, proof, exporter, now)
	if err != nil {
		return nil, "", err
	}
	err = s.update(invitesFile, func(text string) (string, error) {
		list := parseInvites(text) // another process may have been faster
		if v, err = redeemable(list, proof, exporter, now); err != nil {
			return "", err
		}
		v.used = true
		return formatInvites(recent(list, now)), nil
	})
	if err != nil {
		return nil, "", err
	}
	return v.grants, v.comment, nil
}

// redeemable returns the invitation that a proof belongs to.
func redeemable(list []invite, proof [32]byte, exporter []byte, now time.Time) (*invite, error) {
	match := -1
	for n := range list {
		want := InviteProof(list[n].token, exporter)
		match = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(want[:], proof[:]), n, match)
	}
	switch {
	case match < 0 || !now.Before(list[match].expires.Add(rememberFor)):
		return nil, ErrInviteUnknown
	case list[match].used:
		return nil, ErrInviteUsed
	case !now.Before(list[match].expires):
		return nil, ErrInviteExpired
	}
	return &list[match], nil
}

// readInvites returns the invitations, from memory if the file did not change. The caller must not
// change them.
func (s *Store) readInvites() ([]invite, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.invites
	if unchanged(s.path(invitesFile), c.info, c.readAt) {
		return c.list, nil
	}
	*c = inviteCache{readAt: time.Now()}
	text, info, err := s.read(invitesFile)
	if err != nil {
		return nil, err
	}
	c.info, c.list = info, parseInvites(text)
	return c.list, nil
}

// recent drops invitations that ended long ago.
func recent(list []invite, now time.Time) []invite {
	return slices.DeleteFunc(list, func(v invite) bool { return !now.Before(v.expires.Add(rememberFor)) })
}

// parseInvites reads the text of the file. A line with a fault invites nobody.
func parseInvites(text string) (list []invite) {
	for line := range strings.Lines(text) {
		entry, comment, _ := strings.Cut(line, "#")
		fields := strings.Fields(entry)
		if len(fields) != 4 {
			continue
		}
		grants, err := ParseGrants(fields[1])
		if err != nil {
			continue
		}
		expires, err := time.Parse(time.RFC3339Nano, fields[2])
		if err != nil {
			continue
		}
		list = append(list, invite{fields[0], grants, expires, fields[3] != "open", strings.TrimSpace(comment)})
	}
	return list
}

func formatInvites(list []invite) string {
	text := invitesHeader
	for _, v := range list {
		state := "open"
		if v.used {
			state = "used"
		}
		text += fmt.Sprintf("%s %s %s %s", v.token, v.grants, v.expires.UTC().Format(time.RFC3339Nano), state)
		if v.comment != "" {
			text += "  # " + v.comment
		}
		text += "\n"
	}
	return text
}
