package tlsrecord

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/transport/auth"
	"github.com/fxfer/fxfer/internal/transport/transporttest"
)

// This package must speak TLS 1.3 with any implementation, so in these tests the other end is a
// foreign one.

// rawSocket is the Socket of a test.
type rawSocket struct{ *net.TCPConn }

func (rawSocket) Hurry() {}

func (rawSocket) Await(int) {}

// clientConfig is for an own client that accepts any server.
func clientConfig(t testing.TB) *tls.Config {
	t.Helper()
	conf, err := auth.Config{Identity: transporttest.NewKey(t)}.Client("127.0.0.1:1", transporttest.AnyKey)
	require.NoError(t, err)
	return conf
}

// serverConfig is for an own server.
func serverConfig(t testing.TB) *tls.Config {
	t.Helper()
	conf, err := auth.Config{Identity: transporttest.NewKey(t)}.Server()
	require.NoError(t, err)
	return conf
}

// plainTLS is a crypto/tls configuration, without the callbacks of auth and with tickets.
func plainTLS(t *testing.T) *tls.Config {
	t.Helper()
	cert, err := auth.Certificate(transporttest.NewKey(t))
	require.NoError(t, err)
	return &tls.Config{
		Certificates:       []tls.Certificate{cert},
		NextProtos:         []string{"other", auth.ALPN},
		InsecureSkipVerify: true, //nolint:gosec // there is no CA; keys are compared
		ClientAuth:         tls.RequireAnyClientCert,
	}
}

type peer interface {
	io.ReadWriteCloser
	CloseWrite() error
	SetDeadline(time.Time) error
}

// withServer connects an own client to a crypto/tls server.
func withServer(t *testing.T) (own *Conn, other peer) {
	l, err := tls.Listen("tcp", "127.0.0.1:0", plainTLS(t))
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
	raw, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	own = New(rawSocket{raw.(*net.TCPConn)})
	require.NoError(t, own.Client(t.Context(), clientConfig(t)))
	own.Admit()
	c := <-got
	require.NotNil(t, c)
	return own, c.(*tls.Conn)
}

// withClient connects a crypto/tls client to an own server.
func withClient(t *testing.T) (own *Conn, other peer) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	conf := serverConfig(t)
	got := make(chan *Conn, 1)
	go func() {
		c, err := acceptOwn(context.Background(), l, conf)
		if err != nil {
			c = nil
		}
		got <- c
	}()
	c, err := tls.Dial("tcp", l.Addr().String(), plainTLS(t))
	require.NoError(t, err)
	own = <-got
	require.NotNil(t, own)
	own.Admit()
	return own, c
}

// acceptOwn accepts an own server's end of a connection.
func acceptOwn(ctx context.Context, l net.Listener, conf *tls.Config) (*Conn, error) {
	raw, err := l.Accept()
	if err != nil {
		return nil, err
	}
	c := New(rawSocket{raw.(*net.TCPConn)})
	return c, c.Server(ctx, conf)
}

func TestInteropCryptoTLS(t *testing.T) {
	for name, connect := range map[string]func(*testing.T) (*Conn, peer){"client": withServer, "server": withClient} {
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

func send(c peer, seed uint64, total, most int) error {
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

func receive(c peer, seed uint64, total int) error {
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

// TestInteropAlert: crypto/tls learns why the stream ended.
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

// TestInteropOpenSSL covers every cipher suite, and key updates that the peer requests.
func TestInteropOpenSSL(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("no openssl")
	}
	dir := t.TempDir()
	cert, err := auth.Certificate(transporttest.NewKey(t))
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	require.NoError(t, err)
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))

	for _, suite := range []string{"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"} {
		t.Run(suite, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, openssl, "s_client", "-connect", l.Addr().String(), "-tls1_3", "-ciphersuites", suite,
				"-alpn", auth.ALPN, "-cert", certFile, "-key", keyFile)
			in, err := cmd.StdinPipe()
			require.NoError(t, err)
			out, err := cmd.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			defer cmd.Wait() //nolint:errcheck // it is killed
			defer cancel()
			said := bufio.NewScanner(out)
			// openssl would take a line that comes with a command as part of it. So wait until it
			// has seen the command.
			command := func(letter string) {
				fmt.Fprintln(in, letter)
				for said.Scan() {
					if strings.Contains(said.Text(), "KEYUPDATE") {
						return
					}
				}
				require.Fail(t, "openssl knows no key update", said.Err())
			}

			c, err := acceptOwn(ctx, l, serverConfig(t))
			require.NoError(t, err)
			defer c.Close()
			require.Equal(t, suite, tls.CipherSuiteName(c.State().CipherSuite))
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
