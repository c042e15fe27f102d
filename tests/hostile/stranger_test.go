package hostile

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
	"github.com/stretchr/testify/require"
)

// TestFirstMessages: a client whose key is known asks for something forbidden, or sends a malformed
// request.
func TestFirstMessages(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	require.NoError(t, os.Symlink("./loop", filepath.Join(s.root, "data", "loop")))
	good := request{intent: push, share: "data", paths: []string{""}}
	with := func(change func(*request)) []byte {
		r := good
		change(&r)
		return r.bytes()
	}
	getting := func(share string, paths ...string) []byte {
		return request{intent: pull, share: share, paths: paths}.bytes()
	}
	reading := func(intent uint64, paths ...string) []byte {
		return request{intent: intent, share: "data", paths: paths}.bytes()
	}
	target := func(i int) []byte { b := make([]byte, 8); b[i] = 1; return b }
	for name, c := range map[string]struct {
		say  []byte
		want uint64
	}{
		"a message of 4 GiB":                        {[]byte{hello, 0xff, 0xff, 0xff, 0xff}, gone},
		"a message longer than a first one may be":  {append([]byte{hello, 0, 0, 0x40, 1}, make([]byte, 0x4001)...), gone},
		"an unknown message longer than that":       {append([]byte{200, 0, 0, 0x40, 1}, make([]byte, 0x4001)...), gone},
		"an empty hello":                            {message(hello), gone},
		"a hello cut short":                         {message(hello, good.bytes()[5:60]), gone},
		"a share's name of 16 EiB":                  {message(hello, good.bytes()[5:5+1+16+32+1], uv(huge)), gone},
		"more paths than bytes":                     {message(hello, good.bytes()[5:5+1+16+32+1], str("data"), uv(huge)), gone},
		"a number that does not end":                {message(hello, bytes.Repeat([]byte{0xff}, 100)), gone},
		"1,025 paths":                               {with(func(r *request) { r.intent, r.paths = pull, make([]string, 1025) }), gone},
		"a path of 4,097 bytes":                     {with(func(r *request) { r.paths = []string{string(make([]byte, 4097))} }), gone},
		"an unknown sync policy":                    {with(func(r *request) { r.target = []byte{0, 0, 0, 0, 3, 0, 0, 0} }), gone},
		"a proof of 33 bytes":                       {with(func(r *request) { r.proof = make([]byte, 33) }), gone},
		"another version":                           {with(func(r *request) { r.version = 1 }), codeVersion},
		"the version of none":                       {with(func(r *request) { r.version = huge }), codeVersion},
		"a join of another version":                 {message(join, uv(2)), codeVersion},
		"no intent":                                 {with(func(r *request) { r.intent = 0 }), codeProtocol},
		"an unknown intent":                         {with(func(r *request) { r.intent = 77 }), codeProtocol},
		"an intent that is one in its last byte":    {with(func(r *request) { r.intent = 257 }), codeProtocol},
		"entries first":                             {announce(0, fileOf("a", 1)), codeProtocol},
		"a refusal first":                           {message(refuse, uv(1), str("no")), codeProtocol},
		"a share that there is not":                 {with(func(r *request) { r.share = "none" }), codeRight},
		"a share by its path":                       {with(func(r *request) { r.share = "../data" }), codeRight},
		"all shares by their wildcard":              {with(func(r *request) { r.share = "*" }), codeRight},
		"writing what is read-only":                 {with(func(r *request) { r.share = "ro" }), codeRight},
		"reading what is write-only":                {getting("wo", "secret"), codeRight},
		"listing what is write-only":                {request{intent: list, share: "wo", paths: []string{""}}.bytes(), codeRight},
		"verifying what is write-only":              {request{intent: verify, share: "wo", paths: []string{""}}.bytes(), codeRight},
		"looking by checksums":                      {with(func(r *request) { r.share, r.target = "wo", target(0) }), codeRight},
		"looking by deleting":                       {with(func(r *request) { r.share, r.target = "wo", target(7) }), codeRight},
		"a push to two places":                      {with(func(r *request) { r.paths = []string{"a", "b"} }), codeProtocol},
		"a push to no place":                        {with(func(r *request) { r.paths = nil }), codeProtocol},
		"getting nothing":                           {getting("data"), codeProtocol},
		"getting what is above":                     {getting("data", "../outside/secret"), codePath},
		"getting an absolute path":                  {getting("data", "/etc/passwd"), codePath},
		"getting through a symlink":                 {getting("data", "way/secret"), codePath},
		"getting through a loop of links":           {getting("data", "loop/x"), codePath},
		"getting a folder through a symlink":        {getting("data", "way/"), codePath},
		"getting a partial file":                    {getting("data", ".fxfer-00.part"), codePath},
		"getting a partial file in capitals":        {getting("data", ".FXFER-00.part"), codePath},
		"getting with a NUL":                        {getting("data", "secret\x00"), codePath},
		"getting with dots inside":                  {getting("data", "a/../../outside/secret"), codePath},
		"listing what is above":                     {reading(list, "../outside"), codePath},
		"listing through a symlink":                 {reading(list, "way/"), codePath},
		"listing two paths":                         {reading(list, "", ""), codeProtocol},
		"verifying what is above":                   {reading(verify, ".."), codePath},
		"verifying through a symlink":               {reading(verify, "way/secret"), codePath},
		"backups above":                             {with(func(r *request) { r.backup = "../outside" }), codePath},
		"backups at an absolute path":               {with(func(r *request) { r.backup = "/tmp" }), codePath},
		"backups in place":                          {with(func(r *request) { r.backup = "." }), codePath},
		"a congestion control that there is not":    {with(func(r *request) { r.congestion = "../../x" }), codeUnsupported},
		"a compression that there is not":           {request{intent: pull, share: "data", paths: []string{"secret"}, compress: "bomb"}.bytes(), codeUnsupported},
		"a push to above":                           {cat(with(func(r *request) { r.paths = []string{"../outside"} }), message(manifest, []byte{0, 0})), codePath},
		"a push to an absolute path":                {cat(with(func(r *request) { r.paths = []string{"/tmp"} }), message(manifest, []byte{0, 0})), codePath},
		"a push through a symlink":                  {cat(with(func(r *request) { r.paths = []string{"way/"} }), message(manifest, []byte{0, 0})), codePath},
		"a push to a name of our own":               {cat(with(func(r *request) { r.paths = []string{".fxfer-1.part"} }), message(manifest, []byte{1, 0})), codePath},
		"a push below a file":                       {cat(with(func(r *request) { r.paths = []string{"secret/x"} }), message(manifest, []byte{0, 0})), codePath},
		"a manifest that prunes without leave":      {cat(good.bytes(), message(manifest, []byte{0, 1})), codeProtocol},
		"a manifest that is cut short":              {cat(good.bytes(), message(manifest, []byte{0})), codeProtocol},
		"a message of more than 1 MiB in a session": {cat(good.bytes(), []byte{entries, 0, 0x10, 0, 1}), codeProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			tried(t, client, name, guardOf(c.want))
			if len(c.say) > 22 && c.say[0] == hello && c.say[5] == 1 { // the previous session may not have ended yet
				copy(c.say[6:22], bytes.Repeat([]byte{byte(sessions.Add(1))}, 16))
			}
			l := s.dial(t, s.known)
			l.say(c.say)
			code, text := l.refusal()
			require.Equal(t, c.want, code, text)
			require.NotContains(t, text, "do not touch")
		})
	}
	s.honest(t)
}

