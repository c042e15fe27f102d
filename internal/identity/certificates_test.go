package identity

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity/testca"
	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	root, other := testca.New(t, "Root"), testca.New(t, "Other")
	middle := root.Issue(t, testca.Authority("Middle"), "rsa")
	leaf := middle.Issue(t, testca.Server(), "ecdsa")
	alone := root.Issue(t, testca.Server(), "ed25519")
	plain := testca.Server()
	plain.ExtKeyUsage = nil
	unlimited := root.Issue(t, plain, "rsa")
	client := root.Issue(t, testca.Client("nas"), "ecdsa")
	self := (*testca.CA)(nil).Issue(t, testca.Server(), "ed25519")
	past, future, nameless := testca.Server(), testca.Server(), testca.Server()
	past.NotAfter = time.Now().Add(-time.Minute)
	future.NotBefore = time.Now().Add(time.Hour / 2)
	nameless.DNSNames, nameless.IPAddresses = nil, nil
	old := testca.Authority("Old")
	old.NotAfter = time.Now().Add(-time.Minute)
	withered := root.Issue(t, old, "ecdsa").Issue(t, testca.Server(), "ecdsa")
	narrow := testca.Authority("Narrow")
	narrow.PermittedDNSDomains, narrow.PermittedDNSDomainsCritical = []string{"example.org"}, true
	outside := root.Issue(t, narrow, "ecdsa").Issue(t, testca.Server(), "ecdsa")

	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, append([]byte("# ours\n"), testca.PEM(root.Cert)...), 0o600))
	a, err := OpenAuthorities(file, "", nil)
	require.NoError(t, err)
	const server, anyClient = x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	for name, test := range map[string]struct {
		chain []*x509.Certificate
		use   x509.ExtKeyUsage
		host  string
		want  string // in the problem, "" for none
	}{
		"by an intermediate": {leaf.Chain(), server, "localhost", ""},
		"by its address":     {leaf.Chain(), server, "127.0.0.1", ""},
		"by the root":        {alone.Chain(), server, "LOCALHOST", ""},
		"with the root":      {append(leaf.Chain(), root.Cert), server, "localhost", ""},
		"no usage":           {unlimited.Chain(), anyClient, "", ""},
		"client":             {client.Chain(), anyClient, "", ""},
		"other host":         {leaf.Chain(), server, "example.org", "is for localhost, 127.0.0.1, not for example.org"},
		"other address":      {leaf.Chain(), server, "127.0.0.2", "is for localhost, 127.0.0.1, not for 127.0.0.2"},
		"no host":            {root.Issue(t, nameless, "ecdsa").Chain(), server, "server", "names no DNS name and no address"},
		"expired":            {root.Issue(t, past, "ecdsa").Chain(), server, "localhost", "expired on "},
		"not yet":            {root.Issue(t, future, "ecdsa").Chain(), server, "localhost", "is not valid before "},
		"expired CA":         {withered.Chain(), server, "localhost", `is signed by "CN=Old", whose certificate expired on `},
		"other CA":           {other.Issue(t, testca.Server(), "ecdsa").Chain(), server, "localhost", `is signed by "CN=Other", which leads to no CA that is trusted here`},
		"self-signed":        {self.Chain(), server, "localhost", "signed itself"},
		"no intermediate":    {leaf.Chain()[:1], server, "localhost", `is signed by "CN=Middle", which leads to no CA`},
		"client as a server": {client.Chain(), server, "nas", "is not for servers: its extended key usage lacks serverAuth"},
		"server as a client": {leaf.Chain(), anyClient, "", "is not for clients: its extended key usage lacks clientAuth"},
		"name constraint":    {outside.Chain(), server, "localhost", "is refused: "},
		"more than a way":    {append(leaf.Chain(), root.Cert, root.Cert, root.Cert), server, "localhost", "comes with 4 others, more than 3"},
		"nothing":            {nil, server, "localhost", "comes with"},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := a.Now().Check(test.chain, test.use, test.host, time.Now())
			if test.want == "" {
				require.NoError(t, err)
				require.Equal(t, root.Cert, path[len(path)-1])
				return
			}
			var bad *CertificateError
			require.ErrorAs(t, err, &bad)
			require.Contains(t, bad.Problem, test.want)
		})
	}
	mine, err := OpenAuthorities(SystemCA, "", nil)
	require.NoError(t, err)
	_, err = mine.Now().Check(leaf.Chain(), server, "localhost", time.Now())
	require.ErrorContains(t, err, "leads to no CA")
}

