package identity

import (
	"bytes"
	"crypto/ed25519"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// someCapability is one of a user with this key, for a holder at a server.
func someCapability(t testing.TB) (c Capability, user ed25519.PrivateKey) {
	t.Helper()
	pin := func() (Pin, ed25519.PrivateKey) {
		public, private, err := ed25519.GenerateKey(nil)
		require.NoError(t, err)
		return PinOf(public), private
	}
	c.User, user = pin()
	c.Holder, _ = pin()
	c.Server, _ = pin()
	c.Until, c.Uses, c.Rights, c.Share, c.Path = time.Unix(2_000_000_000, 0), 3, Write, "data", "a/b"
	return c, user
}

// TestCapability: what was signed is read back, and no byte of it can be another one.
func TestCapability(t *testing.T) {
	t.Parallel()
	c, user := someCapability(t)
	b, err := c.Sign(user)
	require.NoError(t, err)
	got, err := ParseCapability(b)
	require.NoError(t, err)
	c.Nonce = got.Nonce
	require.Equal(t, c, got)
	require.NotEqual(t, [16]byte{}, got.Nonce)
	for i := range b {
		forged := bytes.Clone(b)
		forged[i] ^= 1
		_, err := ParseCapability(forged)
		require.Error(t, err, "byte %d", i)
	}
	for n := range b {
		_, err := ParseCapability(b[:n])
		require.ErrorIs(t, err, ErrCapabilityMalformed, "%d bytes", n)
	}
	_, err = ParseCapability(append(bytes.Clone(b), 0))
	require.Error(t, err)
	_, other := someCapability(t)
	forged, err := c.signAs(other) // in the name of the user
	require.NoError(t, err)
	_, err = ParseCapability(forged)
	require.ErrorIs(t, err, ErrCapabilitySignature)
}

// TestCapabilityOfNothing: what allows nothing, or cannot be encoded, is not signed.
func TestCapabilityOfNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Capability){
		"no holder":          func(c *Capability) { c.Holder = "" },
		"no server":          func(c *Capability) { c.Server = "x" },
		"no end":             func(c *Capability) { c.Until = time.Time{} },
		"no use":             func(c *Capability) { c.Uses = 0 },
		"no right":           func(c *Capability) { c.Rights = 0 },
		"an unknown right":   func(c *Capability) { c.Rights = 1 << 7 },
		"no share":           func(c *Capability) { c.Share = "" },
		"all shares":         func(c *Capability) { c.Share = AllShares },
		"no path":            func(c *Capability) { c.Path = "" },
		"a path above":       func(c *Capability) { c.Path = "a/../.." },
		"an absolute path":   func(c *Capability) { c.Path = "/a" },
		"a slash at the end": func(c *Capability) { c.Path = "a/" },
		"a long path":        func(c *Capability) { c.Path = string(bytes.Repeat([]byte("a"), MaxCapabilityPath+1)) },
	} {
		c, user := someCapability(t)
		change(&c)
		_, err := c.Sign(user)
		require.Error(t, err, name)
	}
}

// TestAdmits has a session that the capability admits, and one change of each thing that it names.
func TestAdmits(t *testing.T) {
	t.Parallel()
	type session struct {
		server Pin
		peer   Principal
		share  string
		path   string
		now    time.Time
	}
	c, _ := someCapability(t)
	for name, x := range map[string]struct {
		change func(*session, *Capability)
		want   error
	}{
		"as it is":           {func(*session, *Capability) {}, nil},
		"below":              {func(s *session, _ *Capability) { s.path = "a/b/c/d" }, nil},
		"all of the share":   {func(s *session, c *Capability) { s.path, c.Path = "x", "." }, nil},
		"the share itself":   {func(s *session, c *Capability) { s.path, c.Path = ".", "." }, nil},
		"another server":     {func(s *session, c *Capability) { s.server = c.Holder }, ErrCapabilityServer},
		"another peer":       {func(s *session, c *Capability) { s.peer = Principal(c.User) }, ErrCapabilityHolder},
		"a name":             {func(s *session, _ *Capability) { s.peer = "dns:a" }, ErrCapabilityHolder},
		"nobody":             {func(s *session, _ *Capability) { s.peer = "" }, ErrCapabilityHolder},
		"its end":            {func(s *session, c *Capability) { s.now = c.Until }, ErrCapabilityExpired},
		"long ago":           {func(s *session, _ *Capability) { s.now = time.Unix(0, 0) }, ErrCapabilityTooLong},
		"for ever":           {func(_ *session, c *Capability) { c.Until = time.Unix(math.MaxInt64/4, 0) }, ErrCapabilityTooLong},
		"another share":      {func(s *session, _ *Capability) { s.share = "date" }, ErrCapabilityPath},
		"above":              {func(s *session, _ *Capability) { s.path = "a" }, ErrCapabilityPath},
		"all":                {func(s *session, _ *Capability) { s.path = "." }, ErrCapabilityPath},
		"beside":             {func(s *session, _ *Capability) { s.path = "a/bc" }, ErrCapabilityPath},
		"another path":       {func(s *session, _ *Capability) { s.path = "b" }, ErrCapabilityPath},
		"a way out":          {func(s *session, _ *Capability) { s.path = "a/b/../c" }, ErrCapabilityPath},
		"no path":            {func(s *session, _ *Capability) { s.path = "" }, ErrCapabilityPath},
		"a way out of all":   {func(s *session, c *Capability) { s.path, c.Path = "../x", "." }, ErrCapabilityPath},
		"an absolute path":   {func(s *session, c *Capability) { s.path, c.Path = "/x", "." }, ErrCapabilityPath},
		"a slash at the end": {func(s *session, _ *Capability) { s.path = "a/b/" }, ErrCapabilityPath},
	} {
		c := c
		s := session{c.Server, Principal(c.Holder), "data", "a/b", c.Until.Add(-time.Hour)}
		x.change(&s, &c)
		require.Equal(t, x.want, c.Admits(s.server, s.peer, s.share, s.path, s.now), name)
	}
}