// TestNoOracle: a verification reveals nothing about files outside of the share.
func TestNoOracle(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	l := s.dial(t, s.known)
	l.say(request{intent: verify, share: "data", paths: []string{""}}.bytes())
	l.await(t, endManifest)
	tried(t, client, "asking in a verification for what is beside the share", "the server answers by a walk below the share, and all missing paths look the same")
	for _, c := range [][2]string{{"..", "outside"}, {".", "../outside"}, {"../outside", "secret"}, {"way", "secret"}, {"/", "etc"}, {"", "etc"}} {
		l.say(message(folder, str(c[0]), uv(1), str(c[1])))
		require.Equal(t, []byte{1, 0}, l.await(t, extra), "%q in %q is said to be missing", c[1], c[0])
	}
}

// TestGuesses: no guess of an unauthenticated client admits it, and no guess uses up what another
// client was given.
func TestGuesses(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	ask := func(k key, proof []byte) (uint64, string) {
		l := s.dial(t, k)
		l.say(request{intent: list, share: "", proof: proof}.bytes())
		if kind, _ := l.next(); kind != refuse {
			return gone, "admitted"
		}
		return codeTrust, ""
	}
	u := s.url(t, "")
	prove := func(l *line) []byte {
		state := stateOf(l.Conn)
		exported, err := state.ExportKeyingMaterial("EXPORTER-fxfer-invitation", nil, 32)
		require.NoError(t, err)
		mac := hmac.New(sha256.New, []byte(u.Token))
		mac.Write([]byte("fxfer invitation v1\x00"))
		mac.Write(exported)
		return mac.Sum(nil)
	}
	unknown := newKey(t)
	t.Run("a key that nobody knows", func(t *testing.T) {
		tried(t, stranger, "a key that nobody knows", "only keys that were enrolled are admitted")
		code, _ := ask(unknown, nil)
		require.EqualValues(t, codeTrust, code)
	})
	t.Run("guessed proofs", func(t *testing.T) {
		tried(t, stranger, "guessed proofs", "a proof is HMAC-SHA-256 with a random token of 10 minutes")
		for i := range 100 {
			code, _ := ask(unknown, bytes.Repeat([]byte{byte(i)}, 32))
			require.EqualValues(t, codeTrust, code)
		}
	})
	t.Run("a proof of another connection", func(t *testing.T) {
		tried(t, stranger, "a proof of another connection", "a proof is bound to its connection by the TLS exporter")
		code, _ := ask(unknown, prove(s.dial(t, unknown)))
		require.EqualValues(t, codeTrust, code)
	})
	t.Run("a token that was used", func(t *testing.T) {
		tried(t, stranger, "a token that was used", "an invitation is valid once")
		l := s.dial(t, newKey(t))
		l.say(request{intent: list, share: "data", paths: []string{""}, proof: prove(l)}.bytes())
		l.await(t, endManifest)
		l = s.dial(t, unknown)
		l.say(request{intent: list, share: "data", paths: []string{""}, proof: prove(l)}.bytes())
		code, text := l.refusal()
		require.EqualValues(t, codeTrust, code, text)
	})

	// A session has a secret that others do not know.
	control := s.dial(t, s.known)
	control.say(request{session: 7, secret: 9, intent: push, share: "data", paths: []string{""}}.bytes(), message(manifest, []byte{0, 0}))
	control.await(t, welcome)
	joined := func(k key, b []byte) (uint64, string) {
		l := s.dial(t, k)
		l.say(b)
		return l.refusal()
	}
	var texts []string
	for name, b := range map[string]struct {
		key key
		say []byte
	}{
		"another secret":          {s.known, joining(7, 8, 1)},
		"another key, the secret": {unknown, joining(7, 9, 1)},
	} {
		t.Run("a data stream of "+name, func(t *testing.T) {
			tried(t, stranger, "a data stream of "+name, "a stream joins by the session's key and its random secret; all failures look the same")
			code, text := joined(b.key, b.say)
			require.EqualValues(t, codeTrust, code)
			texts = append(texts, text)
		})
	}
	for _, text := range texts { // and for TestSlow: the answers reveal nothing
		require.Contains(t, text, noSession)
	}
	t.Run("a session that exists", func(t *testing.T) {
		tried(t, client, "a session that exists", "a session has one control stream")
		l := s.dial(t, s.known)
		l.say(request{session: 7, secret: 1, intent: push, share: "data", paths: []string{""}}.bytes())
		code, text := l.refusal()
		require.EqualValues(t, codeProtocol, code, text)
	})
	t.Run("the number of a stream again", func(t *testing.T) {
		tried(t, client, "the number of a stream again", "a stream has its number")
		s.dial(t, s.known).say(joining(7, 9, 1))
		second := s.dial(t, s.known)
		second.say(joining(7, 9, 1))
		third := s.dial(t, s.known)
		third.say(joining(7, 9, 1))
		refused := make(chan uint64, 2)
		go func() { code, _ := second.refusal(); refused <- code }()
		go func() { code, _ := third.refusal(); refused <- code }()
		require.EqualValues(t, codeBusy, <-refused)
	})
	t.Run("65 streams", func(t *testing.T) {
		tried(t, client, "65 streams", "64 data streams a session")
		refused := make(chan uint64, 66)
		for i := range 65 {
			l := s.dial(t, s.known)
			l.say(joining(7, 9, uint64(100+i)))
			go func() { code, _ := l.refusal(); refused <- code }()
		}
		require.EqualValues(t, codeBusy, <-refused)
	})
	control.say(message(ping, iv(5)))
	control.await(t, 16) // the session continues
	s.honest(t)
}

