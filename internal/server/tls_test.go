package server

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/client"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/identity/testca"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// pki is a folder of certificates for servers and clients. Each kind has a CA below one root.
type pki struct {
	dir                    string
	root, servers, clients *testca.CA
	ca                     string // file of the root
}

func newPKI(t *testing.T) *pki {
	t.Helper()
	p := &pki{dir: t.TempDir(), root: testca.New(t, "Root")}
	p.servers, p.clients = p.root.Issue(t, testca.Authority("Servers"), "ecdsa"), p.root.Issue(t, testca.Authority("Clients"), "rsa")
	p.ca = p.write(t, "ca.pem", testca.PEM(p.root.Cert))
	p.servers.Issue(t, testca.Server(), "rsa").Write(t, p.dir, "server")
	p.clients.Issue(t, testca.Client("nas.example.org"), "ecdsa").Write(t, p.dir, "nas")
	p.clients.Issue(t, testca.Client("laptop.example.org"), "ed25519").Write(t, p.dir, "laptop")
	return p
}

func (p *pki) at(name string) string { return filepath.Join(p.dir, name) }

// write replaces a file atomically.
func (p *pki) write(t *testing.T, name string, text []byte) string {
	t.Helper()
	require.NoError(t, os.WriteFile(p.at(name+".new"), text, 0o600))
	require.NoError(t, os.Rename(p.at(name+".new"), p.at(name)))
	return p.at(name)
}

// pair returns the TLS options of a client with a certificate.
func (p *pki) pair(name string) client.TLS {
	return client.TLS{CA: p.ca, Cert: p.at(name + ".crt"), Key: p.at(name + ".key")}
}

// server returns the TLS options of a server.
func (p *pki) server() TLS {
	return TLS{Cert: p.at("server.crt"), Key: p.at("server.key"), ClientCA: p.ca}
}

const all = identity.Read | identity.Write

// named grants all rights to a client with a certificate.
func named(name string) Admission {
	return Admission{Name: "c", Certificate: name, Rights: map[string]identity.Rights{"*": all}}
}

// TestCertificates lets client and server know each other by certificates, keys, or one of each.
func TestCertificates(t *testing.T) {
	t.Parallel()
	p := newPKI(t)
	for _, by := range []session.Transport{session.TransportTCP, session.TransportQUIC} {
		t.Run(string(by), func(t *testing.T) {
			home := t.TempDir()
			s := serveWith(t, Options{TLS: p.server(), Clients: []Admission{
				named("dns:nas.example.org"), {Name: "pinned", Key: pin(t, home), Rights: map[string]identity.Rights{"*": all}},
			}}, all)
			defer s.stop()
			for name, opt := range map[string]client.Options{
				"certificates":             {TLS: p.pair("nas")},
				"the server's certificate": {TLS: client.TLS{CA: p.ca}},
				"the client's certificate": {TLS: client.TLS{Cert: p.at("nas.crt"), Key: p.at("nas.key")}, Pin: s.Pin()},
				"keys":                     {Pin: s.Pin()},
			} {
				t.Run(name, func(t *testing.T) {
					opt.Transport, opt.Streams = by, 2
					c := newClient(t, home, opt)
					dir := t.TempDir()
					data := sessiontest.RandomFile(t, filepath.Join(dir, "f"), 3<<20+1)
					u := s.plain(t, "")
					r, err := c.Send(t.Context(), []string{filepath.Join(dir, "f")}, u, client.Transfer{})
					require.NoError(t, err)
					require.Equal(t, by, r.Transport)
					u.Path = "f"
					_, err = c.Get(t.Context(), []session.URL{u}, filepath.Join(dir, "back"), client.Transfer{})
					require.NoError(t, err)
					got, err := os.ReadFile(filepath.Join(dir, "back"))
					require.NoError(t, err)
					require.True(t, bytes.Equal(data, got))
				})
			}
			// A client that trusts a CA does not store the server's key.
			fresh := t.TempDir()
			_, err := newClient(t, fresh, client.Options{TLS: p.pair("nas"), Transport: by}).List(t.Context(), s.plain(t, ""))
			require.NoError(t, err)
			require.NoFileExists(t, filepath.Join(fresh, "known_servers"))
			_, err = newClient(t, fresh, client.Options{Transport: by}).List(t.Context(), s.plain(t, ""))
			require.ErrorIs(t, err, identity.ErrUnknownServer)
		})
	}
}