// A CA with name constraints vouches for no kind of name that they leave free.
func TestNameConstraints(t *testing.T) {
	root := testca.New(t, "Root")
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, testca.PEM(root.Cert), 0o600))
	a, err := OpenAuthorities(file, "", nil)
	require.NoError(t, err)
	limited := func(set func(*x509.Certificate)) *testca.CA {
		template := testca.Authority("Limited")
		set(template)
		return root.Issue(t, template, "ecdsa")
	}
	byDNS := limited(func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"ok.example"} })
	byURI := limited(func(c *x509.Certificate) { c.PermittedURIDomains = []string{"ok.example"} })
	byEmail := limited(func(c *x509.Certificate) { c.ExcludedEmailAddresses = []string{"corp.example"} })
	byAddress := limited(func(c *x509.Certificate) {
		c.PermittedIPRanges = []*net.IPNet{{IP: net.IP{10, 0, 0, 0}, Mask: net.CIDRMask(8, 32)}}
	})
	below := testca.Authority("Below") // a CA cannot free itself by a CA of its own
	below.PermittedURIDomains = []string{"corp"}
	freed := byDNS.Issue(t, below, "ecdsa")
	byFolder := limited(func(c *x509.Certificate) { // permitted directory names, which Go does not check
		c.ExtraExtensions = []pkix.Extension{{Id: nameConstraints, Value: []byte{0x30, 0x08, 0xa0, 0x06, 0x30, 0x04, 0xa4, 0x02, 0x30, 0x00}}}
	})
	uri := func(s string) *x509.Certificate {
		u, err := url.Parse(s)
		require.NoError(t, err)
		return &x509.Certificate{URIs: []*url.URL{u}}
	}
	both := uri("spiffe://corp/victim")
	both.DNSNames = []string{"a.ok.example"}
	name := func(dns string) *x509.Certificate { return &x509.Certificate{DNSNames: []string{dns}} }
	email := func(at string) *x509.Certificate { return &x509.Certificate{EmailAddresses: []string{at}} }
	common := func() *x509.Certificate { return &x509.Certificate{Subject: pkix.Name{CommonName: "victim.example"}} }
	server := func(ip byte) *x509.Certificate {
		return &x509.Certificate{IPAddresses: []net.IP{{ip, 0, 0, 1}}, DNSNames: []string{"a.ok.example"}}
	}
	for what, test := range map[string]struct {
		ca   *testca.CA
		leaf *x509.Certificate
		host string // "" for a client
		good bool
	}{
		"free common name":       {root, common(), "", true},
		"free URI":               {root, uri("spiffe://corp/victim"), "", true},
		"free address":           {root, server(192), "192.0.0.1", true},
		"DNS inside":             {byDNS, name("a.ok.example"), "", true},
		"DNS outside":            {byDNS, name("victim.example"), "", false},
		"URI beside DNS":         {byDNS, uri("spiffe://corp/victim"), "", false},
		"URI before its own DNS": {byDNS, both, "", false},
		"email beside DNS":       {byDNS, email("boss@corp.example"), "", false},
		"common name beside DNS": {byDNS, common(), "", false},
		"address beside DNS":     {byDNS, server(192), "192.0.0.1", false},
		"server's DNS":           {byDNS, server(192), "a.ok.example", true},
		"URI inside":             {byURI, uri("spiffe://ok.example/a"), "", true},
		"URI outside":            {byURI, uri("spiffe://corp/victim"), "", false},
		"DNS beside URI":         {byURI, name("victim.example"), "", false},
		"URI by a CA below":      {freed, uri("spiffe://corp/victim"), "", false},
		"email that is free":     {byEmail, email("nas@ok.example"), "", true},
		"email excluded":         {byEmail, email("boss@corp.example"), "", false},
		"common name, email":     {byEmail, common(), "", false},
		"address inside":         {byAddress, server(10), "10.0.0.1", true},
		"address outside":        {byAddress, server(192), "192.0.0.1", false},
		"common name, directory": {byFolder, common(), "", false},
	} {
		t.Run(what, func(t *testing.T) {
			use := x509.ExtKeyUsageClientAuth
			if test.host != "" {
				use = x509.ExtKeyUsageServerAuth
			}
			template := *test.leaf
			template.ExtKeyUsage = []x509.ExtKeyUsage{use}
			_, err := a.Now().Check(test.ca.Issue(t, &template, "ecdsa").Chain(), use, test.host, time.Now())
			if test.good {
				require.NoError(t, err)
			} else {
				require.Error(t, err)
			}
		})
	}
}

