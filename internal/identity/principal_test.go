package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNameOf(t *testing.T) {
	uri := func(s string) []*url.URL {
		u, err := url.Parse(s)
		require.NoError(t, err)
		return []*url.URL{u}
	}
	cn := func(s string) pkix.Name { return pkix.Name{CommonName: s} }
	tests := []struct {
		cert x509.Certificate
		want Principal // "": refused
	}{
		{x509.Certificate{URIs: uri("spiffe://example.org/ns/nas"), DNSNames: []string{"a"}, Subject: cn("c")}, "uri:spiffe://example.org/ns/nas"},
		{x509.Certificate{DNSNames: []string{"NAS.example.org", "b"}, EmailAddresses: []string{"a@b"}, Subject: cn("c")}, "dns:nas.example.org"},
		{x509.Certificate{EmailAddresses: []string{"Ann@example.org"}, Subject: cn("c")}, "email:Ann@example.org"},
		{x509.Certificate{Subject: cn("Backup Server #2, 100 %")}, "cn:Backup%20Server%20%232,%20100%20%25"},
		{x509.Certificate{Subject: cn("Büro\n\x1b[31m")}, "cn:B%C3%BCro%0A%1B[31m"},
		{x509.Certificate{Subject: cn("ed25519:AAAA")}, "cn:ed25519:AAAA"},
		{x509.Certificate{Subject: cn("dns:nas.example.org")}, "cn:dns:nas.example.org"},
		{x509.Certificate{Subject: cn("*")}, "cn:*"},
		{x509.Certificate{}, ""},
		{x509.Certificate{DNSNames: []string{""}, Subject: cn("c")}, ""},
		{x509.Certificate{DNSNames: []string{"a b"}}, ""},
		{x509.Certificate{DNSNames: []string{"nas data=rw"}}, ""},
		{x509.Certificate{DNSNames: []string{"nas\n*"}}, ""},
		{x509.Certificate{EmailAddresses: []string{"a#@b"}}, ""},
		{x509.Certificate{URIs: uri("urn:a b#c")}, ""},
		{x509.Certificate{URIs: uri("no/scheme")}, ""},
		{x509.Certificate{Subject: cn(strings.Repeat("x", 2000))}, ""},
	}
	for _, test := range tests {
		got, err := NameOf(&test.cert)
		require.Equal(t, test.want, got)
		require.Equal(t, test.want == "", err != nil, "%v", err)
		if err == nil {
			require.NoError(t, got.check())
			require.True(t, got.IsName())
			again, err := ParseName(string(got))
			require.NoError(t, err)
			require.Equal(t, got, again)
		}
	}
}

func TestParsePrincipal(t *testing.T) {
	pin := PinOf(testKey(1))
	for text, want := range map[string]Principal{
		string(pin):                       Principal(pin),
		pin.Bare():                        Principal(pin),
		"dns:NAS.example.org":             "dns:nas.example.org",
		"uri:SPIFFE://x/y":                "uri:spiffe://x/y",
		"email:Ann@example.org":           "email:Ann@example.org",
		"cn:Backup Server":                "cn:Backup%20Server",
		"cn:Backup%20Server":              "cn:Backup%20Server",
		"cn:100%25":                       "cn:100%25",
		"":                                "",
		"*":                               "",
		"dns:":                            "",
		"dns:a b":                         "",
		"cn:100%":                         "",
		"ip:192.0.2.1":                    "",
		"nas.example.org":                 "",
		"ed25519:dns:x":                   "",
		"uri:relative":                    "",
		"dns:a#b":                         "",
		"cn:" + strings.Repeat("x", 2000): "",
	} {
		got, err := ParsePrincipal(text)
		require.Equal(t, want, got, text)
		require.Equal(t, want == "", err != nil, text)
	}
	_, err := ParsePrincipal("nas:example")
	require.ErrorContains(t, err, "expected uri:, dns:, email: or cn: and the name")
	require.Equal(t, pin.Short(), Principal(pin).Short())
	require.Equal(t, "dns:a", Principal("dns:a").Short())
}

// FuzzName: the name from any certificate is one word that reads back as itself, and is not a pin.
func FuzzName(f *testing.F) {
	f.Add(uint8(0), "spiffe://example.org/a%20b")
	f.Add(uint8(1), "nas.example.org")
	f.Add(uint8(3), "a b\n#%")
	f.Fuzz(func(t *testing.T, kind uint8, name string) {
		cert := &x509.Certificate{}
		switch kind % 4 {
		case 0:
			u, err := url.Parse(name)
			if err != nil {
				return
			}
			cert.URIs = []*url.URL{u}
		case 1:
			cert.DNSNames = []string{name}
		case 2:
			cert.EmailAddresses = []string{name}
		default:
			cert.Subject.CommonName = name
		}
		id, err := NameOf(cert)
		if err != nil {
			return
		}
		require.NoError(t, id.check())
		require.True(t, id.IsName())
		list, _, err := parseClients(string(id)+" a=rw # c", "file")
		require.NoError(t, err)
		require.Equal(t, []Client{{ID: id, Grants: Grants{"a": Read | Write}, Comment: "c"}}, list)
	})
}