// TestCertificateRefusals: each side says why it rejects the other's certificate, and nothing falls
// back to keys.
func TestCertificateRefusals(t *testing.T) {
	t.Parallel()
	p := newPKI(t)
	other := testca.New(t, "Other")
	p.write(t, "other.pem", testca.PEM(other.Cert))
	other.Issue(t, testca.Client("nas.example.org"), "ecdsa").Write(t, p.dir, "forged")
	past, early := testca.Client("nas.example.org"), testca.Client("nas.example.org")
	past.NotAfter, early.NotBefore = time.Now().Add(-time.Minute), time.Now().Add(time.Hour/2)
	p.root.Issue(t, past, "ecdsa").Write(t, p.dir, "past")
	p.root.Issue(t, early, "ecdsa").Write(t, p.dir, "early")
	nameless := testca.Client("")
	nameless.DNSNames, nameless.Subject.CommonName = nil, ""
	p.root.Issue(t, nameless, "ecdsa").Write(t, p.dir, "nameless")
	short := p.clients.Issue(t, testca.Client("nas.example.org"), "ecdsa")
	short.Write(t, p.dir, "short")
	p.write(t, "short.crt", testca.PEM(short.Cert))
	for _, by := range []session.Transport{session.TransportTCP, session.TransportQUIC} {
		t.Run(string(by), func(t *testing.T) {
			home := t.TempDir()
			clients := []Admission{named("dns:nas.example.org"), {Name: "pinned", Key: pin(t, home), Rights: map[string]identity.Rights{"*": all}}}
			s := serveWith(t, Options{TLS: p.server(), Clients: clients}, all)
			defer s.stop()
			keys := serveWith(t, Options{Clients: clients[1:]}, all)
			defer keys.stop()
			expired := testca.Server()
			expired.NotAfter = time.Now().Add(-time.Minute)
			p.servers.Issue(t, expired, "ecdsa").Write(t, p.dir, "old")
			old := serveWith(t, Options{TLS: TLS{Cert: p.at("old.crt"), Key: p.at("old.key")}, Clients: clients[1:]}, all)
			defer old.stop()
			role := testca.Server()
			role.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
			p.servers.Issue(t, role, "ecdsa").Write(t, p.dir, "role")
			wrong := serveWith(t, Options{TLS: TLS{Cert: p.at("role.crt"), Key: p.at("role.key")}, Clients: clients[1:]}, all)
			defer wrong.stop()
			far := testca.Server()
			far.IPAddresses = nil
			p.servers.Issue(t, far, "ecdsa").Write(t, p.dir, "far")
			named := serveWith(t, Options{TLS: TLS{Cert: p.at("far.crt"), Key: p.at("far.key")}, Clients: clients[1:]}, all)
			defer named.stop()
			for name, test := range map[string]struct {
				at   *site
				opt  client.Options
				want string
				help string // advice, or the remedy of a certificate
			}{
				"no name of ours":         {s, client.Options{TLS: p.pair("laptop")}, "its name is not admitted: dns:laptop.example.org", string(session.AdviceServerLog)},
				"another CA's client":     {s, client.Options{TLS: p.pair("forged")}, `certificate is signed by "CN=Other", which leads to no CA`, string(session.AdviceServerLog)},
				"no intermediate":         {s, client.Options{TLS: p.pair("short")}, `certificate is signed by "CN=Clients", which leads to no CA`, string(session.AdviceServerLog)},
				"expired":                 {s, client.Options{TLS: p.pair("past")}, "this client's certificate expired on ", string(session.AdviceServerLog)},
				"not yet valid":           {s, client.Options{TLS: p.pair("early")}, "this client's certificate is not valid before ", string(session.AdviceServerLog)},
				"a server as a client":    {s, client.Options{TLS: p.pair("server")}, "this client's certificate is not for clients", string(session.AdviceServerLog)},
				"nameless":                {s, client.Options{TLS: p.pair("nameless")}, "it has no name", string(session.AdviceServerLog)},
				"another CA of servers":   {s, client.Options{TLS: client.TLS{CA: p.at("other.pem")}}, `is signed by "CN=Servers", which leads to no CA`, "trust the CA"},
				"the system's CAs":        {s, client.Options{TLS: client.TLS{CA: session.SystemCA}}, "leads to no CA that is trusted here", "trust the CA"},
				"no client's certificate": {s, client.Options{Home: t.TempDir(), TLS: client.TLS{CA: p.ca}}, "this client's key is not admitted", string(session.AdviceInvitation)},
				"a server with keys":      {keys, client.Options{TLS: client.TLS{CA: p.ca}}, "presents no certificate of a CA", string(session.AdviceServerCertificate)},
				"a server of keys":        {keys, client.Options{TLS: client.TLS{Cert: p.at("nas.crt"), Key: p.at("nas.key")}, Pin: keys.Pin()}, "this server knows clients by their keys", string(session.AdviceServerLog)},
				"an expired server":       {old, client.Options{TLS: client.TLS{CA: p.ca}}, "expired on ", "renew it"},
				"a client as a server":    {wrong, client.Options{TLS: client.TLS{CA: p.ca}}, "is not for servers", "serverAuth"},
				"another host":            {named, client.Options{TLS: client.TLS{CA: p.ca}}, "is for localhost, not for 127.0.0.1", "one of these names"},
			} {
				t.Run(name, func(t *testing.T) {
					test.opt.Transport, test.opt.Streams, test.opt.RetryFor = by, 1, time.Minute // the time is not used up
					at := home
					if test.opt.Home != "" {
						at = test.opt.Home
					}
					c := newClient(t, at, test.opt)
					began := time.Now()
					_, err := c.SendStream(t.Context(), strings.NewReader("x"), test.at.plain(t, "x"), client.Transfer{})
					require.Equal(t, session.KindTrust, session.KindOf(err), "%v", err)
					require.ErrorContains(t, err, test.want)
					var known *session.Error
					require.ErrorAs(t, err, &known)
					help := string(known.Advice)
					if bad := (*identity.CertificateError)(nil); errors.As(err, &bad) {
						help = bad.Remedy
					}
					require.Contains(t, help, test.help)
					require.NoFileExists(t, filepath.Join(test.at.dir, "x"))
					require.Less(t, time.Since(began), 30*time.Second)
				})
			}
		})
	}
	c := newClient(t, t.TempDir(), client.Options{TLS: client.TLS{CA: p.ca}})
	_, err := c.List(t.Context(), session.URL{Host: "127.0.0.1", Port: 1, Token: strings.Repeat("x", 22), Pin: identity.Pin("ed25519:" + strings.Repeat("A", 43))})
	require.Equal(t, session.KindUsage, session.KindOf(err))
	for _, opt := range []client.Options{
		{TLS: client.TLS{CA: p.ca}, Pin: strings.Repeat("A", 43)}, {TLS: client.TLS{Cert: p.at("nas.crt")}}, {TLS: client.TLS{Cert: p.at("nas.crt"), Key: p.at("laptop.key")}},
	} {
		opt.Home = t.TempDir()
		_, err := client.New(opt)
		require.Equal(t, session.KindUsage, session.KindOf(err), "%v", err)
	}
	_, err = client.New(client.Options{Home: t.TempDir(), TLS: client.TLS{CA: p.at("none")}})
	require.Equal(t, session.KindLocalDisk, session.KindOf(err))
	for _, opt := range []Options{
		{TLS: TLS{Key: p.at("nas.key")}}, {TLS: TLS{ClientCRL: p.at("x")}}, {Clients: []Admission{named("dns:x")}},
		{TLS: p.server(), Clients: []Admission{named("x")}}, {TLS: p.server(), Clients: []Admission{named("dns:x"), named("dns:X")}},
		{TLS: p.server(), Clients: []Admission{{Certificate: "dns:x", Key: strings.Repeat("A", 43)}}},
	} {
		opt.Home, opt.Listen, opt.Shares = t.TempDir(), "127.0.0.1:0", []Share{{Name: "data", Dir: t.TempDir(), Rights: all}}
		_, err := New(opt)
		require.Equal(t, session.KindUsage, session.KindOf(err), "%v", err)
	}
}

