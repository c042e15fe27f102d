package session

import (
	"errors"
	"io/fs"

	"github.com/fxfer/fxfer/internal/identity"
)

// SystemCA in the place of a file is the CAs that the system trusts.
const SystemCA = identity.SystemCA

func BothOrNone(cert, key string) error {
	if (cert == "") != (key == "") {
		return Usage("name both", "a certificate and its key belong together")
	}
	return nil
}

// CertificateError is that of a file of certificates.
func CertificateError(err error) error {
	kind := KindUsage
	if errors.As(err, new(*fs.PathError)) {
		kind = KindLocalDisk
	}
	return &Error{Kind: kind, Err: err}
}