// noSession is the only answer to a data stream that belongs to no session.
const noSession = "there is no such session"

// TestDowngrade: the server says nothing to a client that does not speak TLS 1.3 and this protocol.
func TestDowngrade(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	for name, change := range map[string]func(*tls.Config){
		"TLS 1.2":        func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 },
		"HTTP":           func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} },
		"no protocol":    func(c *tls.Config) { c.NextProtos = nil },
		"no certificate": func(c *tls.Config) { c.Certificates = nil },
	} {
		t.Run(name, func(t *testing.T) {
			tried(t, stranger, name, "TLS 1.3, the protocol's name and a certificate are required, without fallback")
			conf := s.known.config()
			change(conf)
			c, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", s.Addr().String(), conf)
			if err == nil {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				_, _ = c.Write(request{intent: list, share: "data", paths: []string{""}}.bytes())
				_, err = c.Read(make([]byte, 1))
			}
			require.Error(t, err)
			require.NotErrorIs(t, err, io.EOF)
		})
	}
	for name, b := range map[string][]byte{
		"HTTP in clear":   []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"Hello in clear":  request{intent: list, share: "data", paths: []string{""}}.bytes(),
		"noise":           bytes.Repeat([]byte{0xa5}, 70_000),
		"an endless ones": append([]byte{22, 3, 1, 0xff, 0xff}, make([]byte, 70_000)...),
	} {
		t.Run(name, func(t *testing.T) {
			tried(t, stranger, name, "anything but a handshake ends the connection, after 64 KiB at most")
			c, err := net.DialTimeout("tcp", s.Addr().String(), patience)
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
			_, _ = c.Write(b)
			got, _ := io.ReadAll(c)
			require.Less(t, len(got), 64, "an alert at most")
			require.NotContains(t, string(got), "secret")
		})
	}
}

