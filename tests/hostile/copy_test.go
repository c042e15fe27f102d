package hostile

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
	"github.com/stretchr/testify/require"
)

// copying is the intent of a server that works for a user.
const copying = 12

// capability is what a user signs for a server. signer is the user unless it is set.
type capability struct {
	user, signer   key
	holder, server string // pins
	nonce          byte
	until          time.Time
	uses           uint32
	rights         byte
	share, path    string
}

func (c capability) bytes() []byte {
	public := func(pin string) []byte {
		b, _ := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(pin, "ed25519:"))
		return b
	}
	long := func(s string) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...) }
	b := cat([]byte("fxfer capability v1\x00"), public(c.user.pin), public(c.holder), public(c.server), bytes.Repeat([]byte{c.nonce}, 16),
		binary.BigEndian.AppendUint64(nil, uint64(c.until.Unix())), binary.BigEndian.AppendUint32(nil, c.uses), []byte{c.rights}, long(c.share), long(c.path))
	signer := c.signer
	if signer.pin == "" {
		signer = c.user
	}
	return append(b, ed25519.Sign(signer.cert.PrivateKey.(ed25519.PrivateKey), b)...)
}

// TestCapabilities: a server, or a thief, shows a capability that is not for it, or not for that.
// Each attack differs from what is admitted by one thing.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	require.NoError(t, os.MkdirAll(filepath.Join(s.root, "data/y"), 0o700))
	limited, revoked, holder, thief := newKey(t), newKey(t), newKey(t), newKey(t)
	revokedHolder := newKey(t)
	lines := s.known.pin + " *=rw\n" + limited.pin + " ro=ro,data=append\n" + revoked.pin + " revoked\n" + revokedHolder.pin + " revoked\n"
	require.NoError(t, os.WriteFile(filepath.Join(s.home, "authorized_clients"), []byte(lines), 0o600))
	nonce := byte(0)
	type attempt struct {
		capability
		request
		by    key
		forge func([]byte) []byte
	}
	begin := func(change func(*attempt)) (*line, attempt) {
		nonce++
		id := byte(sessions.Add(1))
		a := attempt{
			capability{
				user: s.known, holder: holder.pin, server: s.Pin(), nonce: nonce, until: time.Now().Add(time.Hour),
				uses: 1, rights: 2, share: "data", path: "y",
			},
			request{session: id, secret: id, intent: copying, share: "data", paths: []string{"y"}}, holder,
			func(b []byte) []byte { return b },
		}
		change(&a)
		if a.request.capability == nil {
			a.request.capability = a.forge(a.capability.bytes())
		}
		l := s.dial(t, a.by)
		l.say(a.request.bytes())
		return l, a
	}
	for name, change := range map[string]func(*attempt){
		"as it is":                     func(*attempt) {},
		"into the folder":              func(a *attempt) { a.paths = []string{"y/"} },
		"below the folder":             func(a *attempt) { a.paths = []string{"y/z/new"} },
		"into the share":               func(a *attempt) { a.capability.path, a.paths = ".", []string{""} },
		"from a client with own right": func(a *attempt) { a.by, a.holder = s.known, s.known.pin },
	} {
		l, _ := begin(change)
		kind, _ := l.next()
		require.Equal(t, byte(welcome), kind, name)
		l.Close()
	}
	for name, x := range map[string]struct {
		change func(*attempt)
		want   uint64
	}{
		"no capability":                  {func(a *attempt) { a.request.capability = []byte{} }, codeProtocol},
		"one of noise":                   {func(a *attempt) { a.request.capability = bytes.Repeat([]byte{7}, 300) }, codeRight},
		"one cut short":                  {func(a *attempt) { a.forge = func(b []byte) []byte { return b[:len(b)-1] } }, codeRight},
		"one longer than any":            {func(a *attempt) { a.request.capability = make([]byte, 5<<10+1) }, gone},
		"another version":                {func(a *attempt) { a.forge = func(b []byte) []byte { b[18] = '2'; return b } }, codeRight},
		"forged: signed by the holder":   {func(a *attempt) { a.signer = holder }, codeRight},
		"forged: signed by another user": {func(a *attempt) { a.signer = limited }, codeRight},
		"forged: more uses":              {func(a *attempt) { a.forge = func(b []byte) []byte { b[20+96+16+8+3] = 9; return b } }, codeRight},
		"forged: a later end":            {func(a *attempt) { a.forge = func(b []byte) []byte { b[20+96+16+7]++; return b } }, codeRight},
		"forged: another right":          {func(a *attempt) { a.forge = func(b []byte) []byte { b[20+96+16+8+4] = 3; return b } }, codeRight},
		"forged: another path": {func(a *attempt) {
			a.forge = func(b []byte) []byte { b[len(b)-65] = 'x'; return b }
			a.paths = []string{"x"}
		}, codeRight},
		"stolen by another key":       {func(a *attempt) { a.by = thief }, codeRight},
		"stolen by another client":    {func(a *attempt) { a.by = limited }, codeRight},
		"shown by its own user":       {func(a *attempt) { a.by = s.known }, codeRight},
		"for another server":          {func(a *attempt) { a.server = thief.pin }, codeRight},
		"expired":                     {func(a *attempt) { a.until = time.Now().Add(-time.Second) }, codeRight},
		"valid for too long":          {func(a *attempt) { a.until = time.Now().Add(31 * 24 * time.Hour) }, codeRight},
		"valid for ever":              {func(a *attempt) { a.until = time.Unix(1<<62, 0) }, codeRight},
		"no uses":                     {func(a *attempt) { a.uses = 0 }, codeRight},
		"no rights":                   {func(a *attempt) { a.rights = 0 }, codeRight},
		"another share":               {func(a *attempt) { a.request.share = "wo" }, codeRight},
		"a share that is not there":   {func(a *attempt) { a.request.share, a.capability.share = "none", "none" }, codeRight},
		"the folder above":            {func(a *attempt) { a.paths = []string{""} }, codeRight},
		"the folder beside":           {func(a *attempt) { a.paths = []string{"y2"} }, codeRight},
		"out of the folder":           {func(a *attempt) { a.paths = []string{"y/../z"} }, codeRight},
		"out of the share":            {func(a *attempt) { a.paths = []string{"y/../../outside"} }, codeRight},
		"an absolute path":            {func(a *attempt) { a.paths = []string{"/y"} }, codeRight},
		"two paths":                   {func(a *attempt) { a.paths = []string{"y", "z"} }, codeProtocol},
		"a share for reading only":    {func(a *attempt) { a.request.share, a.capability.share = "ro", "ro" }, codeRight},
		"a user without the right":    {func(a *attempt) { a.user = limited }, codeRight},
		"a user who is not known":     {func(a *attempt) { a.user = thief }, codeRight},
		"a user who was revoked":      {func(a *attempt) { a.user = revoked }, codeRight},
		"a holder who was revoked":    {func(a *attempt) { a.by, a.holder = revokedHolder, revokedHolder.pin }, codeRight},
		"a right to read for writing": {func(a *attempt) { a.rights = 1 }, codeRight},
		"removing without a right":    {func(a *attempt) { a.target = []byte{7: 1} }, codeRight},
		"comparing digests":           {func(a *attempt) { a.target = []byte{0: 1, 7: 0} }, codeRight},
		"a backup folder beside":      {func(a *attempt) { a.backup = "elsewhere" }, codeRight},
		"sending as itself":           {func(a *attempt) { a.intent = push }, codeProtocol},
		"getting":                     {func(a *attempt) { a.intent = pull }, codeProtocol},
		"listing":                     {func(a *attempt) { a.intent = list }, codeProtocol},
		"working on files":            {func(a *attempt) { a.intent = files }, codeProtocol},
		"with an invitation":          {func(a *attempt) { a.proof = make([]byte, 32) }, codeProtocol},
	} {
		tried(t, client, "a capability: "+name, "a capability names user, holder, server, path, rights, end and uses, and all must hold")
		l, _ := begin(x.change)
		code, text := l.refusal()
		require.Equal(t, x.want, code, "%s: %q", name, text)
		l.Close()
	}
	for name, change := range map[string]func(*attempt){
		"replayed at once": func(*attempt) {}, "replayed with another path": func(a *attempt) { a.paths = []string{"y/z"} },
	} {
		tried(t, client, "a capability: "+name, "uses are counted by user and number, in a file that outlives the server")
		l, used := begin(func(*attempt) {})
		l.await(t, welcome)
		l.Close()
		l, _ = begin(func(a *attempt) {
			change(a)
			a.request.capability = used.request.capability
		})
		code, _ := l.refusal()
		require.Equal(t, uint64(codeRight), code, name)
	}
	tried(t, client, "a capability: a session that outlasts it", "a review ends sessions whose client has lost what it needs")
	l, _ := begin(func(a *attempt) { a.until = time.Now().Add(3 * time.Second) })
	code, text := l.refusal()
	require.Equal(t, uint64(codeRight), code, text)
	require.Contains(t, text, "expired")
	s.honest(t)
}