func TestRevoked(t *testing.T) {
	root, twin := testca.New(t, "Root"), testca.New(t, "Root")
	middle := root.Issue(t, testca.Authority("Middle"), "ecdsa")
	good, bad := middle.Issue(t, testca.Client("good"), "ecdsa"), middle.Issue(t, testca.Client("bad"), "ecdsa")
	direct := root.Issue(t, testca.Client("direct"), "ecdsa")
	dir := t.TempDir()
	ca, crl := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "crl")
	require.NoError(t, os.WriteFile(ca, testca.PEM(root.Cert), 0o600))
	text := func(ders ...[]byte) (all []byte) {
		for _, der := range ders {
			all = append(all, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})...)
		}
		return all
	}
	open := func(list []byte) (*Authorities, error) {
		require.NoError(t, os.WriteFile(crl, list, 0o600))
		return OpenAuthorities(ca, crl, nil)
	}
	check := func(list []byte, leaf *testca.CA, want string) {
		t.Helper()
		a, err := open(list)
		require.NoError(t, err)
		_, err = a.Now().Check(leaf.Chain(), x509.ExtKeyUsageClientAuth, "", time.Now())
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
	mine := middle.Revoke(t, time.Hour, bad.Cert)
	check(mine, good, "") // DER
	check(text(mine), good, "")
	check(text(mine), bad, "was revoked on ")
	check(text(mine), direct, `there is no revocation list of "CN=Root"`)
	check(text(mine, root.Revoke(t, time.Hour)), direct, "")
	check(text(mine, root.Revoke(t, time.Hour, direct.Cert)), direct, "was revoked on ")
	check(text(mine, root.Revoke(t, time.Hour, middle.Cert)), good, `is signed by "CN=Middle", whose certificate was revoked on `)
	check(text(root.Revoke(t, time.Hour)), good, `there is no revocation list of "CN=Middle"`)
	check(text(middle.Revoke(t, -time.Minute)), good, `the revocation list of "CN=Middle" ended on `)
	check(text(middle.Revoke(t, -time.Minute), middle.Revoke(t, time.Hour)), good, "")
	check(text(middle.Revoke(t, -time.Minute, bad.Cert), middle.Revoke(t, time.Hour)), bad, "was revoked on ")
	a, err := open(text(mine))
	require.NoError(t, err)
	from, until := a.Now().ListExpiry()
	require.True(t, from.Before(time.Now()) && until.After(time.Now()))

	// A list that somebody else signed is refused when it is read, or does not count.
	_, err = open(text(twin.Revoke(t, time.Hour)))
	require.ErrorContains(t, err, `revocation list 1: "CN=Root" has not signed it`)
	check(text(testca.New(t, "Middle").Revoke(t, time.Hour, good.Cert)), good, `there is no revocation list of "CN=Middle"`)
	_, err = open([]byte("nonsense"))
	require.ErrorContains(t, err, "crl: revocation list 1: ")
	_, err = open(nil)
	require.Error(t, err)
}

// TestPartialLists: a list that covers only some certificates says nothing about the others.
func TestPartialLists(t *testing.T) {
	root := testca.New(t, "Root")
	point, err := asn1.Marshal(struct {
		Point asn1.RawValue
	}{asn1.RawValue{Class: 2, Tag: 0, IsCompound: true, Bytes: []byte{0xa0, 5, 0x86, 3, 'a', ':', 'b'}}})
	require.NoError(t, err)
	for name, test := range map[string]struct {
		id    asn1.ObjectIdentifier
		value []byte
		want  string
	}{
		"all":        {distributionID, []byte{0x30, 0}, ""},
		"of a place": {distributionID, point, ""},
		"users":      {distributionID, []byte{0x30, 3, 0x81, 1, 0xff}, ""},
		"CAs":        {distributionID, []byte{0x30, 3, 0x82, 1, 0xff}, "a part of the certificates only"},
		"reasons":    {distributionID, []byte{0x30, 4, 0x83, 2, 1, 2}, "a part of the certificates only"},
		"indirect":   {distributionID, []byte{0x30, 3, 0x84, 1, 0xff}, "a part of the certificates only"},
		"attributes": {distributionID, []byte{0x30, 3, 0x85, 1, 0xff}, "a part of the certificates only"},
		"damaged":    {distributionID, []byte{0x30, 3, 0x85}, "damaged"},
		"delta":      {asn1.ObjectIdentifier{2, 5, 29, 27}, []byte{2, 1, 1}, "critical extension 2.5.29.27"},
	} {
		t.Run(name, func(t *testing.T) {
			der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
				Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour),
				ExtraExtensions: []pkix.Extension{{Id: test.id, Critical: true, Value: test.value}},
			}, root.Cert, root.Key)
			require.NoError(t, err)
			_, err = parseRevocations("crl", der, []*x509.Certificate{root.Cert})
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
			}
		})
	}
}