// TestSpend: a capability has as many uses as it says, in all processes and after a restart.
func TestSpend(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, _ := someCapability(t)
	c.Until = time.Now().Add(time.Hour)
	other, _ := someCapability(t)
	other.Until, other.Uses = c.Until, 1 // of another user, and with the same nonce
	for range c.Uses {
		s, err := OpenStore(dir)
		require.NoError(t, err)
		require.NoError(t, s.Spend(&c))
	}
	s, err := OpenStore(dir)
	require.NoError(t, err)
	require.ErrorIs(t, s.Spend(&c), ErrCapabilityUsed)
	require.NoError(t, s.Spend(&other))
	require.ErrorIs(t, s.Spend(&other), ErrCapabilityUsed)
	s.now = func() time.Time { return c.Until.Add(rememberFor / 2) }
	require.ErrorIs(t, s.Spend(&c), ErrCapabilityUsed, "a clock that is set back")
	s.now = func() time.Time { return c.Until.Add(rememberFor) }
	next := other
	next.Nonce[0], next.Until = 1, s.now().Add(time.Hour)
	require.NoError(t, s.Spend(&next))
	text, _, err := s.read(usesFile)
	require.NoError(t, err)
	require.Len(t, parseUses(text, s.now()), 1, "what has expired is forgotten")
	require.Error(t, Ephemeral().Spend(&c))
}

// TestSpendMany: one user does not fill the list for the others.
func TestSpendMany(t *testing.T) {
	t.Parallel()
	c, _ := someCapability(t)
	var list []use
	var err error
	for i := range maxCapabilities {
		c.Nonce = [16]byte{byte(i), byte(i >> 8)}
		list, err = countUse(list, &c)
		require.NoError(t, err)
	}
	_, err = countUse(list, &c)
	require.NoError(t, err, "one that is known")
	c.Nonce = [16]byte{15: 1}
	_, err = countUse(list, &c)
	require.ErrorIs(t, err, ErrCapabilityMany)
	c.User = c.Holder
	_, err = countUse(list, &c)
	require.NoError(t, err, "another user")
}

// FuzzCapability: whatever parses has a signature of its user, and one encoding.
func FuzzCapability(f *testing.F) {
	c, user := someCapability(f)
	b, err := c.Sign(user)
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte(capabilityContext))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParseCapability(b)
		if err != nil {
			require.Equal(t, Capability{}, got)
			return
		}
		require.NoError(t, got.check())
		require.Equal(t, c.User, got.User, "a forged signature")
		again, err := got.signAs(user)
		require.NoError(t, err)
		require.Equal(t, b, again)
	})
}

// FuzzUses: what is read of the list can be written and read again.
func FuzzUses(f *testing.F) {
	f.Add(usesHeader + "ed25519:x 00ff 3 2033-05-18T03:33:20Z\n")
	f.Add("a b 4294967296 2033-05-18T03:33:20Z\n\x00")
	f.Fuzz(func(t *testing.T, text string) {
		list := parseUses(text, time.Unix(0, 0))
		require.Equal(t, list, parseUses(formatUses(list), time.Unix(0, 0)))
	})
}