// TestSlow: clients stop at each step before they are admitted. The server disconnects each after
// 20 s, and serves others meanwhile.
func TestSlow(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for 20 s")
	}
	s := serve(t, fxfer.ServerOptions{})
	clear := func() net.Conn {
		c, err := net.DialTimeout("tcp", s.Addr().String(), patience)
		require.NoError(t, err)
		return c
	}
	drip := func(c io.Writer, b []byte) {
		for i := range b {
			if _, err := c.Write(b[i : i+1]); err != nil {
				return
			}
			time.Sleep(100 * time.Millisecond) // slow clients do this
		}
	}
	first := request{intent: list, share: "data", paths: []string{""}}.bytes()
	stages := map[string]func() net.Conn{
		"nothing":           clear,
		"half a TLS record": func() net.Conn { c := clear(); _, _ = c.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1}); return c },
		"a TLS record by byte": func() net.Conn {
			c := clear()
			go drip(c, append([]byte{22, 3, 1, 2, 0, 1, 0, 1, 0xfc}, make([]byte, 500)...))
			return c
		},
		"no hello":     func() net.Conn { return s.dial(t, s.known).Conn },
		"half a hello": func() net.Conn { c := s.dial(t, s.known).Conn; _, _ = c.Write(first[:40]); return c },
		"a hello by byte": func() net.Conn {
			c := s.dial(t, s.known).Conn
			go drip(c, append(message(200, make([]byte, 1000)), first...))
			return c
		},
		"unknown messages": func() net.Conn {
			c := s.dial(t, s.known).Conn
			go drip(c, bytes.Repeat(message(200), 200))
			return c
		},
		"nothing more, once admitted": func() net.Conn {
			c := s.dial(t, s.known).Conn
			_, _ = c.Write(cat(request{session: 2, intent: push, share: "data", paths: []string{""}}.bytes(), message(manifest, []byte{0, 0})))
			return c
		},
		"a message by byte, once admitted": func() net.Conn {
			c := s.dial(t, s.known).Conn
			_, _ = c.Write(request{session: 3, intent: push, share: "data", paths: []string{""}}.bytes())
			go drip(c, message(200, make([]byte, 1000)))
			return c
		},
		"a stream without session": func() net.Conn { c := s.dial(t, s.known).Conn; _, _ = c.Write(joining(1, 1, 1)); return c },
	}
	var all sync.WaitGroup
	start := time.Now()
	for name, begin := range stages {
		if strings.HasSuffix(name, ", once admitted") {
			tried(t, client, "slowly: "+name, "a message may take 20 s, and so may a silence")
		} else {
			tried(t, stranger, "slowly: "+name, "20 s for the handshake and the first message together")
		}
		c := begin()
		all.Go(func() {
			said := endsInTime(t, name, c, start)
			if (name == "a stream without session") != strings.Contains(said, noSession) {
				t.Errorf("%s: %q", name, said)
			}
		})
	}
	t.Parallel() // other tests run while these wait
	s.honest(t)
	all.Wait()
	s.honest(t)
}

