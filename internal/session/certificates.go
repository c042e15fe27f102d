package session

import (
	"errors"
	"io/fs"

	"github.com/fxfer/fxfer/internal/identity"
)

// SystemCA in the place of a file stands for the CAs that the system trusts.
const SystemCA = identity.SystemCA

// CheckKeyPair rejects a certificate file without a key file, and a key file without a certificate
// file.
func CheckKeyPair(cert, key string) error {
	if (cert == "") != (key == "") {
		return Usage("name both", "a certificate and its key belong together")
	}
	return nil
}

// CertificateFileError gives an error of reading certificates its kind: KindLocalDisk if the file
// could not be read, KindUsage if its content is wrong.
func CertificateFileError(err error) error {
	kind := KindUsage
	if errors.As(err, new(*fs.PathError)) {
		kind = KindLocalDisk
	}
	return &Error{Kind: kind, Err: err}
}