// TestCapabilityReplay: a capability that was used up is used once more after a restart.
func TestCapabilityReplay(t *testing.T) {
	t.Parallel()
	dir, home, user, holder := t.TempDir(), t.TempDir(), newKey(t), newKey(t)
	require.NoError(t, os.WriteFile(filepath.Join(home, "authorized_clients"), []byte(user.pin+" *=rw\n"), 0o600))
	tried(t, client, "a capability: replayed after a restart", "uses are counted by user and number, in a file that outlives the server")
	var used []byte
	for n := range 4 {
		s, err := fxfer.NewServer(fxfer.ServerOptions{Home: home, Listen: "127.0.0.1:0", Shares: []fxfer.Share{{Name: "data", Dir: dir, Rights: 3}}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx) }()
		if used == nil {
			used = capability{
				user: user, holder: holder.pin, server: s.Pin(), nonce: 1, until: time.Now().Add(time.Hour), uses: 2, rights: 2, share: "data", path: "y",
			}.bytes()
		}
		id := byte(sessions.Add(1))
		l := (&site{Server: s}).dial(t, holder)
		l.say(request{session: id, secret: id, intent: copying, share: "data", paths: []string{"y"}, capability: used}.bytes())
		kind, _ := l.next()
		want := byte(welcome)
		if n >= 2 {
			want = refuse
		}
		require.Equal(t, want, kind, "session %d", n+1)
		l.Close()
		cancel()
		require.NoError(t, <-done)
	}
}