// TestHalfOpen: one address opens thousands of connections and sends nothing. The server still
// serves other addresses.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	tried(t, stranger, "half-open connections, thousands of one address", "128 strangers of one address; the others are closed at once")
	open := openMany(t, s.Addr().String())
	s.honest(t)
	require.Eventually(t, func() bool {
		open = stillOpen(open)
		return len(open) <= 128
	}, patience, time.Millisecond, "but for 128 they are let go")
}

// endsInTime reads what a peer says on a connection on which its own messages come slowly, and requires
// that it ends the connection after its patience, and neither before nor much later.
func endsInTime(t *testing.T, name string, c net.Conn, start time.Time) (said string) {
	defer c.Close()
	_ = c.SetDeadline(start.Add(20*time.Second + patience))
	text, err := io.ReadAll(c)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("%s: is held for ever", name)
	}
	if took := time.Since(start); took < 5*time.Second {
		t.Errorf("%s: ended after %v, before its time", name, took)
	}
	return string(text)
}

// openMany opens connections from another address of this host, and sends nothing on them.
func openMany(t *testing.T, to string) (open []net.Conn) {
	t.Helper()
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: patience}
	for range *halfOpen {
		c, err := from.Dial("tcp", to)
		if err != nil {
			t.Skip("no second address on loopback: ", err)
		}
		t.Cleanup(func() { c.Close() })
		open = append(open, c)
	}
	return open
}

// stillOpen returns those that the peer has not closed.
func stillOpen(open []net.Conn) []net.Conn {
	return slices.DeleteFunc(slices.Clone(open), func(c net.Conn) bool {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	})
}