// TestNamedRights combines the rights of a name, of all names, and of authorized_clients.
func TestNamedRights(t *testing.T) {
	t.Parallel()
	p := newPKI(t)
	var audit lines
	s := serveWith(t, Options{TLS: p.server(), Audit: slog.New(slog.NewJSONHandler(&audit, nil)), Clients: []Admission{
		{Name: "nas", Certificate: "dns:nas.example.org", Rights: map[string]identity.Rights{"data": all}, MaxSessions: 1},
		{Name: "any", Certificate: "*", Rights: map[string]identity.Rights{"data": identity.List}},
	}}, all)
	defer s.stop()
	nas, laptop := newClient(t, t.TempDir(), client.Options{TLS: p.pair("nas")}), newClient(t, t.TempDir(), client.Options{TLS: p.pair("laptop")})
	u := s.plain(t, "")
	_, err := laptop.List(t.Context(), u)
	require.NoError(t, err)
	_, err = laptop.SendStream(t.Context(), strings.NewReader("x"), s.plain(t, "x"), client.Transfer{})
	require.ErrorContains(t, err, "may not be written to")
	require.NoError(t, s.store.Admit("dns:laptop.example.org", identity.Grants{"data": identity.Write}, "ann"))
	_, err = laptop.SendStream(t.Context(), strings.NewReader("x"), s.plain(t, "x"), client.Transfer{})
	require.NoError(t, err)
	_, err = laptop.List(t.Context(), u)
	require.NoError(t, err)

	ended := held(t, nas, s, s.plain(t, "held"))
	_, err = nas.List(t.Context(), u)
	require.ErrorContains(t, err, "this client has 1 sessions on the server, which is its limit")
	all, err := s.Clients()
	require.NoError(t, err)
	require.Equal(t, []ClientStatus{
		{Key: "dns:laptop.example.org", Name: "ann", Rights: "data=wo"}, {Key: "*", Name: "any", Rights: "data=list"},
		{Key: "dns:nas.example.org", Name: "nas", Rights: "data=rw", Transfers: 1},
	}, all)
	require.NoError(t, s.Revoke("dns:nas.example.org"))
	require.ErrorContains(t, <-ended, "revoked")
	_, err = nas.List(t.Context(), u)
	require.ErrorContains(t, err, "its name is not admitted: dns:nas.example.org")
	require.Contains(t, audit.String(), `"client":"dns:laptop.example.org"`)
	require.Contains(t, audit.String(), `"name":"ann"`)
	require.Contains(t, audit.String(), `"client":"dns:nas.example.org"`)
}