func TestKeyPair(t *testing.T) {
	root := testca.New(t, "Root")
	dir := t.TempDir()
	for _, kind := range []string{"rsa", "ecdsa", "ed25519"} {
		cert, key := root.Issue(t, testca.Authority("Middle"), "ecdsa").Issue(t, testca.Server(), kind).Write(t, dir, kind)
		pair, err := OpenKeyPair(cert, key, nil)
		require.NoError(t, err)
		require.Len(t, pair.Certificate().Certificate, 2)
		require.Equal(t, "server", pair.Certificate().Leaf.Subject.CommonName)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	long := testca.Server()
	for range 700 {
		long.DNSNames = append(long.DNSNames, "a.long.name.of.a.host.example.org")
	}
	root.Issue(t, long, "ecdsa").Write(t, dir, "long")
	deep := root
	for range 5 {
		deep = deep.Issue(t, testca.Authority("deep"), "ecdsa")
	}
	deep.Write(t, dir, "deep")
	weak, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // too short for us, too
	require.NoError(t, err)
	template := testca.Server()
	template.SerialNumber, template.IPAddresses = big.NewInt(1), []net.IP{}
	der, err := x509.CreateCertificate(rand.Reader, template, root.Cert, weak.Public(), root.Key)
	require.NoError(t, err)
	put := func(name, kind string, der []byte) {
		require.NoError(t, os.WriteFile(at(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	}
	put("weak.crt", "CERTIFICATE", der)
	put("weak.key", "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(weak))
	put("secret.key", "ENCRYPTED PRIVATE KEY", []byte("x"))
	put("broken.crt", "CERTIFICATE", []byte("x"))
	require.NoError(t, os.WriteFile(at("empty"), nil, 0o600))
	for _, test := range [][3]string{
		{"rsa.crt", "ecdsa.key", "private key"},
		{"rsa.key", "rsa.key", "rsa.key has no PEM block CERTIFICATE"},
		{"broken.crt", "rsa.key", "broken.crt: certificate 1: "},
		{"empty", "rsa.key", "empty has no PEM block CERTIFICATE"},
		{"rsa.crt", "empty", "empty has no PEM block"},
		{"rsa.crt", "secret.key", "secret.key is encrypted"},
		{"weak.crt", "weak.key", "an RSA key of 1024 bits: expected 2048 or more"},
		{"long.crt", "long.key", "a handshake has room for 4 of 14336 bytes"},
		{"deep.crt", "deep.key", "has 5 certificates of "},
		{"none.crt", "rsa.key", "no such file"},
		{"rsa.crt", ".", "is not a regular file"},
	} {
		_, err := OpenKeyPair(at(test[0]), at(test[1]), nil)
		require.ErrorContains(t, err, test[2])
	}
}

// TestRenewal: files that cannot be used keep the previous value, and are reported once.
func TestRenewal(t *testing.T) {
	root := testca.New(t, "Root")
	dir := t.TempDir()
	cert, key := root.Issue(t, testca.Server(), "ecdsa").Write(t, dir, "x")
	var told []error
	pair, err := OpenKeyPair(cert, key, func(err error) { told = append(told, err) })
	require.NoError(t, err)
	first := pair.Certificate()
	pair.Renew()
	require.Same(t, first, pair.Certificate())
	require.Empty(t, told)

	next := root.Issue(t, testca.Server(), "rsa")
	require.NoError(t, os.WriteFile(cert, testca.PEM(next.Chain()...), 0o600)) // the key is not there yet
	pair.Renew()
	pair.Renew()
	require.Same(t, first, pair.Certificate())
	require.Len(t, told, 1)
	require.ErrorContains(t, told[0], "private key")
	require.NoError(t, os.Remove(key))
	pair.Renew()
	require.Same(t, first, pair.Certificate())
	require.Len(t, told, 2)

	next.Write(t, dir, "x")
	pair.Renew()
	require.Equal(t, next.Cert.Raw, pair.Certificate().Certificate[0])
	require.Len(t, told, 3)
	require.NoError(t, told[2])

	// This happens without a call of Renew, at most lookEvery later.
	last := root.Issue(t, testca.Server(), "ecdsa")
	last.Write(t, dir, "x")
	pair.files.mu.Lock()
	pair.files.looked = time.Now().Add(-lookEvery)
	pair.files.mu.Unlock()
	require.Equal(t, last.Cert.Raw, pair.Certificate().Certificate[0])
	require.Len(t, told, 4)
}
