package server

import (
	"path/filepath"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
)

// TLS lets a server and clients know each other by certificates, beside those that know each other by keys. It names files, PEM, which are read again
// when they have changed.
type TLS struct {
	Cert string // of the certificate that clients get that ask for one, with those of intermediate CAs behind it; "" is none
	Key  string // of its private key

	ClientCA  string // of the CAs that vouch for clients, or SystemCA; "" is none: clients are known by their keys
	ClientCRL string // what these have revoked, for each CA that has signed a client's certificate, PEM or DER; "" is not asked
}

// files are those that are named.
func (t *TLS) files() (all []string) {
	for _, name := range []string{t.Cert, t.Key, t.ClientCA, t.ClientCRL} {
		if name != "" && name != session.SystemCA {
			all = append(all, name)
		}
	}
	return all
}

// folders are where the files are, and where they are if they are symlinks.
func (t *TLS) folders() (all []string) {
	for _, name := range t.files() {
		all = append(all, filepath.Dir(name))
		if target, err := filepath.EvalSymlinks(name); err == nil {
			all = append(all, filepath.Dir(target))
		}
	}
	return all
}

// Check reads the files and says what is wrong with them, and in which.
func (t *TLS) Check() (file string, err error) {
	if err := session.CheckKeyPair(t.Cert, t.Key); err != nil {
		return t.Cert + t.Key, err
	}
	if t.ClientCRL != "" && t.ClientCA == "" {
		return t.ClientCRL, session.Usage("name them", "revoked certificates are those of clients' CAs, and there are none")
	}
	if t.Cert != "" {
		if _, err := identity.OpenKeyPair(t.Cert, t.Key, nil); err != nil {
			return t.Cert, session.CertificateFileError(err)
		}
	}
	if t.ClientCA != "" {
		if _, err := identity.OpenAuthorities(t.ClientCA, "", nil); err != nil {
			return t.ClientCA, session.CertificateFileError(err)
		}
	}
	if t.ClientCRL != "" {
		if _, err := identity.OpenAuthorities(t.ClientCA, t.ClientCRL, nil); err != nil {
			return t.ClientCRL, session.CertificateFileError(err)
		}
	}
	return "", nil
}

// endsSoon tells whether it is time to say that what is valid from one time until another ends: in its last 14 days, or in its last quarter if that is
// shorter, as of certificates that are good for a day.
func endsSoon(from, until, now time.Time) bool {
	return !until.IsZero() && until.Sub(now) < min(14*24*time.Hour, until.Sub(from)/4)
}
