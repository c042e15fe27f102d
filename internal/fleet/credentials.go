package fleet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/fxfer/fxfer/internal/identity"
)

// serverName is in the controller's certificate, whatever its address is: members expect this
// certificate and no other.
const serverName = "fxfer-fleet"

// Credentials admit a member to a fleet: whoever has them can submit jobs and take tasks.
type Credentials struct {
	Version     int    `json:"version"`
	Certificate string `json:"certificate"` // of the controller, PEM
	Seed        string `json:"seed"`        // of the members' key (NKey)
}

// LoadCredentials reads a file that the controller made.
func LoadCredentials(file string) (*Credentials, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c, err := decode[Credentials](text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if _, err := c.tls(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if _, _, err := c.key(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// tls returns what a member connects with.
func (c *Credentials) tls() (*tls.Config, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(c.Certificate)) {
		return nil, errors.New("the file has no certificate")
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: serverName}, nil
}

// key returns the members' public key, and what signs with the secret one.
func (c *Credentials) key() (public string, sign func([]byte) ([]byte, error), err error) {
	pair, err := nkeys.FromSeed([]byte(c.Seed))
	if err != nil {
		return "", nil, err
	}
	public, err = pair.PublicKey()
	return public, pair.Sign, err
}

// CredentialsFile is where a controller with this folder has the credentials of its members.
func CredentialsFile(dir string) string { return filepath.Join(dir, "credentials.json") }

// controllerKeys loads the keys of a controller, or makes them the first time. The secret key of its
// certificate never leaves its folder.
func controllerKeys(dir string) (*Credentials, tls.Certificate, error) {
	keyFile := filepath.Join(dir, "controller.key")
	c, err := LoadCredentials(CredentialsFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		c, err = makeKeys(dir, keyFile)
	}
	if err != nil {
		return nil, tls.Certificate{}, err
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair([]byte(c.Certificate), key)
	return c, pair, err
}

// makeKeys makes the files of a new controller. The credentials come last, so that they are there only
// if everything is.
func makeKeys(dir, keyFile string) (*Credentials, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	about := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: serverName}, DNSNames: []string{serverName},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(20, 0, 0), // members pin it
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	member, err := nkeys.CreateUser()
	if err != nil {
		return nil, err
	}
	seed, err := member.Seed()
	if err != nil {
		return nil, err
	}
	c := &Credentials{
		Version: Version, Seed: string(seed),
		Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})),
	}
	if err := identity.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, err
	}
	return c, identity.WriteFile(CredentialsFile(dir), append(text, '\n'), 0o600)
}
