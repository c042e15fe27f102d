package hostile

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/outbox"
	"github.com/fxfer/fxfer/pkg/fxfer"
	"github.com/stretchr/testify/require"
)

// The intents of a server that works for a user, and of a user who asks a server for copies; and the
// messages of the second one.
const (
	copying, asking                                      = 12, 13
	copyRequest                                          = 39
	copyAdd, copyList, copyPause, copyResume, copyCancel = 1, 2, 3, 4, 5
)

// capability is what a user signs for a server. signer is the user unless it is set.
type capability struct {
	user, signer   key
	holder, server string // pins
	nonce          byte
	until          time.Time
	uses           uint32
	rights         byte
	share, path    string
	sign           func([]byte) []byte // in place of the signer's Ed25519
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
	if c.sign != nil {
		return append(b, c.sign(b)...)
	}
	return append(b, ed25519.Sign(signer.private(), b)...)
}

func (k key) private() ed25519.PrivateKey { return k.cert.PrivateKey.(ed25519.PrivateKey) }

// otherwise signs as a relative of Ed25519 does.
func otherwise(k key, opt *ed25519.Options) func([]byte) []byte {
	return func(b []byte) []byte {
		if opt.Hash != 0 {
			digest := sha512.Sum512(b)
			b = digest[:]
		}
		signature, err := k.private().Sign(nil, b, opt)
		if err != nil {
			panic(err)
		}
		return signature
	}
}

// byECDSA signs with P-256, in 64 bytes as Ed25519.
func byECDSA(b []byte) []byte {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	digest := sha256.Sum256(b)
	r, s, err := ecdsa.Sign(rand.Reader, private, digest[:])
	if err != nil {
		panic(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signature
}

// plusOrder adds the order of the group to the second half of a signature, which verifiers that do not
// look reduce again.
func plusOrder(b []byte) []byte {
	half := b[len(b)-32:]
	slices.Reverse(half)
	order, _ := new(big.Int).SetString("1000000000000000000000000000000014def9dea2f79cd65812631a5cf5d3ed", 16)
	order.Add(order, new(big.Int).SetBytes(half)).FillBytes(half)
	slices.Reverse(half)
	return b
}

// records is an audit log, one record a line.
type records struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

// has reports whether a record has all of these parts, and forgets all records until then.
func (r *records) has(parts ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.Lines(r.text.String()) {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			r.text.Reset()
			return true
		}
	}
	return false
}

// inJSON returns a text as a record has it.
func inJSON(text string) string {
	b, _ := json.Marshal(text)
	return string(b[1 : len(b)-1])
}

func (r *records) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(r, nil)) }

