package transport

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What this package sends must be TLS 1.3 to anyone, so here the other end is somebody else's.

func testIdentity(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	return key
}

func anyKey(ed25519.PublicKey) error { return nil }

// stranger is a plain crypto/tls configuration, without this package's callbacks and with tickets.
func stranger(t *testing.T) *tls.Config {
	t.Helper()
	cert, err := certificate(testIdentity(t))
	require.NoError(t, err)
	return &tls.Config{
		Certificates:       []tls.Certificate{cert},
		NextProtos:         []string{"other", alpn},
		InsecureSkipVerify: true, //nolint:gosec // there is no CA; keys are compared
		ClientAuth:         tls.RequireAnyClientCert,
	}
}

type stream interface {
	io.ReadWriteCloser
	CloseWrite() error
	SetDeadline(time.Time) error
}

// withServer connects an own client to a crypto/tls server.
func withServer(t *testing.T) (own *tcpConn, other stream) {
	l, err := tls.Listen("tcp", "127.0.0.1:0", stranger(t))
	require.NoError(t, err)
	defer l.Close()
	got := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = c.(*tls.Conn).Handshake()
		}
		if err != nil {
			c = nil
		}
		got <- c
	}()
	own, err = dialTCP(t.Context(), l.Addr().String(), Config{Identity: testIdentity(t)}, anyKey)
	require.NoError(t, err)
	c := <-got
	require.NotNil(t, c)
	return own, c.(*tls.Conn)
}

// withClient connects a crypto/tls client to an own server.
func withClient(t *testing.T) (own *tcpConn, other stream) {
	l, err := listenTCP("127.0.0.1:0", Config{Identity: testIdentity(t)})
	require.NoError(t, err)
	defer l.Close()
	got := make(chan *tcpConn, 1)
	go func() {
		c, err := l.Accept()
		if err == nil && c.Handshake(context.Background()) != nil {
			c = nil
		}
		got <- c
	}()
	c, err := tls.Dial("tcp", l.Addr().String(), stranger(t))
	require.NoError(t, err)
	own = <-got
	require.NotNil(t, own)
	own.Admit()
	return own, c
}

func TestInteropCryptoTLS(t *testing.T) {
	for name, connect := range map[string]func(*testing.T) (*tcpConn, stream){"client": withServer, "server": withClient} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			own, other := connect(t)
			defer own.Close()
			defer other.Close()
			require.NoError(t, own.SetDeadline(time.Now().Add(30*time.Second)))
			require.NoError(t, other.SetDeadline(time.Now().Add(30*time.Second)))
			own.out.updateAfter = 100 // so the transfer goes through many keys
			const total = 24 << 20
			errs := make(chan error, 4)
			go func() { errs <- send(own, seed, total, 1<<20) }()
			go func() { errs <- receive(other, seed, total) }()
			go func() { errs <- send(other, seed+1, total, 100_000) }()
			go func() { errs <- receive(own, seed+1, total) }()
			for range 4 {
				require.NoError(t, <-errs)
			}
		})
	}
}

func send(c stream, seed uint64, total, most int) error {
	data := rand.NewChaCha8([32]byte{byte(seed)})
	sizes := rand.New(rand.NewPCG(seed, 0))
	buf := make([]byte, most)
	for total > 0 {
		p := buf[:min(total, 1+sizes.IntN(most))]
		_, _ = data.Read(p)
		if _, err := c.Write(p); err != nil {
			return fmt.Errorf("send: %w", err)
		}
		total -= len(p)
	}
	return c.CloseWrite()
}

func receive(c stream, seed uint64, total int) error {
	data := rand.NewChaCha8([32]byte{byte(seed)})
	got, want := make([]byte, 200_000), make([]byte, 200_000)
	for {
		n, err := c.Read(got)
		_, _ = data.Read(want[:n])
		if !bytes.Equal(got[:n], want[:n]) {
			return errors.New("wrong data")
		}
		total -= n
		if errors.Is(err, io.EOF) && total == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive, %d bytes to go: %w", total, err)
		}
	}
}