// lines is a log that can be written and read concurrently.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.text.String() }

// TestRevokedCertificate: a renewed revocation list ends the sessions of the certificates on it, and
// no others.
func TestRevokedCertificate(t *testing.T) {
	t.Parallel()
	p := newPKI(t)
	tls := p.server()
	list := func(certs ...*x509.Certificate) []byte { return p.clients.Revoke(t, time.Hour, certs...) }
	tls.ClientCRL = p.write(t, "crl", list())
	s := serveWith(t, Options{TLS: tls, Clients: []Admission{named("*")}}, all)
	defer s.stop()
	nas, laptop := newClient(t, t.TempDir(), client.Options{TLS: p.pair("nas")}), newClient(t, t.TempDir(), client.Options{TLS: p.pair("laptop")})
	ended := held(t, nas, s, s.plain(t, "held"))
	_, err := laptop.List(t.Context(), s.plain(t, ""))
	require.NoError(t, err)
	cert, err := identity.OpenKeyPair(p.at("nas.crt"), p.at("nas.key"), nil)
	require.NoError(t, err)
	p.write(t, "crl", []byte("half of"))
	_, err = laptop.List(t.Context(), s.plain(t, ""))
	require.NoError(t, err)
	p.write(t, "crl", list(cert.Certificate().Leaf))
	require.ErrorContains(t, <-ended, "this client's certificate was revoked on ")
	_, err = nas.List(t.Context(), s.plain(t, ""))
	require.ErrorContains(t, err, "was revoked on ")
	require.Equal(t, session.KindTrust, session.KindOf(err))
	_, err = laptop.List(t.Context(), s.plain(t, ""))
	require.NoError(t, err)

	// Without a CA for clients no certificate is accepted.
	opt := s.opt
	opt.TLS.ClientCA, opt.TLS.ClientCRL, opt.Clients = "", "", nil
	ended = held(t, laptop, s, s.plain(t, "held"))
	require.NoError(t, s.Reload(opt))
	require.ErrorContains(t, <-ended, "knows clients by their keys")
	_, err = laptop.List(t.Context(), s.plain(t, ""))
	require.ErrorContains(t, err, "knows clients by their keys")
}

