package server

import (
	"path/filepath"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
)

// TLS lets a server and its clients know each other by certificates. Clients with keys are served
// as well. The fields name PEM files, which the server reads again after they changed.
type TLS struct {
	// Cert is the certificate for clients that ask for one, followed by those of intermediate CAs.
	// "" is none.
	Cert string
	// Key is the private key of Cert.
	Key string

	// ClientCA holds the CAs that vouch for clients, or is SystemCA. "" is none: clients are known
	// by their keys only.
	ClientCA string
	// ClientCRL holds the revocation lists, in PEM or DER, one for each CA that signed a client's
	// certificate. "" checks no revocation.
	ClientCRL string
}

// errOnlyCRL rejects a revocation list without a CA.
var errOnlyCRL = session.Usage("name a CA for clients, too",
	"a revocation list needs the CA that signed it, and no CA for clients is named")

// files returns the files that are named.
func (t *TLS) files() (all []string) {
	for _, name := range []string{t.Cert, t.Key, t.ClientCA, t.ClientCRL} {
		if name != "" && name != session.SystemCA {
			all = append(all, name)
		}
	}
	return all
}

// folders returns the folders of the files and, for symlinks, those of their targets.
func (t *TLS) folders() (all []string) {
	for _, name := range t.files() {
		all = append(all, filepath.Dir(name))
		if target, err := filepath.EvalSymlinks(name); err == nil {
			all = append(all, filepath.Dir(target))
		}
	}
	return all
}

// Check reads the files. It returns the first error and the file that it is about.
func (t *TLS) Check() (file string, err error) {
	if err := session.CheckKeyPair(t.Cert, t.Key); err != nil {
		return t.Cert + t.Key, err
	}
	if t.ClientCRL != "" && t.ClientCA == "" {
		return t.ClientCRL, errOnlyCRL
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