// TestCapabilities: a server, or a thief, shows a capability that is not for it, or not for that.
// Each attack differs from what is admitted by one thing.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	var audit records
	s := serve(t, fxfer.ServerOptions{Audit: audit.logger()})
	for _, name := range []string{"y", "Y", "yz", "%79"} {
		require.NoError(t, os.MkdirAll(filepath.Join(s.root, "data", name), 0o700))
	}
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

		"forged: signed by Ed25519ph":       {func(a *attempt) { a.sign = otherwise(s.known, &ed25519.Options{Hash: crypto.SHA512}) }, codeRight},
		"forged: signed by Ed25519ctx":      {func(a *attempt) { a.sign = otherwise(s.known, &ed25519.Options{Context: "fxfer"}) }, codeRight},
		"forged: signed by ECDSA":           {func(a *attempt) { a.sign = byECDSA }, codeRight},
		"forged: a signature of zeros":      {func(a *attempt) { a.sign = func([]byte) []byte { return make([]byte, 64) } }, codeRight},
		"forged: signed without its prefix": {func(a *attempt) { a.sign = func(b []byte) []byte { return ed25519.Sign(s.known.private(), b[20:]) } }, codeRight},
		"the signature in other bytes":      {func(a *attempt) { a.forge = plusOrder }, codeRight},
		"signed twice":                      {func(a *attempt) { a.forge = func(b []byte) []byte { return append(b, b[len(b)-64:]...) } }, codeRight},
		"two in one":                        {func(a *attempt) { a.forge = func(b []byte) []byte { return append(b, b...) } }, codeRight},
		"expired in this second":            {func(a *attempt) { a.until = time.Now() }, codeRight},
		"handed on by its holder":           {func(a *attempt) { a.user, a.by, a.holder = holder, thief, thief.pin }, codeRight},
		"handed on in the user's name":      {func(a *attempt) { a.signer, a.by, a.holder = holder, thief, thief.pin }, codeRight},
		"a name that begins like it":        {func(a *attempt) { a.paths = []string{"yz"} }, codeRight},
		"the folder in capitals":            {func(a *attempt) { a.paths = []string{"Y"} }, codeRight},
		"the folder with an escape":         {func(a *attempt) { a.paths = []string{"%79"} }, codeRight},
		"the folder in other letters":       {func(a *attempt) { a.capability.path, a.paths = "\u00e9", []string{"e\u0301"} }, codeRight},
		"out of the folder by backslashes":  {func(a *attempt) { a.paths = []string{"y\\..\\yz"} }, codeRight},
		"a dot in between":                  {func(a *attempt) { a.paths = []string{"y/./z"} }, codeRight},
		"an empty name in between":          {func(a *attempt) { a.paths = []string{"y//z"} }, codeRight},
		"a share by its path":               {func(a *attempt) { a.request.share, a.capability.path, a.paths = "data/y", ".", []string{""} }, codeRight},
		"all shares":                        {func(a *attempt) { a.request.share, a.capability.share = "*", "*" }, codeRight},
		"asking for copies":                 {func(a *attempt) { a.intent = asking }, codeProtocol},
	} {
		tried(t, client, "a capability: "+name, "a capability names user, holder, server, path, rights, end and uses, and all must hold")
		l, _ := begin(x.change)
		code, text := l.refusal()
		require.Equal(t, x.want, code, "%s: %q", name, text)
		l.Close()
		if x.want != gone { // which is not a request yet; the text begins with its length
			require.Eventually(t, func() bool { return audit.has(`"msg":"session"`, `"outcome":"ended"`, inJSON(text[2:])) }, patience, time.Millisecond,
				"%s is in the audit log", name)
		}
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
	tried(t, client, "a capability: used at once in many sessions", "uses are counted by user and number, in a file that outlives the server")
	const uses = 3
	var many []*line
	var shared []byte
	for range 4 * uses {
		l, a := begin(func(a *attempt) {
			a.uses, a.request.capability = uses, shared
		})
		shared = a.request.capability
		many = append(many, l)
	}
	var kinds []byte
	for _, l := range many {
		kind, _ := l.next()
		kinds = append(kinds, kind)
	}
	for _, l := range many {
		l.Close()
	}
	require.Equal(t, uses, bytes.Count(kinds, []byte{welcome}), "%v", kinds)
	require.Equal(t, 3*uses, bytes.Count(kinds, []byte{refuse}), "%v", kinds)
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

// copyAsked is a CopyRequest.
type copyAsked struct {
	do              byte
	id, share, path string
	to              string
	capability      []byte
	rate            uint64
	priority        byte
}

func (c copyAsked) bytes() []byte {
	return message(copyRequest, []byte{c.do}, str(c.id), str(c.share), str(c.path), str(c.to), str(string(c.capability)), uv(c.rate), []byte{c.priority})
}

// TestCopyRequests: a client asks a server for a copy that it may not have made, or is about copies of
// another client. Each attack differs from what is admitted by one thing. Nothing gets into the queue.
func TestCopyRequests(t *testing.T) {
	t.Parallel()
	var audit records
	home := t.TempDir()
	queue, err := outbox.OpenCopies(fxfer.Options{Home: home}, slog.New(slog.DiscardHandler)) // nobody runs it
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, queue.Close()) })
	s := serve(t, fxfer.ServerOptions{Audit: audit.logger(), Copies: queue})
	limited, revoked, thief, far := newKey(t), newKey(t), newKey(t), newKey(t)
	lines := s.known.pin + " *=rw\n" + limited.pin + " wo=rw,data=append\n" + thief.pin + " *=rw\n" + revoked.pin + " revoked\n"
	require.NoError(t, os.WriteFile(filepath.Join(s.home, "authorized_clients"), []byte(lines), 0o600))
	type attempt struct {
		capability
		copyAsked
		by    key
		forge func([]byte) []byte
	}
	const admitted = 1000 // no code
	// ask returns the code and the text with which a request is answered, or its session is refused.
	ask := func(change func(*attempt)) (code uint64, text string) {
		a := attempt{
			capability{
				user: s.known, holder: s.Pin(), server: far.pin, nonce: 1, until: time.Now().Add(time.Hour), uses: 1, rights: 2, share: "there", path: "y",
			},
			copyAsked{do: copyAdd, share: "data", path: "secret", to: "fxfer://127.0.0.1:1/there/y"}, s.known,
			func(b []byte) []byte { return b },
		}
		change(&a)
		if a.copyAsked.capability == nil {
			a.copyAsked.capability = a.forge(a.capability.bytes())
		}
		id := byte(sessions.Add(1))
		l := s.dial(t, a.by)
		defer l.Close()
		l.say(request{session: id, secret: id, intent: asking}.bytes(), a.copyAsked.bytes())
		for {
			kind, body := l.next()
			switch kind {
			case 0:
				return gone, "gone"
			case refuse, operated:
				code, n := binary.Uvarint(body)
				size, m := binary.Uvarint(body[n:])
				if code == 0 {
					return admitted, ""
				}
				return code, string(body[n+m:][:size])
			}
		}
	}
	code, text := ask(func(*attempt) {})
	require.EqualValues(t, admitted, code, text)
	require.Eventually(t, func() bool { return audit.has(`"msg":"copy"`, `"outcome":"added"`, `"path":"data/secret"`) }, patience, time.Millisecond)
	mine, err := queue.List(s.known.pin)
	require.NoError(t, err)
	require.Len(t, mine, 1)
	about := func(do byte, by key, id string) func(*attempt) {
		return func(a *attempt) { a.by, a.copyAsked = by, copyAsked{do: do, id: id, capability: []byte{}} }
	}
	for name, x := range map[string]struct {
		change func(*attempt)
		want   uint64
	}{
		"no capability":                    {func(a *attempt) { a.copyAsked.capability = []byte{} }, codeRight},
		"one cut short":                    {func(a *attempt) { a.forge = func(b []byte) []byte { return b[:len(b)-1] } }, codeRight},
		"one longer than any":              {func(a *attempt) { a.copyAsked.capability = make([]byte, 5<<10+1) }, gone},
		"forged: more uses":                {func(a *attempt) { a.forge = func(b []byte) []byte { b[20+96+16+8+3] = 9; return b } }, codeRight},
		"forged: signed by another":        {func(a *attempt) { a.signer = thief }, codeRight},
		"another user's":                   {func(a *attempt) { a.by = thief }, codeRight},
		"one for another holder":           {func(a *attempt) { a.holder = thief.pin }, codeRight},
		"one for the server itself":        {func(a *attempt) { a.server = s.Pin() }, codePath},
		"one that has expired":             {func(a *attempt) { a.until = time.Now().Add(-time.Second) }, codeRight},
		"one that is valid for too long":   {func(a *attempt) { a.until = time.Now().Add(31 * 24 * time.Hour) }, codeRight},
		"to another share":                 {func(a *attempt) { a.to = "fxfer://127.0.0.1:1/where/y" }, codePath},
		"to the folder above":              {func(a *attempt) { a.to = "fxfer://127.0.0.1:1/there" }, codePath},
		"to a name that begins like it":    {func(a *attempt) { a.to = "fxfer://127.0.0.1:1/there/yz" }, codePath},
		"to a path with a way out":         {func(a *attempt) { a.to = "fxfer://127.0.0.1:1/there/y/../z" }, codePath},
		"to a path with an escaped slash":  {func(a *attempt) { a.to = "fxfer://127.0.0.1:1/there/y%2f..%2fz" }, codePath},
		"with an invitation of the target": {func(a *attempt) { a.to = "fxfer://" + far.pin[8:] + ":AAAAAAAAAAAAAAAAAAAAAA@127.0.0.1:1/there/y" }, codePath},
		"to no URL":                        {func(a *attempt) { a.to = "file:///etc/passwd" }, codePath},
		"from a share for writing only":    {func(a *attempt) { a.copyAsked.share = "wo" }, codeRight},
		"from a share that is not there":   {func(a *attempt) { a.copyAsked.share = "none" }, codeRight},
		"from above the share":             {func(a *attempt) { a.copyAsked.path = "../outside/secret" }, codePath},
		"from behind a symlink":            {func(a *attempt) { a.copyAsked.path = "way/secret" }, codePath},
		"without a right to read":          {func(a *attempt) { a.by, a.user = limited, limited }, codeRight},
		"by a client who was revoked":      {func(a *attempt) { a.by, a.user = revoked, revoked }, codeTrust},
		"a rate of 16 EiB":                 {func(a *attempt) { a.rate = huge }, gone},
		"pausing another client's copy":    {about(copyPause, thief, mine[0].ID), codeNotFound},
		"resuming another client's copy":   {about(copyResume, thief, mine[0].ID), codeNotFound},
		"cancelling another client's copy": {about(copyCancel, thief, mine[0].ID), codeNotFound},
		"looking at another client's copy": {about(copyList, thief, mine[0].ID), codeNotFound},
		"cancelling no copy":               {about(copyCancel, thief, ""), codeNotFound},
		"cancelling a copy by a path":      {about(copyCancel, s.known, "../"+mine[0].ID), codeNotFound},
		"what is no request":               {about(77, s.known, mine[0].ID), codeUnsupported},
	} {
		tried(t, client, "a request for a copy: "+name, "a copy needs its own user's capability for this server, a right to read now, and the same target; others' copies do not exist")
		code, text := ask(x.change)
		require.Equal(t, x.want, code, "%s: %q", name, text)
		change := strings.HasPrefix(name, "look") || strings.HasPrefix(name, "what")
		if x.want != gone && !change {
			require.Eventually(t, func() bool { return audit.has(`"outcome":"`, inJSON(text)) }, patience, time.Millisecond, "%s is in the audit log", name)
		}
	}
	for user, want := range map[string]int{s.known.pin: 1, thief.pin: 0, limited.pin: 0} {
		all, err := queue.List(user)
		require.NoError(t, err)
		require.Len(t, all, want)
	}
	now, err := queue.List(s.known.pin)
	require.NoError(t, err)
	require.Equal(t, mine, now)
	code, text = ask(about(copyCancel, s.known, mine[0].ID))
	require.EqualValues(t, admitted, code, text)
	require.Eventually(t, func() bool { return audit.has(`"msg":"copy"`, `"outcome":"cancelled"`, mine[0].ID) }, patience, time.Millisecond)
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