// TestInteropAlert: crypto/tls understands why the stream ended.
func TestInteropAlert(t *testing.T) {
	own, other := withServer(t)
	defer own.Close()
	defer other.Close()
	own.sendAlert(alertBadRecordMAC, io.ErrUnexpectedEOF)
	_, err := other.Read(make([]byte, 1))
	require.ErrorContains(t, err, "bad record MAC")
	_, err = own.Write([]byte{1})
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// TestRefusals: what does not keep the rules of the handshake gets no stream.
func TestRefusals(t *testing.T) {
	tests := []struct {
		name   string
		change func(*tls.Config)
		client string // error of a plain client against an own server, or of an own client against a plain server
		server string
	}{
		{"TLS 1.2", func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, "protocol version", "protocol version"},
		{"other protocol", func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }, "no application protocol", "no application protocol"},
		{"no protocol", func(c *tls.Config) { c.NextProtos = nil }, "bad certificate", "does not speak"},
		{"no certificate", func(c *tls.Config) { c.Certificates = nil }, "certificate required", ""},
		{"other key", func(c *tls.Config) { c.Certificates = []tls.Certificate{ecdsaCertificate(t)} }, "", "not Ed25519"}, // a server lets its caller decide
	}
	for _, test := range tests {
		if test.client == "" {
			continue
		}
		t.Run(test.name+"/client", func(t *testing.T) {
			l, err := listenTCP("127.0.0.1:0", Config{Identity: testIdentity(t)})
			require.NoError(t, err)
			defer l.Close()
			done := make(chan error, 1)
			go func() {
				c, err := l.Accept()
				if err == nil {
					err = c.Handshake(context.Background())
				}
				done <- err
			}()
			conf := stranger(t)
			test.change(conf)
			c, err := tls.Dial("tcp", l.Addr().String(), conf)
			if err == nil { // a client learns only later what the server thinks of its certificate
				defer c.Close()
				_, err = c.Read(make([]byte, 1))
			}
			require.ErrorContains(t, err, test.client)
			require.Error(t, <-done)
		})
	}
	for _, test := range tests {
		if test.server == "" {
			continue
		}
		t.Run(test.name+"/server", func(t *testing.T) {
			conf := stranger(t)
			test.change(conf)
			l, err := tls.Listen("tcp", "127.0.0.1:0", conf)
			require.NoError(t, err)
			defer l.Close()
			done := make(chan error, 1)
			go func() {
				c, err := l.Accept()
				if err == nil {
					err = c.(*tls.Conn).Handshake()
					c.Close()
				}
				done <- err
			}()
			called := false
			_, err = dialTCP(t.Context(), l.Addr().String(), Config{Identity: testIdentity(t)}, func(ed25519.PublicKey) error {
				called = true
				return nil
			})
			require.ErrorContains(t, err, test.server)
			require.Error(t, <-done)
			require.False(t, called)
		})
	}
}

func ecdsaCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(crand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestInteropOpenSSL goes through every cipher suite and through key updates asked for by the peer.
func TestInteropOpenSSL(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("no openssl")
	}
	dir := t.TempDir()
	cert, err := certificate(testIdentity(t))
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	require.NoError(t, err)
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))

	for _, suite := range []string{"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"} {
		t.Run(suite, func(t *testing.T) {
			l, err := listenTCP("127.0.0.1:0", Config{Identity: testIdentity(t)})
			require.NoError(t, err)
			defer l.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, openssl, "s_client", "-connect", l.Addr().String(), "-tls1_3", "-ciphersuites", suite,
				"-alpn", alpn, "-cert", certFile, "-key", keyFile)
			in, err := cmd.StdinPipe()
			require.NoError(t, err)
			out, err := cmd.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			defer cmd.Wait() //nolint:errcheck // it is killed
			defer cancel()
			said := bufio.NewScanner(out)
			// A line that comes with a command is taken for a part of it, so wait until openssl has seen the command.
			command := func(letter string) {
				fmt.Fprintln(in, letter)
				for said.Scan() {
					if strings.Contains(said.Text(), "KEYUPDATE") {
						return
					}
				}
				require.Fail(t, "openssl knows no key update", said.Err())
			}

			c, err := l.Accept()
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.Handshake(ctx))
			require.Equal(t, suite, tls.CipherSuiteName(c.state.CipherSuite))
			require.NoError(t, c.SetDeadline(time.Now().Add(15*time.Second)))

			var got strings.Builder
			p := make([]byte, 4096)
			readUntil := func(text string) {
				for !strings.Contains(got.String(), text) {
					n, err := c.Read(p)
					got.Write(p[:n])
					require.NoError(t, err)
				}
			}
			ours, theirs := c.out.secret, c.in.secret
			fmt.Fprintln(in, "before")
			readUntil("before")
			command("K") // a key update that asks for ours
			fmt.Fprintln(in, "after")
			readUntil("after")
			require.NotEqual(t, theirs, c.in.secret)
			_, err = c.Write([]byte("under a new key\n"))
			require.NoError(t, err)
			require.NotEqual(t, ours, c.out.secret)
			command("k") // one that does not
			fmt.Fprintln(in, "again")
			readUntil("again")
			fmt.Fprintln(in, "Q")
			_, err = c.Read(p)
			require.Equal(t, io.EOF, err)
		})
	}
}