// TestCapabilityEntries: in a session by a capability, a server announces entries that lead out of
// its folder, or link to what is beside it.
func TestCapabilityEntries(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	data := filepath.Join(s.root, "data")
	require.NoError(t, os.Mkdir(filepath.Join(data, "y"), 0o700))
	require.NoError(t, os.Symlink("../../outside", filepath.Join(data, "y", "way")))
	holder := newKey(t)
	for i, x := range []struct {
		name, path string
		entry      []byte
	}{
		{"above", "y", fileOf("../secret", 0)},
		{"absolute", "y", fileOf("/secret", 0)},
		{"through a symlink that is there", "y", fileOf("way/secret", 0)},
		{"to a target behind a symlink", "way", fileOf("secret", 0)},
		{"the folder above as an entry", "y", entryOf(dir, "..")},
		{"another name of a file beside", "y", entryOf(hardlink, "mine", str("../secret"))},
	} {
		tried(t, client, "an entry by a capability: "+x.name, "a session by a capability reaches what is below its path, and nothing else")
		id := byte(sessions.Add(1))
		used := capability{
			user: s.known, holder: holder.pin, server: s.Pin(), nonce: byte(i), until: time.Now().Add(time.Hour), uses: 1, rights: 2, share: "data", path: x.path,
		}.bytes()
		l := s.dial(t, holder)
		l.say(request{session: id, secret: id, intent: copying, share: "data", paths: []string{x.path + "/"}, capability: used}.bytes(),
			message(manifest, []byte{0, 0}), announce(0, x.entry), message(endManifest, uv(1), uv(0)))
		l.finish()
		code, text := l.refusal()
		t.Log(x.name, code, text)
		l.Close()
	}
	for _, name := range []string{"secret", "y/secret", "y/mine"} {
		b, err := os.ReadFile(filepath.Join(data, name))
		if name == "secret" {
			require.NoError(t, err)
			require.Equal(t, "do not touch", string(b))
			continue
		}
		require.Error(t, err, name)
	}
	left, err := os.ReadDir(filepath.Join(data, "y"))
	require.NoError(t, err)
	require.Len(t, left, 1, "%v", left)
}