// TestRenewedMeanwhile: a transfer goes on while the certificates of both sides are renewed, and new
// streams use the new ones. A key that does not match changes nothing.
func TestRenewedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, by := range []session.Transport{session.TransportTCP, session.TransportQUIC} {
		t.Run(string(by), func(t *testing.T) {
			p := newPKI(t)
			var log lines
			s := serveWith(t, Options{TLS: p.server(), Log: slog.New(slog.NewJSONHandler(&log, nil)), Clients: []Admission{named("dns:nas.example.org")}}, all)
			defer s.stop()
			c := newClient(t, t.TempDir(), client.Options{TLS: p.pair("nas"), Transport: by, Streams: 4})
			r, w := io.Pipe()
			done := make(chan error, 1)
			u := s.plain(t, "held")
			go func() {
				_, err := c.SendStream(t.Context(), r, u, client.Transfer{})
				_ = r.CloseWithError(err)
				done <- err
			}()
			part := make([]byte, 4<<20)
			_, err := w.Write(part)
			require.NoError(t, err)
			before := s.pair.Certificate()
			next := p.servers.Issue(t, testca.Server(), "ecdsa")
			p.write(t, "server.crt", testca.PEM(next.Chain()...)) // the key follows
			s.pair.Renew()
			require.Same(t, before, s.pair.Certificate())
			require.Contains(t, log.String(), "has changed and can't be used; the server goes on with the one before")
			_, err = w.Write(part)
			require.NoError(t, err)
			next.Write(t, p.dir, "server")
			p.root.Issue(t, testca.Client("nas.example.org"), "rsa").Write(t, p.dir, "nas")
			s.pair.Renew()
			require.Contains(t, log.String(), "the server's certificate was renewed")
			require.Equal(t, next.Cert.Raw, s.pair.Certificate().Certificate[0])
			_, err = c.List(t.Context(), s.plain(t, ""))
			require.NoError(t, err)
			for range 4 {
				_, err = w.Write(part)
				require.NoError(t, err)
			}
			require.NoError(t, w.Close())
			require.NoError(t, <-done)
			info, err := os.Stat(filepath.Join(s.dir, "held"))
			require.NoError(t, err)
			require.Equal(t, int64(6*len(part)), info.Size())
		})
	}
}

// TestJoinByAnother: only the client of a session can add data streams, even if another one knows all
// secrets. A renewed certificate with the same name is the same client.
func TestJoinByAnother(t *testing.T) {
	t.Parallel()
	p := newPKI(t)
	p.root.Issue(t, testca.Client("nas.example.org"), "rsa").Write(t, p.dir, "renewed")
	s := serveWith(t, Options{TLS: p.server(), Clients: []Admission{named("*")}}, all)
	defer s.stop()
	ended := held(t, newClient(t, t.TempDir(), client.Options{TLS: p.pair("nas")}), s, s.plain(t, "held"))
	var hello *wire.Hello
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, x := range s.transfersLocked() {
			hello = x.hello
		}
		return hello != nil
	}, 10*time.Second, time.Millisecond)
	for _, by := range []session.Transport{session.TransportTCP, session.TransportQUIC} {
		join := func(opt client.Options) (wire.Message, error) {
			_, key, err := session.OpenIdentity(t.TempDir())
			require.NoError(t, err)
			cfg := transport.Config{Identity: key, Protocol: session.ProtocolOf(by)}
			if opt.TLS.Cert != "" {
				pair, err := identity.OpenKeyPair(opt.TLS.Cert, opt.TLS.Key, func(error) {})
				require.NoError(t, err)
				cfg.Certificate = pair.Certificate
			}
			cfg.Verify = func([]*x509.Certificate) error { return nil }
			u := s.plain(t, "")
			conn, err := transport.Dial(t.Context(), u.Address(), cfg, func(ed25519.PublicKey) error { return nil })
			require.NoError(t, err)
			defer conn.Close()
			_, err = conn.Write(wire.Append(nil, &wire.Join{Version: wire.Version, Session: hello.Session, Secret: hello.Secret, Stream: 1000}))
			require.NoError(t, err)
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			return wire.NewReader(conn, wire.MaxMessage).Next()
		}
		for _, opt := range []client.Options{{TLS: p.pair("laptop")}, {TLS: client.TLS{CA: p.ca}}} {
			m, err := join(opt)
			require.NoError(t, err)
			require.Equal(t, &wire.Refuse{Code: wire.CodeTrust, Text: "there is no such session"}, m)
		}
		_, err := join(client.Options{TLS: p.pair("renewed")})
		require.ErrorIs(t, err, os.ErrDeadlineExceeded) // the stream is accepted; nothing is sent on it
	}
	require.NoError(t, s.Revoke("dns:nas.example.org"))
	require.Error(t, <-ended)
}

// TestForeignPKI uses certificates made by openssl: a root, intermediate CAs, RSA and ECDSA, and a
// revocation list.
func TestForeignPKI(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("no openssl")
	}
	p := &pki{dir: t.TempDir()}
	p.write(t, "make", []byte(`set -eu
export LC_ALL=C
request() { openssl req -new -nodes -newkey $1 -keyout $2.key -out $2.csr -subj "/O=Example/CN=$2" 2>/dev/null; }
sign() { openssl x509 -req -in $1.csr -CA $2.crt -CAkey $2.key -CAcreateserial -days 2 -out $1.crt -extfile ext -extensions $3 2>/dev/null; }
cat >ext <<END
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
[server]
subjectAltName = DNS:localhost, IP:127.0.0.1
extendedKeyUsage = serverAuth
[client]
subjectAltName = URI:spiffe://example.org/nas
extendedKeyUsage = clientAuth
[plain]
[rule]
database = index
default_md = sha256
default_crl_days = 2
crlnumber = number
[ca_rule]
default_ca = rule
END
: >index; echo 01 >number
openssl req -x509 -nodes -newkey rsa:3072 -keyout root.key -out root.crt -subj /CN=Root -days 2 2>/dev/null
request "rsa:2048" middle; sign middle root ca
request "ec -pkeyopt ec_paramgen_curve:P-384" server; sign server middle server; cat middle.crt >>server.crt
request "rsa:2048" nas; sign nas middle client; cat middle.crt >>nas.crt
request "ec -pkeyopt ec_paramgen_curve:P-256" plain; sign plain middle plain; cat middle.crt >>plain.crt
openssl ca -config ext -name rule -keyfile middle.key -cert middle.crt -gencrl -out crl.pem 2>/dev/null
openssl ca -config ext -name rule -keyfile middle.key -cert middle.crt -revoke plain.crt 2>/dev/null
openssl ca -config ext -name rule -keyfile middle.key -cert middle.crt -gencrl -out later.pem 2>/dev/null
`))
	make := exec.Command("sh", "make")
	make.Dir = p.dir
	out, err := make.CombinedOutput()
	require.NoError(t, err, "%s", out)
	p.ca = p.at("root.crt")
	tls := p.server()
	tls.ClientCRL = p.at("crl.pem")
	s := serveWith(t, Options{TLS: tls, Clients: []Admission{named("uri:spiffe://example.org/nas"), named("cn:plain")}}, all)
	defer s.stop()
	for _, by := range []session.Transport{session.TransportTCP, session.TransportQUIC} {
		for _, who := range []string{"nas", "plain"} {
			c := newClient(t, t.TempDir(), client.Options{TLS: p.pair(who), Transport: by, Streams: 1})
			u := s.plain(t, who)
			u.Host = "localhost"
			_, err := c.SendStream(t.Context(), strings.NewReader(who), u, client.Transfer{})
			require.NoError(t, err)
			back := filepath.Join(t.TempDir(), "back")
			_, err = c.Get(t.Context(), []session.URL{u}, back, client.Transfer{})
			require.NoError(t, err)
			got, err := os.ReadFile(back)
			require.NoError(t, err)
			require.Equal(t, who, string(got))
		}
	}
	later, err := os.ReadFile(p.at("later.pem"))
	require.NoError(t, err)
	p.write(t, "crl.pem", later)
	require.NoError(t, s.Reload(s.opt))
	_, err = newClient(t, t.TempDir(), client.Options{TLS: p.pair("plain")}).List(t.Context(), s.plain(t, ""))
	require.ErrorContains(t, err, "was revoked on ")
	_, err = newClient(t, t.TempDir(), client.Options{TLS: p.pair("nas")}).List(t.Context(), s.plain(t, ""))
	require.NoError(t, err)
}

func TestEndsSoon(t *testing.T) {
	now := time.Now()
	const day = 24 * time.Hour
	for _, test := range []struct {
		age, left time.Duration
		want      bool
	}{
		{70 * day, 20 * day, false}, {77 * day, 13 * day, true}, {90 * day, -time.Hour, true},
		{16 * time.Hour, 8 * time.Hour, false}, {19 * time.Hour, 5 * time.Hour, true},
		{0, 7 * day, false}, {6 * day, day, true},
	} {
		require.Equal(t, test.want, endsSoon(now.Add(-test.age), now.Add(test.left), now), "%v %v", test.age, test.left)
	}
	require.False(t, endsSoon(time.Time{}, time.Time{}, now))
}
